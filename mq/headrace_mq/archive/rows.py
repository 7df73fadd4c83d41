"""
Makes rows of PostgreSQL's binary COPY of record batches: a row for each message. PURE.

    file   ┌ signature ┬ flags ┬ extension ┬ row ┬ row ┬ … ┬ -1 ┐
    row    ┌ u16 fields ┬ i32 bytes │ field ┬ i32 bytes │ field ┬ …      big-endian; -1 bytes: NULL

Rows cannot hold every batch: a payload may not decode, PostgreSQL may not hold a text, or a message may be
too large to send without its compression. Such a batch becomes one row that holds it as it is. So every
acknowledged message can be archived, and comes back to the byte or as an equal message.

Used by `archiver`; `database` sends the rows. This module must never know a connection.
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
# In the order of `copy_rows`: what is the same for a batch comes first.
COLUMNS = (
    "topic", "queue_id", "log_position", "stored_at_ms", "producer_id", "producer_epoch", "epoch",
    "flags", "records", "batch", "key", "tag", "headers", "queue_offset", "sequence", "born_at_ms",
    "body",
)  # fmt: skip
# A message of a compressed batch that is larger stays compressed: it could fit no frame without.
BODY_BYTES_MAX = 1 << 20
# Rows made in one go: about a millisecond.
ROWS_PER_STEP = 2_000

_I64_MAX = (1 << 63) - 1
_NULL = struct.pack(">i", -1)
_LENGTH = struct.Struct(">i").pack
_FIELDS = struct.pack(">h", len(COLUMNS))
# Queue, log position, append time, producer, its epoch, the broker's epoch, flags, records.
_SHARED = struct.Struct(">iiiqiqiQiqiqihii").pack
# Offset, sequence, time of birth, and how long the body is that follows.
_OWN = struct.Struct(">iqiqiqi").pack
_NO_HEADERS = b"{}"
# jsonb travels as its version and its text.
_JSONB = b"\x01"
_PLAIN = _LENGTH(0) + _LENGTH(0) + _LENGTH(len(_NO_HEADERS) + 1) + _JSONB + _NO_HEADERS

_encode_json = msgspec.json.Encoder().encode


def copy_rows(batch: bytes, header: BatchHeader) -> Iterator[bytes]:
    """Yields the rows of one whole batch, up to ROWS_PER_STEP at a time; nothing is ever refused.

    Args:
        batch: sound bytes, as the log holds them.
        header: what `read_header` found in them.
    """
    try:
        columns = decode_columns(batch, header)
    except (DataCorrupt, ImportError):
        # Its producer's business, or compressed with what is not installed here.
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
    """The fields key, tag and headers of every row; nothing where all have none of them.

    None where rows cannot say what the batch says.
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
    # PostgreSQL's text holds no NUL, and an entry of its indexes a few kilobytes.
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
