"""
Takes a few messages out of the columns of a batch.

Only the columns are decoded, each by one call. The other messages become no objects, and headers stay
encoded.

Used by `sieve` and `numbers`. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from headrace_mq.errors import DataCorrupt

__all__ = [
    "NOBODY",
    "Chosen",
    "Payload",
    "Taken",
    "decode_payload",
    "headers_at",
    "taken",
]

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


decode_payload = msgspec.msgpack.Decoder(Payload).decode
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
    places, headers, tags = chosen
    if headers is None:
        headers = headers_at(bytes(payload.headers), places, count)
        for one in headers:
            _check_headers(one)
    columns = (
        _at(places, count, _decode_texts(payload.keys), ""),
        _at(places, count, _decode_texts(payload.tags), "") if tags is None else tags,
        headers,
        _at(places, count, _decode_bodies(payload.bodies)),
    )
    return [_new(Taken, row) for row in zip(*columns, strict=True)]


def headers_at(column: bytes, places: Sequence[int], count: int) -> list[msgspec.Raw]:
    """The encoded headers of the messages at these places of `count`; raises what `taken` raises.

    The bytes are not validated as headers.
    """
    # Copies: the column would stay in memory until what is found has been sent.
    return [one.copy() for one in _at(places, count, _decode_headers(column), _NO_HEADERS)]


def _at(places: Sequence[int], count: int, column: list[T], missing: T | None = None) -> list[T]:
    """The entries at these places, or so many times what is missing of an empty column.

    Raises DataCorrupt where there are other than `count` entries.
    """
    if not column and missing is not None:
        return [missing] * len(places)
    if len(column) != count:
        raise DataCorrupt("the columns of a record batch differ in length")
    return [column[place] for place in places]
