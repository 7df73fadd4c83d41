"""Conditions of a query: texts become the values that columns hold."""

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.domain.message import DomainEvent, EventContext
from headrace.gateway.pages import Pages
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels


class Sold(DomainEvent):
    pass


class Sale(BaseModel):
    sale_id: str
    price: Decimal
    day: date
    at: datetime
    pieces: int | None = None
    paid: bool = False


sales = Projection("sales", row=Sale, key="sale_id")


@sales.fold
def sold(row: Sale | None, event: Sold, context: EventContext) -> Sale | None:
    return row


AT = datetime(2026, 1, 31, 11, tzinfo=UTC)
ROWS = [
    Sale(sale_id="a", price=Decimal("1.50"), day=date(2026, 1, 31), at=AT, pieces=2),
    Sale(sale_id="b", price=Decimal("1.50"), day=date(2026, 2, 1), at=AT, paid=True),
]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'read.db'}"
    return str(request.getfixturevalue("postgres_database"))


@pytest.fixture
async def pages(url: str, give_schema: Callable[[str], Awaitable[None]]) -> Any:
    await give_schema(url)
    models = ReadModels(url)
    await models.ensure(sales)
    async with models.begin() as connection:
        rows = [dict(row) for row in ROWS]
        await connection.execute(models.table_for(sales, 1).insert(), rows)
    yield Pages(sales, models)
    await models.aclose()


@pytest.mark.parametrize(
    ("field", "text", "keys"),
    [
        ("price", "1.50", ["a", "b"]),
        ("day", "2026-02-01", ["b"]),
        ("at", "2026-01-31T12:00:00+01:00", ["a", "b"]),
        ("pieces", "2", ["a"]),
        ("paid", "true", ["b"]),
        ("sale_id", "a", ["a"]),
        ("sale_id", "A", []),
        ("price", "1.5", ["a", "b"]),
        ("price.gt", "1.4", ["a", "b"]),
        ("price.lt", "10", ["a", "b"]),
        ("day.le", "2026-01-31", ["a"]),
        ("at.ge", "2026-01-31T11:00:01Z", []),
        ("pieces.ne", "2", ["b"]),
        ("sale_id.in", "b,c", ["b"]),
        ("paid.in", "true,false", ["a", "b"]),
    ],
)
async def test_every_kind_of_column_can_be_asked_for(
    pages: Pages[Sale], field: str, text: str, keys: list[str]
) -> None:
    conditions = dict([pages.condition(field, text)])
    page = await pages.read(conditions, sort=None, after=None, limit=10)
    assert [row.sale_id for row in page.rows] == keys
    assert page.rows == [row for row in ROWS if row.sale_id in keys]


async def test_the_last_page_says_that_it_is_the_last(pages: Pages[Sale]) -> None:
    first = await pages.read({}, sort=None, after=None, limit=1)
    assert (first.rows, first.after) == (ROWS[:1], "a")
    last = await pages.read({}, sort=None, after="a", limit=1)
    assert (last.rows, last.after) == (ROWS[1:], None)


@pytest.mark.parametrize(
    ("name", "field"),
    [("price", "price"), ("price.ge", "price"), ("price.like", None), ("prices", None),
     ("price.", None), ("price.ge.ge", None)],
)  # fmt: skip
def test_a_condition_names_a_field_and_a_known_lookup(
    tmp_path: Any, name: str, field: str | None
) -> None:
    assert Pages(sales, ReadModels(f"sqlite:///{tmp_path / 'read.db'}")).field_of(name) == field


@pytest.mark.parametrize(
    ("field", "text"),
    [("pieces", "x"), ("pieces", str(2**63)), ("price", "NaN"), ("price", "1e999999999"),
     ("at", "2026-01-31T12:00:00"), ("sale_id", "a\x00"), ("sale_id", "x" * 8_193)],
)  # fmt: skip
def test_a_value_that_no_row_can_have_is_refused(tmp_path: Any, field: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Pages(sales, ReadModels(f"sqlite:///{tmp_path / 'read.db'}")).value(field, text)
