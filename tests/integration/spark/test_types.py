"""Rows of every type of column and key: the same live, in every rebuild, on both databases."""

import asyncio
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace.domain.stream import EventStream
from headrace.projections.definition.fold import fold_streams
from headrace.projections.runner import ProjectionRunner
from headrace.projections.tables.index.live import missing_indexes
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.local.partial_rebuild import Wanted
from headrace.rebuild.local.rebuild import rebuild as replay
from headrace.settings import Settings
from headrace.spark.analysis.export import export_events
from headrace.spark.columns.rebuild import rebuild as rebuild_in_columns
from headrace.spark.driver import all_rows
from headrace.spark.native import plan_native
from headrace.spark.rebuild import rebuild
from headrace.spark.stream import continuous
from headrace.spark.stream.continuous import follow
from headrace.stores.database.schema import upgrade
from headrace.stores.memory.store import MemoryEventStore
from headrace.transports.queue import QueueTransport
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

APP = "typed_app:app"
TOPIC = "ledger.events"
NATIVE = ("shelves", "numbers", "daily")
IN_PYTHON = ("items", "owned", "pairs")
# Where events of several aggregates touch a row, only the topic knows their order.
IDS = [str(UUID(int=number * 7919)) for number in range(1, 8)]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The application's module, importable here; Spark's workers find it by its folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import typed_app

    yield typed_app
    sys.modules.pop("typed_app")


def make_history(typed: Any) -> list[EventStream]:
    chance = random.Random(5)

    def event() -> Any:
        shop = chance.choice(["north", "süd, %2C", "", "a,b%"])
        number = chance.choice([-(2**63), -7, 0, 10, 9, 2**63 - 1])
        if chance.random() < 0.4:
            return typed.Sold(shop=shop, number=number, amount=chance.randrange(20))
        part = typed.Part(name="é\n\"'", price=Decimal("1.50"), parts=[typed.Part(name="in")])
        return typed.Listed(
            shop=shop,
            number=number,
            owner=UUID(int=chance.randrange(3)),
            state=chance.choice(list(typed.State)),
            parts=[part] * chance.randrange(3),
            rates={"z": -0.0, "a": 1e308, "ü": 5e-324, "B": 0.1},
        )

    return [
        EventStream(
            aggregate_type="Ledger",
            aggregate_id=aggregate_id,
            version=version,
            command_id=f"{aggregate_id[:9]}{version}",
            correlation_id="c",
            recorded_at=datetime(2026, 1, 31, 23, 57, tzinfo=UTC) + timedelta(minutes=version),
            events=tuple(event() for _ in range(chance.randrange(1, 4))),
        )
        for version in range(1, 7)
        for aggregate_id in IDS
    ]


async def publish(typed: Any, address: str, streams: list[EventStream]) -> None:
    encode = typed.app.serializer.encode_stream
    async with Producer(address) as producer:
        # One queue, so that the order of all events is that of the history.
        await producer.create_topic(TOPIC, queues=1, retention="forever")
        for one in streams:
            body, headers = encode(one), {"kind": "events"}
            await producer.send(
                Message(topic=TOPIC, key=one.aggregate_id, headers=headers, body=body)
            )


async def rows_of(read_models: ReadModels, projection: Any) -> list[str]:
    return [repr(row) async for row in read_models.reader(projection).rows()]


