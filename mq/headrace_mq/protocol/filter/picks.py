"""
Messages that a filter picked out of batches, as columns: one list per field.

If one message of a batch of a hundred matches, only this one is sent, together with the matches of other
batches. The msgpack of a `Picked` is an array of eight arrays of one length:

    offsets, keys, tags, headers, bodies, born (ms), stored (ms), producer ids

Used by `batch_filter`, which picks, and by the consumer's fetcher, which reads the answer. Pure.
"""

from collections.abc import Sequence
from itertools import repeat
from operator import lt
from typing import NamedTuple

import google_crc32c
import msgspec

from headrace_mq.errors import CorruptBatch, DataCorrupt
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.bodies import Picked

__all__ = ["Pick", "picked", "picked_records"]


class Pick(NamedTuple):
    """The fields of a picked message; its headers stay encoded."""

    offset: int
    key: str
    tag: str
    headers: msgspec.Raw
    body: bytes
    born_ms: int
    stored_ms: int
    producer_id: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(
    tuple[
        list[int], list[str], list[str], list[dict[str, str]], list[bytes], list[int], list[int],
        list[int],
    ]
).decode  # fmt: skip


def picked(queue: QueueRef, picks: Sequence[Pick]) -> Picked:
    """Encodes picks of one queue, in offset order, for the wire."""
    messages = _encode(list(zip(*picks, strict=True)))
    return Picked(*queue, google_crc32c.value(messages), messages)


def picked_records(found: Picked) -> list[Record]:
    """Returns the picked messages as records.

    Raises:
        CorruptBatch: the checksum fails.
        DataCorrupt: the bytes do not decode, or the fields differ in length or do not ascend.
    """
    if google_crc32c.value(found.messages) != found.checksum:
        raise CorruptBatch("picked messages fail their checksum; they were damaged on the way")
    try:
        columns = _decode(found.messages)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataCorrupt(f"picked messages do not decode: {error}") from error
    offsets = columns[0]
    if not offsets or any(len(column) != len(offsets) for column in columns):
        raise DataCorrupt("the fields of picked messages differ in length, or are empty")
    if not all(map(lt, offsets, offsets[1:])):
        raise DataCorrupt("picked messages do not stand in order")
    queue = QueueRef(found.topic, found.queue_id)
    return list(map(Record, repeat(queue), *columns))
