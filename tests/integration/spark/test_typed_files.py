"""Declared folds of exported files are one query, and its rows and counts are those of every other way."""

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.local.rebuild import rebuild as replay
from headrace.spark.analysis.export import export_events
from headrace.spark.columns.rebuild import rebuild as rebuild_in_columns
from headrace.spark.driver import all_rows
from headrace.spark.driver import fold as fold_module
from headrace.spark.driver.exported import find_exported
from headrace.spark.executor.plan import FoldPlan, module_folder
from headrace.spark.job import Folded, run_fold
from headrace.spark.rebuild import rebuild
from headrace.spark.rows import RowCodec
from headrace.spark.tasks import divide_plan
from headrace.stores.database.schema import upgrade
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.spark.offsets import QueueSlice, plan_slices
from headrace_mq.spark.reader import fetch_ranges, read_columns

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "ledger.events"
NOW = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
VERSIONS, AGGREGATES = 12, 10


@pytest.fixture
def random_app(declared: Any) -> Iterator[Any]:
    """Random projections of the events of `declared_app`, importable here and in workers."""
    import random_app

    random_app.__dict__.update(
        {name: getattr(declared, name) for name in ("Paid", "Moved", "Renamed")}
    )
    yield random_app
    sys.modules.pop("random_app")


def make_history(declared: Any, chance: random.Random) -> list[EventStream]:
    """Streams version by version; one of them is wide."""

    def event() -> Any:
        if chance.random() < 0.6:
            return declared.Paid(
                partner=chance.choice([None, "p", "q", "ü'\\"]),
                amount=chance.randint(-99, 99),
                price=Decimal(chance.randint(-500, 500)).scaleb(-chance.randrange(4)),
                on=NOW.date() - timedelta(days=chance.randrange(300_000)),
                at=chance.choice([None, NOW - timedelta(microseconds=chance.randrange(1 << 54))]),
                rate=chance.random(),
                cash=chance.random() < 0.4,
            )
        if chance.random() < 0.8:
            source, target = (chance.choice("pqr") for _ in range(2))
            return declared.Moved(source=source, target=target, amount=chance.randrange(1, 99))
        return declared.Renamed(name=f"n{chance.randrange(9)}")

    def events(number: int, version: int) -> int:
        return 300 if (number, version) == (3, 2) else chance.randrange(1, 4)

    return [
        EventStream(
            aggregate_type="Ledger", aggregate_id=f"a{number}", version=version,
            command_id=f"{number}-{version}", correlation_id=f"c{chance.randrange(5)}",
            recorded_at=NOW + timedelta(minutes=version, microseconds=number),
            events=tuple(event() for _ in range(events(number, version))),
        )
        for version in range(1, VERSIONS + 1)
        for number in range(AGGREGATES)
    ]  # fmt: skip


def priced(stream: EventStream) -> EventStream:
    """The stream with the price that version 1 of its events is taken to have had."""
    events = tuple(
        event.model_copy(update={"price": Decimal("1.5")}) if hasattr(event, "price") else event
        for event in stream.events
    )
    return replace(stream, events=events)


def as_version_1(body: bytes) -> bytes:
    """What the version of the event before the last would have stored."""
    return body.replace(b'"name":"Paid","version":2', b'"name":"Paid","version":1')


class Topic:
    """The event topic, to which queues are added now and then."""

    def __init__(self, declared: Any, address: str, *, old: Any = bytes) -> None:
        encode = declared.app.serializer.encode_stream
        self._encode = lambda stream: old(encode(stream))
        self.address = address
        self.queues = 0

    async def grow(self, queues: int) -> None:
        self.queues += queues
        if self.queues > queues:
            async with AdminClient(self.address) as admin:
                await admin.add_queues(TOPIC, self.queues)

    async def publish(self, streams: Sequence[EventStream]) -> None:
        async with Producer(self.address) as producer:
            await producer.create_topic(TOPIC, queues=self.queues, retention="forever")
            for one in streams:
                # One at a time, so that the broker's clock orders them between queues.
                await producer.send(
                    Message(
                        topic=TOPIC, key=one.aggregate_id, headers={}, body=self._encode(one)
                    )
                )  # fmt: skip

    def slices(self) -> tuple[QueueSlice, ...]:
        return tuple(plan_slices(fetch_ranges(self.address, [TOPIC]), starting={}))

    def stored(self, serializer: Any) -> list[EventStream]:
        """The streams, each once, in the order in which the broker stored them."""
        found: dict[tuple[str, int | None], EventStream] = {}
        for _, body in sorted(self._in_place()):
            one = serializer.decode_stream(body)
            found.setdefault((one.aggregate_id, one.version), one)
        return list(found.values())

    def _in_place(self) -> Iterator[tuple[Any, bytes]]:
        for piece in self.slices():
            for header, columns, first, last in read_columns(self.address, piece):
                for number in range(first, last):
                    place = (header.appended_at_ms, piece.queue, header.base_offset + number)
                    yield place, columns.bodies[number]


