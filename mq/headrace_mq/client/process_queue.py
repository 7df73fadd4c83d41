"""
The in-flight window of one queue: a sliding door.

Offsets are taken in ascending order and finished in any order. The door stands at the lowest
offset that is not finished: everything below it is done, so that is what a group may commit.

Sits between: the consumer, which takes and finishes, and its commits. Pure.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from operator import lt
from typing import NamedTuple

__all__ = ["ProcessQueue", "WindowLimits"]


class WindowLimits(NamedTuple):
    """From which on a window takes no more: unfinished offsets, their bytes, and their span.

    The span is the distance from the lowest unfinished offset to the end: one slow record must not
    let finished ones pile up behind it, which a crash would deliver again.
    """

    count_max: int
    bytes_max: int
    span_max: int


class ProcessQueue:
    """The window of one queue, beginning at an offset.

    Args:
        start: the next offset to be taken, and the door's place until then.
    """

    __slots__ = ("_bytes", "_end", "_open", "_order")

    def __init__(self, start: int) -> None:
        self._order: deque[int] = deque()
        # Offset to bytes.
        self._open: dict[int, int] = {}
        self._bytes = 0
        self._end = start

    def __len__(self) -> int:
        """Offsets taken and not finished."""
        return len(self._open)

    def __contains__(self, offset: int) -> bool:
        """Whether an offset was taken and is not finished."""
        return offset in self._open

    def is_full(self, limits: WindowLimits) -> bool:
        """Whether one of the limits is reached."""
        return (
            len(self._open) >= limits.count_max
            or self._bytes >= limits.bytes_max
            or self._end - self.lowest_unfinished >= limits.span_max
        )

    @property
    def end(self) -> int:
        """The offset after the last one taken."""
        return self._end

    @property
    def lowest_unfinished(self) -> int:
        """The offset to commit: everything below it is finished, or was never in the queue."""
        return self._order[0] if self._order else self._end

    def take(self, offsets: Sequence[int], sizes: Iterable[int]) -> None:
        """Takes offsets, ascending and not below `end`; those left out between count as finished.

        Args:
            offsets: what to take.
            sizes: the bytes of each.

        Raises:
            ValueError: an offset was taken before.
        """
        if not offsets:
            return
        for before, offset in ((self._end - 1, offsets[0]), *_descents(offsets)):
            if offset <= before:
                raise ValueError(f"offset {offset} was taken before; the next one is {before + 1}")
        held = dict(zip(offsets, sizes, strict=True))
        self._order.extend(offsets)
        self._open.update(held)
        self._bytes += sum(held.values())
        self._end = offsets[-1] + 1

    def pass_over(self, end: int) -> None:
        """Counts everything below an offset that was not taken as finished."""
        self._end = max(self._end, end)

    def finish(self, offset: int) -> bool:
        """Finishes an offset; False where it is not in flight (finished already, or never taken)."""
        size = self._open.pop(offset, None)
        if size is None:
            return False
        self._bytes -= size
        self._move_door()
        return True

    def finish_all(self, offsets: Iterable[int]) -> bool:
        """Finishes many offsets; False where none of them is in flight."""
        take = self._open.pop
        sizes = [size for offset in offsets if (size := take(offset, None)) is not None]
        self._bytes -= sum(sizes)
        self._move_door()
        return bool(sizes)

    def _move_door(self) -> None:
        order, unfinished = self._order, self._open
        if not unfinished:
            order.clear()
        while order and order[0] not in unfinished:
            order.popleft()


def _descents(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """The neighbours that do not ascend."""
    if isinstance(offsets, range) and offsets.step > 0:
        return []
    following = offsets[1:]
    if all(map(lt, offsets, following)):
        return []
    return [(before, after) for before, after in zip(offsets, following, strict=False)]
