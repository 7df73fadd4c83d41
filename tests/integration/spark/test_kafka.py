"""Spark over a Kafka cluster: rebuilds, jobs that follow, events as tables and streams, sealed history."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Settings
from headrace.app import RunningApp
from headrace.projections.tables.read_models import ReadModels
from headrace.spark.analysis.events import read_events
from headrace.spark.history.pace import waiting_in
from headrace.spark.history.seal import seal_history, sealing, verify_history
from headrace.spark.rebuild import rebuild
from headrace.spark.stream.continuous import follow
from headrace.spark.stream.events import read_event_stream
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka import transport as kafka_transport
from samples.bank import app
from samples.bank.accounts import Deposit, Deposited, OpenAccount, Withdraw, Withdrawn
from samples.bank.read_models import balances, daily_totals, transfers_in_flight
from samples.bank.transfers import RequestTransfer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ACCOUNTS = 40


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A bank with a history at a cluster; the service is stopped."""
    folder = tmp_path_factory.mktemp("bank")
    with MockKafka(brokers=3) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_transport, "ClusterTopics", lambda *_: cluster.topics)
        settings = Settings(
            broker=f"{cluster.text}?session.timeout.ms=1500",
            event_store=f"sqlite:///{folder}/events.db",
            read_models=f"sqlite:///{folder}/read.db",
        )
        asyncio.run(live(settings))
        patch.undo()
        yield settings


async def live(settings: Settings) -> None:
    async with app.run(settings) as running, app.client(settings) as bus:
        names = [f"a-{number}" for number in range(ACCOUNTS)]
        await asyncio.gather(
            *[bus.execute(OpenAccount(account_id=each, owner="o")) for each in names]
        )
        commands = [
            make(
                account_id=each,
                transaction_id=f"{make.__name__}-{number}",
                amount=10 if make is Withdraw else 20,
            )
            for number in range(10)
            for each in names
            for make in (Deposit, Withdraw)
        ]
        await asyncio.gather(*[bus.execute(each) for each in commands])
        transfer = RequestTransfer(transfer_id="t", source="a-0", target="a-1", amount=3)
        last = await bus.execute(transfer)
        assert last.status == "executed"
        async with asyncio.timeout(60):
            while (row := await running.read(balances).get("a-1")) is None or row.balance != 103:
                await asyncio.sleep(0)
            # A rebuild waits for live rows that are behind: for the transfer's last event, which its process
            # sends after the money has come.
            await level(running)
            while await running.read(transfers_in_flight).get("t") is not None:
                await asyncio.sleep(0)
            await level(running)


async def level(running: RunningApp) -> None:
    """Waits until live rows have every event that was published before."""
    assert running.watch is not None
    while any(lag.messages for lag in await running.watch.lags.measure()):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", [balances.name, daily_totals.name])
async def test_spark_rebuilds_what_the_service_has_made(
    spark: SparkSession, settings: Settings, name: str
) -> None:
    report = await rebuild(
        "samples.bank:app",
        name,
        broker=settings.broker,
        read_models_url=settings.read_models,
        event_store_url=settings.event_store,
        spark=spark,
        live_wait_ms=1_000,
    )
    assert report.reason == ""
    assert report.switched
    assert report.mismatches == 0
    assert report.compared == (ACCOUNTS if name == balances.name else 1)
    assert report.events >= 21 * ACCOUNTS
    assert report.gaps == report.foreign == 0


async def test_a_job_follows_the_topic(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    assert settings.broker is not None
    url = f"sqlite:///{tmp_path}/followed.db"
    places = {"broker": settings.broker, "event_store_url": settings.event_store}
    for messages in (True, False):
        done = await follow(
            "samples.bank:app",
            balances.name,
            read_models_url=url,
            spark=spark,
            available_now=True,
            **places,
        )
        # A second job begins where the first one ended.
        assert (done.messages > 0) == messages
    found = [await rows(each) for each in (url, settings.read_models)]
    assert found[0] == found[1]
    assert len(found[0]) == ACCOUNTS


async def rows(url: str) -> dict[str, int]:
    models = ReadModels(url)
    try:
        return {row.account_id: row.balance async for row in models.reader(balances).rows()}
    finally:
        await models.aclose()


def test_events_are_a_table(spark: SparkSession, settings: Settings) -> None:
    assert settings.broker is not None
    events = read_events(
        spark, "samples.bank:app", broker=settings.broker, event_store_url=settings.event_store
    )
    assert events.of(Deposited).count() == 10 * ACCOUNTS
    report = events.report()
    assert (report.duplicates, report.gaps, report.missing, report.left_out) == (0, 0, (), ())


def test_events_are_a_stream(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    assert settings.broker is not None
    events = read_event_stream(
        spark, "samples.bank:app", broker=settings.broker, event_store_url=settings.event_store
    )
    writer = events.of(Withdrawn).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "withdrawn"))
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "withdrawn")).count() == 10 * ACCOUNTS


def test_history_is_sealed_and_verified(settings: Settings, tmp_path: Path) -> None:
    assert settings.broker is not None
    with sealing(tmp_path):
        outcome = seal_history(
            "samples.bank:app",
            tmp_path,
            broker=settings.broker,
            event_store_url=settings.event_store,
        )
    assert (outcome.differences, outcome.notes, len(outcome.sealed)) == ([], [], 1)
    assert waiting_in(tmp_path, settings.broker, "bank.events") == 0
    verified = verify_history("samples.bank:app", tmp_path, event_store_url=settings.event_store)
    assert (verified.differences, verified.sealed) == ([], 1)
    assert verified.messages == outcome.sealed[0].messages > 20 * ACCOUNTS


@pytest.mark.parametrize("engine", ["replay", "auto"])
def test_the_command_rebuilds_without_spark(settings: Settings, engine: str) -> None:
    done = subprocess.run(
        [
            Path(sys.executable).with_name("headrace"), "projection", "rebuild",
            balances.name, daily_totals.name, "--app", "samples.bank:app", "--engine", engine,
            "--broker", str(settings.broker), "--event-store", settings.event_store,
            "--read-models", settings.read_models,
        ],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("is live") == 2
