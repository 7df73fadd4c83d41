"""
Turns record batches into rows for PostgreSQL's binary COPY, one row for each message. PURE.

    file   ┌ signature ┬ flags ┬ extension ┬ row ┬ row ┬ … ┬ -1 ┐
    row    ┌ u16 fields ┬ i32 bytes │ field ┬ i32 bytes │ field ┬ …      big-endian; -1 bytes: NULL

Some batches cannot become such rows: the payload does not decode, PostgreSQL cannot store a text, or a
message is too large to send uncompressed. Such a batch becomes one row that holds its bytes. So every
acknowledged message can be archived, and a reader gets the same bytes or an equal message.

Used by `archiver`; `database` sends the rows. It must not know a connection.
"""

import struct
from collections.abc import Iterator

import msgspec

from headrace_mq.errors import DataCorrupt
from headrace_mq.message import KEY_BYTES_MAX
from headrace_mq.protocol.batch import BatchHeader, Columns, decode_columns

__all__ = ["BODY_BYTES_MAX", "COLUMNS", "COPY_END", "COPY_START", "ROWS_PER_STEP", "copy_rows"]

COPY_START = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END = b"\xff\xff"
# In the order of `copy_rows`: first the columns that all rows of a batch share.
COLUMNS = (
    "topic", "queue_id", "log_position", "stored_at_ms", "producer_id", "producer_epoch", "epoch",
    "flags", "records", "batch", "key", "tag", "headers", "queue_offset", "sequence", "born_at_ms",
    "body",
)  # fmt: skip
# A compressed batch with a larger message stays compressed: without, it might not fit into a frame.
BODY_BYTES_MAX = 1 << 20
# Rows made in one step: about a millisecond.
ROWS_PER_STEP = 2_000

_I64_MAX = (1 << 63) - 1
_NULL = struct.pack(">i", -1)
_LENGTH = struct.Struct(">i").pack
_FIELDS = struct.pack(">h", len(COLUMNS))
# Queue, log position, append time, producer, its epoch, the broker's epoch, flags, records.
_SHARED = struct.Struct(">iiiqiqiQiqiqihii").pack
# Offset, sequence, time of birth, and the length of the body, which follows.
_OWN = struct.Struct(">iqiqiqi").pack
_NO_HEADERS = b"{}"
# COPY sends jsonb as a version byte and the text.
_JSONB = b"\x01"
_PLAIN = _LENGTH(0) + _LENGTH(0) + _LENGTH(len(_NO_HEADERS) + 1) + _JSONB + _NO_HEADERS

_encode_json = msgspec.json.Encoder().encode


def copy_rows(batch: bytes, header: BatchHeader) -> Iterator[bytes]:
    """Yields the rows of one whole batch, up to ROWS_PER_STEP at a time; it never refuses a batch.

    Args:
        batch: sound bytes, as the log holds them.
        header: what `read_header` found in them.
    """
    try:
        columns = decode_columns(batch, header)
    except (DataCorrupt, ImportError):
        # The producer wrote a payload of its own form, or its compression is not installed here.
        columns = None
    texts = None if columns is None else _texts(header, columns)
    if columns is None or texts is None:
        yield _whole(batch, header)
        return
    start = _start(header, records=1) + _NULL
    for first in range(0, header.count, ROWS_PER_STEP):
        yield _rows(start, header, columns, texts, first)


def _start(header: BatchHeader, *, records: int) -> bytes:
    topic = header.queue.topic.encode()
    shared = _SHARED(
        4, header.queue.queue_id, 8, header.position, 8, header.appended_at_ms,
        8, header.producer_id, 8, header.producer_epoch, 8, header.epoch,
        2, header.flags, 4, records,
    )  # fmt: skip
    return b"".join((_FIELDS, _LENGTH(len(topic)), topic, shared))


def _whole(batch: bytes, header: BatchHeader) -> bytes:
    return b"".join((
        _start(header, records=header.count), _LENGTH(len(batch)), batch, _PLAIN,
        _OWN(8, header.base_offset, 8, header.first_sequence, 8, header.born_first_ms, 0),
    ))  # fmt: skip


def _texts(header: BatchHeader, columns: Columns) -> list[bytes] | None:
    """Returns the fields key, tag and headers of every row; an empty list if no row has any.

    Returns None if rows cannot hold the batch.
    """
    keys, tags, headers, bodies, deltas = columns
    born = (
        header.born_first_ms + min(deltas, default=0),
        header.born_first_ms + max(deltas, default=0),
    )
    compressed_whole = header.codec and max(map(len, bodies)) > BODY_BYTES_MAX
    if compressed_whole or born[0] < -_I64_MAX or born[1] > _I64_MAX:
        return None
    if not (keys or tags or headers):
        return []
    count = header.count
    coded_keys = [key.encode() for key in keys] or [b""] * count
    coded_tags = [tag.encode() for tag in tags] or [b""] * count
    coded_headers = [_encode_json(one) for one in headers] or [_NO_HEADERS] * count
    # PostgreSQL's text cannot hold NUL, and its index entries are limited to a few kilobytes.
    if (
        any(b"\0" in text for text in (*coded_keys, *coded_tags))
        or any(b"\\u0000" in text for text in coded_headers)
        or max(map(len, coded_keys)) > KEY_BYTES_MAX
    ):
        return None
    return [
        b"".join((
            _LENGTH(len(key)), key, _LENGTH(len(tag)), tag, _LENGTH(len(text) + 1), _JSONB, text,
        ))
        for key, tag, text in zip(coded_keys, coded_tags, coded_headers, strict=True)
    ]  # fmt: skip


def _rows(
    start: bytes, header: BatchHeader, columns: Columns, texts: list[bytes], first: int
) -> bytes:
    last = min(first + ROWS_PER_STEP, header.count)
    offset, sequence, born_ms = header.base_offset, header.first_sequence, header.born_first_ms
    bodies, deltas, own = columns.bodies, columns.born_deltas, _OWN
    parts: list[bytes] = []
    plain = start + _PLAIN
    for at in range(first, last):
        body = bodies[at]
        if texts:
            parts += (start, texts[at])
        else:
            parts.append(plain)
        born = born_ms + deltas[at] if deltas else born_ms
        parts += (own(8, offset + at, 8, sequence + at, 8, born, len(body)), body)
    return b"".join(parts)
