"""
The most recent batches of all logs in memory, so that readers at the tail never touch the disk.

Sits between: `message_store` and nothing. Pure: no clock, no I/O. Memory is bounded by
`StoreSettings.tail_cache_bytes`; the oldest blocks leave first, since readers at the tail read
each batch soon and readers far behind would only wash the cache out. Batches come and go by blocks,
as they were written: nothing is kept or done for each batch, so that small ones take no more than
their bytes.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence

from headrace_mq.store.index.page import IndexEntry

__all__ = ["TailCache"]

# Blocks that left are taken out of their log's lists by so many at least.
_LEFT_MIN = 1_024


class _Tail:
    """The blocks of one log by position; the first `left` places are empty."""

    __slots__ = ("blocks", "left", "starts")

    def __init__(self) -> None:
        self.starts = array("q")
        self.blocks: list[bytes] = []
        self.left = 0

    def drop_first(self) -> int:
        """Lets go of the oldest block; returns its size."""
        size = len(self.blocks[self.left])
        self.blocks[self.left] = b""
        self.left += 1
        # Half of all at least: so moving the rest up costs each block one step.
        if self.left >= max(_LEFT_MIN, len(self.blocks) // 2):
            del self.starts[: self.left], self.blocks[: self.left]
            self.left = 0
        return size


class TailCache:
    """Batches by (log, position); bounded by their bytes."""

    __slots__ = ("_bytes", "_bytes_max", "_order", "_tails")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._tails: dict[str, _Tail] = {}
        # Whose turn it is to lose a block.
        self._order: deque[_Tail] = deque()

    @property
    def held_bytes(self) -> int:
        """The size of what is held now."""
        return self._bytes

    def put(self, log: str, position: int, blocks: Sequence[bytes]) -> None:
        """Adds blocks of whole batches from a position on, behind all others of their log."""
        tail = self._tails.get(log)
        if tail is None:
            tail = self._tails[log] = _Tail()
        for block in blocks:
            tail.starts.append(position)
            tail.blocks.append(block)
            self._order.append(tail)
            position += len(block)
            self._bytes += len(block)
        while self._bytes > self._bytes_max:
            self._bytes -= self._order.popleft().drop_first()

    def forget(self, log: str, start: int, end: int) -> None:
        """Drops the blocks that begin in a range of positions, which mean something else now."""
        tail = self._tails.get(log)
        if tail is None:
            return
        for at in range(bisect_left(tail.starts, start), bisect_left(tail.starts, end)):
            self._bytes -= len(tail.blocks[at])
            # Its place stays until it is its turn to leave.
            tail.blocks[at] = b""

    def find(self, log: str, entries: Sequence[IndexEntry]) -> list[bytes | None]:
        """Returns the batch of each entry, or None where it is no longer held."""
        tail = self._tails.get(log)
        if tail is None:
            return [None] * len(entries)
        starts, blocks = tail.starts, tail.blocks
        found: list[bytes | None] = []
        at, start, block = -1, 0, b""
        for position, length, _, _, _ in entries:
            # Mostly the one behind the one before: in the same block, or the first of the next.
            if not start <= position < start + len(block):
                at += 1
                if at >= len(starts) or starts[at] != position:
                    at = bisect_right(starts, position) - 1
                start, block = (starts[at], blocks[at]) if at >= 0 else (0, b"")
            into = position - start
            # All of a block is the block itself, uncopied: so are large batches, and lone ones.
            found.append(block[into : into + length] if into < len(block) else None)
        return found
