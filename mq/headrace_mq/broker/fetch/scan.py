"""
Reads queues for a filtered fetch, within limits of bytes and time.

A filtered fetch reads until it has found enough, and the broker serves no other client meanwhile. So a scan ends
after a number of bytes or milliseconds, and its answer says where to go on. If much is left and few messages
match, worker processes filter the rest (`filter_workers`).

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

# A scan checks the time after each step of this size: a tenth of a millisecond for most conditions, a few
# milliseconds for the worst condition of 2,048 characters.
STEP_BYTES = 128 << 10
# If a scan has read this much (two steps), or reached its time limit, it has a backlog before it: workers do
# the rest.
AHEAD_FROM_BYTES = STEP_BYTES * 3 // 2
# Time limit of a scan, besides its last step: about as long as an fdatasync.
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
    """The scan of one fetch over filtered queues.

    Args:
        store: to read.
        clock: measures the time.
        bytes_max: the most bytes to scan.
        picks: whether messages may be picked out of their batches.
        ahead: the results of filter workers, if the broker has any.
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
        """Whether the scan has reached a limit."""
        return self._left <= 0 or self._clock.monotonic_ms() >= self._ends_ms

    @property
    def step_bytes(self) -> int:
        """The bytes to read at a time."""
        return min(STEP_BYTES, self._left)

    def read(
        self, queue: QueueRef, offset: int, batch_filter: BatchFilter, bounds: ReadLimits
    ) -> tuple[Selection, int] | None:
        """Returns the matches of a queue from an offset on; the queue has messages there.

        Returns None while they are read from the disk or filtered by a worker.

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
        """Returns a worker's result, with the batches that match as a whole.

        Returns None if the answer has no room for all of it, or if these batches are not in memory.
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
        """Returns the matches of the given batches and of those after them.

        Args:
            queue: of the batches.
            found: at least one batch.
            batch_filter: selects the messages.
            bounds: the limits of the result.

        Returns:
            The matches, and the offset to go on at.
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
        """Whether a worker filters the messages after `end`: many messages, few matches."""
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
