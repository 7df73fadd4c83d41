"""
The records of a fetched batch, for administration: a batch that cannot be decoded is shown too.

It becomes one record that says so.

Used by `tail`, `lookup` and `dead_letters`. Pure.
"""

from typing import NamedTuple

from headrace_mq.access.heads import seen_records
from headrace_mq.client.fetch.damage import Damaged, marker_of
from headrace_mq.errors import UndecodableBatch
from headrace_mq.message import Record
from headrace_mq.protocol.batch import BatchHeader, decode_placed, read_header

__all__ = ["StoredBatch", "readable_records", "stored_batch"]


class StoredBatch(NamedTuple):
    """A batch as it is stored: what its header says, and why no reader can decode it, or nothing."""

    header: BatchHeader
    damage: str


def readable_records(batch: memoryview) -> list[Record]:
    """The records of a batch, or a marker (`client.fetch.damage`) where no reader can decode it.

    Raises:
        CorruptBatch: the producer's checksum fails.
    """
    try:
        return seen_records(batch)
    except UndecodableBatch as error:
        header = read_header(batch)
        damaged = Damaged(header.queue, header.base_offset, header.next_offset, str(error))
        return [marker_of(damaged, at_ms=header.appended_at_ms)]


def stored_batch(batch: memoryview) -> StoredBatch:
    """What there is to know of a batch whose checksums are right."""
    header = read_header(batch)
    try:
        decode_placed(batch, header)
    except UndecodableBatch as error:
        return StoredBatch(header, str(error))
    return StoredBatch(header, "")
