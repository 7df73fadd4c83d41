"""
Record batches from which a compaction took records: made, cut into dense runs, and placed.

    dense   │ 0 │ 1 │ 2 │ 3 │ 4 │ 5 │      records 1, 2 and 5 are superseded
    sparse  │ 0 │       │ 3 │ 4 │          turns: 1 remains, 2 went, 2 remain (what goes last: unsaid)

Offsets, sequences, times and the producer's numbering stay as they were; only payload, checksums and
log position are new.

Used by the store's compaction and by readers of columns. Pure: no clock, no I/O.
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby

import google_crc32c
import msgspec

from headrace_mq.protocol.batch import (
    BATCH_HEADER_BYTES,
    FORMAT_VERSION,
    SPARSE,
    BatchHeader,
    Columns,
    assign,
    summary_of,
)
from headrace_mq.protocol.compression import CODECS, compress

__all__ = ["dense_runs", "is_sparse", "moved", "removed_before", "thinned"]

# Of the batch's header; `batch` draws it.
_GAP = struct.Struct("<I")
_GAP_AT = 44
_GAP_MAX = (1 << 32) - 1
_VERSION_AT, _LENGTH_AT, _BODY_CRC_AT, _BODY_AT = 4, 8, 48, 52
_BORN_LAST_AT, _SUMMARY_AT = 88, 96
_LAYOUT = struct.Struct("<BB")  # at byte 52: codec and flags
_NUMBER, _TIME, _BITS = struct.Struct("<I"), struct.Struct("<q"), struct.Struct("<Q")
_PLAIN_AT = 104

_encode = msgspec.msgpack.Encoder().encode


def is_sparse(batch: bytes | bytearray | memoryview) -> bool:
    """Whether a compaction took records out of a batch; nothing else of it is looked at."""
    return bool(batch[_BODY_AT + 1] & SPARSE)


def removed_before(batch: bytes | bytearray | memoryview) -> int:
    """Returns how many offsets right in front of a batch a compaction left without a message."""
    removed: int = _GAP.unpack_from(batch, _GAP_AT)[0]
    return removed


def moved(
    batch: bytes | bytearray | memoryview, header: BatchHeader, *, position: int, gap: int
) -> bytearray:
    """Returns a whole batch for another log position, behind `gap` offsets without a message."""
    copy = bytearray(batch)
    _GAP.pack_into(copy, _GAP_AT, min(gap, _GAP_MAX))
    assign(
        copy,
        base_offset=header.base_offset,
        position=position,
        appended_at_ms=header.appended_at_ms,
        epoch=header.epoch,
    )
    return copy


def thinned(
    batch: bytes | bytearray | memoryview,
    header: BatchHeader,
    offsets: Sequence[int],
    columns: Columns,
    kept: Sequence[int],
) -> bytearray:
    """Returns a batch with some of its records only, at the same log position.

    Args:
        batch: a whole batch, dense or sparse.
        header: of it.
        offsets: of its records, as `decode_placed` says.
        columns: the same.
        kept: which of them remain, by their index in `offsets`, ascending; may be none.
    """
    left = Columns(
        *([column[at] for at in kept] if column else [] for column in columns)  # type: ignore[arg-type]  # a column each
    )
    turns = _turns(header.base_offset, [offsets[at] for at in kept])
    plain = _encode((*left, turns))
    codec, payload = header.codec, compress(header.codec, plain)
    if len(payload) >= len(plain):
        codec, payload = CODECS["none"], plain
    result = bytearray(memoryview(batch)[: header.payload_at]) + payload
    result[_VERSION_AT] = FORMAT_VERSION
    _NUMBER.pack_into(result, _LENGTH_AT, len(result))
    _LAYOUT.pack_into(result, _BODY_AT, codec, header.flags | SPARSE)
    _TIME.pack_into(result, _BORN_LAST_AT, header.born_first_ms + max(left.born_deltas, default=0))
    _BITS.pack_into(result, _SUMMARY_AT, summary_of(left.tags))
    _NUMBER.pack_into(result, _PLAIN_AT, len(plain))
    body = bytes(memoryview(result)[_BODY_AT:])
    _NUMBER.pack_into(result, _BODY_CRC_AT, google_crc32c.value(body))
    return moved(result, header, position=header.position, gap=removed_before(batch))


def dense_runs(
    header: BatchHeader, offsets: Sequence[int], columns: Columns
) -> Iterator[tuple[BatchHeader, Columns]]:
    """Yields a batch as dense ones: a header and columns for each run of neighbouring offsets.

    A dense batch is its own only run, and a batch without records has none.
    """
    if not header.flags & SPARSE:
        yield header, columns
        return
    for _, run in groupby(range(len(offsets)), key=lambda at: offsets[at] - at):
        places = list(run)
        first, end = places[0], places[-1] + 1
        part = Columns(*(column[first:end] for column in columns))  # type: ignore[arg-type]  # a column each
        yield (
            header._replace(
                base_offset=offsets[first],
                count=end - first,
                first_sequence=header.first_sequence + offsets[first] - header.base_offset,
                flags=header.flags & ~SPARSE,
            ),
            part,
        )


def _turns(base: int, offsets: Sequence[int]) -> list[int]:
    """How many offsets from `base` on are there, how many are not, and so on by turns."""
    turns: list[int] = []
    at = base
    for _, run in groupby(enumerate(offsets), key=lambda placed: placed[1] - placed[0]):
        run_offsets = [offset for _, offset in run]
        if run_offsets[0] > at:
            turns += [0] if not turns else []
            turns.append(run_offsets[0] - at)
        turns.append(len(run_offsets))
        at = run_offsets[-1] + 1
    return turns


assert _PLAIN_AT < BATCH_HEADER_BYTES
