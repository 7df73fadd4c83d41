"""
Records in columns: one list per field for a run of records of one queue.

For applications that work on whole columns (aggregation, data frames, bulk inserts): no object is
made for each record.

Used by `assigned_queues`, which buffer fetched records, and by applications. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import check_body, decode_columns, read_header

__all__ = ["RecordColumns", "decode_record_columns", "from_records"]


class RecordColumns(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring records of one queue, as they were stored together.

    Args:
        queue: the queue they are in.
        offset: of the first record; each further one has the next offset.
        bodies: one for each record.
        keys: one for each record, or none if all are empty.
        tags: the same.
        headers: the same.
        born_first_ms: when the producer took the first one, in milliseconds since 1970 UTC.
        born_deltas: how many milliseconds later each was taken, or none if all are 0.
        stored_at_ms: when the broker appended them.
        producer_id: which producer sent them; 0 for none.
    """

    queue: QueueRef
    offset: int
    bodies: Sequence[bytes]
    keys: Sequence[str] = ()
    tags: Sequence[str] = ()
    headers: Sequence[Mapping[str, str]] = ()
    born_first_ms: int
    born_deltas: Sequence[int] = ()
    stored_at_ms: int
    producer_id: int = 0

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def offsets(self) -> range:
        """The offset of every record."""
        return range(self.offset, self.offset + len(self.bodies))

    def behind(self, offset: int) -> "RecordColumns":
        """The records from an offset on; there is at least one."""
        return self._cut(slice(max(offset - self.offset, 0), None))

    def before(self, offset: int) -> "RecordColumns":
        """The records before an offset; there is at least one."""
        return self._cut(slice(0, offset - self.offset))

    def _cut(self, cut: slice) -> "RecordColumns":
        return msgspec.structs.replace(
            self,
            offset=self.offset + cut.start,
            bodies=self.bodies[cut],
            keys=self.keys[cut],
            tags=self.tags[cut],
            headers=self.headers[cut],
            born_deltas=self.born_deltas[cut],
        )

    def records(self) -> list[Record]:
        """The same records, as one object each."""
        count = len(self.bodies)
        nothing: dict[str, Any] = {}
        columns = zip(
            self.offsets,
            self.keys or [""] * count,
            self.tags or [""] * count,
            self.headers or [nothing] * count,
            self.bodies,
            self.born_deltas or [0] * count,
            strict=True,
        )
        return [
            Record(
                queue=self.queue,
                offset=offset,
                key=key,
                tag=tag,
                headers=entry,
                body=body,
                born_at_ms=self.born_first_ms + delta,
                stored_at_ms=self.stored_at_ms,
                producer_id=self.producer_id,
            )
            for offset, key, tag, entry, body, delta in columns
        ]


def decode_record_columns(batch: bytes | bytearray | memoryview) -> RecordColumns:
    """Checks and decodes one whole batch.

    Raises:
        CorruptBatch: the producer's checksum fails.
        DataCorrupt: the payload does not decode.
    """
    check_body(batch)
    header = read_header(batch)
    columns = decode_columns(batch, header)
    return RecordColumns(
        queue=header.queue,
        offset=header.base_offset,
        bodies=columns.bodies,
        keys=columns.keys,
        tags=columns.tags,
        headers=columns.headers,
        born_first_ms=header.born_first_ms,
        born_deltas=columns.born_deltas,
        stored_at_ms=header.appended_at_ms,
        producer_id=header.producer_id,
    )


def from_records(records: Sequence[Record]) -> list[RecordColumns]:
    """Puts records of one queue into columns, a run for each time they were stored at.

    Args:
        records: in offset order.
    """
    runs: list[list[Record]] = []
    for record in records:
        last = runs[-1][-1] if runs else None
        together = (
            last is not None
            and record.offset == last.offset + 1
            and (record.stored_at_ms, record.producer_id) == (last.stored_at_ms, last.producer_id)
        )
        if together:
            runs[-1].append(record)
        else:
            runs.append([record])
    return [_of_run(run) for run in runs]


def _of_run(run: Sequence[Record]) -> RecordColumns:
    first = run[0]
    return RecordColumns(
        queue=first.queue,
        offset=first.offset,
        bodies=[record.body for record in run],
        keys=[record.key for record in run],
        tags=[record.tag for record in run],
        headers=[record.headers for record in run],
        born_first_ms=first.born_at_ms,
        born_deltas=[record.born_at_ms - first.born_at_ms for record in run],
        stored_at_ms=first.stored_at_ms,
        producer_id=first.producer_id,
    )
