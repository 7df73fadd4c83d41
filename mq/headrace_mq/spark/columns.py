"""
The columns of the data source, built as Arrow arrays from the columns of wire batches.

Used by `reader`, which fetches wire batches; makes the `pyarrow.RecordBatch`es that Spark wants. It makes
no object per record and builds only the columns of the query. A value that many records in a row share
stays one object until Arrow repeats it. No I/O.
"""

from collections.abc import Callable
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, Columns

__all__ = ["ARROW_SCHEMA", "Gathered"]

# All columns of the data source, in order.
ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("tag", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
        ("born_at", pa.timestamp("us", tz="UTC")),
        ("stored_at", pa.timestamp("us", tz="UTC")),
    ]
)


class Gathered:
    """Wire batches of one queue, joined until they make one Arrow batch.

    Args:
        queue: the queue they come from.
        schema: the columns to build, a choice of `ARROW_SCHEMA` in any order.
        include_headers: False leaves the column `headers` null.

    Attributes:
        rows: the records gathered so far.
        body_bytes: the bytes of their bodies; 0 if the schema has no column `body`.
    """

    def __init__(self, queue: QueueRef, schema: Any, *, include_headers: bool = True) -> None:
        self._queue = queue
        self._schema = schema
        asked = set(schema.names)
        self._with_headers = include_headers and "headers" in asked
        self._asked = asked if include_headers else asked - {"headers"}
        # For each row: its offset minus its row number here.
        self._ahead = _Runs()
        self._keys: list[str] = []
        self._tags: list[str] = []
        self._headers: list[dict[str, str]] = []
        self._bodies: list[bytes] = []
        self._born_ms = _Runs()
        self._born_deltas: list[int] = []
        self._stored_ms = _Runs()
        self._any_headers = False
        self.rows = 0
        self.body_bytes = 0

    def add(self, header: BatchHeader, columns: Columns, first: int, last: int) -> None:
        """Takes the records of one wire batch from index `first` to before `last`."""
        count, asked = last - first, self._asked
        if count <= 0:
            return
        self._ahead.add(header.base_offset + first - self.rows, count)
        self._stored_ms.add(header.appended_at_ms, count)
        if "key" in asked:
            self._keys += columns.keys[first:last] or [""] * count
        if "tag" in asked:
            self._tags += columns.tags[first:last] or [""] * count
        if "headers" in asked:
            self._headers += columns.headers[first:last] or [{}] * count
            self._any_headers |= bool(columns.headers)
        if "body" in asked:
            bodies = columns.bodies[first:last]
            self._bodies += bodies
            self.body_bytes += sum(map(len, bodies))
        if "born_at" in asked:
            self._born_ms.add(header.born_first_ms, count)
            self._born_deltas += columns.born_deltas[first:last] or [0] * count
        self.rows += count

    def to_arrow(self) -> pa.RecordBatch:
        """Returns all records gathered so far as one batch of the schema."""
        make: dict[str, Callable[[], Any]] = {
            "topic": lambda: pa.repeat(pa.scalar(self._queue.topic), self.rows),
            "queue_id": lambda: pa.repeat(pa.scalar(self._queue.queue_id, pa.int32()), self.rows),
            "offset": lambda: pc.add(pa.arange(0, self.rows), self._ahead.to_arrow()),
            "key": lambda: pa.array(self._keys, pa.string()),
            "tag": lambda: pa.array(self._tags, pa.string()),
            "headers": self._headers_to_arrow,
            "body": lambda: pa.array(self._bodies, pa.binary()),
            "born_at": lambda: _timestamps(
                pc.add(self._born_ms.to_arrow(), pa.array(self._born_deltas, pa.int64()))
            ),
            "stored_at": lambda: _timestamps(self._stored_ms.to_arrow()),
        }
        arrays = [make[name]() for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _headers_to_arrow(self) -> Any:
        if not self._with_headers:
            return pa.nulls(self.rows, pa.map_(pa.string(), pa.string()))
        entries, rows = self._headers, self.rows
        alike = entries[0] if self._any_headers else {}
        if not self._any_headers or _all_alike(entries):
            starts = pc.multiply(pa.arange(0, rows + 1), len(alike)).cast(pa.int32())
            names, values = list(alike) * rows, list(alike.values()) * rows
        else:
            starts = pa.array(list(accumulate(map(len, entries), initial=0)), pa.int32())
            names = list(chain.from_iterable(entries))
            values = list(chain.from_iterable(entry.values() for entry in entries))
        return pa.MapArray.from_arrays(
            starts, pa.array(names, pa.string()), pa.array(values, pa.string())
        )


class _Runs:
    """Numbers that are often the same for many records in a row."""

    def __init__(self) -> None:
        self._values: list[int] = []
        self._ends: list[int] = []

    def add(self, value: int, count: int) -> None:
        """Appends a number `count` times."""
        end = (self._ends[-1] if self._ends else 0) + count
        if self._values and self._values[-1] == value:
            self._ends[-1] = end
        else:
            self._values.append(value)
            self._ends.append(end)

    def to_arrow(self) -> Any:
        """Returns all numbers, one per record."""
        ends, values = pa.array(self._ends, pa.int32()), pa.array(self._values, pa.int64())
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, values))


def _all_alike(entries: list[dict[str, str]]) -> bool:
    # If any two differ, the first and the last usually do: compare these before all others.
    return entries[0] == entries[-1] and entries.count(entries[0]) == len(entries)


def _timestamps(milliseconds: Any) -> Any:
    found = milliseconds.cast(pa.timestamp("ms", tz="UTC"))
    return found.cast(pa.timestamp("us", tz="UTC"))
