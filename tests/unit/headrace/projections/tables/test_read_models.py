"""The database of read models: offsets, tables, waiting, and the schema it stands on."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert
from sqlalchemy.exc import IntegrityError

from headrace.errors import ProjectionError, SchemaOutOfDate
from headrace.projections.runner import ProjectionRunner
from headrace.projections.tables.contents import read_offsets, write_offsets, write_versions
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.schema import downgrade
from headrace.stores.database.tables import projection_offsets
from headrace.subscriptions.status import ReaderState

WAIT_MS = 100_000
Q0, Q1 = ("t", 0), ("t", 1)


class StepClock:
    """A clock that moves 10 ms whenever it is asked."""

    def __init__(self) -> None:
        self.elapsed_ms = 0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic_ms(self) -> int:
        self.elapsed_ms += 10
        return self.elapsed_ms


async def put_offsets(models: ReadModels, totals: Any, offsets: Any, generation: int = 1) -> None:
    async with models.begin() as connection:
        await write_offsets(connection, models.target(totals, generation), offsets)


async def test_a_new_file_gets_its_tables_on_first_use(tmp_path: Path, totals: Any) -> None:
    models = ReadModels(f"sqlite:///{tmp_path / 'new' / 'read.db'}")
    await models.ensure(totals)
    assert await models.generation("totals") == 1
    await models.aclose()


async def test_a_schema_that_is_behind_is_refused(database_url: str, totals: Any) -> None:
    from headrace.stores.database.schema import upgrade

    await upgrade(database_url)
    await downgrade(database_url, "base")
    models = ReadModels(database_url)
    with pytest.raises(SchemaOutOfDate, match="headrace db upgrade"):
        await models.ensure(totals)
    await models.aclose()


async def test_offsets_are_those_of_one_generation(read_models: Any, totals: Any) -> None:
    await read_models.ensure(totals)
    await put_offsets(read_models, totals, {Q0: 1, Q1: 2})
    await put_offsets(read_models, totals, {Q0: 9}, generation=2)
    await put_offsets(read_models, totals, {Q1: 3})
    assert await read_models.offsets("totals", 1) == {Q0: 1, Q1: 3}
    assert await read_models.offsets("balances", 1) == {}


async def test_the_table_of_a_generation_is_one_object(sqlite_models: Any, totals: Any) -> None:
    table = sqlite_models.table_for(totals, 1)
    assert table is sqlite_models.table_for(totals, 1)
    assert (table.name, sqlite_models.table_for(totals, 2).name) == ("totals__1", "totals__2")
    assert sqlite_models.target(totals, 1).table is table


async def test_a_snapshot_does_not_hold_up_writers(read_models: Any, totals: Any) -> None:
    await read_models.ensure(totals)
    async with read_models.snapshot():
        await put_offsets(read_models, totals, {Q0: 1})
    assert await read_models.offsets("totals", 1) == {Q0: 1}


async def test_waiting_returns_when_every_queue_is_there(sqlite_models: Any, totals: Any) -> None:
    await sqlite_models.ensure(totals)
    await put_offsets(sqlite_models, totals, {Q0: 1})
    waiting = asyncio.create_task(
        sqlite_models.wait_for_offsets(totals, {Q0: 1, Q1: 2}, timeout_ms=60_000)
    )
    await put_offsets(sqlite_models, totals, {Q1: 5})
    await waiting


async def test_waiting_follows_the_live_generation(sqlite_models: Any, totals: Any) -> None:
    await sqlite_models.ensure(totals)
    await sqlite_models.begin_shadow(totals, "me")
    await put_offsets(sqlite_models, totals, {Q0: 7}, generation=2)
    await sqlite_models.wait_for_offsets(totals, {Q0: 7}, timeout_ms=60_000, generation=2)
    waiting = asyncio.create_task(
        sqlite_models.wait_for_offsets(totals, {Q0: 7}, timeout_ms=60_000)
    )
    await sqlite_models.switch(totals, 2, "me")
    await waiting


async def test_waiting_in_vain_says_how_far_behind_each_queue_is(totals: Any) -> None:
    models = ReadModels("sqlite://", clock=StepClock())
    await models.ensure(totals)
    await put_offsets(models, totals, {Q0: 4})
    with pytest.raises(ProjectionError, match=r"within 15 ms; messages behind: t/0: 1, t/1: 3"):
        await models.wait_for_offsets(totals, {Q0: 5, Q1: 3}, timeout_ms=15)
    await models.aclose()


async def test_a_check_may_end_the_wait(sqlite_models: Any, totals: Any) -> None:
    def check() -> None:
        raise ProjectionError("it is over")

    await sqlite_models.ensure(totals)
    with pytest.raises(ProjectionError, match="it is over"):
        await sqlite_models.wait_for_offsets(totals, {Q0: 1}, timeout_ms=60_000, check=check)


async def test_waiting_for_a_version_of_an_aggregate(totals: Any) -> None:
    models = ReadModels("sqlite://", clock=StepClock())
    await models.ensure(totals)
    async with models.begin() as connection:
        await write_versions(connection, models.target(totals, 1), {"a": 3})
    await models.wait_for_version(totals, "a", 2, timeout_ms=1)
    for aggregate_id, version in [("a", 4), ("b", 1)]:
        with pytest.raises(ProjectionError, match=f"version {version} of {aggregate_id}"):
            await models.wait_for_version(totals, aggregate_id, version, timeout_ms=15)
    await models.aclose()


async def test_a_transaction_that_is_cancelled_leaves_no_lock_behind(
    sqlite_models: Any, totals: Any
) -> None:
    async def write_and_read_for_ever() -> None:
        async with sqlite_models.begin() as connection:
            await write_offsets(connection, sqlite_models.target(totals, 1), {Q0: 1})
            while True:
                await read_offsets(connection, "totals", 1)
                reading.set()

    await sqlite_models.ensure(totals)
    gc.disable()  # which would release a lock that was left behind
    try:
        for turns in range(40):
            reading = asyncio.Event()
            task = asyncio.create_task(write_and_read_for_ever())
            await reading.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            async with asyncio.timeout(40):
                await put_offsets(sqlite_models, totals, {Q1: turns})
    finally:
        gc.enable()
    assert await sqlite_models.offsets("totals", 1) == {Q1: 39}


async def test_work_in_a_transaction_is_kept_whole_or_not_at_all(
    read_models: Any, totals: Any
) -> None:
    def write(connection: Any, offset: int) -> str:
        place = {"name": "totals", "generation": 1, "topic": "t", "queue_id": 0}
        connection.execute(insert(projection_offsets).values(**place, next_offset=offset))
        return "done"

    models = read_models
    await models.ensure(totals)
    assert await models.transact(lambda connection: write(connection, 7)) == "done"
    with pytest.raises(IntegrityError):
        await models.transact(lambda connection: write(connection, 8))

    def break_off(connection: Any) -> None:
        connection.execute(delete(projection_offsets))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await models.transact(break_off)
    assert await models.offsets("totals", 1) == {("t", 0): 7}


@pytest.fixture
def make_runner(
    totals: Any, sqlite_models: Any, store: Any, transport: Any, serializer: Any, settings: Any
) -> Callable[[], ProjectionRunner[Any]]:
    return lambda: ProjectionRunner(
        projection=totals,
        app_name="shop",
        read_models=sqlite_models,
        store=store,
        transport=transport,
        serializer=serializer,
        settings=settings,
        switch_check_ms=5,
    )


@asynccontextmanager
async def running(runner: ProjectionRunner[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], Any]) -> None:
    """Lets the others run until the condition holds; the test's own timeout is the bound."""
    while not condition():
        await asyncio.sleep(0)


