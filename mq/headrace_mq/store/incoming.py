"""
What a batch must be to be stored: whole, sound, and as a producer makes it.

Sits between: `message_store` and the record batch. Pure: no clock, no I/O.
"""

from headrace_mq.errors import (
    CorruptBatch,
    DataCorrupt,
    FormatTooNew,
    InvalidArgument,
    UnsupportedVersion,
)
from headrace_mq.protocol.batch import BATCH_RECORDS_MAX, SPARSE, BatchHeader, check_whole

__all__ = ["checked_header"]


def checked_header(batch: bytearray | memoryview, header: BatchHeader | None) -> BatchHeader:
    """Returns the header of a batch that is whole and may be stored.

    Args:
        batch: exactly one batch.
        header: what `read_header` found in it, where the caller has asked it already.

    Raises:
        CorruptBatch: the bytes are no sound batch.
        UnsupportedVersion: a newer producer wrote it.
        InvalidArgument: it has too many records, or is one that only a compaction makes.
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
    if header.flags & SPARSE:
        raise InvalidArgument("only a compaction takes records out of a batch; send whole ones")
    return header
