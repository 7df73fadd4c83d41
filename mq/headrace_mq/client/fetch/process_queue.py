"""
The in-flight window of one queue: which offsets were handed over and are not finished.

Offsets are taken in ascending order and finished in any order. A group may commit the lowest offset
that is not finished, because every offset below it is done.

Records that are taken together are mostly finished together. They stay one range until a single offset
of it is asked for, which takes less than half of the time of noting each offset.

Used by `assigned_queues` and `allowance`. Pure.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from operator import lt
from typing import NamedTuple

__all__ = ["ProcessQueue", "WindowLimits"]

# Of fewer offsets a piece costs more than it saves.
_PIECE_MIN = 16

_new = tuple.__new__


class WindowLimits(NamedTuple):
    """What is handed over unfinished at most: offsets and their span; and from which bytes on none is taken.

    The span is the distance from the lowest unfinished offset to the end: one slow record must not
    let finished ones pile up behind it, which a crash would deliver again.
    """

    count_max: int
    bytes_max: int
    span_max: int


class _Piece(NamedTuple):
    """Unfinished offsets that were taken together, and the bytes of each."""

    offsets: Sequence[int]
    sizes: list[int]


class ProcessQueue:
    """The window of one queue, beginning at an offset.

    Args:
        start: the next offset to be taken, and the door's place until then.
    """

    __slots__ = ("_bytes", "_count", "_end", "_open", "_order", "_whole")

    def __init__(self, start: int) -> None:
        # Of what is not in one piece any more: the offsets, and of the unfinished ones the bytes.
        self._order: deque[int] = deque()
        self._open: dict[int, int] = {}
        # What stands behind all of these, in the pieces it was taken in.
        self._whole: deque[_Piece] = deque()
        self._count = 0
        self._bytes = 0
        self._end = start

    def __len__(self) -> int:
        """Offsets taken and not finished."""
        return self._count

    def __contains__(self, offset: int) -> bool:
        """Whether an offset was taken and is not finished."""
        return offset in self._open or (self._take_apart(offset) and offset in self._open)

    def is_full(self, limits: WindowLimits) -> bool:
        """Whether one of the limits is reached."""
        return (
            self._count >= limits.count_max
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
        if self._order:
            return self._order[0]
        return self._whole[0].offsets[0] if self._whole else self._end

    def take(self, offsets: Sequence[int], sizes: Iterable[int]) -> None:
        """Takes offsets, ascending and not below `end`; those left out between count as finished.

        Args:
            offsets: what to take.
            sizes: the bytes of each.

        Raises:
            ValueError: an offset was taken before, or there are more or fewer sizes.
        """
        if not offsets:
            return
        descents = _descents(offsets)
        if descents or offsets[0] < self._end:
            before, offset = descents[0] if offsets[0] >= self._end else (self._end - 1, offsets[0])
            raise ValueError(f"offset {offset} was taken before; the next one is {before + 1}")
        each = list(sizes)
        if len(each) != len(offsets):
            raise ValueError(f"{len(offsets)} offsets have {len(each)} sizes")
        if len(each) >= _PIECE_MIN or self._whole:
            # Made of a tuple: half the time of calling it.
            self._whole.append(_new(_Piece, (offsets, each)))
        else:
            self._note(offsets, each)
        self._count += len(each)
        self._bytes += sum(each)
        self._end = offsets[-1] + 1

    def pass_over(self, end: int) -> None:
        """Counts everything below an offset that was not taken as finished."""
        self._end = max(self._end, end)

    def finish(self, offset: int) -> bool:
        """Finishes an offset; False where it is not in flight (finished already, or never taken)."""
        size = self._open.pop(offset, None)
        if size is None:
            if not self._take_apart(offset) or offset not in self._open:
                return False
            size = self._open.pop(offset)
        self._count -= 1
        self._bytes -= size
        self._move_door()
        return True

    def finish_all(self, offsets: Iterable[int]) -> bool:
        """Finishes many offsets; False where none of them is in flight."""
        given: Sequence[int] = offsets if isinstance(offsets, range | list) else list(offsets)
        before, whole, at = self._count, self._whole, 0
        while whole and at < len(given):
            offsets, sizes = whole[0]
            finished = given[at : at + len(sizes)]
            if finished != _like(offsets[: len(finished)], given):
                break
            at += len(finished)
            self._count -= len(finished)
            if len(finished) == len(sizes):
                self._bytes -= sum(whole.popleft().sizes)
            else:
                # What was handed over of it is finished; the rest stays together.
                self._bytes -= sum(sizes[: len(finished)])
                whole[0] = _Piece(offsets[len(finished) :], sizes[len(finished) :])
        if at < len(given):
            left = given[at:]
            self._take_apart(max(left))
            take = self._open.pop
            sizes = [size for offset in left if (size := take(offset, None)) is not None]
            self._count -= len(sizes)
            self._bytes -= sum(sizes)
            self._move_door()
        return self._count < before

    def _take_apart(self, offset: int) -> bool:
        """Notes each offset of the pieces that begin at or below one; whether there were any."""
        whole = self._whole
        if not whole or whole[0].offsets[0] > offset:
            return False
        while whole and whole[0].offsets[0] <= offset:
            self._note(*whole.popleft())
        return True

    def _note(self, offsets: Sequence[int], sizes: list[int]) -> None:
        """Holds offsets one by one, behind all others that are."""
        self._order.extend(offsets)
        self._open.update(zip(offsets, sizes, strict=True))

    def _move_door(self) -> None:
        order, unfinished = self._order, self._open
        if not unfinished:
            order.clear()
        while order and order[0] not in unfinished:
            order.popleft()


def _like(offsets: Sequence[int], other: Sequence[int]) -> Sequence[int]:
    """Offsets as what they are compared with: a range equals no list."""
    return offsets if type(offsets) is type(other) else list(offsets)


def _descents(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """The neighbours that do not ascend."""
    if isinstance(offsets, range) and offsets.step > 0:
        return []
    following = offsets[1:]
    if all(map(lt, offsets, following)):
        return []
    return [(before, after) for before, after in zip(offsets, following, strict=False)]
