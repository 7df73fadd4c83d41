"""A small ledger, its events in a topic made of lists, and a Spark that runs in this process."""

import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.domain.stream import EventStream
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild import event_topic
from headrace.serialization import JsonSerializer
from headrace.spark import tasks as tasks_module
from headrace.spark.archive import ArchiveFile
from headrace.spark.driver import work as work_module
from headrace.spark.executor import fold as fold_module
from headrace.spark.executor.fold import RECORD_ARROW_SCHEMA
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.result import disk
from headrace.spark.result.parts import PIECE_ARROW_SCHEMA, PIECE_SCHEMA
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, assign, encode_batch, read_header
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
TOPIC = "ledger.events"
QUEUES = 2
BROKER = "127.0.0.1:1"


class Topic:
    """The event topic as the broker would send it: wire batches of a few messages each."""

    def __init__(self, serializer: JsonSerializer) -> None:
        self._serializer = serializer
        self.settled = True
        self.bodies: dict[int, list[tuple[str, dict[str, str], bytes]]] = {
            queue: [] for queue in range(QUEUES)
        }

    def publish(self, *streams: EventStream, queue: int | None = None) -> None:
        for one in streams:
            kind = "rejection" if one.version is None else "events"
            at = zlib.crc32(one.aggregate_id.encode()) % QUEUES if queue is None else queue
            body = self._serializer.encode_stream(one)
            self.bodies[at].append((one.aggregate_id, {"kind": kind}, body))

    def slices(self, start: dict[int, int] | None = None) -> tuple[QueueSlice, ...]:
        begin = start or {}
        return tuple(
            QueueSlice(queue=QueueRef(TOPIC, queue), start=begin.get(queue, 0), end=len(messages))
            for queue, messages in self.bodies.items()
            if len(messages) > begin.get(queue, 0)
        )

    def read(self, address: str, wanted: QueueSlice, **_: object) -> Iterator[Any]:
        messages = self.bodies[wanted.queue.queue_id]
        for base in range(0, len(messages), 3):
            some = messages[base : base + 3]
            first, last = max(wanted.start - base, 0), min(wanted.end - base, len(some))
            if first >= last:
                continue
            keys, headers, bodies = (list(column) for column in zip(*some, strict=True))
            columns = Columns(keys, [], headers, bodies, [])
            batch = encode_batch(wanted.queue, columns, born_first_ms=1)
            # The clock of this broker goes back now and then.
            assign(batch, base_offset=base, position=0, appended_at_ms=100 - base % 7, epoch=1)
            yield read_header(batch), columns, first, last


class FakeColumn:
    def __init__(self, name: str) -> None:
        self._name = name

    def __eq__(self, value: object) -> Callable[[pa.Table], pa.Table]:  # type: ignore[override]  # as PySpark's columns
        return lambda table: table.filter(
            pa.array([one == value for one in table[self._name].to_pylist()], pa.bool_())
        )

    __hash__ = None  # type: ignore[assignment]  # as PySpark's columns


class FakeFrame:
    """Runs at once what Spark would run later, on tables that stand for partitions."""

    def __init__(self, partitions: Sequence[pa.Table]) -> None:
        self._partitions = list(partitions)

    def mapInArrow(self, run: Any, schema: str) -> "FakeFrame":  # noqa: N802 - PySpark's spelling
        empty = PIECE_ARROW_SCHEMA if schema == PIECE_SCHEMA else RECORD_ARROW_SCHEMA
        if schema.endswith(", mark int"):
            empty = empty.append(pa.field("mark", pa.int32()))
        return FakeFrame(
            [
                # Small batches, so that a key's records come in several.
                pa.Table.from_batches(run(iter(part.to_batches(max_chunksize=2))), schema=empty)
                for part in self._partitions
            ]
        )

    def repartition(self, by: str | int, *keys: str) -> "FakeFrame":
        whole = pa.concat_tables(self._partitions)
        count = 3
        if isinstance(by, int) and keys == ("key",):
            count, by = by, "key"
        if isinstance(by, int):
            assert keys
            return FakeFrame(
                [
                    whole.take(pa.array(range(place, len(whole), by), pa.int64()))
                    for place in range(by)
                ]
            )
        key = by
        owners = [zlib.crc32(value.encode()) % count for value in whole[key].to_pylist()]
        return FakeFrame(
            [
                whole.filter(pa.array([one == place for one in owners], pa.bool_()))
                for place in range(count)
            ]
        )

    def sortWithinPartitions(self, *order: str) -> "FakeFrame":  # noqa: N802 - PySpark's spelling
        by = [(name, "ascending") for name in order]
        return FakeFrame([part.sort_by(by) for part in self._partitions])

    def union(self, other: "FakeFrame") -> "FakeFrame":
        return FakeFrame([*self._partitions, *other._partitions])

    def where(self, condition: Callable[[pa.Table], pa.Table] | str) -> "FakeFrame":
        if isinstance(condition, str):
            name, value = condition.split(" = ")
            condition = FakeColumn(name) == (int(value) if value.isdigit() else value.strip("'"))
        return FakeFrame([condition(part) for part in self._partitions])

    def drop(self, name: str) -> "FakeFrame":
        return FakeFrame([part.drop_columns([name]) for part in self._partitions])

    def distinct(self) -> "FakeFrame":
        whole = pa.concat_tables(self._partitions)
        return FakeFrame([whole.group_by(whole.column_names).aggregate([])])

    def persist(self, *_level: object) -> "FakeFrame":
        return self

    def unpersist(self) -> None:
        pass

    @property
    def sparkSession(self) -> "FakeSpark":  # noqa: N802 - PySpark's spelling
        return FakeSpark()

    def __getitem__(self, name: str) -> FakeColumn:
        return FakeColumn(name)

    def select(self, *names: str) -> "FakeFrame":
        return FakeFrame([part.select(list(names)) for part in self._partitions])

    def toLocalIterator(self) -> Iterator[dict[str, Any]]:  # noqa: N802 - PySpark's spelling
        for part in self._partitions:
            yield from part.to_pylist()

    def toArrow(self) -> pa.Table:  # noqa: N802 - PySpark's spelling
        return pa.concat_tables(self._partitions)


