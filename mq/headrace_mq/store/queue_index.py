"""
Where the batches of one queue stand in its log: queue offset to log position, in memory.

One entry per batch in four compact arrays (24 bytes), rebuilt from the log at a start. Sits
between: `message_store` and nothing but the values of `segment`. Pure: no clock, no I/O.
"""

from array import array
from bisect import bisect_left, bisect_right

from headrace_mq.store.segment import Place

__all__ = ["QueueIndex"]


class QueueIndex:
    """The batches of one queue that readers may see, in offset order.

    Offsets may have gaps, where a batch was damaged; they never overlap.

    Attributes:
        end: the next offset to become visible.
        tail: the next offset to be assigned; ahead of `end` by what is not durable yet.
    """

    __slots__ = ("_bases", "_counts", "_lengths", "_positions", "end", "tail")

    def __init__(self) -> None:
        self._bases = array("q")
        self._counts = array("i")
        self._positions = array("q")
        self._lengths = array("I")
        self.end = 0
        self.tail = 0

    @property
    def first(self) -> int:
        """The lowest offset held, or `end` when nothing is."""
        return self._bases[0] if self._bases else self.end

    def __len__(self) -> int:
        return len(self._bases)

    def add(self, base: int, count: int, place: Place) -> None:
        """Appends a batch; `base` must not be below `end`."""
        if base < self.end:
            raise ValueError(f"offset {base} is below the queue's end {self.end}")
        self._bases.append(base)
        self._counts.append(count)
        position, length = place
        self._positions.append(position)
        self._lengths.append(length)
        self.end = end = base + count
        if end > self.tail:
            self.tail = end

    def skip_to(self, end: int) -> None:
        """Leaves a gap up to `end`, so that offsets of lost messages are never given again."""
        self.end = max(self.end, end)
        self.tail = max(self.tail, self.end)

    def find(self, offset: int, bytes_max: int) -> list[Place]:
        """Places of whole batches from the one that holds `offset`, or the next one after a gap.

        As many as fit in `bytes_max`, at least one if there is any.
        """
        at = bisect_right(self._bases, offset) - 1
        if at < 0 or self._bases[at] + self._counts[at] <= offset:
            at += 1
        places: list[Place] = []
        size = 0
        for index in range(at, len(self._bases)):
            size += self._lengths[index]
            if places and size > bytes_max:
                break
            places.append(Place(self._positions[index], self._lengths[index]))
        return places

    def drop(self, position: int) -> None:
        """Forgets the batch at a log position, because it turned out to be damaged."""
        # A queue's positions grow with its offsets: both are given out by the same append.
        at = bisect_left(self._positions, position)
        if at < len(self._positions) and self._positions[at] == position:
            for column in (self._bases, self._counts, self._positions, self._lengths):
                del column[at]
