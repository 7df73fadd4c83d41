"""Another event store, or an older copy of it: nothing is read, and a sentence tells the way on."""

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from headrace._runtime.backoff import Backoff
from headrace.errors import LineageError
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import reader_marks
from samples.bank.accounts import OpenAccount
from samples.bank.application import app as bank

LOOKS = Backoff(ms_min=20, ms_max=50)

ROOT = Path(__file__).parents[3]

WAY_ON = r"headrace events republish --replace.*headrace projection rebuild NAME --from store"


async def test_an_emptied_store_is_refused(world: Any) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0", 2)
    world.lose(world.events)
    with pytest.raises(LineageError, match=rf"pieces.*of another event store.*{WAY_ON}"):
        async with world.shop():
            pass


async def test_a_store_whose_rows_are_gone_is_refused(world: Any) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0", 2)
    with closing(sqlite3.connect(world.events)) as database:
        database.execute("DELETE FROM event_streams")
        database.commit()
    with pytest.raises(LineageError, match=rf"are not in this event store.*{WAY_ON}"):
        async with world.shop():
            pass


async def test_an_older_copy_of_the_store_is_refused_and_the_right_one_goes_on(world: Any) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0", 3)
    yesterday = world.save(world.events)
    async with world.shop() as shop:
        await world.stock(shop, "p0", 2)
        await world.stock(shop, "p1")
    today = world.save(world.events)
    yesterday()
    with pytest.raises(LineageError, match=r"handlers:events, notes, pieces.*which is older"):
        async with world.shop():
            pass
    # Nothing was written: with the right store all goes on.
    today()
    async with world.shop() as shop:
        await world.stock(shop, "p0")
        assert await world.rows(shop) == {"p0": (6, 6), "p1": (1, 1)}
        assert len(world.handled) == len(set(world.handled)) == 7


async def test_an_older_copy_after_a_kill_is_refused_though_no_mark_tells_of_it(world: Any) -> None:
    """What a kill leaves: offsets of what was read last, and marks from `lineage_check_ms` before."""
    async with world.shop() as shop:
        await world.stock(shop, "p0", 3)
    yesterday = world.save(world.events)
    marks = rows_of(world.read, "reader_marks")
    async with world.shop() as shop:
        await world.stock(shop, "p0")
    put_rows(world.read, "reader_marks", marks)
    yesterday()
    offsets = rows_of(world.read, "projection_offsets")
    with pytest.raises(LineageError, match=rf"events holds .* not in this event store.*{WAY_ON}"):
        async with world.shop():
            pass
    assert rows_of(world.read, "projection_offsets") == offsets


async def test_events_that_no_reader_has_seen_tell_of_an_older_store_too(world: Any) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0")
    yesterday = world.save(world.events, world.read)
    async with world.shop() as shop:
        await world.stock(shop, "p0")
    yesterday()
    with pytest.raises(LineageError, match=r"shop\.events holds .* not in this event store"):
        async with world.shop():
            pass


def rows_of(file: Path, table: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as database:
        return sorted(database.execute(f"SELECT * FROM {table}").fetchall())


def put_rows(file: Path, table: str, rows: list[Any]) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"DELETE FROM {table}")
        places = ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
        database.commit()


async def test_an_older_copy_of_everything_but_the_read_models_is_refused(world: Any) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0", 3)
    await world.stop_broker()
    yesterday = world.save(world.events, world.mq)
    await world.start_broker()
    async with world.shop() as shop:
        await world.stock(shop, "p0", 2)
    await world.stop_broker()
    yesterday()
    await world.start_broker()
    with pytest.raises(LineageError, match="which is older"):
        async with world.shop():
            pass


async def test_an_older_copy_of_everything_goes_on(world: Any) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0", 3)
    await world.stop_broker()
    yesterday = world.save(world.events, world.mq, world.read)
    await world.start_broker()
    async with world.shop() as shop:
        await world.stock(shop, "p0", 2)
    await world.stop_broker()
    yesterday()
    await world.start_broker()
    async with world.shop() as shop:
        await world.stock(shop, "p0")
        assert await world.rows(shop) == {"p0": (4, 4)}


async def test_another_database_is_refused(world: Any, postgres_database: str) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0", 2)
    await upgrade(postgres_database)
    with pytest.raises(LineageError, match="of another event store"):
        async with world.shop(event_store=postgres_database):
            pass


async def test_read_models_in_postgresql_know_their_store_too(
    world: Any, postgres_database: str
) -> None:
    await upgrade(postgres_database)
    async with world.shop(read_models=postgres_database) as shop:
        await world.stock(shop, "p0", 2)
    async with world.shop(read_models=postgres_database) as shop:
        await world.stock(shop, "p0")
        assert await world.rows(shop) == {"p0": (3, 3)}
    world.lose(world.events)
    with pytest.raises(LineageError, match="of another event store"):
        async with world.shop(read_models=postgres_database):
            pass


async def test_a_service_at_work_stands_still_when_the_store_is_older(world: Any) -> None:
    """Found when the broker comes back: projections have FAILED, and alarms and readiness say so."""
    async with world.shop(alarm_check_ms=50) as shop:
        await world.stock(shop, "p0", 2)
        while not await marks_of(world):
            await LOOKS.pause(1)
        await world.stop_broker()
        with closing(sqlite3.connect(world.events)) as database:
            database.execute("DELETE FROM event_streams")
            database.commit()
        world.lose(world.mq)
        await world.start_broker()
        async with asyncio.timeout(60):
            while not all(each.status.failed for each in shop.projections):
                await LOOKS.pause(1)
            while not [one for one in shop.watch.alarms.current if one.kind == "lineage"]:
                await LOOKS.pause(1)
        with pytest.raises(LineageError, match="are not in this event store"):
            await shop.lineage.check()
        assert "are not in this event store" in shop.projections[0].status.error


async def marks_of(world: Any) -> int:
    models = ReadModels(f"sqlite:///{world.read}")
    try:
        async with models.snapshot() as connection:
            found = await connection.execute(
                select(reader_marks).where(
                    reader_marks.c.name == "pieces", reader_marks.c.command_id != ""
                )
            )
            return len(found.all())
    finally:
        await models.aclose()


async def headrace(*arguments: str) -> tuple[int, str]:
    """Runs the command line; returns its status and all that it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 100)
    return process.returncode or 0, said.decode()


async def test_headrace_run_ends_with_status_2_and_one_sentence(world: Any) -> None:
    async with bank.run(world.settings()) as running:
        await running.bus.execute(OpenAccount(account_id="a", owner="o"), wait_for="handled")
    world.lose(world.events)
    settings = world.settings()
    status, said = await headrace(
        "run", "samples.bank:app", "--broker", world.address,
        "--event-store", settings.event_store, "--read-models", settings.read_models,
    )  # fmt: skip
    assert status == 2
    assert "of another event store" in said
    assert "Traceback" not in said
