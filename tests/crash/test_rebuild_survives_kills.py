"""kill -9 of a rebuild at random points, and the next one goes on: the rows are the live ones."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.projections.batch_transaction import apply_batch, decode_batch
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.event_topic import EventTopic
from headrace.stores.base import AppendOutcome
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app
from samples.bank.demo.data_set import DataSet, read_bank, read_transactions
from samples.bank.demo.sending import closings, send, transactions, transfers

ROOT = Path(__file__).parents[2]
REAL_TRANSACTIONS = ROOT.parent / "shared" / "data" / "czech_bank_transactions.csv"
TOPIC = f"{app.name}.events"
NAMES = ["balances", "statement", "daily_totals", "transfers_in_flight"]
KILLS = 5
# Each kill comes before this many calls. To open everything takes a third of a whole rebuild's calls:
# 0.5 of 1.5 million from the store.
CALLS = {"topic": 900_000, "store": 1_200_000}

# Rebuilds until one comes to its end. Each is a fork, which needs no imports, and all but the last kill
# themselves at a call of some function, chosen at random: the same point on a machine of any speed.
REBUILDS = """
import asyncio, json, os, random, signal, sys, threading
import structlog
from headrace.app import load_app
from headrace.rebuild.local.rebuild import rebuild_together

asked = json.loads(sys.argv[1])
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
load_app(asked["app"])
chance = random.Random(asked["seed"])

def rebuild(calls):
    left = calls
    def count(frame, event, argument):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    if calls:
        threading.setprofile(count)
        sys.setprofile(count)
    outcomes = asyncio.run(rebuild_together(
        asked["app"], asked["names"], broker=asked["broker"], read_models_url=asked["read_models"],
        messages_max=250, source=asked["source"], event_store_url=asked["event_store"],
    ))
    for name, outcome in outcomes.items():
        if isinstance(outcome, Exception):
            raise outcome
        print(outcome.to_json(), flush=True)

kills = 0
while True:
    # Some die before they have written anything, and some after.
    calls = chance.randrange(10_000, asked["calls"]) if kills < asked["kills"] else 0
    child = os.fork()
    if not child:
        rebuild(calls)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        break
    kills += 1
print(json.dumps({"kills": kills, "status": os.waitstatus_to_exitcode(status)}), flush=True)
"""


async def happenings(data: DataSet) -> list[EventStream]:
    """What a data set makes of the bank: events, and rejections of what there was no money for."""
    async with app.run_local() as running:
        commands = chain(transactions(data), closings(data), transfers(data))
        await send(running.bus, commands, answered=lambda: None)
        return [stored.stream for stored in await running.store.read_all(limit=100_000)]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path / "broker", flush="interval")
    running = Broker(BrokerSettings(store=store, port=0))
    await running.start()
    yield running
    await running.aclose()


async def publish(address: str, streams: list[EventStream]) -> None:
    """Publishes streams, every seventh of them twice."""
    twice = [s for n, s in enumerate(streams) for _ in range(2 if n % 7 == 0 else 1)]
    encode = app.serializer.encode_stream
    async with Producer(address) as producer:
        await producer.create_topic(TOPIC, queues=3, retention="forever")
        await producer.send_columns(
            TOPIC,
            [encode(stream) for stream in twice],
            keys=[stream.aggregate_id for stream in twice],
            headers=[{"kind": "rejection" if s.rejection else "events"} for s in twice],
        )


async def keep(url: str, streams: list[EventStream]) -> None:
    """Stores streams."""
    store = await open_event_store(url, app.serializer)
    outcomes = await store.append(streams)
    assert set(outcomes) == {AppendOutcome.APPENDED}
    await store.aclose()


async def go_live(models: ReadModels, address: str, projection: Any) -> None:
    """Applies the topic to the live generation, a batch at a time, as the live runner does."""

    async def find_nothing(*_: object) -> list[Any]:
        return []

    await models.ensure(projection)
    target = models.target(projection, await models.generation(projection.name))
    topic = EventTopic(address, TOPIC, messages_max=1_000)
    for queue, (_, end) in (await topic.ranges()).items():
        offsets: dict[Any, int] = {}
        async for messages in topic.read(queue, 0, end):
            batch = decode_batch(messages, offsets, app.serializer)
            async with models.begin() as connection:
                await apply_batch(connection, target, batch, missing=find_nothing)
            offsets |= batch.end


async def rows(models: ReadModels, projection: Any) -> dict[str, Any]:
    reader = models.reader(projection)
    return {getattr(row, projection.key): row async for row in reader.rows()}


async def rebuild(address: str, url: str, seed: int, store: str | None) -> list[Any]:
    """Runs REBUILDS, and returns what was printed; with an event store, from that."""
    asked = {
        "app": "samples.bank:app", "names": NAMES, "broker": address, "read_models": url,
        "event_store": store, "source": "store" if store else "topic",
        "kills": KILLS, "calls": CALLS["store" if store else "topic"], "seed": seed,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", REBUILDS, json.dumps(asked),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )  # fmt: skip
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines, errors.decode()
    assert lines[-1].get("status") == 0, errors.decode()
    return lines


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("data_set", "source"),
    [
        ("the bank sample", "topic"),
        ("the bank sample", "store"),
        ("the real transactions", "topic"),
    ],
)
async def test_a_rebuild_killed_at_random_points_ends_with_the_live_rows(
    data_set: str, source: str, broker: Broker, tmp_path: Path
) -> None:
    if data_set == "the real transactions" and not REAL_TRANSACTIONS.exists():
        pytest.skip(f"there is no {REAL_TRANSACTIONS.name} beside the project")
    data = (
        read_transactions(REAL_TRANSACTIONS)
        if data_set == "the real transactions"
        else read_bank(ROOT / "seeds" / "bank")
    )
    streams = await happenings(data)
    await publish(broker.address, streams)
    store = f"sqlite:///{tmp_path / 'events.db'}" if source == "store" else None
    if store is not None:
        await keep(store, streams)
    url = f"sqlite:///{tmp_path / 'read.db'}"
    await upgrade(url)
    models = ReadModels(url)
    try:
        projections = [app.projection(name) for name in NAMES]
        for projection in projections:
            await go_live(models, broker.address, projection)
        live = {each.name: await rows(models, each) for each in projections}
        assert len(live["balances"]) == len(data.accounts)
        *reports, end = await rebuild(broker.address, url, 6, store)
        assert end["kills"] >= 2
        assert [each["projection"] for each in reports] == NAMES
        for report, projection in zip(reports, projections, strict=True):
            name = projection.name
            assert (report["switched"], report["mismatches"], report["reason"]) == (True, 0, "")
            assert report["compared"] == len(live[name])
            assert await rows(models, projection) == live[name]
            assert await models.generation(name) == report["generation"] > 1
        assert any(report["start"] == "offsets" for report in reports)
    finally:
        await models.aclose()
