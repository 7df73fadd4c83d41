"""
A few messages out of the columns of a batch, without decoding the others.

A column `[a, b, c, d, e]` of which `c` is wanted is given another beginning, two numbers that say
`[[a, b], c, d, e]`, and decoded as "something, what is wanted, and whatever follows". The decoder
runs over the rest without making anything of it: a third of the time of making a hundred objects
to take one.

Sits between: `sieve`, which knows the places, and the payload of a batch. Pure.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from headrace_mq.errors import DataCorrupt

__all__ = ["Payload", "Taken", "decode_payload", "taken"]

# From so many places on all entries are decoded.
_SINGLE_MAX = 3
_NESTED = struct.Struct(">BIBI")
_ARRAY_32 = 0xDD
_NIL, _EMPTY, _ARRAY_OF_FOUR = b"\xc0", b"\x90", b"\x94"


class Payload(NamedTuple):
    """The columns of a batch, none of them decoded."""

    keys: msgspec.Raw
    tags: msgspec.Raw
    headers: msgspec.Raw
    bodies: msgspec.Raw
    born_deltas: msgspec.Raw


class Taken(NamedTuple):
    """The fields of some messages, one list each."""

    keys: list[str]
    tags: list[str]
    headers: list[dict[str, str]]
    bodies: list[bytes]


class _Text(msgspec.Struct, array_like=True, gc=False):
    before: msgspec.Raw
    entry: str


class _Headers(msgspec.Struct, array_like=True, gc=False):
    before: msgspec.Raw
    entry: dict[str, str]


class _Body(msgspec.Struct, array_like=True, gc=False):
    before: msgspec.Raw
    entry: bytes


decode_payload = msgspec.msgpack.Decoder(Payload).decode
_decode_one = msgspec.msgpack.Decoder(
    tuple[_Text | None, _Text | None, _Headers | None, _Body]
).decode
_decode_all = msgspec.msgpack.Decoder(
    tuple[list[str], list[str], list[dict[str, str]], list[bytes]]
).decode


def taken(payload: Payload, places: Sequence[int], count: int) -> Taken:
    """The fields of the messages at these places of a batch of `count`.

    Raises:
        DataCorrupt: a column has another number of entries.
        msgspec.DecodeError: one does not decode.
    """
    found = Taken([], [], [], [])
    if len(places) >= _SINGLE_MAX:
        return _all(payload, places, count)
    head = _head(count)
    size = len(head)
    for place in places:
        nested = _NESTED.pack(_ARRAY_32, 1 + count - place, _ARRAY_32, place)
        parts: list[bytes | memoryview] = [_ARRAY_OF_FOUR]
        for column in payload[:4]:
            view = memoryview(column)
            if view[:size] == head:
                parts += nested, view[size:]
            elif view == _EMPTY:
                parts.append(_NIL)
            else:
                return _all(payload, places, count)
        key, tag, headers, body = _decode_one(b"".join(parts))
        found.keys.append(key.entry if key else "")
        found.tags.append(tag.entry if tag else "")
        found.headers.append(headers.entry if headers else {})
        found.bodies.append(body.entry)
    return found


def _head(count: int) -> bytes:
    """How an array of so many entries begins; producers may write a longer form."""
    if count < 1 << 4:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


def _all(payload: Payload, places: Sequence[int], count: int) -> Taken:
    defaults: Sequence[Any] = ("", "", {}, b"")
    columns: Sequence[list[Any]] = _decode_all(b"".join((_ARRAY_OF_FOUR, *payload[:4])))
    if len(columns[3]) != count or any(len(column) not in {0, count} for column in columns):
        raise DataCorrupt("the columns of a record batch differ in length")
    return Taken(
        *(
            [column[place] for place in places] if column else [default] * len(places)
            for column, default in zip(columns, defaults, strict=True)
        )
    )
