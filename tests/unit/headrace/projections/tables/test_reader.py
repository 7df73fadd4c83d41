"""Reading a projection by key, by values and whole, and together with another projection."""

from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import insert

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import reader as reading
from headrace.projections.tables.reader import ProjectionReader


class Order(BaseModel):
    order_id: str
    counter_id: str
    parent: str | None = None
    pieces: int = 0


orders = Projection("orders", row=Order, key="order_id")


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


@pytest.fixture
async def joined(read_models: Any, totals: Any) -> Any:
    """A joined reader over two orders of counter a and one of a counter that is not there."""
    for projection in (totals, orders):
        await read_models.ensure(projection)
    rows = [
        Order(order_id="1", counter_id="a"),
        Order(order_id="2", counter_id="a", parent="1"),
        Order(order_id="3", counter_id="z", pieces=5),
    ]
    async with read_models.begin() as connection:
        table = read_models.table_for(orders, 1)
        await connection.execute(insert(table), [row.model_dump() for row in rows])
        counter = {"counter_id": "a", "total": 7, "folded": 1}
        await connection.execute(insert(read_models.table_for(totals, 1)), [counter])
    return read_models.reader(orders).join(read_models.reader(totals), on="counter_id")


async def test_a_join_reads_a_row_with_the_row_that_it_names(joined: Any, domain: Any) -> None:
    pair = await joined.get("1")
    assert pair == (
        Order(order_id="1", counter_id="a"), domain.Total(counter_id="a", total=7, folded=1),
    )  # fmt: skip


async def test_a_join_reads_a_row_that_names_none_alone_and_no_row_as_none(joined: Any) -> None:
    assert await joined.get("3") == (Order(order_id="3", counter_id="z", pieces=5), None)
    assert await joined.get("4") is None


async def test_a_join_finds_rows_by_their_own_values_in_key_order(joined: Any) -> None:
    found = await joined.where(counter_id="a")
    assert [(row.order_id, other.total) for row, other in found] == [("1", 7), ("2", 7)]
    assert len(await joined.where()) == 3
    with pytest.raises(ValueError, match="Order has no field total"):
        await joined.where(total=7)


async def test_a_projection_is_joined_with_itself(joined: Any, read_models: Any) -> None:
    own = read_models.reader(orders)
    found = await own.join(own, on="parent").where()
    assert [(row.order_id, other and other.order_id) for row, other in found] == [
        ("1", None), ("2", "1"), ("3", None),
    ]  # fmt: skip


@pytest.mark.parametrize("on", ["nothing", "pieces"])
async def test_a_join_on_a_field_that_is_no_text_is_refused(
    read_models: Any, joined: Any, on: str
) -> None:
    with pytest.raises(ValueError, match=f"Order has no text field '{on}'"):
        read_models.reader(orders).join(read_models.reader(orders), on=on)


async def test_more_pairs_than_a_list_should_hold_are_refused(
    joined: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_WHERE_ROWS_MAX", 2)
    with pytest.raises(ProjectionError, match="more than 2 rows"):
        await joined.where()
