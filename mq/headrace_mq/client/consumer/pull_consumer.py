"""
Reads queues that you choose, from the offsets that you choose.

For applications that do not want a group to divide the queues. With a group it begins at the offsets
of the group and may commit; without a group it stores nothing on the broker.

    connection lost ─▶ queues stand still ─▶ of each topic: has its group of brokers lost messages meanwhile?
                                             no: they go on · yes: from where other messages stand now
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from headrace_mq._net.link import LinkSettings
from headrace_mq._runtime.async_block import AsyncBlock
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.fetch.assigned_queues import AssignedQueues, limits_of
from headrace_mq.client.fetch.damage import DamageLog
from headrace_mq.client.fetch.delivery import RecordDelivery
from headrace_mq.client.fetch.fetcher import Fetcher, GroupFilters
from headrace_mq.client.fetch.queue_priorities import urgency_of
from headrace_mq.client.fetch.spread_fetcher import fetcher_for
from headrace_mq.client.fetch.start_offsets import (
    KeptOffset,
    TopicIdentities,
    find_starts,
    offsets_at,
)
from headrace_mq.client.group.locks import QueueLocks
from headrace_mq.client.names import client_id_of
from headrace_mq.client.spread.spread_link import SpreadLink, link_to
from headrace_mq.errors import (
    Closed,
    MessageQueueError,
    NotLeader,
    NotPermitted,
    TopicNotFound,
)
from headrace_mq.filters.filter import filters_of
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.bodies import CommitOffsets, CommittedOffset, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

__all__ = ["PullConsumer"]

# Pause before brokers that did not answer are asked again what they hold.
LOOK_PAUSE_MS = 1_000

_log = get_logger(__name__)


class PullConsumer(AsyncBlock):
    """A reader of chosen queues; use it in an `async with` block, from one task.

    Args:
        address: the broker's `host:port`.
        group: begin at this group's offsets, and commit for it; it must have no members. Empty:
            begin where the settings say, and commit nothing.
        settings: limits and times.
        filters: a condition for each topic, as in the mapping that `Consumer` takes.
        clock: the time.

    Attributes:
        epochs: by queue, that of its brokers, if you keep positions yourself. Take it when `fetch` returns the records, not when you
            are done with them; then `assign` can begin at a `KeptOffset`.
    """

    def __init__(
        self,
        address: str,
        *,
        group: str = "",
        settings: ConsumerSettings | None = None,
        filters: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._group = group
        self._asking = GroupFilters(group, filters_of(filters or {}))
        self._settings = settings or ConsumerSettings()
        self._clock = clock or SystemClock()
        self._link = link_to(
            address,
            client_id=client_id_of(self._settings.name),
            settings=LinkSettings.of(self._settings),
            on_ready=self._pull_soon,
            on_down=self._doubt,
            patient=True,
        )
        self._identities = TopicIdentities(self._link, timeout_ms=self._settings.request_timeout_ms)
        self._epochs: dict[QueueRef, int] = {}
        self.epochs: Mapping[QueueRef, int] = self._epochs
        # By topic: one that cannot be asked about holds back no other.
        self._looking: dict[str, asyncio.Task[None]] = {}
        # How often a connection was lost.
        self._doubts = 0
        self._shares = AssignedQueues(limits_of(self._settings), urgency_of(self._settings))
        # No group divides these queues, so there is nothing to lock.
        locks = QueueLocks(self._link, group=group, settings=self._settings, clock=self._clock)
        self._delivering = RecordDelivery(
            self._shares, locks, on_room=self._pull_soon, on_stale=self._shares.suspend
        )
        self._fetcher: Fetcher | None = None

    async def start(self) -> None:
        """Connects. Raises ConnectionLost: no broker answered in time; says what to check."""
        self._fetcher = fetcher_for(self._link)(
            self._link,
            self._shares,
            settings=self._settings,
            clock=self._clock,
            asking=self._asking,
            on_records=self._delivering.wake,
            on_error=self._delivering.fail,
        )
        await self._link.start(self._settings.request_timeout_ms)
        self._delivering.open(self._fetcher.want)

    async def aclose(self) -> None:
        """Stops reading and closes the connection; commits nothing by itself."""
        self._delivering.close()
        if self._fetcher is not None:
            self._fetcher.stop()
        looking = list(self._looking.values())
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        await self._link.aclose()

    @property
    def assignment(self) -> frozenset[QueueRef]:
        """The queues it reads."""
        return self._shares.assigned

    @property
    def damage(self) -> DamageLog:
        """Messages that could not be read and were left out; `damage.listen` reports them at once."""
        return self._shares.damage

    async def assign(
        self,
        queues: Collection[QueueRef],
        *,
        offsets: Mapping[QueueRef, int | KeptOffset] | None = None,
    ) -> None:
        """Reads these queues from now on; queues that it read before go on where they are.

        Args:
            queues: all that it shall read.
            offsets: where new ones begin, if you keep positions yourself; others begin as the settings say. Where brokers
                have lost messages since a `KeptOffset` was kept, the queue begins where other messages stand now.

        Raises:
            TopicNotFound, QueueNotFound: one does not exist; the old assignment stays.
            NotLeader: the broker group that has one of them is away; the old assignment stays.
            ConnectionLost, RequestTimeout: the broker could not be asked.
            Closed: it is not open.
        """
        self._check_open()
        new = sorted(set(queues) - self._shares.assigned)
        starts = {}

        async def own(_queues: Sequence[QueueRef]) -> Mapping[QueueRef, int | KeptOffset]:
            return {queue: offset for queue, offset in (offsets or {}).items() if queue in new}

        if new:
            # Their messages will be of this epoch, or of a later one.
            await self._identities.ended(new)
            for queue in new:
                # What changed since it was assigned before says nothing of where it begins now.
                self._identities.changed.pop(queue, None)
            starts = await find_starts(
                self._link,
                new,
                group=self._group,
                settings=self._settings,
                first_seen=frozenset(new),
                load_offsets=own if offsets is not None or not self._group else None,
            )
        self._shares.part_with(self._shares.assign(frozenset(queues)))
        for queue, start in starts.items():
            self._shares.start(queue, start.offset, known=start.known, committed=start.committed)
            self._note_epoch(queue)
        self._pull_soon()

    async def fetch(self, records_max: int = 1_000, *, timeout_ms: int = 1_000) -> list[Record]:
        """Returns records that were not returned yet, in offset order per queue.

        Args:
            records_max: at most this many records; queues take turns.
            timeout_ms: how long to wait for the first record; after that the list is empty.

        Raises:
            DataCorrupt, FormatTooNew: a queue cannot be read any further; raised once, and other queues
                go on. Call `seek` past the place to go on with this one.
            Closed: it is not open.
        """
        if records_max < 1 or timeout_ms < 0:
            raise ValueError("fetch at least 1 record, and wait 0 ms or longer")
        self._check_open()
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                records = await self._delivering.poll(records_max)
        except TimeoutError:
            return []
        for record in records:
            self._delivering.ack(record.queue, record.offset)
        return records

    def position(self, queue: QueueRef) -> int:
        """The offset of the next record of a queue that `fetch` returns, if it exists by then.

        Raises:
            ValueError: the queue is not assigned.
        """
        share = self._shares.get(queue)
        if share is None:
            raise ValueError(
                f"queue {queue.topic}/{queue.queue_id} is not assigned; assign it first"
            )
        return share.window.lowest_unfinished

    def seek(self, queue: QueueRef, offset: int) -> None:
        """Goes on at an offset, forward or back. Raises ValueError: not assigned, or below 0."""
        if offset < 0:
            raise ValueError(f"an offset is 0 or more, not {offset}")
        self.position(queue)
        self._shares.seek(queue, offset)
        self._pull_soon()

    async def seek_to_time(self, queues: Collection[QueueRef], time_ms: int) -> None:
        """Goes on at the first record stored at a time (milliseconds since 1970 UTC) or later.

        Raises:
            ValueError: a queue is not assigned.
            BrokerError, ConnectionLost, RequestTimeout: the broker could not be asked.
        """
        for queue in queues:
            self.position(queue)
        found = await offsets_at(self._link, queues, time_ms, settings=self._settings)
        for queue, offset in found.items():
            self.seek(queue, offset)

    def pause(self, queues: Collection[QueueRef]) -> None:
        """Neither fetches nor returns records of these queues until they are resumed."""
        self._shares.pause(queues)

    def resume(self, queues: Collection[QueueRef]) -> None:
        """Goes on with paused queues where they stopped."""
        self._shares.resume(queues)
        self._delivering.wake()
        self._pull_soon()

    async def commit(self) -> None:
        """Stores the positions of all queues as the group's offsets, even if they are lower.

        Raises:
            ValueError: there is no group.
            InvalidArgument: the group has members; they commit for it.
            ConnectionLost, RequestTimeout: the outcome is unknown; the next commit repeats it.
        """
        if not self._group:
            raise ValueError("without a group there is nothing to commit to; give the consumer one")
        offsets = self._shares.to_commit()
        if not offsets:
            return
        request = CommitOffsets(
            group=self._group,
            member="",
            generation=0,
            offsets=[CommittedOffset(*queue, offset) for queue, offset in offsets.items()],
        )
        await self._link.request(
            RequestCode.COMMIT_OFFSETS,
            encode(request),
            timeout_ms=self._settings.request_timeout_ms,
        )
        self._shares.committed(offsets)

    def _check_open(self) -> None:
        if self._fetcher is None or not self._delivering.is_open:
            raise Closed("the consumer is not open; start it first")

    def _pull_soon(self) -> None:
        if self._fetcher is not None:
            self._fetcher.pull_soon()

    def _doubt(self) -> None:
        """Lets all queues stand still until it is known what their brokers hold now."""
        self._shares.suspend()
        self._doubts += 1
        if self._fetcher is None or not self._delivering.is_open:
            return
        for topic in {queue.topic for queue in self._shares.to_start()}.difference(self._looking):
            looking = self._look(topic)
            self._looking[topic] = asyncio.create_task(looking, name=f"pull consumer: {topic}")

    async def _look(self, topic: str) -> None:
        """Returns when no queue of a topic stands still."""
        said = ""
        while queues := [queue for queue in self._shares.to_start() if queue.topic == topic]:
            doubts, known = self._doubts, queues
            try:
                await self._identities.ended(queues)
                told = self._identities.told
                known = [queue for queue in queues if queue in told or self._is_gone(queue)]
            except Closed:
                return
            except (TopicNotFound, NotPermitted):
                pass  # The next fetch says so.
            except MessageQueueError as error:
                known = []
                if said != str(error):
                    said = str(error)
                    _log.warning(
                        "a topic stands still until brokers answer", topic=topic, reason=said
                    )
            # Of a connection that is lost again, the answer is an old one.
            if doubts != self._doubts and known:
                continue
            if sum(map(self._go_on, known)) < len(queues):
                await asyncio.sleep(LOOK_PAUSE_MS / 1_000)
            self._delivering.wake()
            self._pull_soon()
        del self._looking[topic]

    def _is_gone(self, queue: QueueRef) -> bool:
        """Whether an answer about its topic lacks a queue because no broker has it."""
        if isinstance(self._link, SpreadLink):
            try:
                self._link.require_served(queue)
            except NotLeader:
                return False
        return True

    def _note_epoch(self, queue: QueueRef) -> None:
        """Tells the epoch of a queue; not before its position is one of that epoch."""
        if queue in self._identities.epochs:
            self._epochs[queue] = self._identities.epochs[queue]

    def _go_on(self, queue: QueueRef) -> bool:
        """Resumes a queue that stands still."""
        share, changed = self._shares.get(queue), self._identities.changed.pop(queue, None)
        if share is None or not share.suspended:
            return False
        at = share.window.lowest_unfinished
        if changed is not None and not share.sought and share.window.end > changed:
            _log.error(
                "brokers lost messages, and others have their offsets; the queue is read again from there",
                topic=queue.topic, queue_id=queue.queue_id, position=at, offset=min(at, changed),
            )  # fmt: skip
            self._shares.seek(queue, min(at, changed))
        self._shares.start(queue, at, known=False, committed=share.committed)
        self._note_epoch(queue)
        return True
