"""A topic that was made again under its name: its queues begin above offset 0, and nothing of it is lost."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace import Settings
from headrace.errors import ProjectionError
from headrace.rebuild.local.partial_rebuild import Wanted
from headrace.rebuild.local.rebuild import rebuild as replay
from headrace.spark.analysis.events import read_events
from headrace.spark.analysis.export import export_events
from headrace.spark.columns.rebuild import rebuild as rebuild_columns
from headrace.spark.lake.events import write_events
from headrace.spark.lake.read_model import write_read_model
from headrace.spark.rebuild import rebuild as rebuild_spark
from headrace.spark.stream.continuous import follow
from headrace.spark.stream.events import read_event_stream
from headrace.stores.database.schema import upgrade
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.spark.reader import fetch_ranges
from samples.bank import app
from samples.bank.accounts import Deposit, Deposited, OpenAccount
from samples.bank.read_models import balances, daily_totals

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP, TOPIC = "samples.bank:app", "bank.events"
PROJECTIONS = [balances, daily_totals]
ACCOUNTS = ["account-0", "account-1"]
REPUBLISH = ("-m", "headrace", "events", "republish", "--app", APP, "--replace")


async def deposit(running: Any, name: str) -> None:
    """A deposit into each account, which is in the read models when this returns."""
    for each in ACCOUNTS:
        await running.bus.execute(
            Deposit(account_id=each, transaction_id=f"{name}-{each}", amount=7),
            wait_for=PROJECTIONS,
        )


async def fill_all_queues(broker: str) -> None:
    """Sends something that is no event into every queue."""
    async with Producer(broker) as producer:
        told = {"kind": "rejection"}
        await producer.send_many(
            [Message(topic=TOPIC, key=f"{n}", headers=told, body=b"") for n in range(200)]
        )


@pytest.fixture
async def remade(broker: Any, read_models_url: str, tmp_path: Path) -> Settings:
    """The bank after its event topic was made again; some queues have not had a message since."""
    store = f"sqlite:///{tmp_path / 'events.db'}"
    for url in (store, read_models_url):
        await upgrade(url)
    settings = Settings(broker=broker.address, event_store=store, read_models=read_models_url)
    async with app.run(settings) as running:
        for each in ACCOUNTS:
            await running.bus.execute(OpenAccount(account_id=each, owner="o"), wait_for=PROJECTIONS)
        for number in range(4):
            await deposit(running, f"old-{number}")
        await fill_all_queues(broker.address)
    done = await asyncio.to_thread(
        subprocess.run,
        [
            sys.executable, *REPUBLISH, "--broker", broker.address, "--event-store", store,
            "--read-models", read_models_url,
        ],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    async with app.run(settings) as running:
        await deposit(running, "new")
    held = fetch_ranges(broker.address, [TOPIC])
    assert all(0 < one.start == one.first for one in held)
    assert {one.first == one.end for one in held} == {True, False}
    return settings


async def test_every_engine_folds_it_as_one_that_was_never_made_again(
    remade: Settings, broker: Any, spark: Any, rows_of: Any, tmp_path: Path
) -> None:
    choices: dict[str, Any] = {
        "broker": broker.address,
        "read_models_url": remade.read_models,
        "event_store_url": remade.event_store,
    }
    folder = tmp_path / "out"
    part = await asyncio.to_thread(
        export_events, APP, folder, broker=broker.address, event_store_url=remade.event_store
    )
    assert part.messages == 2 * 6
    async with app.run(remade) as running:
        await deposit(running, "tail")
        ways = [
            (replay, {}),
            (rebuild_columns, {"export": folder}),
            (rebuild_spark, {"spark": spark}),
            (rebuild_spark, {"spark": spark, "export": folder}),
        ]
        live = {each.name: await rows_of(remade.read_models, each) for each in PROJECTIONS}
        # One row of daily totals, or two around midnight.
        assert len(live["balances"]) == 2
        assert live["daily_totals"]
        for name, rows in live.items():
            for engine, more in ways:
                report = await engine(APP, name, **choices, **more)
                assert (report.switched, report.mismatches) == (True, 0)
                assert report.compared == len(rows)
        some = Wanted(keys=frozenset({ACCOUNTS[0]}))
        for engine, more in (ways[0], ways[2]):
            mended = await engine(APP, "balances", **choices, **more, wanted=some)
            assert (mended.mismatches, mended.mended) == (0, 0)
        # Only what came since; a queue of which nothing was read has no offset.
        await fill_all_queues(broker.address)
        await deposit(running, "later")
        for engine, more in (ways[0], ways[2]):
            onto = await engine(APP, "balances", **choices, **more, start="offsets")
            assert (onto.switched, onto.mismatches, onto.compared) == (True, 0, 2)


async def test_events_and_their_stream_are_those_that_it_holds(
    remade: Settings, broker: Any, spark: Any, tmp_path: Path
) -> None:
    events = read_events(spark, APP, broker=broker.address, event_store_url=remade.event_store)
    assert events.of(Deposited).count() == 2 * 5
    told = events.report()
    assert (told.events, told.missing, told.duplicates) == (2 * 6, (), 0)

    def stream() -> int:
        writer = read_event_stream(spark, APP, broker=broker.address).of(Deposited).writeStream
        writer = writer.format("parquet").option("path", str(tmp_path / "events"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return int(spark.read.parquet(str(tmp_path / "events")).count())

    assert await asyncio.to_thread(stream) == 2 * 5
    following: dict[str, Any] = {
        "broker": broker.address, "read_models_url": remade.read_models,
        "event_store_url": remade.event_store, "spark": spark, "available_now": True,
    }  # fmt: skip
    await fill_all_queues(broker.address)
    assert (await follow(APP, "balances", **following)).batches > 0


async def test_files_and_tables_of_the_earlier_topic_do_not_go_on_with_the_new_one(
    ledger: Any, broker: Any, spark: Any, make_history: Any, publish: Any, tmp_path: Path
) -> None:
    await publish(make_history(6, 2))
    application = "ledger_app:app"
    ways = {
        "export": partial(export_events, application, tmp_path / "e"),
        "parquet": partial(write_events, spark, application, str(tmp_path / "p")),
        "delta": partial(write_events, spark, application, str(tmp_path / "d"), format="delta"),
        "rows": partial(write_read_model, spark, application, "accounts", str(tmp_path / "r")),
    }
    for way in ways.values():
        await asyncio.to_thread(way, broker=broker.address)
        await asyncio.to_thread(way, broker=broker.address)
    async with AdminClient(broker.address) as admin:
        held = await admin.ranges(["ledger.events"])
        await admin.freeze(
            "ledger.events", [one.queue_id for one in held], writing=True, reading=True
        )
        await admin.delete_queues("ledger.events")
    # It grows past the end of the earlier one.
    await publish(make_history(12, 6))
    for way in ways.values():
        with pytest.raises(ProjectionError, match="is not the topic that was exported"):
            await asyncio.to_thread(way, broker=broker.address)
    url = f"sqlite:///{tmp_path / 'read.db'}"
    await upgrade(url)
    choices: dict[str, Any] = {"broker": broker.address, "read_models_url": url}
    for engine, more in ((rebuild_columns, {}), (rebuild_spark, {"spark": spark})):
        with pytest.raises(ProjectionError, match="is not the topic that was exported"):
            await engine(application, "counts", **choices, **more, export=tmp_path / "e")
    assert (await replay(application, "counts", **choices, verify=False)).switched
