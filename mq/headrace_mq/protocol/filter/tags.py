"""
Searches a column of tags for the wanted ones without decoding it.

In a column of short ASCII texts, the only bytes from 128 on are those that begin a text, one for each
message; any other number of them means that the column holds something else. The number of such bytes
before a wanted tag is the place of its message.

Measured alone, in turns (medians of 82, first and last tenth; the batches of W6 "by tag" in
`benchmarks.mq`): to check and search a batch of 1,000 takes 102 us (98 to 109) with this step and 145
(140 to 155) without it; a batch of 100 takes 16 (15 to 18) and 21 (20 to 22).

Used by `batch_filter`. Pure. It leaves to the decoder what it does not know: longer texts, texts other than
ASCII, and a missing column.
"""

import re
from collections.abc import Callable, Sequence

from headrace_mq.filters.filter import Filter
from headrace_mq.protocol.filter.places import Chosen

__all__ = ["Tags"]

# The longest text whose length stands in its first byte.
_TEXT, _TEXT_BYTES_MAX = 0xA0, 31
_BEGINNINGS = bytes(range(_TEXT, _TEXT + _TEXT_BYTES_MAX + 1))


class Tags:
    """The tags of a filter that asks for nothing else.

    Args:
        wanted: the filter; its tags decide.
    """

    __slots__ = ("_cut", "_only")

    def __init__(self, wanted: Filter) -> None:
        assert wanted.tags is not None, "without tags there is nothing to look for"
        tags = list(wanted.tags)
        self._only = tags[0] if len(tags) == 1 else None
        # None where one could be written in another way.
        self._cut: Callable[[bytes], Sequence[bytes]] | None = None
        if all(tag.isascii() and len(tag) <= _TEXT_BYTES_MAX for tag in tags):
            found = [bytes([_TEXT + len(tag)]) + tag.encode() for tag in tags]
            # One is cut out in half the time.
            one, several = found[0], re.compile(b"|".join(map(re.escape, found))).split
            self._cut = several if len(found) > 1 else lambda column: column.split(one)

    def chosen(self, column: bytes, count: int) -> Chosen | None:
        """Returns who of `count` messages has one of the tags, None where they must be decoded."""
        head = _array_head(count)
        if self._cut is None or not column.startswith(head):
            return None
        places, place = [], 0
        for between in self._cut(column[len(head) :]):
            texts = between.translate(None, _BEGINNINGS)
            if not texts.isascii():
                return None
            # Those that begin here, then the one that was cut away.
            place += len(between) - len(texts)
            places.append(place)
            place += 1
        # Behind the last one stand all others.
        if places.pop() != count:
            return None
        return Chosen(places, None, None if self._only is None else [self._only] * len(places))


def _array_head(count: int) -> bytes:
    """How an array of so many entries begins; producers may write a longer form."""
    if count < 1 << 4:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)
