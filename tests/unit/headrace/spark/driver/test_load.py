"""A rebuild's result into both kinds of database, with versions and offsets or not at all."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import select

from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.shadow import Building
from headrace.rebuild.switch import Shadow
from headrace.spark.driver import load as loading
from headrace.spark.driver.load import Loading, read_base
from headrace.spark.executor.fold import (
    BASE,
    DELETED,
    ROW,
    TALLY,
    VERSION,
    Record,
    records_to_arrow,
)
from headrace.spark.job import Folded, read_result
from headrace.spark.result.copy import copy_out
from headrace.spark.result.disk import Stored
from headrace.spark.result.live_rows import Beginning
from headrace.spark.result.parts import FETCHED, Spool
from headrace.spark.rows import RowCodec
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import projection_versions


@pytest.fixture
def rows(ledger: Any) -> dict[str, Any]:
    streams = [
        ledger.stream(f"a{n:02}", 1, ledger.Booked(partner="p", amount=n)) for n in range(25)
    ]
    return fold_streams(ledger.accounts, {}, streams)


@pytest.fixture
def load(read_models: ReadModels, ledger: Any, make_plan: Any) -> Any:
    """Loads rows, versions and deleted keys as the job's tasks, or as this process, would."""

    async def run(
        shares: list[dict[str, Any]],
        offsets: dict[Any, int],
        *,
        deleted: tuple[str, ...] = (),
        versions: dict[str, int] | None = None,
        onto: bool = False,
        generation: int = 2,
        owner: str = "the test",
    ) -> int:
        projection = ledger.accounts
        codec: RowCodec[Any] = RowCodec(projection)
        shadow = Shadow(projection=projection, generation=generation, owner=owner)
        way = Loading(read_models=read_models, shadow=shadow, onto=onto, connections_max=4)
        records: list[Record] = []
        async with way.prepared() as into:
            for number, rows in enumerate(shares):
                known = dict.fromkeys(rows, 1) if versions is None else versions
                found = records_to_arrow(
                    [
                        *(
                            Record.known(ROW, key, data=codec.encode(row))
                            for key, row in rows.items()
                        ),
                        *(Record.known(DELETED, key) for key in deleted),
                        *(Record.known(VERSION, key, number=at) for key, at in known.items()),
                        Record.known(TALLY, "events", number=1),
                    ]
                )
                if isinstance(into, Spool):
                    passed = [into.add(found.select(list(FETCHED)))]
                else:
                    passed = await asyncio.to_thread(
                        lambda *given: list(copy_out(*given)),
                        into, make_plan(projection.name, ()), number, iter([found]),
                    )  # fmt: skip
                records += [
                    Record.known(one["kind"], one["key"], number=one["number"])
                    for batch in passed
                    for one in batch.to_pylist()
                ]
            made = read_result(
                make_plan(projection.name, ()), pa.Table.from_batches([records_to_arrow(records)])
            )
            assert (len(made.rows), made.deleted, made.versions) == (0, [], {})
            count = await way.count(into, made)
            await way.load(into, offsets)
        return count

    return run


async def stored(read_models: ReadModels, projection: Any, generation: int) -> dict[str, Any]:
    reader = read_models.reader(projection, generation=generation)
    return {row.account_id: row async for row in reader.rows()}


async def versions_of(read_models: ReadModels, generation: int) -> dict[str, int]:
    columns = projection_versions.c
    async with read_models.snapshot() as connection:
        found = await connection.execute(
            select(columns.aggregate_id, columns.version).where(columns.generation == generation)
        )
        return {row.aggregate_id: row.version for row in found}


