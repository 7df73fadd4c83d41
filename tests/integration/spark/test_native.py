"""What Spark makes of declared folds is what the live folds make of them, row for row."""

import random
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from headrace.domain.stream import EventStream
from headrace.projections.definition.fold import fold_streams
from headrace.spark.analysis.events import read_events
from headrace.spark.executor.fold import ROW, VERSION
from headrace.spark.executor.plan import FoldPlan, module_folder
from headrace.spark.job import run_fold
from headrace.spark.native import plan_native
from headrace.spark.result import parts
from headrace.spark.result.parts import Spool
from headrace.spark.rows import RowCodec
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.spark.offsets import plan_slices
from headrace_mq.spark.reader import fetch_ranges

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "declared_app:app"
TOPIC = "ledger.events"
PARTNERS = [None, "p", "q", "ü'\\", "zoë 😀"]


def make_history(declared: Any, seed: int) -> list[EventStream]:
    """Streams of many aggregates, each in version order, one aggregate's before another's."""
    chance = random.Random(seed)

    def event() -> Any:
        kind = chance.random()
        if kind < 0.6:
            return declared.Paid(
                partner=chance.choice(PARTNERS),
                amount=chance.randint(-(1 << 40), 1 << 40),
                price=Decimal(chance.randint(-500, 500)).scaleb(-chance.randrange(4)),
                on=date(1960, 1, 1) + timedelta(days=chance.randrange(40_000)),
                at=None
                if chance.random() < 0.3
                else datetime(
                    1969, 12, 31, chance.randrange(24), 7, 3, chance.randrange(1_000_000),
                    tzinfo=timezone(timedelta(hours=chance.randrange(-9, 9))),
                )
                + timedelta(days=chance.randrange(9)),
                rate=chance.random(),
                cash=chance.random() < 0.4,
            )  # fmt: skip
        if kind < 0.85:
            return declared.Moved(
                partner=chance.choice(PARTNERS),
                source=chance.choice("pqr"),
                target=chance.choice("pqr"),
                amount=chance.randrange(1, 99),
            )
        if kind < 0.95:
            return declared.Visited(partner=chance.choice(PARTNERS))
        return declared.Renamed(name=f"n{chance.randrange(9)}")

    def stream(aggregate: int, version: int) -> EventStream:
        return EventStream(
            aggregate_type="Ledger",
            aggregate_id=f"a{aggregate}",
            version=version,
            command_id=f"{aggregate}-{version}",
            correlation_id="c",
            recorded_at=datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
            + timedelta(minutes=version - aggregate % 3, microseconds=aggregate),
            events=tuple(event() for _ in range(chance.randrange(1, 4))),
        )

    return [stream(number, version) for number in range(12) for version in range(1, 9)]


def as_version_1(body: bytes) -> bytes:
    """What the version of the event before the last would have stored."""
    import json

    stored = json.loads(body)
    for event in stored["events"]:
        if event["name"] == "Paid" and event["data"]["price"] == "1.5":
            event["version"] = 1
            del event["data"]["price"]
    return json.dumps(stored).encode()


async def publish(declared: Any, address: str, streams: list[EventStream]) -> None:
    serializer = declared.app.serializer
    async with Producer(address) as producer:
        await producer.create_topic(TOPIC, queues=3, retention="forever")
        for one in streams:
            # One at a time, so that the broker's clock orders them between queues.
            await producer.send(
                Message(
                    topic=TOPIC,
                    key=one.aggregate_id,
                    headers={"kind": "events"},
                    body=as_version_1(serializer.encode_stream(one)),
                )
            )


def fold(
    spark: Any, declared: Any, address: str, name: str, *, native: bool, into: Any = None
) -> Any:
    projection = declared.app.projections[name]
    plan = FoldPlan(
        app=APP,
        folder=module_folder(APP),
        projection=name,
        broker=address,
        event_store=None,
        slices=tuple(plan_slices(fetch_ranges(address, [TOPIC]), starting={})),
    )
    return run_fold(
        spark,
        plan,
        keyed_by_aggregate=projection.keyed_by_aggregate,
        base=None,
        native=plan_native(declared.app.serializer, projection) if native else None,
        into=into,
    )


def rows_of(projection: Any, folded: Any) -> dict[str, Any]:
    codec: RowCodec[Any] = RowCodec(projection)
    rows = [codec.row(data) for chunk in folded.row_chunks(1_000) for data in chunk]
    return {getattr(row, projection.key): row for row in rows}


