"""The bank over a Kafka cluster: the same application, another address. Real brokers: tests/kafka."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import CommandBus, Settings
from headrace.app import RunningApp
from headrace.serialization import CommandEnvelope
from headrace.testing.kafka import MockKafka
from headrace.transports.kafka import transport as kafka_transport
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount, Withdraw
from samples.bank.read_models import balances, statement
from samples.bank.transfers import RequestTransfer

ACCOUNTS = [f"a-{number}" for number in range(8)]


@pytest.fixture(params=["session.timeout.ms=1500", "group.protocol=consumer"])
def settings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    with MockKafka(brokers=3) as cluster:
        monkeypatch.setattr(kafka_transport, "ClusterTopics", lambda *_: cluster.topics)
        yield Settings(
            broker=f"{cluster.text}?{request.param}",
            event_store=f"sqlite:///{tmp_path}/events.db",
            read_models=f"sqlite:///{tmp_path}/read.db",
            # The cluster is in this process, and the machine may be busy.
            connect_ms=60_000,
        )


async def fill(bus: CommandBus) -> None:
    opened = [OpenAccount(account_id=each, owner="o") for each in ACCOUNTS]
    await asyncio.gather(*[bus.execute(each) for each in opened])
    deposits = [
        Deposit(account_id=each, transaction_id=f"d-{number}", amount=100)
        for each in ACCOUNTS
        for number in range(5)
    ]
    for result in await asyncio.gather(*[bus.execute(each) for each in deposits]):
        assert result.status == "executed"


async def shows(running: RunningApp, expected: dict[str, int]) -> None:
    async with asyncio.timeout(60):
        found: dict[str, int] = {}
        while found != expected:
            found = {row.account_id: row.balance async for row in running.read(balances).rows()}
            await asyncio.sleep(0)


async def test_commands_become_rows_and_a_restart_goes_on(settings: Settings) -> None:
    for number in range(2):
        async with app.run(settings) as running, app.client(settings) as bus:
            if number == 0:
                await fill(bus)
            result = await bus.execute(
                RequestTransfer(transfer_id=f"t-{number}", source="a-0", target="a-1", amount=10)
            )
            assert result.status == "executed"
            refused = await bus.execute(
                Withdraw(account_id="a-2", transaction_id=f"w-{number}", amount=10_000)
            )
            assert refused.status == "rejected"
            # A process carries the transfer through two accounts; rows follow.
            expected = dict.fromkeys(ACCOUNTS, 500)
            expected |= {"a-0": 490 - 10 * number, "a-1": 510 + 10 * number}
            await shows(running, expected)
    async with app.run(settings) as running:
        lags = await running.watch.lags.measure() if running.watch else []
        assert {lag.projection for lag in lags} >= {balances.name, statement.name}


async def test_a_command_for_later_is_handled_when_it_is_due(settings: Settings) -> None:
    async with app.run(settings) as running, app.client(settings) as bus:
        await bus.execute(OpenAccount(account_id="a", owner="o"))
        deposit = Deposit(account_id="a", transaction_id="d", amount=7)
        await shows(running, {"a": 0})
        due = timedelta(milliseconds=200)
        later = CommandEnvelope(command=deposit, command_id="c", correlation_id="c", due=due)
        clock = asyncio.get_running_loop()
        sent_s = clock.time()
        await bus.send_envelope(later)
        await shows(running, {"a": 7})
        # Kafka's times have milliseconds.
        assert clock.time() - sent_s >= due.total_seconds() - 0.002
