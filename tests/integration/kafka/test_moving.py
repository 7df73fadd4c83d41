"""A bank moves from the built-in queue to Kafka and back: its databases stay, its topics are new ones."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Settings
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka import transport as kafka_transport
from headrace_mq.testing.conformance.deployment import ProcessDeployment
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import balances
from tests.integration.exactly_once.conftest import History

ACCOUNTS = [f"a-{number}" for number in range(8)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockKafka]:
    with MockKafka(brokers=3) as cluster:
        monkeypatch.setattr(kafka_transport, "ClusterTopics", lambda *_: cluster.topics)
        yield cluster


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[ProcessDeployment]:
    deployment = ProcessDeployment(tmp_path / "mq")
    deployment.start()
    yield deployment
    deployment.close()


async def work(settings: Settings, stay: int) -> None:
    async with app.run(settings) as running, app.client(settings) as bus:
        if not stay:
            opened = [OpenAccount(account_id=each, owner="o") for each in ACCOUNTS]
            await asyncio.gather(*[bus.execute(each) for each in opened])
        deposits = [
            Deposit(account_id=each, transaction_id=f"{each}-{stay}", amount=10)
            for each in ACCOUNTS
        ]
        await asyncio.gather(*[bus.execute(each) for each in deposits])
        # Each command of an earlier stay is known, wherever it was handled.
        again = Deposit(account_id="a-0", transaction_id="once", amount=1)
        await bus.execute(again, command_id="once")
        async with asyncio.timeout(60):
            found: dict[str, int] = {}
            expected = dict.fromkeys(ACCOUNTS, 10 * (stay + 1)) | {"a-0": 10 * (stay + 1) + 1}
            while found != expected:
                found = {row.account_id: row.balance async for row in running.read(balances).rows()}
                await asyncio.sleep(0)
            assert running.watch is not None
            while any(lag.messages for lag in await running.watch.lags.measure()):
                await asyncio.sleep(0)


async def test_an_application_moves_to_kafka_and_back(
    deployment: ProcessDeployment, cluster: MockKafka, tmp_path: Path
) -> None:
    queue = Settings(
        broker=deployment.address,
        event_store=f"sqlite:///{tmp_path}/events.db",
        read_models=f"sqlite:///{tmp_path}/read.db",
    )
    kafka = queue.model_copy(update={"broker": f"{cluster.text}?session.timeout.ms=1500"})
    for stay, settings in enumerate((queue, kafka, kafka, queue)):
        await work(settings, stay)
        assert (await History.read(app, settings)).faults() == []
