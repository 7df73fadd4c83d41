"""
The most recent batches of all logs in memory, so that readers at the tail never touch the disk.

Sits between: `message_store` and nothing. Pure: no clock, no I/O. Memory is bounded by
`StoreSettings.tail_cache_bytes`; the oldest groups leave first, since readers at the tail read
each batch soon and readers far behind would only wash the cache out. Batches come and go by whole
group writes: what is done for each batch is one entry in a dict.
"""

from collections import deque
from collections.abc import Mapping

__all__ = ["TailCache"]


class TailCache:
    """Batches by (log, position); bounded by their bytes."""

    __slots__ = ("_batches", "_bytes", "_bytes_max", "_groups")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: dict[str, dict[int, bytes]] = {}
        self._groups: deque[tuple[dict[int, bytes], tuple[int, ...], int]] = deque()

    @property
    def held_bytes(self) -> int:
        """The size of what is held now."""
        return self._bytes

    def put(self, log: str, group: Mapping[int, bytes], size: int) -> None:
        """Adds batches of `size` bytes by position, newer than all others of their log."""
        batches = self._batches.setdefault(log, {})
        batches.update(group)
        self._groups.append((batches, tuple(group), size))
        self._bytes += size
        while self._bytes > self._bytes_max:
            batches, positions, size = self._groups.popleft()
            self._bytes -= size
            for position in positions:
                batches.pop(position, None)

    def forget(self, log: str, start: int, end: int) -> None:
        """Drops the batches of a range of positions, which mean something else now."""
        batches = self._batches.get(log, {})
        for position in [position for position in batches if start <= position < end]:
            del batches[position]

    def get(self, log: str, position: int) -> bytes | None:
        """Returns the batch at a position if it is still held."""
        batches = self._batches.get(log)
        return None if batches is None else batches.get(position)
