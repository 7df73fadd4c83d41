"""
A fetch's way through queues of which little is wanted: far, and not too far.

A filtered fetch reads on until it has found enough, and nobody else is served meanwhile. So it ends
after so many bytes and milliseconds, wherever it stands: its answer says where to go on.

Sits between: FETCH and the store. What is wanted of a batch, the sieve knows.
"""

from typing import NamedTuple

from headrace_mq._runtime.clock import Clock
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header
from headrace_mq.protocol.sieve import Gathering, Part, Sieve
from headrace_mq.store.batch_reader import Batch
from headrace_mq.store.message_store import MessageStore

__all__ = ["Bounds", "Scan"]

# A scan looks at its clock between two steps of this size: a tenth of a millisecond for most
# conditions, a few milliseconds for the worst that 2,048 characters can ask for.
STEP_BYTES = 128 << 10
# How long others wait for a scan at most, but for its last step: as long as for an fdatasync.
SCAN_MS_MAX = 5


class Bounds(NamedTuple):
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
    """

    def __init__(self, store: MessageStore, clock: Clock, bytes_max: int, *, picks: bool) -> None:
        self._store = store
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

    def through(
        self, queue: QueueRef, found: list[Batch], sieve: Sieve, bounds: Bounds
    ) -> tuple[Gathering, int]:
        """Gathers what is selected of the batches found and those behind them.

        Args:
            queue: where they stand.
            found: at least one batch.
            sieve: what is wanted.
            bounds: how much may be gathered.

        Returns:
            What is selected, and the offset to go on at.
        """
        gathering = Gathering(queue)
        while True:
            for batch in found:
                part = sieve.part_of(batch, picks=self._picks)
                if part is None:
                    continue
                if not _fits(gathering, part, batch, bounds):
                    gathering.close()
                    return gathering, read_header(batch).base_offset
                gathering.add(part)
            self._left -= sum(map(len, found))
            end = read_header(found[-1]).next_offset
            more: list[Batch] | None = None
            enough = (
                gathering.size >= bounds.bytes_enough or gathering.count >= bounds.messages_enough
            )
            if not enough and not self.is_over:
                more = self._store.read_now(queue, end, self.step_bytes)
            if not more:
                gathering.close()
                return gathering, end
            found = more


def _fits(gathering: Gathering, part: Part, batch: Batch, bounds: Bounds) -> bool:
    if gathering.count and gathering.count + part.records > bounds.messages_enough:
        return False
    is_alone = not gathering.size and len(batch) <= bounds.bytes_max
    return is_alone or gathering.size + part.size <= bounds.bytes_max