class FakeContext:
    """Accumulators of tasks that run in this process."""

    master = "local[2]"
    defaultParallelism = 2  # noqa: N815 - PySpark's spelling

    def __init__(self) -> None:
        self.properties: dict[str, str | None] = {}
        self.described: list[str] = []

    def getConf(self) -> dict[str, str]:  # noqa: N802 - PySpark's spelling
        return {"spark.driver.host": "127.0.0.1"}

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802 - PySpark's spelling
        return self.properties.get(key)

    def setLocalProperty(self, key: str, value: str | None) -> None:  # noqa: N802 - PySpark's spelling
        self.properties[key] = value
        if value:
            self.described.append(value)

    def accumulator(self, value: Any, param: Any) -> Any:
        found = SimpleNamespace(value=value)

        def add(more: Any) -> None:
            found.value = param.addInPlace(found.value, more)

        found.add = add
        return found


class FakeSpark:
    """The part of a session that a rebuild uses."""

    sparkContext = FakeContext()  # noqa: N815 - PySpark's spelling

    def range(self, start: int, end: int, step: int, partitions: int) -> FakeFrame:
        assert (start, step, partitions) == (0, 1, max(end, 1))
        places = [[place] for place in range(end)] or [[]]
        return FakeFrame([pa.table({"id": pa.array(some, pa.int64())}) for some in places])

    def createDataFrame(self, table: pa.Table, schema: str) -> FakeFrame:  # noqa: N802 - PySpark's spelling
        return FakeFrame([table])

    def addTag(self, tag: str) -> None:  # noqa: N802 - PySpark's spelling
        pass

    def removeTag(self, tag: str) -> None:  # noqa: N802 - PySpark's spelling
        pass


@pytest.fixture
def topic(ledger: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Topic:
    """The topic, in the place of the client."""
    made = Topic(ledger.serializer)
    monkeypatch.setattr(fold_module, "read_columns", made.read)
    monkeypatch.setattr(work_module, "read_columns", made.read)
    monkeypatch.setattr(tasks_module, "fetch_settled", lambda *_: made.settled)
    monkeypatch.setattr(tasks_module, "message_bytes", lambda *_: {})
    monkeypatch.setattr(tasks_module, "fetch_ranges", lambda *_, **__: [None] * QUEUES)
    return made


@pytest.fixture(scope="session")
def topic_of() -> type[Topic]:
    """Makes topics of any application."""
    return Topic


@pytest.fixture
def make_plan(ledger: SimpleNamespace) -> Callable[..., FoldPlan]:
    """Makes a plan for one of the projections."""

    def make(
        projection: str,
        slices: Sequence[QueueSlice],
        *,
        event_store: str | None = None,
        archive: Sequence[ArchiveFile] = (),
    ) -> FoldPlan:
        return FoldPlan(
            app=ledger.path,
            folder=".",
            projection=projection,
            broker="127.0.0.1:1",
            event_store=event_store,
            slices=tuple(slices),
            archive=tuple(archive),
        )

    return make


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    monkeypatch.setattr(disk.SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    return FakeSpark()


@pytest.fixture
def make_frame() -> Callable[..., FakeFrame]:
    """Makes a frame of batches of records, each a partition."""
    return lambda *batches: FakeFrame([pa.Table.from_batches([batch]) for batch in batches])


@pytest.fixture
async def live(
    ledger: Any, topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SimpleNamespace]:
    """A topic with three bookings, and a live generation that has never run."""

    def ranges(address: str, topics: list[str], **_known: Any) -> list[QueueRange]:
        assert (address, topics) == (BROKER, [TOPIC])
        return [
            QueueRange(TOPIC, queue, 0, len(messages)) for queue, messages in topic.bodies.items()
        ]

    monkeypatch.setattr(work_module, "fetch_ranges", ranges)
    reader = SimpleNamespace(ranges=lambda topics, _known=None: ranges(BROKER, topics))
    monkeypatch.setattr(event_topic, "open_topic_reader", lambda _broker: nullcontext(reader))
    url = f"sqlite:///{tmp_path / 'read.db'}"
    read_models = ReadModels(url)
    await read_models.ensure(ledger.accounts)
    topic.publish(
        *(ledger.stream("a", version, ledger.Booked(partner="p", amount=1)) for version in (1, 2)),
        ledger.stream("b", 1, ledger.Booked(partner="p", amount=1)),
        ledger.rejection("b"),
    )
    yield SimpleNamespace(broker=BROKER, url=url, read_models=read_models)
    await read_models.aclose()
