"""Rebuilds out of a Kafka cluster: every engine makes the rows that the live projections made."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Settings
from headrace.spark.rebuild import rebuild
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka import transport as kafka_transport
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount, Withdraw
from samples.bank.read_models import balances, daily_totals
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
            # A rebuild waits for live rows that are behind.
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
