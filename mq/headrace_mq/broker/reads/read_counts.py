"""
What a replica counts of the reads that it serves: for the quotas of clients and topics, and for its metrics.

    read ─▶ hold: a quota is used up? ─▶ waits │ served ─▶ room: as much as the quotas have room for ─▶ note

The quotas are those of the group, in `limits.json`, and the defaults of this broker's settings. Each broker counts what it gives
itself. Used by `replica_reads`, and by the metrics of the process.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from pathlib import Path

from headrace_mq._net.server import Connection
from headrace_mq._runtime.clock import Clock
from headrace_mq.broker.metadata import limits_file
from headrace_mq.broker.quotas.limits import quotas_in
from headrace_mq.broker.quotas.quotas import FETCH, Demand, QuotaTarget, Room, quotas_of
from headrace_mq.broker.quotas.throttle import Held, Throttle, WaitLine
from headrace_mq.broker.quotas.traffic import Meters
from headrace_mq.errors import BrokerError
from headrace_mq.message import QueueRef
from headrace_mq.metrics.histogram import Histogram
from headrace_mq.protocol.limits import CLIENT, TOPIC
from headrace_mq.settings import BrokerSettings

__all__ = ["ReadCounts"]

# Counts without traffic are looked for so often.
_IDLE_MS = 60_000


class ReadCounts:
    """The reads of one process as a replica.

    Args:
        settings: of the broker.
        clock: the time.

    Attributes:
        fetched: what readers were given, by queue.
        fetch_times: how long the broker worked on each answer with messages.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self._settings = settings
        self._directory: Path = settings.store.directory
        self._clock = clock
        self._quotas = quotas_of(settings)
        self._is_known = False
        self._looked_ms = clock.monotonic_ms()
        self.fetched: Meters[QueueRef] = Meters(name_of=lambda queue: queue.topic)
        self.fetch_times = Histogram()

    @cached_property
    def throttle(self) -> Throttle:
        """The reads that wait for a quota."""
        return Throttle(
            asyncio.get_running_loop(),
            self._clock,
            wait_ms_max=self._settings.throttle_ms_max,
            held_max=self._settings.parked_fetches_max,
        )

    def changed(self) -> None:
        """The leader has replaced the limits."""
        self._is_known = False

    def _limited(self) -> bool:
        """Whether there is any quota.

        Raises:
            DataCorrupt, FormatTooNew: the file of limits cannot be used.
        """
        if not self._is_known:
            self._quotas.replace(quotas_in(limits_file(self._directory).read()))
            self._is_known = True
            # What waits for a quota that is gone need not wait any more.
            self.throttle.look()
        return self._quotas.active

    def hold(
        self,
        connection: Connection,
        number: int,
        topics: Collection[str],
        go: Callable[[], None],
        refuse: Callable[[BrokerError], None],
    ) -> bool:
        """Holds a read while an earlier one is not paid off; returns False if it may be served now.

        Args:
            connection: of the client.
            number: of the request.
            topics: that it names, of those that are there.
            go: serves it when it may pass.
            refuse: answers it if it has waited too long.

        Raises:
            Throttled: too many reads wait already.
            DataCorrupt, FormatTooNew: the file of limits cannot be used.
        """
        if not self._limited():
            return False
        now_ms = self._clock.monotonic_ms()
        flows = self._quotas.flows(_targets(connection, topics), FETCH, now_ms)
        held = Held(
            [Demand(flow) for flow in flows], lambda _: go(), lambda error, _: refuse(error)
        )
        return self.throttle.hold(WaitLine(connection, number, connection.client_id), held)

    def room(self, connection: Connection, topics: Iterable[str]) -> Room | None:
        """Returns how much an answer may bring without a debt; None: there is no quota."""
        if not self._quotas.active:
            return None
        return self._quotas.room(_targets(connection, topics), self._clock.monotonic_ms())

    def note(self, connection: Connection, queue: QueueRef, messages: int, size: int) -> None:
        """Counts what an answer brings of one queue."""
        now_ms = self._clock.monotonic_ms()
        self.fetched.add(queue, now_ms, messages, size)
        if now_ms - self._looked_ms >= _IDLE_MS:
            self._looked_ms = now_ms
            self.fetched.forget_idle(now_ms)
            self._quotas.forget_idle(now_ms)
        if self._quotas.active:
            for flow in self._quotas.flows(_targets(connection, [queue.topic]), FETCH, now_ms):
                flow.charge(now_ms, messages, size)

    def forget(self, connection: Connection) -> None:
        """Drops the reads of a closed connection that wait."""
        self.throttle.drop(connection)

    def forget_topics(self, is_known: Callable[[str], bool]) -> None:
        """Drops the counts of deleted topics."""
        self.fetched.forget_names(is_known)


def _targets(connection: Connection, topics: Iterable[str]) -> list[QuotaTarget]:
    return [
        QuotaTarget(CLIENT, connection.host),
        *(QuotaTarget(TOPIC, topic) for topic in topics),
    ]
