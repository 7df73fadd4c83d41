"""What a rebuild from offsets begins with: read in shares, each row in one of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.contents import write_rows, write_versions
from headrace.projections.tables.read_models import ReadModels
from headrace.spark.driver.load import read_base
from headrace.spark.executor.fold import BASE, RECORD_ARROW_SCHEMA, VERSION
from headrace.spark.result import live_rows as beginning_module
from headrace.spark.result.live_rows import Beginning, plan_beginning, read_shares
from headrace.spark.rows import RowCodec
from headrace.stores.database.schema import upgrade

ROWS = 700


@pytest.fixture
async def models(ledger: Any, postgres_database: str) -> AsyncIterator[ReadModels]:
    """Read models on PostgreSQL: a shadow with rows, beside another generation with versions."""
    await upgrade(postgres_database)
    async with aclosing(ReadModels(postgres_database)) as opened:
        await opened.ensure(ledger.accounts)
        assert await opened.begin_shadow(ledger.accounts, "me") == 2
        rows = fold_streams(
            ledger.accounts,
            {},
            [
                ledger.stream(f"a{n}", 1, ledger.Booked(partner="p", amount=n + 1))
                for n in range(ROWS)
            ],
        )
        async with opened.begin() as connection:
            target = opened.target(ledger.accounts, 2)
            await write_rows(connection, target, rows)
            await write_versions(connection, target, dict.fromkeys(rows, 1))
            other = opened.target(ledger.accounts, 1)
            await write_versions(connection, other, dict.fromkeys(rows, 9))
        yield opened


@pytest.fixture
async def base(models: ReadModels, ledger: Any, monkeypatch: pytest.MonkeyPatch) -> Beginning:
    """The shadow, in shares of one block, of which few rows are fetched at once."""
    monkeypatch.setattr(beginning_module, "_BLOCKS", 1)
    monkeypatch.setattr(beginning_module, "_CHUNK_ROWS", 20)
    async with models.snapshot() as connection:
        return await plan_beginning(connection, models.target(ledger.accounts, 2), models.url, 1)


async def read(base: Beginning, plan: Any) -> list[list[dict[str, Any]]]:
    """Returns what the tasks of a job read, each in a thread: it has an event loop of its own."""

    def one(place: int) -> list[dict[str, Any]]:
        batches = list(read_shares(base, plan, iter([pa.RecordBatch.from_pydict({"id": [place]})])))
        assert all(0 < batch.num_rows <= 20 for batch in batches)
        return pa.Table.from_batches(batches, schema=RECORD_ARROW_SCHEMA).to_pylist()

    return [await asyncio.to_thread(one, place) for place in range(len(base.shares))]


async def test_each_row_and_version_of_the_generation_is_in_one_share(
    models: ReadModels, ledger: Any, base: Beginning, make_plan: Any
) -> None:
    found = await read(base, make_plan("accounts", ()))
    assert len(base.of(BASE)) > 1 < len(base.of(VERSION))
    assert sum(1 for share in found if share) > 2
    async with models.snapshot() as connection:
        codec: RowCodec[Any] = RowCodec(ledger.accounts)
        target = models.target(ledger.accounts, 2)
        whole = [each async for _, each in read_base(connection, target, codec)]
    by_place = sorted((one for share in found for one in share), key=str)
    assert by_place == sorted(pa.Table.from_batches(whole).to_pylist(), key=str)
    assert len(by_place) == 2 * ROWS


async def test_rows_behind_the_last_block_are_in_the_last_share(
    base: Beginning, make_plan: Any
) -> None:
    first = {kind: replace(base.of(kind)[0], end=None) for kind in (BASE, VERSION)}
    found = await read(replace(base, shares=tuple(first.values())), make_plan("accounts", ()))
    assert [len(share) for share in found] == [ROWS, ROWS]


async def test_a_table_that_was_rewritten_meanwhile_is_noticed(
    models: ReadModels, base: Beginning, make_plan: Any
) -> None:
    async with models.engine.connect() as connection:
        alone = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await alone.exec_driver_sql("VACUUM FULL accounts__2")
    with pytest.raises(
        ProjectionError, match=r"accounts__2 was rewritten .* run the rebuild again"
    ):
        await read(base, make_plan("accounts", ()))


async def test_a_table_that_is_gone_is_named_and_the_url_is_not_shown(
    base: Beginning, make_plan: Any
) -> None:
    gone = replace(base.shares[0], table="accounts__9")
    with pytest.raises(
        ProjectionError, match=r"reading rows of accounts__9 failed on .* not exist"
    ):
        await read(replace(base, shares=(gone,)), make_plan("accounts", ()))
    assert base.url not in repr(base)


async def test_a_task_that_is_ended_leaves_its_connection_to_the_next(
    models: ReadModels, base: Beginning, make_plan: Any
) -> None:
    plan = make_plan("accounts", ())

    def ended() -> None:
        with closing(
            read_shares(base, plan, iter([pa.RecordBatch.from_pydict({"id": [0]})]))
        ) as task:
            assert next(task).num_rows == 20

    await asyncio.to_thread(ended)
    # There is one for all of them.
    assert sum(map(len, await read(base, plan))) == 2 * ROWS
