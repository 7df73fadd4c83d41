"""Rows are read with the rows of another projection that they name."""

from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import insert

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import join as joining


class Order(BaseModel):
    order_id: str
    counter_id: str
    parent: str | None = None
    pieces: int = 0


orders = Projection("orders", row=Order, key="order_id")


@pytest.fixture
async def reader(read_models: Any, totals: Any) -> Any:
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


async def test_a_row_comes_with_the_one_it_names(reader: Any, domain: Any) -> None:
    pair = await reader.get("1")
    assert pair == (
        Order(order_id="1", counter_id="a"), domain.Total(counter_id="a", total=7, folded=1),
    )  # fmt: skip


async def test_a_row_that_names_none_comes_alone_and_no_row_is_none(reader: Any) -> None:
    assert await reader.get("3") == (Order(order_id="3", counter_id="z", pieces=5), None)
    assert await reader.get("4") is None


async def test_rows_are_found_by_their_own_values_in_key_order(reader: Any) -> None:
    found = await reader.where(counter_id="a")
    assert [(row.order_id, other.total) for row, other in found] == [("1", 7), ("2", 7)]
    assert len(await reader.where()) == 3
    with pytest.raises(ValueError, match="Order has no field total"):
        await reader.where(total=7)


async def test_a_projection_is_joined_with_itself(reader: Any, read_models: Any) -> None:
    own = read_models.reader(orders)
    found = await own.join(own, on="parent").where()
    assert [(row.order_id, other and other.order_id) for row, other in found] == [
        ("1", None), ("2", "1"), ("3", None),
    ]  # fmt: skip


@pytest.mark.parametrize("on", ["nothing", "pieces"])
async def test_only_a_text_field_names_rows(read_models: Any, reader: Any, on: str) -> None:
    with pytest.raises(ValueError, match=f"Order has no text field '{on}'"):
        read_models.reader(orders).join(read_models.reader(orders), on=on)


async def test_more_than_a_list_should_hold_is_refused(
    reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "_PAIRS_MAX", 2)
    with pytest.raises(ProjectionError, match="more than 2 rows"):
        await reader.where()
