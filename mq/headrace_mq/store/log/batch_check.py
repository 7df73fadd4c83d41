"""
Checks a batch before the store appends it: it must be whole, sound, and made as producers make it.

Used by `message_store`. Pure: no clock, no I/O.
"""

from headrace_mq.errors import (
    CorruptBatch,
    DataCorrupt,
    FormatTooNew,
    InvalidArgument,
    InvalidBatch,
    UndecodableBatch,
    UnsupportedVersion,
)
from headrace_mq.protocol.batch import BATCH_RECORDS_MAX, HEADS, SPARSE, BatchHeader, check_whole
from headrace_mq.protocol.compression import CODECS, PLAIN_BYTES_MAX
from headrace_mq.protocol.structure import check_structure

__all__ = ["check_decodable", "checked_header"]

_CODECS = frozenset(CODECS.values())
# The smallest size of a record: an empty body.
_RECORD_BYTES_MIN = 2
# Forms of a batch that no producer sends; one look at them is enough for a batch that has none.
_BROKERS_OWN = SPARSE | HEADS


def checked_header(batch: bytearray | memoryview, header: BatchHeader | None) -> BatchHeader:
    """Returns the header of a batch that is whole and may be stored.

    Args:
        batch: exactly one batch.
        header: the result of `read_header`, if the caller has it already.

    Raises:
        CorruptBatch: the bytes are not a sound batch.
        UnsupportedVersion: a newer producer wrote it.
        InvalidArgument: it has too many records, or a form that only a broker makes.
    """
    try:
        header = check_whole(batch, header)
    except DataCorrupt as error:
        raise CorruptBatch(str(error)) from error
    except FormatTooNew as error:
        raise UnsupportedVersion(str(error)) from error
    if header.count > BATCH_RECORDS_MAX:
        raise InvalidArgument(
            f"a batch holds at most {BATCH_RECORDS_MAX} records, not {header.count}"
        )
    if header.flags & _BROKERS_OWN:
        raise InvalidArgument(
            "only a compaction takes records out of a batch; send whole ones"
            if header.flags & SPARSE
            else "only a broker makes heads of messages; send whole ones"
        )
    return header


def check_decodable(batch: bytearray | memoryview, header: BatchHeader) -> None:
    """Checks a batch's payload as far as possible without decompressing or decoding it.

    The checksum only proves that the bytes are those of the producer. A faulty producer could stop every
    reader of the queue with them, or make each reader allocate as much memory as they claim.

    Args:
        batch: exactly one batch.
        header: the result of `read_header`.

    Raises:
        InvalidBatch: no reader could decode it; the message says why.
        CorruptBatch, UnsupportedVersion, InvalidArgument: as `checked_header` does.
    """
    codec, plain_bytes = header.codec, header.plain_bytes
    reason = ""
    if codec not in _CODECS:
        reason = f"it names codec {codec}, which does not exist"
    elif plain_bytes > PLAIN_BYTES_MAX:
        reason = f"it unpacks to {plain_bytes} bytes, over {PLAIN_BYTES_MAX}"
    elif not codec:
        try:
            check_structure(memoryview(batch)[header.payload_at :], header.count)
        except UndecodableBatch as error:
            reason = str(error)
    elif plain_bytes < _RECORD_BYTES_MIN * header.count:
        reason = f"{header.count} records cannot unpack to {plain_bytes} bytes"
    if reason:
        # A producer repeats a batch that was damaged on the way, but this one will always fail.
        checked_header(batch, header)
        raise InvalidBatch(f"no reader could decode the batch: {reason}")
