"""kill -9 of broker, service or both, at random moments of an import: nothing lost, nothing twice."""

import asyncio
import random
import signal
from typing import Any

import pytest

from headrace.bus import CommandBus, CommandResult
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.open import open_event_store
from headrace_mq.admin.client import AdminClient
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import balances

ACCOUNTS = 20
DEPOSITS_PER_ACCOUNT = 60
KILLS = 20
IN_FLIGHT = 50


def _commands() -> list[tuple[str, Any]]:
    commands: list[tuple[str, Any]] = [
        (f"open-{n}", OpenAccount(account_id=f"a-{n}", owner=f"owner {n}")) for n in range(ACCOUNTS)
    ]
    for place in range(DEPOSITS_PER_ACCOUNT):
        for n in range(ACCOUNTS):
            commands.append(
                (
                    f"tx-{place}-{n}",
                    Deposit(
                        account_id=f"a-{n}", transaction_id=f"tx-{place}-{n}", amount=place + n + 1
                    ),
                )
            )
    return commands


class Killer:
    """Kills after given numbers of results, one victim at a time, and starts it again."""

    def __init__(self, bank: Any, seed: int, commands: int) -> None:
        chance = random.Random(seed)
        self._bank = bank
        self._at = sorted(chance.sample(range(1, commands), KILLS))
        self._victims = [
            chance.choice([("broker",), ("service",), ("broker", "service")]) for _ in range(KILLS)
        ]
        self.done = 0
        self._results = 0
        self._due = asyncio.Event()

    def count(self) -> None:
        self._results += 1
        if self.done < KILLS and self._results >= self._at[self.done]:
            self._due.set()

    async def run(self) -> None:
        while self.done < KILLS:
            await self._due.wait()
            self._due.clear()
            children = [getattr(self._bank, name) for name in self._victims[self.done]]
            for child in children:
                await child.end(signal.SIGKILL)
            await asyncio.gather(*(child.start() for child in children))
            self.done += 1
            if self.done < KILLS and self._results >= self._at[self.done]:
                self._due.set()


async def _import(bus: CommandBus, killer: Killer) -> list[CommandResult]:
    free = asyncio.Semaphore(IN_FLIGHT)

    async def one(command_id: str, command: Any) -> CommandResult:
        try:
            return await bus.execute(command, command_id=command_id)
        finally:
            killer.count()
            free.release()

    tasks = []
    for command_id, command in _commands():
        await free.acquire()
        tasks.append(asyncio.create_task(one(command_id, command)))
    return await asyncio.gather(*tasks)


async def _balances_when_caught_up(bank: Any) -> dict[str, tuple[int, int]]:
    """Reads the live table once it has folded everything that the event topic holds."""
    async with AdminClient(bank.address) as admin:
        ends = {(r.topic, r.queue_id): r.end for r in await admin.ranges([f"{app.name}.events"])}
    models = ReadModels(bank.read_models)
    try:
        await models.wait_for_offsets(balances, ends, timeout_ms=120_000)
        return {
            row.account_id: (row.balance, row.transactions)
            async for row in models.reader(balances).rows()
        }
    finally:
        await models.aclose()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_twenty_kills_lose_no_acknowledged_command_and_apply_none_twice(bank: Any) -> None:
    commands = _commands()
    killer = Killer(bank, seed=20, commands=len(commands))
    async with app.client(bank.settings) as bus:
        killing = asyncio.create_task(killer.run())
        results = await _import(bus, killer)
        await killing
        assert {result.status for result in results} == {"executed"}
        again = await bus.execute(commands[-1][1], command_id=commands[-1][0])
        assert again.value == results[-1].value

    expected = {
        f"a-{n}": sum(place + n + 1 for place in range(DEPOSITS_PER_ACCOUNT))
        for n in range(ACCOUNTS)
    }
    store = await open_event_store(bank.event_store, app.serializer)
    streams = [stored.stream for stored in await store.read_all(limit=10_000)]
    await store.aclose()
    assert len(streams) == len(commands)
    assert len({stream.command_id for stream in streams}) == len(commands)
    for account_id in expected:
        versions = [s.version for s in streams if s.aggregate_id == account_id]
        assert versions == list(range(1, DEPOSITS_PER_ACCOUNT + 2))

    rows = await _balances_when_caught_up(bank)
    assert rows == {
        account_id: (balance, DEPOSITS_PER_ACCOUNT) for account_id, balance in expected.items()
    }