async def rows(models: Any, totals: Any) -> dict[str, tuple[int, int]]:
    return {row.counter_id: (row.total, row.folded) async for row in models.reader(totals).rows()}


async def test_a_paused_projection_applies_nothing_and_goes_on_without_loss(
    make_runner: Any, transport: Any, domain: Any, sqlite_models: Any, totals: Any
) -> None:
    runner = make_runner()
    async with running(runner):
        transport.put(domain.stream("a", 1))
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        await sqlite_models.pause("totals")
        transport.put(domain.stream("a", 2))
        await until(lambda: runner.status.state is ReaderState.PAUSED)
    restarted = make_runner()
    async with running(restarted):
        await until(lambda: restarted.status.state is ReaderState.PAUSED)
        assert await rows(sqlite_models, totals) == {"a": (1, 1)}
        await sqlite_models.resume("totals")
        await restarted.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        assert restarted.status.state is ReaderState.RUNNING
    assert await rows(sqlite_models, totals) == {"a": (3, 2)}


async def test_an_idle_runner_notices_that_it_is_paused(
    make_runner: Any, transport: Any, domain: Any, sqlite_models: Any
) -> None:
    runner = make_runner()
    async with running(runner):
        transport.put(domain.stream("a", 1))
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        await sqlite_models.pause("totals")
        await until(lambda: runner.status.state is ReaderState.PAUSED)
        await sqlite_models.resume("totals")
        await until(lambda: runner.status.state is ReaderState.RUNNING)


async def test_a_reset_projection_starts_over_and_can_be_rolled_back(
    make_runner: Any, transport: Any, domain: Any, sqlite_models: Any, totals: Any
) -> None:
    runner = make_runner()
    async with running(runner):
        transport.put(domain.stream("a", 1), queue=0)
        transport.put(domain.stream("b", 1), queue=1)
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        generation = await sqlite_models.reset(totals, "me")
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        assert (generation, await rows(sqlite_models, totals)) == (2, {"a": (1, 1), "b": (1, 1)})
        # From a position: what lies before it is not in the rows, and is not missed either.
        at = {(domain.topic, 0): 1, (domain.topic, 1): 0}
        await sqlite_models.reset(totals, "me", offsets=at, versions={"a": 1})
        transport.put(domain.stream("a", 2), queue=0)
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        assert await rows(sqlite_models, totals) == {"a": (2, 1), "b": (1, 1)}
        assert await sqlite_models.rollback(totals) == 2
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert await rows(sqlite_models, totals) == {"a": (3, 2), "b": (1, 1)}
