"""
The columns of the data source, built as Arrow arrays from the columns of wire batches.

Sits between: `reader`, which fetches wire batches, and Spark, which wants `pyarrow.RecordBatch`es.
Never builds an object per record; a column that nobody asked for is not built. No I/O.
"""

from collections.abc import Callable
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

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
        body_bytes: the bytes of their bodies; 0 where bodies are not asked for.
    """

    def __init__(self, queue: QueueRef, schema: Any, *, include_headers: bool = True) -> None:
        self._queue = queue
        self._schema = schema
        asked = set(schema.names)
        self._with_headers = include_headers and "headers" in asked
        self._asked = asked if include_headers else asked - {"headers"}
        self._offsets: list[range] = []
        self._keys: list[str] = []
        self._tags: list[str] = []
        self._headers: list[dict[str, str]] = []
        self._bodies: list[bytes] = []
        self._born_ms: list[int] = []
        self._stored_ms: list[tuple[int, int]] = []
        self._any_headers = False
        self.rows = 0
        self.body_bytes = 0

    def add(self, header: BatchHeader, columns: Columns, first: int, last: int) -> None:
        """Takes the records of one wire batch from index `first` to before `last`."""
        count, asked = last - first, self._asked
        self._offsets.append(range(header.base_offset + first, header.base_offset + last))
        self._stored_ms.append((header.appended_at_ms, count))
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
            born = header.born_first_ms
            deltas = columns.born_deltas[first:last]
            self._born_ms += [born + delta for delta in deltas] or [born] * count
        self.rows += count

    def to_arrow(self) -> pa.RecordBatch:
        """Everything gathered, as one batch of the schema."""
        make: dict[str, Callable[[], Any]] = {
            "topic": lambda: pa.repeat(pa.scalar(self._queue.topic), self.rows),
            "queue_id": lambda: pa.repeat(pa.scalar(self._queue.queue_id, pa.int32()), self.rows),
            "offset": lambda: pa.array(list(chain.from_iterable(self._offsets)), pa.int64()),
            "key": lambda: pa.array(self._keys, pa.string()),
            "tag": lambda: pa.array(self._tags, pa.string()),
            "headers": self._headers_to_arrow,
            "body": lambda: pa.array(self._bodies, pa.binary()),
            "born_at": lambda: _timestamps(self._born_ms),
            "stored_at": lambda: _timestamps(
                list(chain.from_iterable([ms] * count for ms, count in self._stored_ms))
            ),
        }
        arrays = [make[name]() for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _headers_to_arrow(self) -> Any:
        if not self._with_headers:
            return pa.nulls(self.rows, pa.map_(pa.string(), pa.string()))
        if not self._any_headers:
            starts: list[int] = [0] * (self.rows + 1)
            names: list[str] = []
            values: list[str] = []
        else:
            starts = list(accumulate(map(len, self._headers), initial=0))
            names = list(chain.from_iterable(self._headers))
            values = list(chain.from_iterable(entry.values() for entry in self._headers))
        return pa.MapArray.from_arrays(
            pa.array(starts, pa.int32()),
            pa.array(names, pa.string()),
            pa.array(values, pa.string()),
        )


def _timestamps(milliseconds: list[int]) -> Any:
    return pa.array(milliseconds, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
