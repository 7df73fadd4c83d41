"""A task's share, copied by the task: once, whole or not at all, and with clear errors."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.shadow_load import (
    Filled,
    create_staging,
    find_filled,
    find_noted,
)
from headrace.spark.executor.fold import (
    DELETED,
    MISSING,
    QUEUE,
    ROW,
    TALLY,
    VERSION,
    Record,
    records_to_arrow,
)
from headrace.spark.result.copy import LEFT_OUT, SHARES, Copying, copy_out, told_in
from headrace.spark.rows import RowCodec
from headrace.stores.database.schema import upgrade


@pytest.fixture
async def models(ledger: Any, postgres_database: str) -> AsyncIterator[ReadModels]:
    """Read models on PostgreSQL, with a shadow of `me` and where to copy its rows."""
    await upgrade(postgres_database)
    opened = ReadModels(postgres_database)
    await opened.ensure(ledger.accounts)
    assert await opened.begin_shadow(ledger.accounts, "me") == 2
    async with opened.begin() as connection:
        table = opened.table_for(ledger.accounts, 2)
        await create_staging(connection, table, "me", merged=False)
    yield opened
    await opened.aclose()


@pytest.fixture
def copying(models: ReadModels) -> Copying:
    return Copying(url=models.url, table="accounts__2", owner="me")


@pytest.fixture
def batches(ledger: Any) -> Callable[[], Iterator[pa.RecordBatch]]:
    """Makes the share of a task: rows of two batches, and everything else."""
    codec: RowCodec[Any] = RowCodec(ledger.accounts)
    streams = [ledger.stream(f"a{n}", 1, ledger.Booked(partner="p", amount=n)) for n in range(4)]
    rows = [
        Record.known(ROW, key, data=codec.encode(row))
        for key, row in fold_streams(ledger.accounts, {}, streams).items()
    ]
    rest = [
        Record.known(VERSION, "a0", number=1),
        Record.known(DELETED, "a9"),
        Record.known(TALLY, "events", number=4),
        Record.known(QUEUE, "t/0 messages", number=4),
    ]
    return lambda: iter([records_to_arrow(rows[:3]), records_to_arrow([*rows[3:], *rest])])


def told(found: Iterator[pa.RecordBatch]) -> list[tuple[str, str, int]]:
    return [
        (one["kind"], one["key"], one["number"]) for batch in found for one in batch.to_pylist()
    ]


async def filled(models: ReadModels) -> Filled:
    async with models.begin() as connection:
        return await find_filled(connection, "accounts__2")


async def copy(*given: Any) -> list[tuple[str, str, int]]:
    """Runs a task in a thread: it has an event loop of its own."""
    return await asyncio.to_thread(lambda: told(copy_out(*given)))


async def test_rows_are_copied_and_counts_go_on(
    models: ReadModels, copying: Copying, make_plan: Any, batches: Any
) -> None:
    found = await copy(copying, make_plan("accounts", ()), 0, batches())
    assert found == [(TALLY, "events", 4), (QUEUE, "t/0 messages", 4), (TALLY, SHARES, 1)]
    assert await filled(models) == Filled(shares=1, rows=4)


async def test_a_note_has_what_the_task_told_and_the_share_of_its_task(
    models: ReadModels, copying: Copying, make_plan: Any, batches: Any
) -> None:
    found = await copy(copying, make_plan("accounts", ()), 7, batches())
    async with models.begin() as connection:
        noted = await find_noted(connection, "accounts__2")
    assert {share: told(iter(told_in(note))) for share, note in noted.items()} == {7: found}


async def test_a_task_that_is_run_again_copies_nothing_and_tells_the_same(
    models: ReadModels, copying: Copying, make_plan: Any, batches: Any
) -> None:
    plan = make_plan("accounts", ())
    first = await copy(copying, plan, 0, batches())
    assert await copy(copying, plan, 0, batches()) == first
    assert await filled(models) == Filled(shares=1, rows=4)
    await copy(copying, plan, 1, batches())
    assert await filled(models) == Filled(shares=2, rows=8)


async def test_a_task_that_fails_or_is_ended_leaves_nothing(
    models: ReadModels, copying: Copying, make_plan: Any, batches: Any
) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches()
        raise RuntimeError("no fold")

    with pytest.raises(RuntimeError, match="no fold"):
        await copy(copying, make_plan("accounts", ()), 0, failing())

    def ended() -> None:
        with closing(copy_out(copying, make_plan("accounts", ()), 1, batches())) as task:
            next(task)

    await asyncio.to_thread(ended)
    assert await filled(models) == Filled(shares=0, rows=0)


async def test_a_task_without_rows_does_not_even_connect(make_plan: Any) -> None:
    nowhere = Copying(url="postgresql://nobody@127.0.0.1:1/none", table="accounts__2", owner="me")
    only = [Record.known(TALLY, "events", number=1)]
    found = await copy(nowhere, make_plan("accounts", ()), 0, iter([records_to_arrow(only)]))
    assert found == [(TALLY, "events", 1)]


async def test_of_many_sentences_a_few_go_on_and_the_rest_is_counted(make_plan: Any) -> None:
    nowhere = Copying(url="postgresql://nobody@127.0.0.1:1/none", table="accounts__2", owner="me")
    many = [Record.known(MISSING, f"a{n}", data=b"a sentence") for n in range(4)]
    share = iter([records_to_arrow(many), records_to_arrow(many)])
    found = await copy(nowhere, make_plan("accounts", ()), 0, share)
    assert [kind for kind, _, _ in found] == [MISSING] * 5 + [TALLY]
    assert found[-1] == (TALLY, LEFT_OUT, 3)


async def test_an_executor_that_cannot_reach_the_database_says_where_and_what_to_do(
    make_plan: Any, batches: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    away = Copying(url=f"postgresql://me:secret@127.0.0.1:{port}/db", table="t__2", owner="me")
    with pytest.raises(ProjectionError) as raised:
        await copy(away, make_plan("accounts", ()), 0, batches())
    sentence = str(raised.value)
    assert f"no connection to the database of read models at 127.0.0.1:{port}" in sentence
    assert socket.gethostname() in sentence
    assert "an address that all of them reach" in sentence
    assert "secret" not in sentence + repr(away)


async def test_a_refusal_of_the_database_names_the_table(
    copying: Copying, make_plan: Any, batches: Any
) -> None:
    with pytest.raises(ProjectionError, match=r"into accounts__9 failed on .* does not exist"):
        await copy(replace(copying, table="accounts__9"), make_plan("accounts", ()), 0, batches())
    with pytest.raises(ProjectionError, match=r"into accounts__2 failed on .*check constraint"):
        await copy(replace(copying, owner="the last"), make_plan("accounts", ()), 0, batches())
