"""
A column of headers, cut into one piece for each message and judged without decoding it.

Messages of one kind have their headers in one order, so each entry of the column begins like the
first one: how many there are, and the name of the first. Cut there, a column of hundred messages is
hundred pieces after one call, and what the filter said of a piece before it says again. A piece is
kept only if it decodes as the headers of exactly one message: where all are known and as many as the
messages, they are what the decoder would have found.

Sits between: `sieve`, which has the column, and `filters`. Pure. What it does not know it leaves to
the decoder: headers of several kinds, and those that are different for every message.
"""

from itertools import filterfalse
from typing import NamedTuple

import msgspec

from headrace_mq.filters.filter import Filter
from headrace_mq.protocol.filter.places import NOBODY, Chosen, array_head

__all__ = ["Pieces"]

# Pieces kept of one condition, and the bytes of each: a few hundred prices in a few regions.
KNOWN_MAX = 1_024
KNOWN_BYTES_MAX = 128
# Learning a piece costs as much as the pieces save for so many messages. Where few come again it
# is tried for one batch in so many, so that trying costs a few hundredths at most.
LEARNING_MESSAGES = 32

_CREDIT_MAX = KNOWN_MAX * LEARNING_MESSAGES

_MAP_OF_ONE, _MAP_OF_FIFTEEN = b"\x81", b"\x8f"
_TEXT, _TEXT_OF_31 = b"\xa0", b"\xbf"

_decode = msgspec.msgpack.Decoder(dict[str, str]).decode


class _Known(NamedTuple):
    """What was said of the pieces behind one beginning."""

    refused: set[bytes]
    selected: set[bytes]


class Pieces:
    """What a filter said of encoded headers.

    Args:
        wanted: a filter that asks for headers only.
    """

    __slots__ = ("_count", "_credit", "_known", "_wanted")

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._known: dict[bytes, _Known] = {}
        self._count = 0
        self._credit = _CREDIT_MAX

    def chosen(self, column: bytes, count: int) -> Chosen | None:
        """Returns who is selected of `count` messages, None where their headers must be decoded."""
        self._credit = min(self._credit + count, _CREDIT_MAX)
        if self._credit < 0:
            return None
        head = array_head(count)
        beginning = _beginning(column, len(head))
        pieces = column.split(beginning) if beginning else []
        if len(pieces) != count + 1 or pieces[0] != head:
            # Other kinds of messages among them: to look is in vain as often as learning may be.
            self._credit -= LEARNING_MESSAGES * count
            return None
        del pieces[0]
        refused, selected = self._known.get(beginning) or _Known(set(), set())
        left = list(filterfalse(refused.__contains__, pieces))
        # Most batches of a rare selection end here.
        if not left:
            return NOBODY
        unknown = set(left) - selected
        if unknown:
            if not self._learn(beginning, unknown):
                return None
            left = list(filterfalse(self._known[beginning].refused.__contains__, left))
        places, place = [], -1
        for piece in left:
            place = pieces.index(piece, place + 1)
            places.append(place)
        return Chosen(places, [msgspec.Raw(beginning + piece) for piece in left])

    def _learn(self, beginning: bytes, pieces: set[bytes]) -> bool:
        """Asks the filter about pieces; False where one is no headers of one message, or too long.

        Also where they are too many, with those that are known: these are forgotten then.
        """
        self._credit -= LEARNING_MESSAGES * len(pieces)
        if self._count + len(pieces) > KNOWN_MAX:
            self._known.clear()
            self._count = 0
            return False
        if max(map(len, pieces)) > KNOWN_BYTES_MAX:
            return False
        try:
            headers = [_decode(beginning + piece) for piece in pieces]
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        selected = set(self._wanted.places(len(headers), headers, (), ()))
        known = self._known.setdefault(beginning, _Known(set(), set()))
        for place, piece in enumerate(pieces):
            (known.selected if place in selected else known.refused).add(piece)
        self._count += len(pieces)
        return True


def _beginning(column: bytes, at: int) -> bytes:
    """What the entry at `at` begins with, up to the name of its first header; empty if unknown."""
    kind, name = column[at : at + 1], column[at + 1 : at + 2]
    if not (_MAP_OF_ONE <= kind <= _MAP_OF_FIFTEEN and _TEXT <= name <= _TEXT_OF_31):
        return b""
    return column[at : at + 2 + name[0] - _TEXT[0]]
