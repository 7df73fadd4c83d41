"""
Entries of a column that all take the same number of bytes: found by counting, not by reading.

The first entry says how many bytes it has. If the column ends where so many of that size end, and
each of them begins like the first, they are what a decoder would find: the first is, so the second
begins where it should, and so on. Bodies and ids often are like that.

Sits between: `places`, which wants a few entries, and the payload of a batch. Pure.
"""

from collections.abc import Sequence

__all__ = ["even_entries"]

# The first bytes of texts and bodies, and how many bytes of length stand behind them.
_TEXT, _TEXT_OF_31 = 0xA0, 0xBF
_LENGTH_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_BODIES = frozenset({0xC4, 0xC5, 0xC6})


def even_entries(
    column: bytes, head: bytes, count: int, places: Sequence[int], *, texts: bool
) -> list[bytes] | None:
    """Returns what stands at these places of `count` texts, or else bodies; None if unknown.

    Args:
        column: an encoded array.
        head: how it must begin.
        count: how many there must be, at least one.
        places: which entries.
        texts: of which kind they must be.
    """
    at = len(head)
    if len(column) <= at or not column.startswith(head):
        return None
    kind = column[at]
    if texts and _TEXT <= kind <= _TEXT_OF_31:
        beginning, size = 1, kind - _TEXT
    elif kind not in _LENGTH_BYTES or texts == (kind in _BODIES):
        return None
    else:
        beginning = 1 + _LENGTH_BYTES[kind]
        size = int.from_bytes(column[at + 1 : at + beginning])
    step = beginning + size
    if len(column) != at + count * step:
        return None
    for byte in range(at, at + beginning):
        if column[byte::step].count(column[byte]) != count:
            return None
    starts = [at + place * step + beginning for place in places]
    return [column[start : start + size] for start in starts]
