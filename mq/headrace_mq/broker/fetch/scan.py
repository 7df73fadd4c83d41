"""
A fetch's way through queues of which little is wanted: far, and not too far.

A filtered fetch reads on until it has found enough, and no other member is served meanwhile. So it ends
after so many bytes and milliseconds, wherever it stands: its answer says where to go on. Where much is
left by then of which little is wanted, processes of their own look through it (`filter_workers`).

Used by FETCH; uses the store. The batch filter selects the messages of a batch.
"""

from typing import NamedTuple

from headrace_mq._runtime.clock import Clock
from headrace_mq.broker.fetch.filter_workers.jobs import JobResult
from headrace_mq.broker.fetch.filter_workers.read_ahead import RARE_SHARE, FilterRequest, ReadAhead
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header
from headrace_mq.protocol.filter.batch_filter import BatchFilter, BatchPart, Selection
from headrace_mq.store.log.batch_reader import Batch
from headrace_mq.store.message_store import MessageStore

__all__ = ["ReadLimits", "Scan"]

# A scan looks at its clock between two steps of this size: a tenth of a millisecond for most
# conditions, a few milliseconds for the worst that 2,048 characters can ask for.
STEP_BYTES = 128 << 10
# A scan that has looked at so much, two steps, or for as long as it may, has a backlog before it:
# others do the rest of that.
AHEAD_FROM_BYTES = STEP_BYTES * 3 // 2
# How long others wait for a scan at most, but for its last step: as long as for an fdatasync.
SCAN_MS_MAX = 5


class ReadLimits(NamedTuple):
    """What one queue may add to an answer.

    `bytes_enough` and `messages_enough` end a scan when they are reached; `bytes_max` is never
    exceeded, except by one batch alone.
    """

    bytes_enough: int
    messages_enough: int
    bytes_max: int


class Scan:
    """One fetch's way through filtered queues.

    Args:
        store: what is read.
        clock: the time.
        bytes_max: what may be looked at.
        picks: whether messages may be picked out of their batches.
        ahead: what was looked through elsewhere, if that is done at all.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        bytes_max: int,
        *,
        picks: bool,
        ahead: ReadAhead | None = None,
    ) -> None:
        self._store = store
        self._ahead = ahead
        self._clock = clock
        self._left = bytes_max
        self._picks = picks
        self._ends_ms = clock.monotonic_ms() + SCAN_MS_MAX

    @property
    def is_over(self) -> bool:
        """Whether as much was looked at as may be."""
        return self._left <= 0 or self._clock.monotonic_ms() >= self._ends_ms

    @property
    def step_bytes(self) -> int:
        """How much to read at a time."""
        return min(STEP_BYTES, self._left)

    def read(
        self, queue: QueueRef, offset: int, batch_filter: BatchFilter, bounds: ReadLimits
    ) -> tuple[Selection, int] | None:
        """Gathers what is selected of a queue from an offset on, of which there is something.

        None while that comes from the disk or another process.

        Raises:
            OffsetOutOfRange: below the first offset held, or above the next one.
        """
        if self._ahead is not None:
            wanted = FilterRequest(queue, offset, batch_filter.wanted.text, self._picks)
            if self._ahead.is_coming(wanted):
                return None
            result = self._ahead.take(wanted)
            gathering = None if result is None else self._gathering_of(queue, result, bounds)
            if result is not None and gathering is not None:
                self._ahead.go_on(wanted, result)
                return gathering, result.next
        found = self._store.read_now(queue, offset, self.step_bytes)
        if found is None:
            return None
        return self.through(queue, found, batch_filter, bounds) if found else (Selection(queue), -1)

    def _gathering_of(
        self, queue: QueueRef, result: JobResult, bounds: ReadLimits
    ) -> Selection | None:
        """What another process found, with the batches that are wanted whole.

        None where the answer has no room for all of it, or these are not in memory.
        """
        if result.size > bounds.bytes_max or result.count > bounds.messages_enough:
            return None
        gathering = Selection(queue)
        for base in result.wholes:
            found = self._store.read_now(queue, base, 1)
            if not found or read_header(found[0]).base_offset != base:
                return None
            gathering.batches.append(found[0])
        gathering.picked, gathering.count, gathering.size = result.picked, result.count, result.size
        return gathering

    def through(
        self, queue: QueueRef, found: list[Batch], batch_filter: BatchFilter, bounds: ReadLimits
    ) -> tuple[Selection, int]:
        """Gathers what is selected of the batches found and those behind them.

        Args:
            queue: where they stand.
            found: at least one batch.
            batch_filter: what is wanted.
            bounds: how much may be gathered.

        Returns:
            What is selected, and the offset to go on at.
        """
        gathering, looked = Selection(queue), 0
        while True:
            for batch in found:
                part = batch_filter.part_of(batch, picks=self._picks)
                if part is None:
                    continue
                if not _fits(gathering, part, batch, bounds):
                    gathering.close()
                    return gathering, read_header(batch).base_offset
                gathering.add(part)
            looked += sum(map(len, found))
            self._left -= sum(map(len, found))
            end = read_header(found[-1]).next_offset
            more: list[Batch] | None = None
            enough = (
                gathering.size >= bounds.bytes_enough or gathering.count >= bounds.messages_enough
            )
            if not enough and not self._asks_ahead(
                queue, end, batch_filter, gathering.size, looked
            ):
                more = None if self.is_over else self._store.read_now(queue, end, self.step_bytes)
            if not more:
                gathering.close()
                return gathering, end
            found = more

    def _asks_ahead(
        self,
        queue: QueueRef,
        end: int,
        batch_filter: BatchFilter,
        found_bytes: int,
        looked_bytes: int,
    ) -> bool:
        """Whether what stands behind `end` is looked through elsewhere: little is wanted of much."""
        if self._ahead is None or not (looked_bytes >= AHEAD_FROM_BYTES or self.is_over):
            return False
        if found_bytes * RARE_SHARE > looked_bytes:
            return False
        return self._ahead.ask(FilterRequest(queue, end, batch_filter.wanted.text, self._picks))


def _fits(gathering: Selection, part: BatchPart, batch: Batch, bounds: ReadLimits) -> bool:
    if gathering.count and gathering.count + part.records > bounds.messages_enough:
        return False
    is_alone = not gathering.size and len(batch) <= bounds.bytes_max
    return is_alone or gathering.size + part.size <= bounds.bytes_max
