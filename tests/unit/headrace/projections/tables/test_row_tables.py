"""Row models as tables: names, columns, exact values there and back, and the view."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.ddl import CreateTable

from headrace.projections.definition.projection import Projection
from headrace.projections.tables.row_tables import (
    build_table,
    create_view,
    drop_view,
    fingerprint,
    fits,
    generation_of,
    physical_name,
    row_of,
    values_of,
)


class Everything(BaseModel):
    key: str
    number: int
    ratio: float
    flag: bool
    amount: Decimal
    day: date
    at: datetime
    text: str | None = None
    paid: Decimal | None = None
    until: datetime | None = None


NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
ROWS = [
    Everything(
        key="plain",
        number=-1,
        ratio=0.1,
        flag=True,
        amount=Decimal("0.30"),
        day=date(2026, 2, 28),
        at=NOON,
    ),
    Everything(
        key="far",
        number=2**63 - 1,
        ratio=5e-324,
        flag=False,
        amount=Decimal("-12345678901234567890123456789.000000000000000000001"),
        day=date(1, 1, 1),
        at=datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        text='é 😀 "quoted" \\ %s',
        paid=Decimal("1E-30"),
        until=datetime(1, 1, 1, tzinfo=UTC),
    ),
]


@pytest.fixture
def everything() -> Projection[Everything]:
    return Projection("everything", row=Everything, key="key")


def test_a_generation_has_a_name_that_says_both() -> None:
    assert physical_name("balances", 12) == "balances__12"
    assert generation_of("balances", "balances__12") == 12


@pytest.mark.parametrize("table", ["balances", "balances__", "balances__x", "balances__01", "x__1"])
def test_other_tables_are_no_generations(table: str) -> None:
    assert generation_of("balances", table) is None


def test_the_columns_on_each_database(everything: Projection[Everything]) -> None:
    table = build_table(everything, "t")

    def columns(dialect: Any) -> list[str]:
        ddl = str(CreateTable(table).compile(dialect=dialect))
        return [line.strip(" ,\t") for line in ddl.splitlines() if line.startswith("\t")]

    assert columns(postgresql.dialect()) == [
        '"key" VARCHAR(255) COLLATE "C" NOT NULL',
        '"number" BIGINT NOT NULL',
        '"ratio" FLOAT(53) NOT NULL',
        '"flag" BOOLEAN NOT NULL',
        '"amount" NUMERIC NOT NULL',
        '"day" DATE NOT NULL',
        '"at" TIMESTAMP WITH TIME ZONE NOT NULL',
        '"text" TEXT',
        '"paid" NUMERIC',
        '"until" TIMESTAMP WITH TIME ZONE',
        'PRIMARY KEY ("key")',
    ]
    assert columns(sqlite.dialect()) == [
        '"key" VARCHAR(255) NOT NULL',
        '"number" BIGINT NOT NULL',
        '"ratio" FLOAT NOT NULL',
        '"flag" BOOLEAN NOT NULL',
        '"amount" TEXT NOT NULL',
        '"day" DATE NOT NULL',
        '"at" DATETIME NOT NULL',
        '"text" TEXT',
        '"paid" TEXT',
        '"until" DATETIME',
        'PRIMARY KEY ("key")',
    ]


def test_the_fingerprint_is_that_of_the_shape(everything: Projection[Everything]) -> None:
    assert fingerprint(everything) == everything.shape.fingerprint


async def test_every_value_comes_back_exactly_and_in_its_one_form(
    read_models: Any, everything: Projection[Everything]
) -> None:
    table = build_table(everything, "t")
    async with read_models.begin() as connection:
        await connection.execute(CreateTable(table))
        await connection.execute(insert(table), [values_of(row) for row in ROWS])
        found = (await connection.execute(select(table).order_by(table.c.number))).mappings()
        rows = [row_of(everything, values) for values in found]
    assert rows == ROWS
    for row, stored in zip(ROWS, rows, strict=True):
        assert everything.shape.canonical(stored) is stored
        assert str(stored) == str(everything.shape.canonical(row))


async def test_a_moment_in_another_zone_comes_back_in_utc(
    read_models: Any, everything: Projection[Everything]
) -> None:
    table = build_table(everything, "t")
    elsewhere = ROWS[0].model_copy(update={"at": NOON.astimezone(timezone(timedelta(hours=-7)))})
    async with read_models.begin() as connection:
        await connection.execute(CreateTable(table))
        await connection.execute(insert(table), [values_of(elsewhere)])
        at = (await connection.execute(select(table.c.at))).scalar_one()
    assert (at, at.tzinfo) == (NOON, UTC)


async def test_a_view_shows_the_table_and_can_be_dropped(
    read_models: Any, everything: Projection[Everything]
) -> None:
    table, view = build_table(everything, "everything__1"), build_table(everything, "everything")
    async with read_models.begin() as connection:
        await connection.execute(CreateTable(table))
        await connection.execute(create_view("everything", table))
        await connection.execute(insert(table), [values_of(ROWS[0])])
        found = (await connection.execute(select(view))).mappings().one()
        assert row_of(everything, found) == ROWS[0]
        await connection.execute(drop_view("everything"))
        await connection.execute(drop_view("everything"))


async def test_a_table_fits_only_with_the_same_columns_in_the_same_order(
    read_models: Any, everything: Projection[Everything]
) -> None:
    class Narrow(BaseModel):
        key: str
        number: int

    class Wide(Narrow):
        more: int | None = None

    class Other(BaseModel):
        key: str
        number: float

    class Loose(BaseModel):
        key: str
        number: int | None

    async with read_models.begin() as connection:
        for name, model in {"everything": Everything, "t": Narrow}.items():
            table = build_table(Projection("p", row=model, key="key"), name)
            await connection.execute(CreateTable(table))
        assert await connection.run_sync(fits, build_table(everything, "everything"))
        assert not await connection.run_sync(fits, build_table(everything, "nowhere"))
        for model, fit in {Narrow: True, Wide: False, Other: False, Loose: False}.items():
            table = build_table(Projection("p", row=model, key="key"), "t")
            assert await connection.run_sync(fits, table) is fit
