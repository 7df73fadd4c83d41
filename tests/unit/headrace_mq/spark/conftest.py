"""A broker made of lists: the same interface as `BlockingReader`, without a socket."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType

import pytest

from headrace_mq.errors import ConnectionLost, OffsetOutOfRange
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BatchHeader,
    Columns,
    assign,
    decode_columns,
    encode_batch,
    read_header,
)
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark import reader


class FakeBroker:
    """Holds wire batches per queue; `connect` opens a reader, and failures can be planned."""

    def __init__(self) -> None:
        self.batches: dict[QueueRef, list[bytearray]] = {}
        self.first: dict[QueueRef, int] = {}
        self.end: dict[QueueRef, int] = {}
        # Of the broker, and in which its group last lost messages; by queue, where these changed.
        self.epochs = (0, 0)
        self.changed: dict[QueueRef, int] = {}
        self.connections = 0
        self.open = 0
        # Batches after which a connection breaks, one entry per connection; empty: it lasts.
        self.break_after: list[int] = []
        self.refuses = False

    def add_queue(self, topic: str, queue_id: int, *, first: int = 0) -> QueueRef:
        queue = QueueRef(topic, queue_id)
        self.batches[queue] = []
        self.first[queue] = self.end[queue] = first
        return queue

    def append(
        self, queue: QueueRef, columns: Columns, *, born_ms: int = 1_000, stored_ms: int = 2_000
    ) -> None:
        batch = encode_batch(queue, columns, born_first_ms=born_ms)
        assign(batch, base_offset=self.end[queue], position=0, appended_at_ms=stored_ms, epoch=1)
        self.batches[queue].append(batch)
        self.end[queue] += len(columns.bodies)

    def connect(self, address: str, timeout_ms: int) -> "FakeReader":
        if self.refuses:
            raise ConnectionRefusedError("connection refused")
        self.connections += 1
        lasts = self.break_after.pop(0) if self.break_after else None
        return FakeReader(self, lasts)


class FakeReader:
    def __init__(self, broker: FakeBroker, lasts: int | None) -> None:
        self._broker = broker
        self._lasts = lasts

    def __enter__(self) -> "FakeReader":
        self._broker.open += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._broker.open -= 1

    def ranges(
        self, topics: Sequence[str], known: Mapping[QueueRef, int] | None = None
    ) -> list[QueueRange]:
        epoch, lossy = self._broker.epochs
        return [
            QueueRange(
                queue.topic,
                queue.queue_id,
                self._broker.first[queue],
                end,
                -1,
                epoch,
                self._broker.changed.get(queue, -1)
                if 0 < (known or {}).get(queue, 0) < lossy
                else -1,
            )
            for queue, end in self._broker.end.items()
            if queue.topic in topics
        ]

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        if self._lasts == 0:
            raise ConnectionLost("the connection ended")
        found = {}
        for queue, end in self._broker.end.items():
            headers = map(read_header, self._broker.batches[queue])
            later = (each.base_offset for each in headers if each.appended_at_ms >= time_ms)
            if queue.topic in topics:
                found[queue] = max(self._broker.first[queue], next(later, end))
        return found

    def read(
        self, queue: QueueRef, start: int, end: int, *, bytes_max: int = 1 << 20
    ) -> Iterator[tuple[BatchHeader, Columns, int, int]]:
        if start < self._broker.first[queue]:
            raise OffsetOutOfRange(f"the first offset held is {self._broker.first[queue]}")
        for sent, batch in enumerate(self._broker.batches[queue]):
            header = read_header(batch)
            if header.next_offset <= start or header.base_offset >= end:
                continue
            if self._lasts is not None and sent >= self._lasts:
                raise ConnectionLost("the connection ended")
            yield (
                header,
                decode_columns(batch, header),
                max(start - header.base_offset, 0),
                min(end - header.base_offset, header.count),
            )


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def make_broker() -> type[FakeBroker]:
    """Makes brokers, for tests that need one for each example."""
    return FakeBroker


@pytest.fixture
def connected(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    """Puts the broker made of lists where connections are opened."""

    def open_reader(address: str, *, timeout_ms: int) -> FakeReader:
        return broker.connect(address, timeout_ms)

    monkeypatch.setattr(reader, "BlockingReader", open_reader)
    return broker


@pytest.fixture
def plain_columns() -> Callable[..., Columns]:
    """Makes columns of bodies `b"0"`, `b"1"`, … and defaults elsewhere."""

    def make(count: int, *, start: int = 0) -> Columns:
        return Columns([], [], [], [str(start + n).encode() for n in range(count)], [])

    return make