async def test_every_declared_fold_makes_the_rows_that_python_makes(
    spark: Any, broker: Any, declared: Any
) -> None:
    history = make_history(declared, 7)
    # Twice, and late: neither may change a row.
    arrived = [*history[:40], *history[10:20], *history[41:], history[40], *history[:5]]
    await publish(declared, broker.address, arrived)
    for name in ("accounts", "daily", "moves", "partners"):
        projection = declared.app.projections[name]
        native = plan_native(declared.app.serializer, projection)
        assert (native is None) == (name == "moves")
        folded = fold(spark, declared, broker.address, name, native=True)
        assert folded.versions == {f"a{number}": 8 for number in range(12)}
        assert folded.counts["duplicates"] == 15
        assert folded.counts["events"] == sum(len(one.events) for one in history)
        expected = fold_streams(projection, {}, history)
        if name == "partners":
            # What is last depends on the order between aggregates, which the topic alone knows.
            in_python = fold(spark, declared, broker.address, name, native=False)
            expected = rows_of(projection, in_python)
        wanted = {key: row for key, row in expected.items() if row is not None}
        # Equal decimals of other places are other text, which SQLite would keep: so by repr.
        rows = rows_of(projection, folded)
        assert {key: repr(row) for key, row in rows.items()} == (
            {key: repr(row) for key, row in wanted.items()}
        )
        assert len(rows) >= 2


@pytest.mark.parametrize("here", [True, False])
async def test_rows_that_are_made_as_sql_come_in_files_or_in_parts(
    spark: Any, broker: Any, declared: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    here: bool,
) -> None:  # fmt: skip
    await publish(declared, broker.address, make_history(declared, 7))
    whole = fold(spark, declared, broker.address, "daily", native=True)
    monkeypatch.setattr(parts, "_PART_BYTES", 2_000)
    with closing(Spool(str(tmp_path) if here else None)) as spool:
        told = fold(spark, declared, broker.address, "daily", native=True, into=spool)
        rows = [row for found in spool.read(ROW) for row in found["data"]]
        assert sum(len(found["key"]) for found in spool.read(VERSION)) == len(whole.versions)
    assert sorted(rows) == sorted(whole.rows.to_pylist())
    assert (len(told.rows), told.versions, told.counts) == (0, {}, whole.counts)


async def test_events_are_typed_frames_and_what_is_not_read_is_reported(
    spark: Any, broker: Any, declared: Any
) -> None:
    history = make_history(declared, 11)[:24]
    forgotten = declared.app.serializer.encode_stream(history[-1]).replace(
        b'"name":"', b'"name":"Forgotten'
    )
    await publish(declared, broker.address, [*history[:-1], *history[:4], history[10]])
    async with Producer(broker.address) as producer:
        await producer.send(
            Message(topic=TOPIC, key=history[-1].aggregate_id, headers={}, body=forgotten)
        )
    events = read_events(spark, APP, broker=broker.address, incomplete="report")
    report = events.report()
    assert report.events == sum(len(one.events) for one in history)
    assert (report.duplicates, report.missing) == (5, ())
    assert sum(report.unknown.values()) == len(history[-1].events)
    assert all(name.startswith("Forgotten") for name in report.unknown)

    paid = events.of(declared.Paid)
    assert dict(paid.dtypes)["price"] == "decimal(38,18)"
    found = {
        (row["context"]["aggregate_id"], row["context"]["version"], row["context"]["sequence"]):
        (row["amount"], row["price"], row["on"], row["at"], row["partner"], row["rate"])
        for row in paid.collect()
    }  # fmt: skip
    assert found == {
        (context.aggregate_id, context.version, context.sequence):
        (event.amount, event.price, event.on, event.at and naive(event.at), event.partner, event.rate)
        for one in history[:-1] for event, context in one.contexts()
        if type(event) is declared.Paid
    }  # fmt: skip

    strict = read_events(spark, APP, broker=broker.address)
    with pytest.raises(PySparkException, match="the events are not complete: Forgotten"):
        strict.of(declared.Moved).count()


def naive(moment: datetime) -> datetime:
    """A moment as PySpark hands it out: in the zone of this process, which is not told."""
    return moment.astimezone().replace(tzinfo=None)
