"""Reading a projection by key, by values and whole."""

from typing import Any

import pytest
from sqlalchemy import insert

from headrace.errors import ProjectionError
from headrace.projections.tables.reader import ProjectionReader


@pytest.fixture
async def reader(read_models: Any, totals: Any) -> ProjectionReader[Any]:
    await read_models.ensure(totals)
    return read_models.reader(totals)


async def fill(read_models: Any, totals: Any, keys: list[str]) -> None:
    values = [{"counter_id": key, "total": n % 3, "folded": n} for n, key in enumerate(keys)]
    async with read_models.begin() as connection:
        await connection.execute(insert(read_models.table_for(totals, 1)), values)


async def test_a_row_is_found_by_its_key(
    read_models: Any, totals: Any, reader: ProjectionReader[Any], domain: Any
) -> None:
    await fill(read_models, totals, ["a", "b"])
    assert await reader.get("b") == domain.Total(counter_id="b", total=1, folded=1)
    assert await reader.get("c") is None


async def test_rows_are_found_by_their_values_in_key_order(
    read_models: Any, totals: Any, reader: ProjectionReader[Any]
) -> None:
    await fill(read_models, totals, ["d", "c", "b", "a"])
    assert [row.counter_id for row in await reader.where(total=0)] == ["a", "d"]
    assert [row.counter_id for row in await reader.where(total=0, folded=3)] == ["a"]
    assert len(await reader.where()) == 4


async def test_a_field_that_is_none_is_found_by_none(
    read_models: Any, reader: ProjectionReader[Any]
) -> None:
    assert await reader.where(counter_id=None) == []


async def test_an_unknown_field_is_a_programmers_error(reader: ProjectionReader[Any]) -> None:
    with pytest.raises(ValueError, match="Total has no field colour"):
        await reader.where(colour="red")


async def test_more_rows_than_a_list_should_hold_are_refused(
    read_models: Any, totals: Any, reader: ProjectionReader[Any]
) -> None:
    await fill(read_models, totals, [f"{n:05}" for n in range(10_001)])
    with pytest.raises(ProjectionError, match="more than 10000 rows"):
        await reader.where()
    assert len(await reader.where(total=1)) == 3_334


async def test_all_rows_come_in_code_point_order_over_many_pages(
    read_models: Any, totals: Any, reader: ProjectionReader[Any]
) -> None:
    keys = [f"{n:04}" for n in range(2_000)] + ["Z", "a", "_", "é", "\U0001f600", "\uffee", ""]
    await fill(read_models, totals, keys)
    assert [row.counter_id async for row in reader.rows()] == sorted(keys)
    assert await reader.count() == 2_007


async def test_an_empty_projection_has_no_rows(reader: ProjectionReader[Any]) -> None:
    assert [row async for row in reader.rows()] == []
    assert await reader.count() == 0