def query(spark: Any, app: Any, path: str, name: str, topic: Topic, folder: Path) -> Folded:
    """The result of the query over files and the topic's tail."""
    projection = app.projection(name)
    found = find_exported(folder, app, projection, vouched=False, not_whole="")
    assert found.read_as == "columns"
    plan = FoldPlan(
        app=path, folder=module_folder(path), projection=name, broker=topic.address,
        event_store=None, slices=topic.slices(), archive=found.messages,
    )  # fmt: skip
    folded = run_fold(
        spark,
        divide_plan(spark, found.tail(plan), onto=True),
        keyed_by_aggregate=projection.keyed_by_aggregate,
        base=None,
        native=found.native,
    )
    folded.counts.update(found.counts)
    return folded


def rows_in(projection: Any, folded: Folded) -> dict[str, str]:
    codec: RowCodec[Any] = RowCodec(projection)
    rows = [codec.row(data) for chunk in folded.row_chunks(1_000) for data in chunk]
    found = {projection.key_form.text_of(row): repr(row) for row in rows}
    assert len(found) == len(rows)
    return found


async def stored_rows(url: str, projection: Any) -> dict[str, str]:
    read_models = ReadModels(url)
    try:
        rows = read_models.reader(projection).rows()
        return {projection.key_form.text_of(row): repr(row) async for row in rows}
    finally:
        await read_models.aclose()


async def test_random_projections_are_the_same_as_sql_in_columns_replayed_and_folded(
    spark: Any, broker: Any, random_app: Any, tmp_path: Path
) -> None:
    chance, app, path = random.Random(4), random_app.app, "random_app:app"
    history = make_history(random_app, chance)
    cuts = [0, *sorted(chance.sample(range(10, len(history)), 3)), len(history)]
    topic, folder, again = Topic(random_app, broker.address), tmp_path / "out", 0
    for part, (start, end) in enumerate(pairwise(cuts)):
        await topic.grow(chance.randrange(1, 4))
        # Of earlier parts, and of this one.
        late = chance.choices(history[:end], k=10)
        again += len(late)
        await topic.publish([*history[start:end], *late])
        if part < 3:
            export_events(path, folder, broker=broker.address)
    streams = topic.stored(app.serializer)
    for name, projection in app.projections.items():
        folded = query(spark, app, path, name, topic, folder)
        rows = fold_streams(projection, {}, streams)
        wanted = {key: repr(row) for key, row in rows.items() if row is not None}
        assert rows_in(projection, folded) == wanted
        assert folded.versions == {f"a{number}": VERSIONS for number in range(AGGREGATES)}
        assert folded.counts["events"] == sum(len(one.events) for one in history)
        assert folded.counts["duplicates"] == again
        assert (folded.counts["gaps"], folded.counts["filled"]) == (0, 0)


class Rebuilds:
    """Rebuilds of an application, each into a database of its own."""

    def __init__(self, declared: Any, address: str, folder: Path) -> None:
        self._app, self._address, self._folder = declared.app, address, folder
        self._numbers = count()

    async def make(self, engine: Any, name: str, **more: Any) -> tuple[Any, dict[str, str]]:
        """Returns the report, and the rows by key."""
        url = f"sqlite:///{self._folder / f'{next(self._numbers)}.db'}"
        await upgrade(url)
        report = await engine(
            "declared_app:app",
            name,
            broker=self._address,
            read_models_url=url,
            verify=False,
            **more,
        )
        assert report.switched
        return report, await stored_rows(url, self._app.projection(name))


