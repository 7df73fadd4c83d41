"""
The executor's side: fetches one slice of a queue and turns its columns into Arrow batches.

Used by Spark's Python worker, which wants `pyarrow.RecordBatch`es; uses the blocking client. It handles
broken connections and deleted offsets. It never sees options or plans.
"""

import gc
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from headrace_mq._runtime.log import get_logger
from headrace_mq.client.sync.reader import BlockingReader, Part, TopicReader
from headrace_mq.errors import (
    BrokerError,
    ConnectionLost,
    MessageQueueError,
    OffsetOutOfRange,
    QueueNotFound,
    RequestTimeout,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.columns import ARROW_SCHEMA, Gathered
from headrace_mq.spark.offsets import QueueSlice

__all__ = [
    "Choice",
    "Part",
    "ReadSettings",
    "TopicReader",
    "ask",
    "connect",
    "fetch_offsets_at",
    "fetch_ranges",
    "fetch_settled",
    "message_bytes",
    "rarely_collecting",
    "read_columns",
    "read_record_batches",
    "unreachable_here",
]

T = TypeVar("T")

_log = get_logger(__name__)

# A wire batch makes thousands of short-lived objects without cycles. With Python's default
# thresholds (700, 10, 10) the garbage collector took three quarters of the time of reading and
# half of the time of folding.
_GC_THRESHOLDS = (50_000, 20, 100)


# What is looked at to estimate sizes: of so many slices so many records, at so many bytes a request.
_LOOKED_AT_MAX = 16
_LOOKED_AT_RECORDS = 100
_LOOKED_AT_BYTES = 64 << 10


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of reading one slice."""

    # The limit of one request. A restart of the broker takes longer: see the attempts below.
    timeout_ms: int = 10_000
    # Attempts to connect in a row without a record in between, and the pauses between them
    # (doubled each time): together about 10 s, longer than a restart of the broker.
    attempts_max: int = 8
    pause_ms_min: int = 100
    pause_ms_max: int = 4_000
    # Bytes asked for in one request; below the broker's limit of 4 MiB for a frame.
    fetch_bytes: int = 2 << 20
    # Rows and body bytes of one Arrow batch: large enough that its fixed costs do not
    # matter (best measured: about 32,000 rows), small enough for the memory of a worker.
    batch_rows: int = 32_000
    batch_bytes: int = 16 << 20

    def pause_s(self, failures: int) -> float:
        """Returns the pause in seconds after `failures` failures in a row."""
        return min(self.pause_ms_min << (failures - 1), self.pause_ms_max) / 1_000


Connect = Callable[[str, int], AbstractContextManager[TopicReader]]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a slice to read.

    Args:
        schema: the columns, a choice of `ARROW_SCHEMA` in any order.
        include_headers: False leaves the column `headers` null.
        keep: takes the header of a wire batch; False if no record of the batch is wanted.
        skip_deleted: go on at the first record held instead of raising OffsetOutOfRange.
    """

    schema: Any = ARROW_SCHEMA
    include_headers: bool = True
    keep: Callable[[BatchHeader], bool] | None = None
    skip_deleted: bool = False


def connect(address: str, timeout_ms: int) -> AbstractContextManager[TopicReader]:
    """Opens a connection to the broker at `host:port`."""
    return BlockingReader(address, timeout_ms=timeout_ms)


def ask(
    address: str,
    question: Callable[[TopicReader], T],
    *,
    patient: bool = False,
    settings: ReadSettings | None = None,
    connect: Connect = connect,
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """Sends the broker one question over a new connection.

    Args:
        address: the broker's `host:port`.
        question: uses the connection, and does not keep it.
        patient: while the broker cannot be reached, ask again as often as the settings allow.
        settings: bounds.
        connect: opens the connection.
        pause: takes seconds; waits between attempts.

    Raises:
        ConnectionLost: the broker cannot be reached from this machine.
        BrokerError: the broker's answer is an error that a second attempt would repeat.
    """
    bounds, failures = settings or ReadSettings(), 0
    while True:
        try:
            with connect(address, bounds.timeout_ms) as reader:
                return question(reader)
        except (ConnectionLost, RequestTimeout, BrokerError, OSError) as error:
            failures += 1
            _raise_unless_passing(error, failures, bounds.attempts_max if patient else 1)
            pause(bounds.pause_s(failures))


def fetch_ranges(
    address: str,
    topics: Sequence[str],
    *,
    known: Mapping[QueueRef, int] | None = None,
    patient: bool = False,
    settings: ReadSettings | None = None,
    connect: Connect = connect,
) -> list[QueueRange]:
    """Asks the broker for the ranges of all queues of the topics, sorted; `patient` as in `ask`.

    Of queues with a `known` epoch it asks as well where messages have changed since.

    Raises:
        TopicNotFound: one of them does not exist.
        ConnectionLost: the broker cannot be reached from this machine.
    """
    ranges = ask(
        address,
        lambda reader: reader.ranges(topics, known) if known else reader.ranges(topics),
        patient=patient,
        settings=settings,
        connect=connect,
    )
    return sorted(ranges, key=lambda queue: (queue.topic, queue.queue_id))


def fetch_offsets_at(
    address: str,
    held: Sequence[QueueRange],
    moment_ms: int,
    *,
    settings: ReadSettings | None = None,
    connect: Connect = connect,
) -> dict[QueueRef, int]:
    """Asks the broker for the first offset of each queue that was stored at a moment or later.

    Args:
        address: the broker's `host:port`.
        held: the queues' ranges; a queue that ends before the moment gets its end, even if
        new messages have arrived.
        moment_ms: milliseconds since 1970 UTC, by the broker's clock when it stored a record.
        settings: bounds of the connection.
        connect: opens it.

    Raises:
        TopicNotFound: one of the topics has been deleted.
        ConnectionLost: the broker cannot be reached from this machine.
    """
    topics = sorted({one.topic for one in held})
    found = ask(
        address,
        lambda reader: reader.offsets_at(topics, moment_ms),
        patient=True,
        settings=settings,
        connect=connect,
    )
    queues = {QueueRef(one.topic, one.queue_id): one for one in held}
    return {
        queue: max(one.first, min(found.get(queue, one.end), one.end))
        for queue, one in queues.items()
    }


def fetch_settled(address: str, topic: str, *, connect: Connect = connect) -> bool:
    """Asks the broker whether each key has had one queue since the topic was made.

    What is true was true of all ranges that were asked for before. Of a topic that a broker of an older
    version has made it is not known, and not true.

    Raises:
        TopicNotFound: the topic does not exist.
        ConnectionLost: the broker cannot be reached from this machine.
    """
    return ask(address, lambda reader: reader.is_settled(topic), patient=True, connect=connect)


def fetch_identity(address: str, topic: str, *, connect: Connect = connect) -> str:
    """Asks the broker for the UUID that a topic got when it was made; empty: it does not know.

    Raises:
        TopicNotFound: the topic does not exist.
        ConnectionLost: the broker cannot be reached from this machine.
    """
    return ask(address, lambda reader: reader.identity(topic), connect=connect)


def message_bytes(
    address: str, slices: Sequence[QueueSlice], *, connect: Connect = connect
) -> dict[QueueRef, float]:
    """Estimates the bytes of a message's body in each queue, by some in the middle of the longest slices.

    Args:
        address: the broker's `host:port`.
        slices: what is to be read; the broker need not hold all of it.
        connect: opens a connection.

    Returns:
        For each queue, those that were not looked at with the mean of the others; nothing if the broker
        holds none of what was looked for.

    Raises:
        ConnectionLost: the broker cannot be reached from this machine.
    """
    longest = sorted(slices, key=lambda piece: -piece.records)[:_LOOKED_AT_MAX]

    def look(reader: TopicReader) -> dict[QueueRef, float]:
        found: dict[QueueRef, float] = {}
        for piece in longest:
            middle = (piece.start + piece.end) // 2
            end = min(piece.end, middle + _LOOKED_AT_RECORDS)
            try:
                parts = list(reader.read(piece.queue, middle, end, bytes_max=_LOOKED_AT_BYTES))
            except (OffsetOutOfRange, QueueNotFound):
                continue
            bodies = [body for _, columns, *span in parts for body in columns.bodies[slice(*span)]]
            if bodies:
                found[piece.queue] = sum(map(len, bodies)) / len(bodies)
        return found

    found = ask(address, look, patient=True, connect=connect)
    mean = sum(found.values()) / len(found) if found else 0.0
    return {piece.queue: found.get(piece.queue, mean) for piece in slices} if found else {}


def read_columns(
    address: str,
    wanted: QueueSlice,
    *,
    skip_deleted: bool = False,
    settings: ReadSettings | None = None,
    connect: Connect = connect,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Part]:
    """Yields the batches of a slice in offset order, each record once, across reconnects.

    Args:
        address: the broker's `host:port`.
        wanted: the slice.
        skip_deleted: go on at the first record held instead of raising OffsetOutOfRange.
        settings: bounds.
        connect: opens a connection.
        pause: takes seconds; waits between attempts.

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
        except OffsetOutOfRange:
            first = _first_held(address, wanted.queue, bounds, connect) if skip_deleted else at
            if first <= at:
                raise
            _warn_deleted(wanted.queue, at, first)
            at = first
        except (ConnectionLost, RequestTimeout, BrokerError, OSError) as error:
            failures += 1
            _raise_unless_passing(error, failures, bounds.attempts_max)
            pause(bounds.pause_s(failures))


@contextmanager
def rarely_collecting() -> Iterator[None]:
    """Runs Python's cyclic garbage collector rarely inside the block; for Spark's workers."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def read_record_batches(
    address: str,
    wanted: QueueSlice,
    choice: Choice | None = None,
    *,
    settings: ReadSettings | None = None,
    connect: Connect = connect,
) -> Iterator[pa.RecordBatch]:
    """Yields the chosen part of a slice as Arrow batches; raises what `read_columns` raises."""
    bounds, chosen = settings or ReadSettings(), choice or Choice()

    def begin() -> Gathered:
        return Gathered(wanted.queue, chosen.schema, include_headers=chosen.include_headers)

    gathered = begin()
    with rarely_collecting():
        for header, columns, first, last in read_columns(
            address, wanted, skip_deleted=chosen.skip_deleted, settings=bounds, connect=connect
        ):
            if chosen.keep is not None and not chosen.keep(header):
                continue
            gathered.add(header, columns, first, last)
            if gathered.rows >= bounds.batch_rows or gathered.body_bytes >= bounds.batch_bytes:
                yield gathered.to_arrow()
                gathered = begin()
        if gathered.rows:
            yield gathered.to_arrow()


def unreachable_here(error: Exception) -> ConnectionLost:
    """Returns the error for an unreachable broker; it names the machine that tried."""
    return ConnectionLost(
        f"{error or type(error).__name__}; this was tried on {socket.gethostname()}, and every"
        " Spark executor must reach the broker under this address"
    )


def _raise_unless_passing(
    error: MessageQueueError | OSError, failures: int, attempts_max: int
) -> None:
    if isinstance(error, BrokerError) and not error.retriable:
        raise error
    if failures >= attempts_max:
        raise unreachable_here(error) from error


def _first_held(address: str, queue: QueueRef, bounds: ReadSettings, connect: Connect) -> int:
    held = fetch_ranges(address, [queue.topic], patient=True, settings=bounds, connect=connect)
    return next((one.first for one in held if one.queue_id == queue.queue_id), 0)


def _warn_deleted(queue: QueueRef, start: int, end: int) -> None:
    _log.warning(
        "records were deleted before they were read",
        topic=queue.topic, queue_id=queue.queue_id, first=start, next=end,
    )  # fmt: skip


def _check_complete(wanted: QueueSlice, at: int) -> None:
    if at < wanted.end:
        raise ConnectionLost(
            f"the broker sent {wanted.queue.topic}/{wanted.queue.queue_id} only up to offset {at},"
            f" not to {wanted.end}"
        )
