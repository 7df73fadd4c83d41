"""
The in-flight window of one queue: a sliding door.

Offsets are taken in ascending order and finished in any order. The door stands at the lowest
offset that is not finished: everything below it is done, so that is what a group may commit.

Sits between: the consumer, which takes and finishes, and its commits. Pure.
"""

from collections import deque
from collections.abc import Iterable

__all__ = ["ProcessQueue"]


class ProcessQueue:
    """The window of one queue, beginning at an offset.

    Args:
        start: the next offset to be taken, and the door's place until then.
    """

    __slots__ = ("_end", "_open", "_order")

    def __init__(self, start: int) -> None:
        self._order: deque[int] = deque()
        self._open: set[int] = set()
        self._end = start

    def __len__(self) -> int:
        """Offsets taken and not finished."""
        return len(self._open)

    def __contains__(self, offset: int) -> bool:
        """Whether an offset was taken and is not finished."""
        return offset in self._open

    @property
    def end(self) -> int:
        """The offset after the last one taken."""
        return self._end

    @property
    def lowest_unfinished(self) -> int:
        """The offset to commit: everything below it is finished, or was never in the queue."""
        return self._order[0] if self._order else self._end

    def take(self, offsets: Iterable[int]) -> None:
        """Takes offsets, ascending and not below `end`; those left out between count as finished.

        Raises:
            ValueError: an offset was taken before.
        """
        for offset in offsets:
            if offset < self._end:
                raise ValueError(f"offset {offset} was taken before; the next one is {self._end}")
            self._order.append(offset)
            self._open.add(offset)
            self._end = offset + 1

    def finish(self, offset: int) -> bool:
        """Finishes an offset; False where it is not in flight (finished already, or never taken)."""
        if offset not in self._open:
            return False
        self._open.remove(offset)
        order = self._order
        while order and order[0] not in self._open:
            order.popleft()
        return True