async def check_engines(
    typed: Any, spark: Any, read_models: ReadModels, projection: Any, kept: list[str],
    expected: list[str], export: Path, choices: dict[str, Any],
) -> None:  # fmt: skip
    """Rebuilds a projection by each engine, which compares all rows, and looks what is live then."""
    name = projection.name
    in_sql = plan_native(typed.app.serializer, projection) is not None
    assert in_sql == (name in NATIVE), name
    assert in_sql != (name in IN_PYTHON)

    # Spark makes the same records for both databases; what differs is how they get in.
    if name in (
        {"items", "pairs", "daily"}
        if read_models.engine.dialect.name == "postgresql"
        else {"pairs"}
    ):
        report = await rebuild(APP, name, spark=spark, **choices)
        assert (report.switched, report.mismatches, report.compared) == (True, 0, len(kept))
    if in_sql:
        report = await rebuild_in_columns(APP, name, export=export, **choices)
        assert (report.mismatches, report.compared) == (0, len(kept)), report
    if name in {"shelves", "numbers"} and read_models.engine.dialect.name == "sqlite":
        report = await rebuild(APP, name, spark=spark, export=export, **choices)
        assert (report.exported, report.mismatches, report.compared) == ("columns", 0, len(kept))
    report = await replay(APP, name, **choices)
    assert (report.switched, report.mismatches, report.compared) == (True, 0, len(kept))
    assert await rows_of(read_models, projection) == expected, name
    assert await missing_indexes(read_models, projection) == []
    key = projection.key_form.value(kept[0])
    assert repr(await read_models.reader(projection).get(key)) == expected[0]
    if name in {"pairs", "items"}:
        few = Wanted(keys=frozenset(kept[:2]))
        report = await replay(APP, name, wanted=few, **choices)
        assert (report.switched, report.mismatches) == (True, 0), report
        assert await rows_of(read_models, projection) == expected, name


@pytest.mark.parametrize("read_models_url", ["sqlite", "postgresql"], indirect=True)
async def test_every_engine_makes_the_rows_that_are_live(
    typed: Any, spark: Any, broker: Any, topic_ends: Any, read_models_url: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(all_rows, "_NATIVE_MESSAGES_MIN", 0)
    monkeypatch.setattr(all_rows, "INCREMENT_MAX", -1)
    history = make_history(typed)
    await publish(typed, broker.address, history[:-9])
    await upgrade(read_models_url)
    read_models, transport = ReadModels(read_models_url), QueueTransport(broker.address)
    await transport.start()
    projections = typed.app.projections

    async def run_live(projection: Any) -> None:
        await read_models.ensure(projection)
        runner = ProjectionRunner(
            projection=projection, app_name="ledger", read_models=read_models,
            store=MemoryEventStore(), transport=transport, serializer=typed.app.serializer,
            settings=Settings(),
        )  # fmt: skip
        await runner.run_until(topic_ends(), timeout_ms=100_000)

    choices: dict[str, Any] = {"broker": broker.address, "read_models_url": read_models_url}
    try:
        for projection in projections.values():
            await run_live(projection)
        export = tmp_path / "out"
        await asyncio.to_thread(export_events, APP, export, broker=broker.address)
        await publish(typed, broker.address, history[-9:])
        for name in ("items", "pairs"):
            # Onto the live rows, which is how COPY and its merging meet rows that are there.
            report = await rebuild(
                APP, name, spark=spark, start="offsets", verify=False, live_wait_ms=1, **choices
            )
            assert report.switched, report
        for name, projection in projections.items():
            await run_live(projection)
            folded = fold_streams(projection, {}, history)
            kept = [key for key, row in folded.items() if row is not None]
            # Keys come in the order of their values, from every database.
            kept.sort(key=projection.key_form.values)
            expected = [repr(folded[key]) for key in kept]
            assert await rows_of(read_models, projection) == expected, name
            assert len(expected) > 2
            await check_engines(
                typed, spark, read_models, projection, kept, expected, export, choices
            )
    finally:
        await transport.aclose()
        await read_models.aclose()


async def test_a_stream_of_spark_keeps_rows_of_any_key(
    typed: Any, spark: Any, broker: Any, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous, "HERE_MAX", 0)
    history = make_history(typed)
    await publish(typed, broker.address, history)
    await follow(
        APP, "pairs", broker=broker.address, read_models_url=sqlite_url, spark=spark,
        available_now=True,
    )  # fmt: skip
    projection, read_models = typed.app.projections["pairs"], ReadModels(sqlite_url)
    folded = fold_streams(projection, {}, history)
    expected = {repr(row) for row in folded.values() if row is not None}
    assert set(await rows_of(read_models, projection)) == expected
    await read_models.aclose()
