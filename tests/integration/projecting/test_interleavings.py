"""What may happen at once on a real database: batches, switches, stale owners, crashes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import text
from structlog.testing import capture_logs

from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.stream import EventStream
from headrace.projections.batch_transaction import Applied, Batch, apply_batch
from headrace.projections.definition.projection import Projection
from headrace.projections.letters import Letters
from headrace.projections.tables.comparison import compare
from headrace.projections.tables.contents import Moved, Switched
from samples.bank.accounts import Deposited
from samples.bank.read_models import balances, statement

Q0 = ("bank.events", 0)
WAIT_MS = 100_000


class SlowStore:
    """Fills gaps when it is told to, so that a transaction can be held open."""

    def __init__(self, streams: Sequence[EventStream]) -> None:
        self.streams = streams
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()

    async def missing(self, aggregate_id: str, after: int, to: int) -> list[EventStream]:
        self.asked.set()
        await self.answer.wait()
        return [s for s in self.streams if s.version is not None and after < s.version <= to]


@pytest.fixture
async def bank(make_bank: Any) -> Any:
    return await make_bank()


@pytest.fixture
async def slow(bank: Any) -> SlowStore:
    """An account with three versions, of which only the third is in the batches below."""
    await bank.read_models.ensure(balances)
    ledger = bank.make_ledger()
    for amount in (10, 20):
        ledger.act("anna", "deposit", amount)
    return SlowStore(ledger.streams)


async def apply(bank: Any, slow: SlowStore, generation: int = 1) -> Any:
    """Applies the account's third version, which waits for the first two."""
    batch = Batch(streams=slow.streams[2:], begin={Q0: None}, end={Q0: 1})
    async with bank.read_models.begin() as connection:
        return await apply_batch(
            connection,
            bank.read_models.target(balances, generation),
            batch,
            missing=slow.missing,
        )


async def until_blocked_or_done(bank: Any, task: asyncio.Task[Any], got_through: Any) -> None:
    """Waits until PostgreSQL says that the task waits for a lock, or until the task got through.

    SQLite cannot be asked; there the write transaction itself is the lock.
    """
    if bank.read_models.engine.dialect.name == "sqlite":
        return
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    while not (task.done() or got_through()):
        async with bank.read_models.engine.connect() as connection:
            if (await connection.execute(waiting)).scalar_one():
                return


async def test_a_switch_waits_for_the_batch_under_way(bank: Any, slow: SlowStore) -> None:
    models = bank.read_models
    await models.begin_shadow(balances, "me")
    batch = asyncio.create_task(apply(bank, slow))
    await slow.asked.wait()
    switch = asyncio.create_task(models.switch(balances, 2, "me"))
    await until_blocked_or_done(bank, switch, lambda: False)
    assert not switch.done()
    slow.answer.set()
    assert await batch == Applied(rows=1)
    await switch
    assert await models.reader(balances, generation=1).count() == 1
    assert await models.reader(balances).count() == 0
    assert await apply(bank, slow) == Switched(generation=2)


async def test_one_of_two_owners_with_the_same_batch_applies_it(bank: Any, slow: SlowStore) -> None:
    first = asyncio.create_task(apply(bank, slow))
    await slow.asked.wait()
    slow.asked.clear()
    second = asyncio.create_task(apply(bank, slow))
    await until_blocked_or_done(bank, second, slow.asked.is_set)
    slow.answer.set()
    assert await first == Applied(rows=1)
    assert await second == Moved(offsets={Q0: 1})
    assert (await bank.read_models.reader(balances).get("anna")).transactions == 2


async def test_an_owner_killed_within_its_transaction_leaves_nothing_and_no_lock(
    bank: Any, slow: SlowStore
) -> None:
    killed = asyncio.create_task(apply(bank, slow))
    await slow.asked.wait()
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    assert await bank.read_models.offsets("balances", 1) == {}
    slow.answer.set()
    assert await apply(bank, slow) == Applied(rows=1)


async def test_two_projections_do_not_wait_for_each_other_to_be_read(
    bank: Any, slow: SlowStore
) -> None:
    await bank.read_models.ensure(statement)
    held = asyncio.create_task(apply(bank, slow))
    await slow.asked.wait()
    assert await bank.read_models.reader(balances).count() == 0
    assert await bank.read_models.reader(statement).count() == 0
    slow.answer.set()
    assert await held == Applied(rows=1)


