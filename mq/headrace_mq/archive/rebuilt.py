"""
Makes record batches from the archive's rows, for the answers to fetches. PURE.

Neighbouring rows of one original batch become one batch again. They keep their offsets, producer,
sequences and times; the new batch is not compressed. A long run of rows is cut into several batches, so
that each fits into an answer.

Used by `blocks`, which keeps the batches; `database` reads the rows.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, assign, encode_batch

__all__ = ["BATCH_BYTES", "ArchivedRow", "RebuiltBatch", "rebuilt"]

# Bytes of bodies in one batch; its last message may exceed it.
BATCH_BYTES = 256 << 10
_BATCH_RECORDS_MAX = 2_000

_U64, _U32 = (1 << 64) - 1, (1 << 32) - 1
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class ArchivedRow(NamedTuple):
    """One row: the columns of `block.sql` in their order."""

    queue_offset: int
    log_position: int
    sequence: int
    records: int
    batch: bytes | None
    key: str
    tag: str
    headers: str
    body: bytes
    born_at_ms: int
    stored_at_ms: int
    producer_id: int
    producer_epoch: int
    epoch: int
    flags: int


class RebuiltBatch(NamedTuple):
    """A batch and its offsets: from `base` to before `end`."""

    base: int
    end: int
    batch: bytes


def rebuilt(queue: QueueRef, rows: Sequence[Sequence[Any]]) -> Iterator[RebuiltBatch]:
    """Yields batches made from the rows of one queue; the rows are in offset order."""
    run: list[Sequence[Any]] = []
    size, follows, position = 0, -1, -1
    for row in rows:
        offset, log_position, _, records, whole = row[:5]
        body_bytes = len(row[8])
        if run and (
            log_position != position
            or offset != follows
            or whole is not None
            or size + body_bytes > BATCH_BYTES
            or len(run) >= _BATCH_RECORDS_MAX
        ):
            yield _batch(queue, run)
            run, size = [], 0
        if whole is not None:
            yield RebuiltBatch(offset, offset + records, whole)
            continue
        run.append(row)
        size += body_bytes
        follows, position = offset + 1, log_position
    if run:
        yield _batch(queue, run)


def _batch(queue: QueueRef, rows: list[Sequence[Any]]) -> RebuiltBatch:
    first = ArchivedRow(*rows[0])
    columns = list(zip(*rows, strict=True))
    keys, tags, headers, bodies, born = (list(columns[at]) for at in (5, 6, 7, 8, 9))
    born_first = min(born)
    batch = encode_batch(
        queue,
        Columns(
            keys if any(keys) else [],
            tags if any(tags) else [],
            [_decode_headers(text) for text in headers] if headers.count("{}") < len(rows) else [],
            bodies,
            [at - born_first for at in born] if born_first != max(born) else [],
        ),
        born_first_ms=born_first,
        producer_id=first.producer_id & _U64,
        producer_epoch=first.producer_epoch,
        first_sequence=first.sequence & _U32,
        flags=first.flags,
    )
    assign(
        batch,
        base_offset=first.queue_offset,
        position=first.log_position,
        appended_at_ms=first.stored_at_ms,
        epoch=first.epoch,
    )
    return RebuiltBatch(first.queue_offset, first.queue_offset + len(rows), bytes(batch))