def told(report: Any) -> tuple[Any, ...]:
    """What a report says that does not depend on the engine."""
    ends = {name: at for name, at in report.end_offsets.items() if at}
    return (report.events, report.rows, report.duplicates, report.gaps, report.filled, ends)


async def test_rebuilds_from_files_are_alike_with_every_engine_also_when_a_queue_is_gone(
    spark: Any, broker: Any, declared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_rows, "_NATIVE_MESSAGES_MIN", 0)
    app, path, folder = declared.app, "declared_app:app", tmp_path / "out"
    history = [priced(one) for one in make_history(declared, random.Random(5))]
    topic = Topic(declared, broker.address, old=as_version_1)
    make = Rebuilds(declared, broker.address, tmp_path).make
    await topic.grow(3)
    await topic.publish(history[:40])
    first = export_events(path, folder, broker=broker.address)
    # The first of a new part have come before.
    await topic.publish(history[30:80])
    second = export_events(path, folder, broker=broker.address)
    assert (second.duplicates, second.gaps, second.filled) == (10, 0, 0)
    await topic.publish([*history[80:84], *history[75:84]])
    for name in ("accounts", "daily"):
        with_spark, rows = await make(rebuild, name, spark=spark, export=folder)
        assert (with_spark.exported, with_spark.start) == ("columns", "zero")
        assert with_spark.archived == first.messages + second.messages
        assert with_spark.duplicates == 10 + 9
        for engine, more in ((rebuild_in_columns, {"export": folder}), (replay, {})):
            report, same = await make(engine, name, **more)
            assert same == rows
            assert told(report) == told(with_spark)

    async with AdminClient(broker.address) as admin:
        await admin.freeze(TOPIC, [2], writing=True)
        # What the topic forgets has to be in the files.
        assert export_events(path, folder, broker=broker.address).number == 3
        await admin.freeze(TOPIC, [2], reading=True)
        assert (await admin.delete_queues(TOPIC, 2)).deleted
    topic.queues = 2
    await topic.publish(history[84:])

    async def check(engine: Any, name: str, **more: Any) -> str:
        report, rows = await make(engine, name, export=folder, **more)
        wanted = fold_streams(app.projection(name), {}, history)
        assert rows == {key: repr(row) for key, row in wanted.items() if row is not None}
        assert (report.events, report.filled) == (sum(len(one.events) for one in history), 0)
        return str(report.exported)

    assert await check(rebuild, "accounts", spark=spark) == "columns"
    assert await check(rebuild_in_columns, "accounts") == ""
    why = "messages: projection moves has folds that are Python functions"
    assert (await check(rebuild, "moves", spark=spark)).startswith(why)


async def test_files_that_executors_do_not_find_are_named_with_what_to_do(
    spark: Any, broker: Any, declared: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_rows, "_NATIVE_MESSAGES_MIN", 0)
    topic, path = Topic(declared, broker.address), "declared_app:app"
    await topic.grow(2)
    await topic.publish(make_history(declared, random.Random(6))[:20])
    folder = tmp_path / "a folder with {odd} [signs]"
    export_events(path, folder, broker=broker.address)
    url = f"sqlite:///{tmp_path / 'read.db'}"
    await upgrade(url)
    choices: dict[str, Any] = {
        "broker": broker.address, "read_models_url": url, "spark": spark, "export": folder,
    }  # fmt: skip
    report = await rebuild(path, "accounts", verify=False, **choices)
    assert (report.exported, report.rows) == ("columns", AGGREGATES)

    def elsewhere(*of: Any, **named: Any) -> Any:
        # As an executor on another machine sees it.
        folder.rename(tmp_path / "elsewhere")
        return run_fold(*of, **named)

    monkeypatch.setattr(fold_module, "run_fold", elsewhere)
    with pytest.raises(ProjectionError, match="executor has to see the folder of exported events"):
        await rebuild(path, "accounts", verify=False, **choices)
