"""Conditions and pages of rows: both databases select and order as Python does."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from sqlalchemy import delete, func, insert, select

from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.row_query import IN_VALUES_MAX
from headrace.projections.tables.row_tables import values_of


class Sale(BaseModel):
    sale_id: str
    region: str
    note: str | None = None
    pieces: int | None = None
    weight: float = 0.0
    price: Decimal = Decimal(0)
    day: date = date(2026, 1, 1)
    at: datetime | None = None
    paid: bool = False
    pieces__ge: int = 0


sales = Projection("sales", row=Sale, key="sale_id")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# Letters that databases sort in another way than by code point, and one outside of the first plane.
TEXTS = st.sampled_from(["", "a", "B", "b", "_", "Z", "\u00e4", "\uffee", "\U0001f600"])
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "region": TEXTS,
    "note": st.none() | TEXTS,
    "pieces": st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    "weight": st.floats(-3, 3, allow_nan=False) | st.sampled_from([0.5, -0.5]),
    "price": st.decimals(-100, 100, places=2) | st.sampled_from([Decimal("9"), Decimal("10.0")]),
    "day": st.dates(date(999, 12, 30), date(1000, 1, 3)),
    "at": st.none() | st.integers(-2, 2).map(lambda n: BEGIN + timedelta(microseconds=n)),
    "paid": st.booleans(),
}
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "": eq, "__ne": ne, "__ge": ge, "__gt": gt, "__le": le, "__lt": lt,
}  # fmt: skip
ROWS = st.lists(st.fixed_dictionaries(VALUES), max_size=12).map(
    lambda rows: [Sale(sale_id=f"k{n:02}", **row) for n, row in enumerate(rows)]
)


@pytest.fixture
async def models(read_models: Any) -> ReadModels:
    """Read models with an empty table of sales."""
    await read_models.ensure(sales)
    opened: ReadModels = read_models
    return opened


async def fill(models: ReadModels, rows: list[Sale]) -> None:
    table = models.table_for(sales, 1)
    async with models.begin() as connection:
        await connection.execute(delete(table))
        if rows:
            await connection.execute(insert(table), [values_of(sales, row) for row in rows])


def fits(row: Sale, name: str, lookup: str, value: Any) -> bool:
    own = getattr(row, name)
    if lookup == "__in":
        return own in value
    if lookup in ("", "__ne"):
        return COMPARE[lookup](own, value)
    return own is not None and COMPARE[lookup](own, value)


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(st.sampled_from(sorted(VALUES)))
    lookup = draw(st.sampled_from([*COMPARE, "__in"]))
    if lookup == "__in":
        return name, lookup, draw(st.lists(VALUES[name], max_size=4))
    value = draw(VALUES[name])
    if (value is None or name == "paid") and lookup not in ("", "__ne"):
        lookup = "__ne"
    return name, lookup, value


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, wanted=st.lists(conditions(), max_size=3, unique_by=lambda one: one[:2]))
async def test_the_database_selects_what_python_selects(
    models: ReadModels, rows: list[Sale], wanted: list[tuple[str, str, Any]]
) -> None:
    await fill(models, rows)
    reader = models.reader(sales)
    named = {name + lookup: value for name, lookup, value in wanted}
    selected = [row for row in rows if all(fits(row, *one) for one in wanted)]
    assert await reader.where(**named) == selected
    assert await reader.count(**named) == len(selected)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=ROWS,
    name=st.sampled_from(["sale_id", *sorted(VALUES)]),
    descending=st.booleans(),
    limit=st.integers(1, 4),
)
async def test_pages_in_any_order_have_each_row_once(
    models: ReadModels, rows: list[Sale], name: str, descending: bool, limit: int
) -> None:
    await fill(models, rows)
    reader, after, seen = models.reader(sales), None, []
    while True:
        order = f"-{name}" if descending else name
        page = await reader.page(order_by=order, limit=limit, after=after)
        seen += page.rows
        assert len(page.rows) <= limit
        if page.after is None:
            break
        after = page.after
    absent = [row for row in rows if getattr(row, name) is None]
    present = [row for row in rows if getattr(row, name) is not None]
    present.sort(key=lambda row: getattr(row, name), reverse=descending)
    assert seen == present + absent


async def test_rows_between_two_pages_change_nothing_of_the_others(models: ReadModels) -> None:
    rows = [Sale(sale_id=key, region="r", pieces=n) for n, key in enumerate("bdf")]
    await fill(models, rows)
    reader = models.reader(sales)
    first = await reader.page(order_by="-pieces", limit=1)
    assert [row.sale_id for row in first.rows] == ["f"]
    await fill(models, [Sale(sale_id="a", region="r", pieces=9), *rows[:2]])
    rest = await reader.page(order_by="-pieces", after=first.after)
    assert ([row.sale_id for row in rest.rows], rest.after) == (["d", "b"], None)


async def test_a_field_is_found_before_a_lookup_of_another(models: ReadModels) -> None:
    await fill(models, [Sale(sale_id="a", region="r", pieces=5, pieces__ge=1)])
    assert await models.reader(sales).where(pieces__ge=2) == []
    assert await models.reader(sales).count(pieces__gt=2) == 1


@pytest.mark.parametrize(
    ("wanted", "error", "sentence"),
    [
        ({"prices": 1}, ValueError, "Sale has no field prices"),
        ({"price__like": 1}, ValueError, "one of ge, gt, le, lt, in, ne"),
        ({"pieces__lt": None}, ValueError, "nothing is greater or less than None"),
        ({"paid__lt": True}, ValueError, "nothing is greater or less than True"),
        ({"region__in": "ab"}, TypeError, "region__in takes a list of values, not str"),
        ({"pieces__in": range(IN_VALUES_MAX + 1)}, ValueError, "1000 values at most"),
    ],
)
async def test_a_condition_that_cannot_be_is_refused(
    models: ReadModels, wanted: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        await models.reader(sales).where(**wanted)


@pytest.mark.parametrize("after", ["", "k01", "WzFd", "\u00e4"])
async def test_a_cursor_of_another_order_is_refused(models: ReadModels, after: str) -> None:
    with pytest.raises(ValueError, match="after is what the page before said"):
        await models.reader(sales).page(order_by="pieces", after=after)
    with pytest.raises(ValueError, match="no field 'x' to order by"):
        await models.reader(sales).page(order_by="-x")


async def test_a_statement_of_your_own_reads_the_live_table(models: ReadModels) -> None:
    await fill(models, [Sale(sale_id=key, region=key[0]) for key in ("a1", "a2", "b1")])
    reader = models.reader(sales)
    region = reader.table.c.region
    counted = select(region, func.count().label("sales")).group_by(region).order_by(region)
    assert [dict(row) for row in await reader.select(counted)] == [
        {"region": "a", "sales": 2},
        {"region": "b", "sales": 1},
    ]
