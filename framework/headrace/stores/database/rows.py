"""
A stored stream as its row: the checksum that is written with it, and how it becomes a stream again.

The checksum is the CRC-32C of aggregate id and type, version, command id and body. It finds what a
failing disk, a wrong restore or an edit by hand has changed. It does not protect against an attacker who
can write to the database. We chose CRC-32C because it finds every change of up to three bits and every
burst of 32, costs a tenth of a microsecond, and guards the queue's batches already.

Used by the adapters, which select `COLUMNS`; uses the serializer. Pure.
"""

from collections.abc import Iterable
from typing import Any, Final

import google_crc32c

from headrace.domain.stream import EventStream
from headrace.errors import DamagedStream, SerializationError, UnknownMessageType
from headrace.serialization import Serializer
from headrace.stores.base import StoredByCommand, StoredStream
from headrace.stores.database.tables import event_streams

__all__ = ["COLUMNS", "by_command", "checksum_of", "entry_in", "read_keys", "stream_in"]

_of: Final = event_streams.c
# Everything in a row except the moment; that column is for people, and the body has the moment too.
COLUMNS: Final[tuple[Any, ...]] = (
    _of.position,
    _of.aggregate_id,
    _of.aggregate_type,
    _of.version,
    _of.command_id,
    _of.body,
    _of.checksum,
)


def checksum_of(
    aggregate_id: str, aggregate_type: str, version: int | None, command_id: str, body: bytes
) -> int:
    """Returns the checksum that is stored with a stream."""
    head = f"{aggregate_id}\0{aggregate_type}\0{version}\0{command_id}\0".encode()
    return google_crc32c.extend(google_crc32c.value(head), body)  # type: ignore[no-any-return]  # untyped


async def read_keys(rows: Iterable[Any], serializer: Serializer) -> None:
    """Reads the keys of personal fields that rows of `COLUMNS` need, all at once, off the event loop.

    Raises:
        SubjectKeysAway: they cannot be read just now.
    """
    if serializer.cipher is not None:
        await serializer.cipher.find_ahead(row[5].encode() for row in rows)


def stream_in(row: Any, serializer: Serializer) -> EventStream:
    """Returns the stream of a row of `COLUMNS`.

    Raises:
        DamagedStream: its checksum says that it is not what was stored, or it does not decode.
    """
    position, aggregate_id, aggregate_type, version, command_id, text, checksum = row
    body = text.encode()
    if checksum is not None and checksum != checksum_of(
        aggregate_id, aggregate_type, version, command_id, body
    ):
        raise DamagedStream(
            position, aggregate_id, version, command_id,
            "it is not what was stored: its checksum differs",
        )  # fmt: skip
    try:
        return serializer.decode_stream(body)
    except (SerializationError, ValueError) as error:
        raise DamagedStream(position, aggregate_id, version, command_id, str(error)) from error


def entry_in(row: Any, serializer: Serializer) -> StoredStream | DamagedStream:
    """Returns the stream of a row with its position, or why it cannot be read."""
    try:
        return StoredStream(position=row[0], stream=stream_in(row, serializer))
    except DamagedStream as error:
        return error
    except UnknownMessageType as error:
        return DamagedStream(row[0], row[1], row[3], row[4], str(error))


def by_command(rows: Iterable[Any], serializer: Serializer) -> StoredByCommand:
    """Returns the streams of rows by aggregate and command id, or why one cannot be read."""
    found: dict[tuple[str, str], EventStream | DamagedStream] = {}
    for row in rows:
        entry = entry_in(row, serializer)
        found[row[1], row[4]] = entry.stream if isinstance(entry, StoredStream) else entry
    return found
