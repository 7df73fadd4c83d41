"""A bank's topics are copied to Kafka and back by the command line; readers go on where they were."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from headrace import Settings
from headrace.cli import _command_line
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka import topic_reader, topic_writer
from headrace.transports.kafka import transport as kafka_transport
from headrace_mq.testing.conformance.deployment import ProcessDeployment
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import balances
from tests.integration.exactly_once.conftest import History

ACCOUNTS = [f"a-{number}" for number in range(8)]
OTHER = "the event topic is another one, or lost messages; readers begin where it begins"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockKafka]:
    with MockKafka(brokers=3) as cluster:
        for module in (kafka_transport, topic_reader, topic_writer):
            monkeypatch.setattr(module, "ClusterTopics", lambda *_: cluster.topics)
        yield cluster


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[ProcessDeployment]:
    deployment = ProcessDeployment(tmp_path / "mq")
    deployment.start()
    yield deployment
    deployment.close()


@pytest.fixture
def settings(deployment: ProcessDeployment, tmp_path: Path) -> Settings:
    return Settings(
        broker=deployment.address,
        event_store=f"sqlite:///{tmp_path}/events.db",
        read_models=f"sqlite:///{tmp_path}/read.db",
    )


def at_kafka(settings: Settings, cluster: MockKafka) -> Settings:
    return settings.model_copy(update={"broker": f"{cluster.text}?session.timeout.ms=1500"})


async def work(settings: Settings, stay: int) -> None:
    """Deposits 10 on each account, and waits until every reader has seen it."""
    async with app.run(settings) as running, app.client(settings) as bus:
        if not stay:
            opened = [OpenAccount(account_id=each, owner="o") for each in ACCOUNTS]
            await asyncio.gather(*[bus.execute(each) for each in opened])
        deposits = [
            Deposit(account_id=each, transaction_id=f"{each}-{stay}", amount=10)
            for each in ACCOUNTS
        ]
        await asyncio.gather(*[bus.execute(each) for each in deposits])
        async with asyncio.timeout(60):
            expected = dict.fromkeys(ACCOUNTS, 10 * (stay + 1))
            while {
                row.account_id: row.balance async for row in running.read(balances).rows()
            } != expected:
                await asyncio.sleep(0)
            assert running.watch is not None
            while any(lag.messages for lag in await running.watch.lags.measure()):
                await asyncio.sleep(0)


async def copy(source: str, target: str, settings: Settings) -> dict[str, object]:
    asked = ["topic", "copy", source, target, "--app", "samples.bank:app"]
    asked += ["--read-models", settings.read_models, "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, _command_line(), asked)
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


def others(logs: list[dict[str, object]]) -> list[dict[str, object]]:
    return [each for each in logs if each["event"] == OTHER]


async def test_topics_move_to_kafka_and_back_with_their_readers(
    settings: Settings, cluster: MockKafka
) -> None:
    kafka = at_kafka(settings, cluster)
    assert settings.broker is not None
    assert kafka.broker is not None
    with capture_logs() as logs:
        await work(settings, 0)
        there = await copy(settings.broker, kafka.broker, settings)
        # 16 events and as many commands, apart from what the processes of the bank say to themselves.
        assert there["copied"] == 32
        assert "bank.commands" in str(there["groups"])
        assert "balances" in str(there["readers"])
        again = await copy(settings.broker, kafka.broker, settings)
        assert (again["copied"], again["readers"]) == (0, [])
        assert again["queues"] == there["queues"]
        await work(kafka, 1)
        back = await copy(kafka.broker, settings.broker, settings)
        # The built-in queue still has what it had.
        assert back["copied"] == 16
        await work(settings, 2)
    assert others(logs) == []
    assert (await History.read(app, settings)).faults() == []


async def test_a_copy_while_services_run_is_refused(settings: Settings, cluster: MockKafka) -> None:
    kafka = at_kafka(settings, cluster)
    assert kafka.broker is not None
    asked = ["topic", "copy", str(settings.broker), kafka.broker, "--app", "samples.bank:app"]
    asked += ["--read-models", settings.read_models]
    await work(settings, 0)
    first = await asyncio.to_thread(CliRunner().invoke, _command_line(), asked)
    assert "32 messages copied; both sides are equal" in first.stdout
    async with app.run(kafka):
        # The groups have members at the target.
        second = await asyncio.to_thread(CliRunner().invoke, _command_line(), asked)
    assert second.exit_code != 0
    assert "so that the group has no members" in str(second.exception)


async def test_a_target_that_is_no_copy_is_refused(settings: Settings, cluster: MockKafka) -> None:
    kafka = at_kafka(settings, cluster)
    assert kafka.broker is not None
    await work(settings, 0)
    async with app.run(kafka), app.client(kafka) as bus:
        await bus.execute(Deposit(account_id="a-0", transaction_id="here", amount=1))
    asked = ["topic", "copy", str(settings.broker), kafka.broker, "--app", "samples.bank:app"]
    asked += ["--read-models", settings.read_models]
    done = await asyncio.to_thread(CliRunner().invoke, _command_line(), asked)
    assert done.exit_code != 0
    assert "copy again" in str(done.exception)
