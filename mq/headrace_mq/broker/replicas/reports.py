"""
What a broker of a group reports to the record, now and then: that it runs, and how far its logs are.

    every REPORT_MS ─▶ one row of the database ─▶ `headrace cluster status`, and which brokers the group has

Nothing is decided by a report: it may be old. Used by `replicated_broker`, in the task that reads the record, and by
`followers`.
"""

from collections.abc import Collection, Set

from headrace_mq._runtime.clock import Clock
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.operations import REPORT_MS
from headrace_mq.cluster.record import Identity, LogPlace, RecordKeeper

__all__ = ["Reports", "without_removed"]


def without_removed(
    known: Set[Identity], alive: Set[Identity], names: Collection[str] | None
) -> set[Identity]:
    """Returns the brokers that a leader still counts: not those that an operator has removed.

    Args:
        known: those that ever asked it, or are in sync.
        alive: those that are in sync, or were heard a moment ago; a new one may not have reported yet.
        names: of those that have reported and were not removed; None: not known, so all are counted.
    """
    return {one for one in known if names is None or one.name in names or one in alive}


class Reports:
    """When a broker reports, and what.

    Args:
        logs: of its store.
        keeper: of the group's record.
        clock: the time.

    Attributes:
        names: the brokers that have reported and were not removed; None before the first report.
    """

    def __init__(self, logs: StoreLogs, keeper: RecordKeeper, clock: Clock) -> None:
        self._logs = logs
        self._keeper = keeper
        self._clock = clock
        self._due_ms = 0
        self.names: frozenset[str] | None = None

    async def report(self, me: Identity) -> None:
        """Reports, if it is time to.

        Raises:
            RecordUnavailable: no answer in time; the next call tries again.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._due_ms:
            return
        self.names = await self._keeper.register(me, self._places())
        self._due_ms = now_ms + REPORT_MS

    def _places(self) -> list[LogPlace]:
        ends = {name: log.durable for name, log in self._logs.by_name.items()}
        return [
            LogPlace(name, self._logs.epochs.of(name).last(end), end) for name, end in ends.items()
        ]
