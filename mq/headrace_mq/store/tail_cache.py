"""
The most recent batches of all logs in memory, so that readers at the tail never touch the disk.

Sits between: `message_store` and nothing. Pure: no clock, no I/O. Memory is bounded by
`StoreSettings.tail_cache_bytes`; the oldest batch leaves first, since readers at the tail read
each batch soon and readers far behind would only wash the cache out.
"""

from collections import deque

__all__ = ["TailCache"]


class TailCache:
    """Batches by (log, position); bounded by their bytes."""

    __slots__ = ("_batches", "_bytes", "_bytes_max", "_order")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: dict[tuple[str, int], bytes] = {}
        self._order: deque[tuple[str, int]] = deque()

    @property
    def held_bytes(self) -> int:
        """The size of what is held now."""
        return self._bytes

    def put(self, log: str, position: int, batch: bytes) -> None:
        """Adds a batch; it must be newer than all others of its log."""
        key = (log, position)
        self._batches[key] = batch
        self._order.append(key)
        self._bytes += len(batch)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._batches.pop(self._order.popleft()))

    def get(self, log: str, position: int) -> bytes | None:
        """Returns the batch at a position if it is still held."""
        return self._batches.get((log, position))
