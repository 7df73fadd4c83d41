"""
The executor's side: fetches one slice of a queue and turns its columns into Arrow batches.

Sits between: Spark's Python worker, which wants `pyarrow.RecordBatch`es, and the blocking client.
Never builds an object per record: whole columns go from the wire format to Arrow.
"""

import gc
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate, chain
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from headrace_mq.client.blocking import BlockingReader
from headrace_mq.errors import (
    BrokerError,
    ConnectionLost,
    MessageQueueError,
    RequestTimeout,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, Columns
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice

__all__ = [
    "ARROW_SCHEMA",
    "ReadSettings",
    "fetch_ranges",
    "rarely_collecting",
    "read_columns",
    "read_record_batches",
]

# The columns of the data source, in order.
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

Part = tuple[BatchHeader, Columns, int, int]

# A wire batch makes thousands of objects that live for a moment and form no cycles. At Python's own
# thresholds (700, 10, 10) looking for cycles took three quarters of the time of reading, and half
# of the time of folding.
_GC_THRESHOLDS = (50_000, 20, 100)


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one slice's reading."""

    # One request; a broker that restarts needs more than one, hence the attempts below.
    timeout_ms: int = 10_000
    # Connections tried in a row without a single record in between, and the pauses between them
    # (doubled each time): together about 10 s, longer than a broker restart.
    attempts_max: int = 8
    pause_ms_min: int = 100
    pause_ms_max: int = 4_000
    # Bytes asked for in one request; below the broker's limit of 4 MiB for a frame.
    fetch_bytes: int = 2 << 20
    # Rows and body bytes of one Arrow batch: enough to make its fixed costs vanish (measured
    # optimum about 32,000 rows), little enough to keep a worker's memory small.
    batch_rows: int = 32_000
    batch_bytes: int = 16 << 20


class TopicReader(Protocol):
    """What is needed of `BlockingReader`; tests pass one without sockets."""

    def ranges(self, topics: Sequence[str]) -> list[QueueRange]:
        """The ranges of all queues of the topics."""
        ...

    def read(
        self, queue: QueueRef, start: int, end: int, *, bytes_max: int = ...
    ) -> Iterator[Part]:
        """Batches, each with the range of its columns that lies inside [start, end)."""
        ...


Connect = Callable[[str, int], AbstractContextManager[TopicReader]]


def connect(address: str, timeout_ms: int) -> AbstractContextManager[TopicReader]:
    """Opens a connection to the broker at `host:port`."""
    return BlockingReader(address, timeout_ms=timeout_ms)


def fetch_ranges(
    address: str,
    topics: Sequence[str],
    *,
    settings: ReadSettings | None = None,
    connect: Connect = connect,
) -> list[QueueRange]:
    """Asks the broker once for the ranges of all queues of the topics, sorted.

    Raises:
        TopicNotFound: one of them does not exist.
        ConnectionLost: the broker cannot be reached from this machine.
    """
    bounds = settings or ReadSettings()
    try:
        with connect(address, bounds.timeout_ms) as reader:
            ranges = reader.ranges(topics)
    except (MessageQueueError, OSError) as error:
        if isinstance(error, BrokerError) and not error.retriable:
            raise
        raise _unreachable(error) from error
    return sorted(ranges, key=lambda queue: (queue.topic, queue.queue_id))


def read_columns(
    address: str,
    wanted: QueueSlice,
    *,
    settings: ReadSettings | None = None,
    connect: Connect = connect,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Part]:
    """Yields the batches of a slice in offset order, each record once, across reconnects.

    Raises:
        ConnectionLost: the broker could not be reached for as long as the settings allow.
        OffsetOutOfRange: part of the slice was deleted while it was read.
    """
    bounds = settings or ReadSettings()
    at, failures = wanted.start, 0
    while at < wanted.end:
        try:
            with connect(address, bounds.timeout_ms) as reader:
                for part in reader.read(wanted.queue, at, wanted.end, bytes_max=bounds.fetch_bytes):
                    at, failures = part[0].base_offset + part[3], 0
                    yield part
            _check_complete(wanted, at)
        except (ConnectionLost, RequestTimeout, BrokerError, OSError) as error:
            if isinstance(error, BrokerError) and not error.retriable:
                raise
            failures += 1
            if failures >= bounds.attempts_max:
                raise _unreachable(error) from error
            doubled = bounds.pause_ms_min << (failures - 1)
            pause(min(doubled, bounds.pause_ms_max) / 1_000)


@contextmanager
def rarely_collecting() -> Iterator[None]:
    """Makes Python look for cyclic garbage rarely while the block runs; for Spark's workers."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def read_record_batches(
    address: str,
    wanted: QueueSlice,
    *,
    settings: ReadSettings | None = None,
    connect: Connect = connect,
) -> Iterator[pa.RecordBatch]:
    """Yields a slice as Arrow batches of `ARROW_SCHEMA`; raises what `read_columns` raises."""
    bounds = settings or ReadSettings()
    gathered = _Gathered(wanted.queue)
    with rarely_collecting():
        for header, columns, first, last in read_columns(
            address, wanted, settings=bounds, connect=connect
        ):
            gathered.add(header, columns, first, last)
            if gathered.rows >= bounds.batch_rows or gathered.body_bytes >= bounds.batch_bytes:
                yield gathered.to_arrow()
                gathered = _Gathered(wanted.queue)
        if gathered.rows:
            yield gathered.to_arrow()


class _Gathered:
    """Columns of several wire batches, joined until they make one Arrow batch."""

    def __init__(self, queue: QueueRef) -> None:
        self._queue = queue
        self._offsets: list[range] = []
        self._keys: list[str] = []
        self._tags: list[str] = []
        self._headers: list[dict[str, str]] = []
        self._bodies: list[bytes] = []
        self._born_ms: list[int] = []
        self._stored_ms: list[int] = []
        self._any_headers = False
        self.rows = 0
        self.body_bytes = 0

    def add(self, header: BatchHeader, columns: Columns, first: int, last: int) -> None:
        count = last - first
        bodies = columns.bodies[first:last]
        self._offsets.append(range(header.base_offset + first, header.base_offset + last))
        self._keys += columns.keys[first:last] or [""] * count
        self._tags += columns.tags[first:last] or [""] * count
        self._headers += columns.headers[first:last] or [{}] * count
        self._any_headers |= bool(columns.headers)
        self._bodies += bodies
        born = header.born_first_ms
        self._born_ms += [born + delta for delta in columns.born_deltas[first:last]] or [
            born
        ] * count
        self._stored_ms += [header.appended_at_ms] * count
        self.rows += count
        self.body_bytes += sum(map(len, bodies))

    def to_arrow(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(self._queue.topic), self.rows),
                pa.repeat(pa.scalar(self._queue.queue_id, pa.int32()), self.rows),
                pa.array(list(chain.from_iterable(self._offsets)), pa.int64()),
                pa.array(self._keys, pa.string()),
                pa.array(self._tags, pa.string()),
                self._headers_to_arrow(),
                pa.array(self._bodies, pa.binary()),
                _timestamps(self._born_ms),
                _timestamps(self._stored_ms),
            ],
            schema=ARROW_SCHEMA,
        )

    def _headers_to_arrow(self) -> Any:
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


def _check_complete(wanted: QueueSlice, at: int) -> None:
    if at < wanted.end:
        raise ConnectionLost(
            f"the broker sent {wanted.queue.topic}/{wanted.queue.queue_id} only up to offset {at},"
            f" not to {wanted.end}"
        )


def _unreachable(error: Exception) -> ConnectionLost:
    return ConnectionLost(
        f"{error or type(error).__name__}; this was tried on {socket.gethostname()}, and every"
        " Spark executor must reach the broker under this address"
    )
