"""
A few messages out of the columns of a batch, without decoding the others.

A column `[a, b, c, d, e]` of which `c` is wanted is given another beginning, two numbers that say
`[[a, b], c, d, e]`, and decoded as "something, what is wanted, and whatever follows". The decoder
runs over the rest without making anything of it: a third of the time of making a hundred objects
to take one. Where all entries are of one size not even that is needed.

Sits between: `sieve`, which knows the places, and the payload of a batch. Pure.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from headrace_mq.errors import DataCorrupt
from headrace_mq.protocol.filter.even import even_entries

__all__ = [
    "NOBODY",
    "Chosen",
    "Payload",
    "Taken",
    "array_head",
    "decode_payload",
    "headers_at",
    "taken",
]

# From so many places on all entries are decoded.
_SINGLE_MAX = 3
_NESTED = struct.Struct(">BIBI")
_ARRAY_32 = 0xDD
_NIL, _EMPTY, _ARRAY_OF_FOUR = b"\xc0", b"\x90", b"\x94"
_NO_HEADERS = msgspec.Raw(b"\x80")

T = TypeVar("T")

_new = tuple.__new__


class Payload(NamedTuple):
    """The columns of a batch, none of them decoded."""

    keys: msgspec.Raw
    tags: msgspec.Raw
    headers: msgspec.Raw
    bodies: msgspec.Raw
    born_deltas: msgspec.Raw


class Chosen(NamedTuple):
    """The places of some messages, and what is known of these: headers as they are encoded."""

    places: Sequence[int]
    headers: list[msgspec.Raw] | None = None
    tags: list[str] | None = None


NOBODY = Chosen([], [])


class Taken(NamedTuple):
    """What a batch says of one message; its headers as they are encoded."""

    key: str
    tag: str
    headers: msgspec.Raw
    body: bytes


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


def taken(payload: Payload, chosen: Chosen, count: int) -> list[Taken]:
    """The chosen messages of a batch of `count`.

    Args:
        payload: its columns.
        chosen: which messages, in their order, and what is known of them.
        count: how many there are.

    Raises:
        DataCorrupt: a column has another number of entries.
        msgspec.DecodeError, UnicodeDecodeError: one does not decode.
    """
    if len(chosen.places) < _SINGLE_MAX:
        found = _single(payload, chosen, count)
        if found is not None:
            return found
    places, headers, tags = chosen
    if headers is None:
        headers = headers_at(bytes(payload.headers), places, count)
        for one in headers:
            _check_headers(one)
    columns = (
        _texts_at(payload.keys, places, count),
        _texts_at(payload.tags, places, count) if tags is None else tags,
        headers,
        _bodies_at(payload.bodies, places, count),
    )
    return [_new(Taken, row) for row in zip(*columns, strict=True)]


def _single(payload: Payload, chosen: Chosen, count: int) -> list[Taken] | None:
    """The same of a few messages; None where a column begins in a way that it need not have."""
    head = array_head(count)
    at = len(head)
    places, headers, tags = chosen
    # What stands behind the head of each column, None where nothing is to be looked for.
    rests: list[memoryview | None] = []
    for raw, known in zip(payload[:4], (None, tags, headers, None), strict=True):
        column = memoryview(raw)
        if known is not None or column == _EMPTY:
            rests.append(None)
        elif column[:at] == head:
            rests.append(column[at:])
        else:
            return None
    found = []
    for number, place in enumerate(places):
        # All columns side by side, each with another head: one look for a message.
        nested = _nested(place, count)
        parts: list[bytes | memoryview] = [_ARRAY_OF_FOUR]
        for rest in rests:
            parts += (_NIL,) if rest is None else (nested, rest)
        key, tag, header, body = _decode_one(b"".join(parts))
        if body is None:
            raise DataCorrupt("the columns of a record batch differ in length")
        if headers is not None:
            encoded = headers[number]
        else:
            encoded = _checked(header.entry) if header else _NO_HEADERS
        text = tags[number] if tags is not None else tag.entry if tag else ""
        found.append(_new(Taken, (key.entry if key else "", text, encoded, body.entry)))
    return found


def _texts_at(raw: msgspec.Raw, places: Sequence[int], count: int) -> list[str]:
    column = bytes(raw)
    found = even_entries(column, array_head(count), count, places, texts=True)
    if found is not None:
        return [str(one, "utf-8") for one in found]
    return _at(places, count, _decode_texts(column), "")


def _bodies_at(raw: msgspec.Raw, places: Sequence[int], count: int) -> list[bytes]:
    column = bytes(raw)
    found = even_entries(column, array_head(count), count, places, texts=False)
    return _at(places, count, _decode_bodies(column)) if found is None else found


def headers_at(column: bytes, places: Sequence[int], count: int) -> list[msgspec.Raw]:
    """The encoded headers of the messages at these places of `count`; raises what `taken` raises.

    Whether they are headers, nobody has looked.
    """
    head = array_head(count)
    if len(places) >= _SINGLE_MAX or not column.startswith(head):
        found = _at(places, count, _decode_headers(column), _NO_HEADERS)
    else:
        ends = [_nested(place, count) for place in places]
        found = [_decode_one_headers(column.replace(head, end, 1)).entry for end in ends]
    return [one.copy() for one in found]


def _checked(headers: msgspec.Raw) -> msgspec.Raw:
    """A copy of a message's headers; raises DecodeError unless they are texts by name.

    Without the copy they would keep all bytes that they were found in until they have been sent.
    """
    _check_headers(headers)
    return headers.copy()


def array_head(count: int) -> bytes:
    """How an array of so many entries begins; producers may write a longer form."""
    if count < 1 << 4:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


def _nested(place: int, count: int) -> bytes:
    """The head of an array of `count` in which those before `place` are one entry."""
    return _NESTED.pack(_ARRAY_32, 1 + count - place, _ARRAY_32, place)


def _at(places: Sequence[int], count: int, column: list[T], missing: T | None = None) -> list[T]:
    """The entries at these places, or so many times what is missing of an empty column.

    Raises DataCorrupt where there are other than `count` entries.
    """
    if not column and missing is not None:
        return [missing] * len(places)
    if len(column) != count:
        raise DataCorrupt("the columns of a record batch differ in length")
    return [column[place] for place in places]
