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
from typing import NamedTuple, TypeVar

import msgspec

from headrace_mq.errors import DataCorrupt

__all__ = ["Payload", "Taken", "array_head", "decode_payload", "headers_at", "taken"]

# From so many places on all entries are decoded.
_SINGLE_MAX = 3
_NESTED = struct.Struct(">BIBI")
_ARRAY_32 = 0xDD
_NIL, _EMPTY, _ARRAY_OF_FOUR = b"\xc0", b"\x90", b"\x94"
_NO_HEADERS = msgspec.Raw(b"\x80")

T = TypeVar("T")


class Payload(NamedTuple):
    """The columns of a batch, none of them decoded."""

    keys: msgspec.Raw
    tags: msgspec.Raw
    headers: msgspec.Raw
    bodies: msgspec.Raw
    born_deltas: msgspec.Raw


class Taken(NamedTuple):
    """The fields of some messages, one list each; their headers as they are encoded."""

    keys: list[str]
    tags: list[str]
    headers: list[msgspec.Raw]
    bodies: list[bytes]


class _Text(msgspec.Struct, array_like=True, gc=False):
    before: msgspec.Raw
    entry: str


class _Headers(msgspec.Struct, array_like=True, gc=False):
    before: msgspec.Raw
    entry: msgspec.Raw


class _Body(msgspec.Struct, array_like=True, gc=False):
    before: msgspec.Raw
    entry: bytes


decode_payload = msgspec.msgpack.Decoder(Payload).decode
_decode_one = msgspec.msgpack.Decoder(
    tuple[_Text | None, _Text | None, _Headers | None, _Body | None]
).decode
_decode_one_headers = msgspec.msgpack.Decoder(_Headers).decode
_check_headers = msgspec.msgpack.Decoder(dict[str, str]).decode
_decode_texts = msgspec.msgpack.Decoder(list[str]).decode
_decode_headers = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_bodies = msgspec.msgpack.Decoder(list[bytes]).decode


def taken(
    payload: Payload, places: Sequence[int], count: int, headers: list[msgspec.Raw] | None = None
) -> Taken:
    """The fields of the messages at these places of a batch of `count`.

    Args:
        payload: its columns.
        places: which messages, in their order.
        count: how many there are.
        headers: of these messages, if they are known.

    Raises:
        DataCorrupt: a column has another number of entries.
        msgspec.DecodeError: one does not decode.
    """
    if len(places) < _SINGLE_MAX:
        found = _single(payload, places, count, headers)
        if found is not None:
            return found
    if headers is None:
        headers = headers_at(bytes(payload.headers), places, count)
        for one in headers:
            _check_headers(one)
    return Taken(
        _at(places, count, _decode_texts(payload.keys), ""),
        _at(places, count, _decode_texts(payload.tags), ""),
        headers,
        _at(places, count, _decode_bodies(payload.bodies)),
    )


def _single(
    payload: Payload, places: Sequence[int], count: int, headers: list[msgspec.Raw] | None
) -> Taken | None:
    """The same of a few messages; None where a column begins in a way that it need not have."""
    head = array_head(count)
    at = len(head)
    # All columns side by side, each without its head: one copy of them, and one look for a message.
    columns: list[memoryview | None] = []
    for column in payload[: 2 if headers is not None else 3]:
        view = memoryview(column)
        if view == _EMPTY:
            columns.append(None)
        elif view[:at] == head:
            columns.append(view[at:])
        else:
            return None
    if headers is not None:
        columns.append(None)
    view = memoryview(payload.bodies)
    if view[:at] != head:
        return None
    columns.append(view[at:])
    found = Taken([], [], [] if headers is None else headers, [])
    for place in places:
        nested = _nested(place, count)
        parts: list[bytes | memoryview] = [_ARRAY_OF_FOUR]
        for rest in columns:
            parts += (_NIL,) if rest is None else (nested, rest)
        key, tag, header, body = _decode_one(b"".join(parts))
        found.keys.append(key.entry if key else "")
        found.tags.append(tag.entry if tag else "")
        if headers is None:
            entry = header.entry if header else _NO_HEADERS
            _check_headers(entry)
            found.headers.append(entry)
        assert body is not None, "there are bodies"
        found.bodies.append(body.entry)
    return found


def array_head(count: int) -> bytes:
    """How an array of so many entries begins; producers may write a longer form."""
    if count < 1 << 4:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


def _nested(place: int, count: int) -> bytes:
    """The head of an array of `count` in which those before `place` are one entry."""
    return _NESTED.pack(_ARRAY_32, 1 + count - place, _ARRAY_32, place)


def headers_at(column: bytes, places: Sequence[int], count: int) -> list[msgspec.Raw]:
    """The encoded headers of the messages at these places of `count`; raises what `taken` raises.

    Whether they are headers, nobody has looked.
    """
    head = array_head(count)
    if len(places) >= _SINGLE_MAX or not column.startswith(head):
        return _at(places, count, _decode_headers(column), _NO_HEADERS)
    return [
        _decode_one_headers(column.replace(head, _nested(place, count), 1)).entry
        for place in places
    ]


def _at(places: Sequence[int], count: int, column: list[T], missing: T | None = None) -> list[T]:
    """The entries at these places, or so many times what is missing of an empty column."""
    if not column and missing is not None:
        return [missing] * len(places)
    if len(column) != count:
        raise DataCorrupt("the columns of a record batch differ in length")
    return [column[place] for place in places]