async def test_a_fresh_generation_is_filled_with_rows_versions_and_offsets(
    ledger: Any, read_models: ReadModels, rows: dict[str, Any], load: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(loading, "_CHUNK_ROWS", 10)
    half = dict(list(rows.items())[:12])
    rest = {key: row for key, row in rows.items() if key not in half}
    assert await load([half, rest], {("t", 0): 25}) == len(rows)
    assert await stored(read_models, ledger.accounts, 2) == rows
    assert await versions_of(read_models, 2) == dict.fromkeys(rows, 1)
    assert await read_models.offsets("accounts", 2) == {("t", 0): 25}


async def test_rows_versions_and_offsets_come_together_or_not_at_all(
    ledger: Any, read_models: ReadModels, rows: dict[str, Any], load: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    async def fail(*_of: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(loading, "write_offsets", fail)
    with pytest.raises(RuntimeError, match="something else"):
        await load([rows], {("t", 0): 25})
    assert await stored(read_models, ledger.accounts, 2) == {}
    assert await versions_of(read_models, 2) == {}
    assert await read_models.offsets("accounts", 2) == {}


async def test_a_copy_is_read_back_as_records_and_changes_are_written_onto_it(
    ledger: Any, read_models: ReadModels, rows: dict[str, Any], load: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(loading, "_CHUNK_ROWS", 10)
    codec: RowCodec[Any] = RowCodec(ledger.accounts)
    await load([rows], {("t", 0): 25})
    await read_models.switch(ledger.accounts, 2, "the test")
    assert await read_models.begin_shadow(ledger.accounts, "the next") == 3
    mine = Shadow(projection=ledger.accounts, generation=3, owner="the next")
    assert await Building(read_models, ledger.accounts).copy_live(mine) == {("t", 0): 25}
    async with read_models.snapshot() as connection:
        target = read_models.target(ledger.accounts, 3)
        known: dict[str, list[Any]] = {BASE: [], VERSION: []}
        async for kind, batch in read_base(connection, target, codec):
            assert batch.num_rows <= 10
            assert set(batch["kind"].to_pylist()) == {kind}
            known[kind] += batch.to_pylist()
    assert {one["key"]: codec.row(one["data"]) for one in known[BASE]} == rows
    assert {one["key"]: one["number"] for one in known[VERSION]} == dict.fromkeys(rows, 1)
    changed = {
        "a03": rows["a03"].model_copy(update={"balance": -7}),
        "b00": rows["a00"].model_copy(update={"account_id": "b00"}),
    }
    await load(
        [changed], {("t", 1): 4}, deleted=("a04", "a05"),
        versions={"a03": 2, "a04": 2, "b00": 1}, onto=True, generation=3, owner="the next",
    )  # fmt: skip
    wanted = rows | changed
    del wanted["a04"], wanted["a05"]
    assert await stored(read_models, ledger.accounts, 3) == wanted
    assert await stored(read_models, ledger.accounts, 2) == rows
    assert (await versions_of(read_models, 3))["a03"] == 2
    assert await read_models.offsets("accounts", 3) == {("t", 0): 25, ("t", 1): 4}


@pytest.mark.parametrize("here", [True, False])
async def test_tasks_read_what_the_shadow_has_a_copy_of_where_they_reach_the_database_or_the_disk(
    ledger: Any, read_models: ReadModels, rows: dict[str, Any], load: Any, tmp_path: Path,
    here: bool,
) -> None:  # fmt: skip
    await load([rows], {("t", 0): 25})
    shadow = Shadow(projection=ledger.accounts, generation=2, owner="the test")
    way = Loading(
        read_models=read_models, shadow=shadow, onto=True, connections_max=4,
        folder=str(tmp_path) if here else None,
    )  # fmt: skip
    base = await way.base()
    if read_models.engine.dialect.name == "postgresql":
        assert isinstance(base, Beginning)
        assert (base.url, base.connections_max) == (read_models.url, 4)
    elif here:
        assert isinstance(base, Stored)
        assert [kind for kind, _ in base.shares] == [BASE, VERSION]
    else:
        assert isinstance(base, pa.Table)
        assert base.num_rows == 2 * len(rows)


async def test_an_aggregate_in_two_queues_is_named(
    read_models: ReadModels, rows: dict[str, Any], load: Any
) -> None:
    some = {"a03": rows["a03"]}
    with pytest.raises(ProjectionError, match="events of aggregate a03 stand in more than one"):
        await load([rows, some], {("t", 0): 25})
    assert await read_models.offsets("accounts", 2) == {}


async def test_a_shadow_that_is_no_longer_ones_own_is_not_loaded(
    read_models: ReadModels, rows: dict[str, Any], load: Any
) -> None:
    with pytest.raises(ProjectionError, match="is no longer the shadow that somebody else builds"):
        await load([rows], {("t", 0): 25}, owner="somebody else")
    assert await read_models.offsets("accounts", 2) == {}


async def test_what_tasks_have_copied_must_be_in_the_database(
    ledger: Any, postgres_database: str
) -> None:
    await upgrade(postgres_database)
    models = ReadModels(postgres_database)
    await models.ensure(ledger.accounts)
    shadow = Shadow(projection=ledger.accounts, generation=2, owner="me")
    await models.begin_shadow(ledger.accounts, "me")
    way = Loading(read_models=models, shadow=shadow, onto=False, connections_max=4)
    told = Folded(
        rows=pa.chunked_array([], pa.binary()), deleted=[], versions={}, counts=Counter(shares=2)
    )
    with pytest.raises(ProjectionError, match="2 tasks have copied rows and 0 of them"):
        async with way.prepared() as into:
            await way.count(into, told)
    await models.aclose()
