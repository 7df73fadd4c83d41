"""Live, rebuilt, built upon and followed: the same rows of a history with everything in it."""

import asyncio
import json
import random
import threading
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.projections.definition.fold import fold_streams
from headrace.projections.runner import ProjectionRunner
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.spark.driver import all_rows
from headrace.spark.rebuild import rebuild
from headrace.spark.stream.continuous import follow
from headrace.stores.open import open_event_store
from headrace.transports.queue import QueueTransport
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

APP = "declared_app:app"
TOPIC = "ledger.events"


class History:
    """Streams in waves, each complete in itself, and how they arrive."""

    def __init__(self, declared: Any, seed: int) -> None:
        self._declared = declared
        self._chance = random.Random(seed)
        self.streams: list[EventStream] = []

    def wave(self, aggregates: int, versions: int) -> list[tuple[str, bytes]]:
        """Returns keys and bodies: out of order, some twice, some of an old version."""
        first = len(self.streams) // aggregates + 1
        new = [
            self._stream(f"a{number}", version)
            for version in range(first, first + versions)
            for number in range(aggregates)
        ]
        self.streams += new
        arriving = [*new, *self._chance.choices(self.streams, k=len(new) // 5)]
        places = {id(one): place + self._chance.randrange(3 * aggregates)
                  for place, one in enumerate(arriving)}  # fmt: skip
        arriving.sort(key=lambda one: places[id(one)])
        encode = self._declared.app.serializer.encode_stream
        return [(one.aggregate_id, self._aged(encode(one))) for one in arriving]

    def rows(self, projection: Any) -> dict[str, str]:
        rows = fold_streams(projection, {}, self.streams)
        return {key: repr(row) for key, row in rows.items() if row is not None}

    def _stream(self, aggregate_id: str, version: int) -> EventStream:
        return EventStream(
            aggregate_type="Ledger",
            aggregate_id=aggregate_id,
            version=version,
            command_id=f"{aggregate_id}-{version}",
            correlation_id="c",
            recorded_at=datetime(2026, 1, 31, 23, 59, tzinfo=UTC) + timedelta(minutes=version),
            events=tuple(self._event() for _ in range(self._chance.randrange(1, 4))),
        )

    def _event(self) -> Any:
        chance, declared = self._chance, self._declared
        if chance.random() < 0.5:
            return declared.Paid(
                partner=chance.choice([None, "p", "q"]),
                amount=chance.randint(-99, 99),
                price=chance.choice([Decimal("1.5"), Decimal("-2.25"), Decimal(40)]),
                on=date(2026, 1, 1) + timedelta(days=chance.randrange(90)),
                cash=chance.random() < 0.5,
            )
        if chance.random() < 0.8:
            return declared.Moved(
                source=chance.choice("pqr"), target=chance.choice("pqr"),
                amount=chance.randrange(1, 30),
            )  # fmt: skip
        return declared.Renamed(name=f"n{chance.randrange(9)}")

    @staticmethod
    def _aged(body: bytes) -> bytes:
        stored = json.loads(body)
        for event in stored["events"]:
            if event["name"] == "Paid" and event["data"]["price"] == "1.5":
                event["version"] = 1
                del event["data"]["price"]
        return json.dumps(stored).encode()


async def publish(address: str, arriving: Sequence[tuple[str, bytes]]) -> None:
    async with Producer(address) as producer:
        await producer.create_topic(TOPIC, queues=3, retention="forever")
        await producer.send_many(
            [Message(topic=TOPIC, key=k, headers={"kind": "events"}, body=b) for k, b in arriving]
        )


async def rows_of(url: str, projection: Any) -> dict[str, str]:
    read_models = ReadModels(url)
    try:
        # Equal decimals of other places are other text, which SQLite would keep: so by repr.
        rows = read_models.reader(projection).rows()
        return {getattr(row, projection.key): repr(row) async for row in rows}
    finally:
        await read_models.aclose()


@pytest.mark.parametrize("name", ["accounts", "moves"])
async def test_every_engine_folds_a_history_into_the_same_rows(
    name: str, spark: Any, broker: Any, declared: Any, topic_ends: Any, sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # What is declared is run as SQL, however little there is.
    monkeypatch.setattr(all_rows, "_NATIVE_MESSAGES_MIN", 0)
    # And what came since goes through Spark, however little it is.
    monkeypatch.setattr(all_rows, "INCREMENT_MAX", -1)
    projection = declared.app.projections[name]
    history = History(declared, 7)
    store_url = sqlite_url.replace("read.db", "events.db")
    store = await open_event_store(store_url, declared.app.serializer)
    waves = [history.wave(10, 4), history.wave(10, 3), history.wave(10, 3)]
    await store.append(history.streams)
    await publish(broker.address, waves[0])
    read_models, transport = ReadModels(sqlite_url), QueueTransport(broker.address)
    await transport.start()
    live = asyncio.create_task(
        ProjectionRunner(
            projection=projection, app_name="ledger", read_models=read_models, store=store,
            transport=transport, serializer=declared.app.serializer, settings=Settings(),
        ).run()
    )  # fmt: skip

    def more_arrives(phase: str, _ahead: int) -> None:
        if phase == "load":
            wave = waves.pop(1)
            thread = threading.Thread(target=lambda: asyncio.run(publish(broker.address, wave)))
            thread.start()
            thread.join()

    try:
        for start in ("zero", "offsets"):
            report = await rebuild(
                APP, name, broker=broker.address, read_models_url=sqlite_url, spark=spark,
                event_store_url=store_url, start=start, live_wait_ms=300_000, report=more_arrives,  # type: ignore[arg-type]  # of the two
            )  # fmt: skip
            assert (report.switched, report.mismatches, report.reason) == (True, 0, "")
            assert report.compared
        assert len(waves) == 1
        await read_models.wait_for_offsets(projection, topic_ends(), timeout_ms=300_000)
        assert await rows_of(sqlite_url, projection) == history.rows(projection)
    finally:
        live.cancel()
        await asyncio.gather(live, return_exceptions=True)
        await transport.aclose()
        await read_models.aclose()
        await store.aclose()
    followed = sqlite_url.replace("read.db", "followed.db")
    await follow(
        APP, name, broker=broker.address, read_models_url=followed, spark=spark,
        event_store_url=store_url, available_now=True,
    )  # fmt: skip
    assert await rows_of(followed, projection) == history.rows(projection)
    assert len(history.rows(projection)) > 5
