"""
Checks that a payload has the structure of a batch, without decoding its entries.

A payload has five columns, each of them empty or with one entry for each record. The broker must refuse
a batch that readers cannot decode, but has no time to decode it. Readers of a compressed batch check
it because few bytes may expand to millions of entries.

Used by `batch` and by the store's check of batches. Pure: no clock, no I/O.
"""

import struct

import msgspec

from headrace_mq.errors import UndecodableBatch

__all__ = ["check_structure"]

# How many columns there are, and which of them is never empty.
_COLUMNS, _BODIES = 5, 3
_SHORT_MAX = 15
_SHORT_FIRST, _SHORT_LAST, _ARRAY_16, _ARRAY_32 = 0x90, 0x9F, 0xDC, 0xDD
_U16, _U32 = struct.Struct(">xH"), struct.Struct(">xI")

_decode = msgspec.msgpack.Decoder(tuple[(msgspec.Raw,) * _COLUMNS]).decode  # type: ignore[misc]  # five of them


def check_structure(payload: bytes | memoryview, count: int) -> None:
    """Checks that an unpacked payload has columns for so many records.

    Raises:
        UndecodableBatch: it has not.
    """
    try:
        columns = _decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UndecodableBatch(f"the payload of a record batch does not decode: {error}") from error
    for number, column in enumerate(columns):
        data = memoryview(column)
        kind = data[0]
        # Without a call for the columns of small batches, which most are.
        entries = kind & _SHORT_MAX if _SHORT_FIRST <= kind <= _SHORT_LAST else _entries(data)
        if entries != count and (entries or number == _BODIES):
            raise UndecodableBatch("the columns of a record batch differ in length")


def _entries(data: memoryview) -> int:
    """How many entries an encoded array of more than a few has; -1 for what is no array."""
    if data[0] == _ARRAY_16:
        return int(_U16.unpack_from(data)[0])
    return int(_U32.unpack_from(data)[0]) if data[0] == _ARRAY_32 else -1