async def test_two_members_of_a_group_and_a_third_that_comes_and_goes_apply_everything_once(
    bank: Any,
) -> None:
    ledger = bank.make_ledger()
    for number in range(300):
        ledger.act(f"account {number % 17}", "deposit", number + 1)
    tasks = [asyncio.create_task(bank.runner(balances).run()) for _ in range(2)]
    for first in range(0, len(ledger.streams), 50):
        passing = asyncio.create_task(bank.runner(balances).run())
        for stream in ledger.streams[first : first + 50]:
            await bank.publish(stream)
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)
    await bank.read_models.wait_for_offsets(balances, bank.ends(), timeout_ms=WAIT_MS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    rows = [row async for row in bank.read_models.reader(balances).rows()]
    assert sum(row.balance for row in rows) == sum(range(1, 301))
    assert sum(row.transactions for row in rows) == 300


async def test_a_shadow_caught_up_under_load_equals_the_live_generation(bank: Any) -> None:
    ledger, models = bank.make_ledger(), bank.read_models
    for number in range(200):
        ledger.act(f"account {number % 7}", "deposit", number + 1)
    live = asyncio.create_task(bank.runner(balances).run())
    for stream in ledger.streams[:150]:
        await bank.publish(stream)
    await models.wait_for_offsets(balances, bank.ends(), timeout_ms=WAIT_MS)
    generation = await models.begin_shadow(balances, "me")
    shadow = bank.runner(balances, shadow=generation)
    await shadow.run_until(await models.offsets("balances", 1), timeout_ms=WAIT_MS)
    found = await compare(models, balances, 1, generation)
    assert (found.rows, found.mismatches, found.same_offsets) == (7, 0, True)
    for stream in ledger.streams[150:]:
        await bank.publish(stream)
    await models.switch(balances, generation, "me")
    await models.wait_for_offsets(balances, bank.ends(), timeout_ms=WAIT_MS)
    live.cancel()
    await asyncio.gather(live, return_exceptions=True)
    rows = [row async for row in models.reader(balances).rows()]
    assert sum(row.transactions for row in rows) == 200
    assert sum(row.balance for row in rows) == sum(range(1, 201))


class Large(BaseModel):
    key: str
    number: int


async def test_a_value_that_the_database_refuses_parks_its_aggregate_and_is_no_outage(
    bank: Any,
) -> None:
    large = Projection("large", row=Large, key="key")

    @large.fold
    def deposited(row: Large | None, event: Deposited, context: EventContext) -> Large:
        return Large(
            key=context.aggregate_id, number=2**63 if context.aggregate_id == "anna" else 7
        )

    ledger = bank.make_ledger()
    for owner, amount in (("anna", 1), ("bert", 2), ("anna", 3)):
        ledger.act(owner, "deposit", amount)
    for stream in ledger.streams:
        await bank.publish(stream)
    runner = bank.runner(large)
    with capture_logs():
        task = asyncio.create_task(runner.run())
        await bank.read_models.wait_for_version(large, "bert", 2, timeout_ms=WAIT_MS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [row.key async for row in bank.read_models.reader(large).rows()] == ["bert"]
    (letter,) = await Letters(large, bank.read_models, bank.store).all()
    assert (letter.aggregate_id, letter.version) == ("anna", 1)


async def test_the_rows_of_an_event_are_there_as_soon_as_its_version_is(bank: Any) -> None:
    ledger = bank.make_ledger()
    ledger.act("anna", "deposit", 5)
    task = asyncio.create_task(bank.runner(statement).run())
    for stream in ledger.streams:
        await bank.publish(stream)
    await bank.read_models.wait_for_version(statement, "anna", 2, timeout_ms=WAIT_MS)
    rows = await bank.read_models.reader(statement).where(account_id="anna")
    assert [(row.amount, row.balance) for row in rows] == [(5, 5)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_bank_folds_every_event_that_moves_money() -> None:
    moving: set[type[DomainEvent]] = {
        event_type
        for event_type in balances.event_types
        if {"amount", "balance"} <= event_type.model_fields.keys()
    }
    assert moving == statement.event_types
