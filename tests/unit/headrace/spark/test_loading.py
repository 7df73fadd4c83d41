"""Rows in bulk, out of and into both kinds of database, within the caller's transaction."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import select

from headrace._projecting.folding import fold_streams
from headrace._projecting.read_models import ReadModels
from headrace.rebuilding.building import Building
from headrace.rebuilding.switch import Shadow
from headrace.spark import loading
from headrace.spark.fold import BASE, VERSION
from headrace.spark.job import Folded
from headrace.spark.loading import load_fresh, load_onto, read_base
from headrace.spark.rows import RowCodec
from headrace.stores.tables import projection_versions


@pytest.fixture
def rows(ledger: Any) -> dict[str, Any]:
    streams = [
        ledger.stream(f"a{n:02}", 1, ledger.Booked(partner="p", amount=n)) for n in range(25)
    ]
    return fold_streams(ledger.accounts, {}, streams)


def folded(codec: Any, rows: dict[str, Any], **others: Any) -> Folded:
    encoded = [codec.encode(row) for row in rows.values()]
    values = {"deleted": [], "versions": dict.fromkeys(rows, 1), "counts": Counter()} | others
    return Folded(rows=pa.chunked_array([pa.array(encoded, pa.binary())]), **values)


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
    ledger: Any, read_models: ReadModels, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_CHUNK_ROWS", 10)
    codec = RowCodec(ledger.accounts)
    target = read_models.target(ledger.accounts, 2)
    async with read_models.begin() as connection:
        await load_fresh(connection, target, codec, folded(codec, rows), {("t", 0): 25})
    assert await stored(read_models, ledger.accounts, 2) == rows
    assert await versions_of(read_models, 2) == dict.fromkeys(rows, 1)
    assert await read_models.offsets("accounts", 2) == {("t", 0): 25}


async def test_loading_is_part_of_the_callers_transaction(
    ledger: Any, read_models: ReadModels, rows: dict[str, Any]
) -> None:
    codec = RowCodec(ledger.accounts)
    target = read_models.target(ledger.accounts, 2)

    async def load_and_fail() -> None:
        async with read_models.begin() as connection:
            await load_fresh(connection, target, codec, folded(codec, rows), {("t", 0): 25})
            raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        await load_and_fail()
    assert await stored(read_models, ledger.accounts, 2) == {}
    assert await versions_of(read_models, 2) == {}
    assert await read_models.offsets("accounts", 2) == {}


async def test_a_copy_is_read_back_as_records_and_changes_are_written_onto_it(
    ledger: Any, read_models: ReadModels, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_CHUNK_ROWS", 10)
    codec = RowCodec(ledger.accounts)
    live = read_models.target(ledger.accounts, 1)
    shadow = read_models.target(ledger.accounts, 2)
    async with read_models.begin() as connection:
        await load_fresh(connection, live, codec, folded(codec, rows), {("t", 0): 25})
    mine = Shadow(projection=ledger.accounts, generation=2, owner="the test")
    assert await Building(read_models, ledger.accounts).copy_live(mine) == {("t", 0): 25}
    async with read_models.snapshot() as connection:
        base = await read_base(connection, shadow, codec)
    known = {
        kind: [one for one in base.to_pylist() if one["kind"] == kind] for kind in (BASE, VERSION)
    }
    assert {one["key"]: codec.row(one["data"]) for one in known[BASE]} == rows
    assert {one["key"]: one["number"] for one in known[VERSION]} == dict.fromkeys(rows, 1)
    changed = {
        "a03": rows["a03"].model_copy(update={"balance": -7}),
        "b00": rows["a00"].model_copy(update={"account_id": "b00"}),
    }
    result = folded(codec, changed, deleted=["a04", "a05"], versions={"a03": 2, "a04": 2, "b00": 1})
    async with read_models.begin() as connection:
        await load_onto(connection, shadow, codec, result, {("t", 1): 4})
    wanted = rows | changed
    del wanted["a04"], wanted["a05"]
    assert await stored(read_models, ledger.accounts, 2) == wanted
    assert await stored(read_models, ledger.accounts, 1) == rows
    assert (await versions_of(read_models, 2))["a03"] == 2
    assert await read_models.offsets("accounts", 2) == {("t", 0): 25, ("t", 1): 4}
