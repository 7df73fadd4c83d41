"""
Groups decided streams into batches, one for each append to the event store.

Used by the workers, which offer streams, and by the committer, which appends a batch while the next one
grows here. Pure: no await, no clock, no I/O.
"""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.domain.stream import EventStream

__all__ = ["Batching", "QueuedStream"]


class QueuedStream(NamedTuple):
    """A decided stream on its way into the store.

    Attributes:
        stream: the stream to append.
        generation: the generation of its aggregate's mailbox in which it was decided.
        settled: called with the queued stream and the next step, when the outcome is known.
    """

    stream: EventStream
    generation: int
    settled: Callable[["QueuedStream", Any], None]


class Batching:
    """Streams that wait for an append, in the order of their decisions.

    Batches keep the order of each aggregate's streams; a dropped stream is in no batch.

    Args:
        streams_max: most streams in one batch.
    """

    def __init__(self, *, streams_max: int) -> None:
        self._streams_max = streams_max
        self._queued: deque[QueuedStream] = deque()
        # Waiting streams by aggregate; most drops find none here and need no search.
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._queued)

    def offer(self, queued: QueuedStream) -> None:
        """Adds a stream at the end."""
        self._queued.append(queued)
        self._counts[queued.stream.aggregate_id] += 1

    def drop(self, aggregate_id: str, *, before_generation: int) -> int:
        """Removes an aggregate's waiting streams of earlier generations; returns how many."""
        if aggregate_id not in self._counts:
            return 0
        kept = [
            queued
            for queued in self._queued
            if queued.stream.aggregate_id != aggregate_id or queued.generation >= before_generation
        ]
        dropped = len(self._queued) - len(kept)
        self._queued = deque(kept)
        self._left(aggregate_id, dropped)
        return dropped

    def take(self) -> list[QueuedStream]:
        """Removes and returns the next batch; it is empty when no stream waits."""
        size = min(self._streams_max, len(self._queued))
        batch = [self._queued.popleft() for _ in range(size)]
        for queued in batch:
            self._left(queued.stream.aggregate_id, 1)
        return batch

    def _left(self, aggregate_id: str, count: int) -> None:
        self._counts[aggregate_id] -= count
        if not self._counts[aggregate_id]:
            del self._counts[aggregate_id]
