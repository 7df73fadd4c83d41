"""The bank over real Kafka brokers: one that stays, and three of which each is killed once under load."""

import asyncio
from pathlib import Path

from headrace import CommandBus, Settings
from headrace.app import RunningApp
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount, Withdraw
from samples.bank.read_models import balances
from samples.bank.transfers import RequestTransfer
from samples.kafka import KafkaBrokers

ACCOUNTS = [f"a-{number}" for number in range(8)]
# A killed leader is noticed after three seconds, and callers ask again.
PATIENCE_S = 90


def settings(brokers: KafkaBrokers, options: str, folder: Path) -> Settings:
    return Settings(
        broker=f"{brokers.address}?{options}",
        event_store=f"sqlite:///{folder}/events.db",
        read_models=f"sqlite:///{folder}/read.db",
    )


async def open_accounts(bus: CommandBus) -> None:
    opened = [bus.execute(OpenAccount(account_id=each, owner="o")) for each in ACCOUNTS]
    assert {result.status for result in await asyncio.gather(*opened)} == {"executed"}


async def deposit(bus: CommandBus, name: str) -> None:
    """Ten to each account; every command is decided, and none twice."""
    commands = [Deposit(account_id=each, transaction_id=name, amount=10) for each in ACCOUNTS]
    async with asyncio.timeout(PATIENCE_S):
        results = await asyncio.gather(*[bus.execute(each) for each in commands])
    assert [result.status for result in results] == ["executed"] * len(ACCOUNTS)


async def shows(running: RunningApp, expected: dict[str, int]) -> None:
    found: dict[str, int] = {}
    async with asyncio.timeout(PATIENCE_S):
        while found != expected:
            found = {row.account_id: row.balance async for row in running.read(balances).rows()}
            await asyncio.sleep(0)


async def test_the_bank_runs_over_one_broker(one_broker: KafkaBrokers, tmp_path: Path) -> None:
    told = settings(one_broker, "group.protocol=consumer", tmp_path)
    async with app.run(told) as running, app.client(told) as bus:
        await open_accounts(bus)
        await deposit(bus, "d")
        asked = RequestTransfer(transfer_id="t", source="a-0", target="a-1", amount=4)
        assert (await bus.execute(asked)).status == "executed"
        refused = Withdraw(account_id="a-2", transaction_id="w", amount=10_000)
        assert (await bus.execute(refused)).status == "rejected"
        await shows(running, dict.fromkeys(ACCOUNTS, 10) | {"a-0": 6, "a-1": 14})


async def test_each_of_three_brokers_may_be_killed(
    three_brokers: KafkaBrokers, tmp_path: Path
) -> None:
    told = settings(three_brokers, "session.timeout.ms=6000", tmp_path)
    async with app.run(told) as running, app.client(told) as bus:
        await open_accounts(bus)
        for node in three_brokers.nodes:
            under_way = asyncio.create_task(deposit(bus, f"before-{node}"))
            await asyncio.to_thread(three_brokers.kill, node)
            await under_way
            await deposit(bus, f"without-{node}")
            three_brokers.start_one(node)
            await asyncio.to_thread(three_brokers.wait)
        await shows(running, dict.fromkeys(ACCOUNTS, 60))
