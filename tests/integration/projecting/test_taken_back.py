"""A database that forgets its last batches: a copy that takes another's place may lag behind it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import delete

from headrace.stores.database.tables import projection_offsets, projection_versions
from headrace.subscriptions import reader as reading
from samples.bank.read_models import balances

WAIT_MS = 100_000


@pytest.fixture
async def bank(make_bank: Any) -> Any:
    """A bank with an account in each queue, and what its first one is named."""
    made = await make_bank()
    ledger = made.ledger = made.make_ledger()
    made.first = "account 0"
    made.queue_of = {}
    number = 0
    while len(made.ends()) < 2:
        before = made.ends()
        ledger.act(name := f"account {number}", "deposit", 5)
        for stream in ledger.streams[2 * number :]:
            await made.publish(stream)
        (grown,) = (queue for queue, end in made.ends().items() if before.get(queue) != end)
        made.queue_of[name] = grown
        number += 1
    await made.read_models.ensure(balances)
    return made


@pytest.fixture
def run(bank: Any) -> Callable[..., Any]:
    """Starts a runner and waits until it stands at the end."""
    tasks: list[asyncio.Task[None]] = []

    async def start(**changes: Any) -> AsyncIterator[Any]:
        runner = bank.runner(balances, **changes)
        tasks.append(asyncio.create_task(runner.run()))
        while runner.progress() != bank.ends():
            await asyncio.sleep(0)
        yield runner
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    return start


@pytest.fixture
def take_back(bank: Any) -> Callable[[], Awaitable[None]]:
    """Lets the database forget the first account's queue, as if its batches had never been."""

    async def take() -> None:
        queue = bank.queue_of[bank.first]
        accounts = [name for name, other in bank.queue_of.items() if other == queue]
        table = bank.read_models.table_for(balances, 1)
        v, o = projection_versions.c, projection_offsets.c
        async with bank.read_models.begin() as connection:
            for statement in (
                delete(table).where(table.c[balances.key].in_(accounts)),
                delete(projection_versions).where(v.aggregate_id.in_(accounts)),
                delete(projection_offsets).where(o.queue_id == queue[1]),
            ):
                await connection.execute(statement)
            # Within the transaction: right after it the runner may have folded it again.
            left = table.select().where(table.c[balances.key] == bank.first)
            assert (await connection.execute(left)).first() is None

    return take


async def test_a_batch_taken_back_is_folded_again_when_no_new_event_comes(
    bank: Any, run: Any, take_back: Any
) -> None:
    async for runner in run():
        await take_back()
        await runner.wait_for_offsets(bank.ends(), timeout_ms=WAIT_MS)
        row = await bank.read_models.reader(balances).get(bank.first)
        assert row.balance == 5


async def test_a_batch_taken_back_is_folded_again_while_another_queue_is_busy(
    bank: Any, run: Any, take_back: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The runner does not look because nothing comes.
    monkeypatch.setattr(reading, "_poll_or_idle", lambda subscription, *_: subscription.poll())
    async for runner in run(switch_check_ms=0):
        await take_back()
        last = next(reversed(bank.queue_of))
        assert bank.queue_of[last] != bank.queue_of[bank.first]
        bank.ledger.act(last, "deposit", 5)
        await bank.publish(bank.ledger.streams[-1])
        await runner.wait_for_offsets(bank.ends(), timeout_ms=WAIT_MS)
        reader = bank.read_models.reader(balances)
        assert [(await reader.get(each)).balance for each in (bank.first, last)] == [5, 10]
