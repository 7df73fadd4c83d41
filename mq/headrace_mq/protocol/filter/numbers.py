"""
A column of headers of which one number decides, judged by that number alone.

The decoder reads the number out of each message's headers and makes nothing of the rest; who is
outside the filter's bounds is not selected, whatever else it asks. Only the few within are decoded
and asked. To check and search a batch of 100 orders takes 31 us with it and 60 without, one of 1,000
takes 209 and 541 (the batches of W6 "by order" in `benchmarks.mq`).

Sits between: `sieve`, which has the column, and `filters`. Pure. What it does not know it leaves to
the decoder of everything: a text that JSON would not call a number, and bounds with many between.
"""

import math
from typing import Any

import msgspec

from headrace_mq.filters.filter import Filter
from headrace_mq.protocol.filter.places import NOBODY, Chosen, headers_at

__all__ = ["NumberHeaders"]

# Of more than one message of so many it is quicker to decode all.
_WITHIN_SHARE_MIN = 4

_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode


class NumberHeaders:
    """The bounds of a filter.

    Args:
        wanted: a filter with bounds that asks for headers only.
    """

    __slots__ = ("_decode", "_high", "_low", "_wanted")

    def __init__(self, wanted: Filter) -> None:
        assert wanted.bounds is not None, "without bounds there is nothing to look at"
        self._wanted = wanted
        name, self._low, self._high = wanted.bounds
        # No number is within any bounds.
        fields = [("number", float, math.nan)]
        kind: Any = msgspec.defstruct("Numbered", fields, rename={"number": name}, gc=False)
        # Not strict: numbers are written as texts, and read as JSON would.
        self._decode = msgspec.msgpack.Decoder(list[kind], strict=False).decode

    def chosen(self, column: bytes, count: int) -> Chosen | None:
        """Returns who is selected of `count` messages, None where their headers must be decoded.

        Raises:
            msgspec.DecodeError: the headers of one that is within the bounds do not decode.
        """
        try:
            found = self._decode(column)
        except msgspec.DecodeError:
            return None
        if len(found) != count:
            return None
        low, high = self._low, self._high
        places = [place for place, one in enumerate(found) if low <= one.number <= high]
        if not places:
            return NOBODY
        if len(places) * _WITHIN_SHARE_MIN > count:
            return None
        headers = headers_at(column, places, count)
        decoded = list(map(_decode_headers, headers))
        chosen = self._wanted.places(len(decoded), decoded, (), ())
        return Chosen([places[one] for one in chosen], [headers[one] for one in chosen])
