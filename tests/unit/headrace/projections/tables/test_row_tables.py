"""Row models as tables: names, columns, exact values there and back, and the view."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from sqlalchemy import delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.ddl import CreateTable

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import find_rows, store_new_rows, store_rows
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
        await connection.execute(insert(table), [values_of(everything, row) for row in ROWS])
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
        await connection.execute(insert(table), [values_of(everything, elsewhere)])
        at = (await connection.execute(select(table.c.at))).scalar_one()
    assert (at, at.tzinfo) == (NOON, UTC)


async def test_a_view_shows_the_table_and_can_be_dropped(
    read_models: Any, everything: Projection[Everything]
) -> None:
    table, view = build_table(everything, "everything__1"), build_table(everything, "everything")
    async with read_models.begin() as connection:
        await connection.execute(CreateTable(table))
        await connection.execute(create_view("everything", table))
        await connection.execute(insert(table), [values_of(everything, ROWS[0])])
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


class Kind(Enum):
    ODD = "it's"
    EMPTY = ""


class Level(IntEnum):
    LOW = -1
    HIGH = 2**40


class Inner(BaseModel):
    text: str
    number: int = 0
    ratio: float | None = None
    amount: Decimal | None = None
    level: Level | None = None
    at: datetime | None = None
    inner: list["Inner"] = []


class Wide(BaseModel):
    tags: list[str]
    shop: str
    number: int
    owner: UUID
    kind: Kind | None = None
    level: Level = Level.LOW
    size: Literal["s", "m"] = "s"
    mark: bytes | None = None
    seen: UUID | None = None
    rates: dict[str, float] = {}
    inner: Inner | None = None
    deep: dict[str, list[Inner | None]] | None = None


wide = Projection("wide", row=Wide, key=("owner", "number", "shop"))
# What no database keeps, in text or in JSON.
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
TEXT = st.text(LETTERS, max_size=8) | st.sampled_from(["null", '"', "\\u0000", "-0.0", "{}"])
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 5e-324, 1e308])
INNER = st.recursive(
    st.builds(
        Inner,
        text=TEXT,
        number=st.integers() | st.just(-(10**400)),
        ratio=st.none() | FLOATS,
        amount=st.none() | st.decimals(allow_nan=False, allow_infinity=False),
        level=st.none() | st.sampled_from(Level),
        at=st.none() | st.datetimes(timezones=st.just(UTC)),
    ),
    lambda inner: st.builds(Inner, text=TEXT, inner=st.lists(inner, max_size=2)),
    max_leaves=3,
)
WIDE = st.builds(
    Wide,
    shop=TEXT | st.text("%,2C5", max_size=6),
    number=st.integers(-(2**63), 2**63 - 1),
    owner=st.uuids() | st.sampled_from([UUID(int=0), UUID(int=2**128 - 1)]),
    kind=st.none() | st.sampled_from(Kind),
    level=st.sampled_from(Level),
    size=st.sampled_from(["s", "m"]),
    mark=st.none() | st.binary(max_size=5),
    seen=st.none() | st.uuids(),
    tags=st.lists(TEXT, max_size=3),
    rates=st.dictionaries(TEXT, FLOATS, max_size=3),
    inner=st.none() | INNER,
    deep=st.none() | st.dictionaries(TEXT, st.lists(st.none() | INNER, max_size=2), max_size=2),
)


@pytest.fixture
async def target(read_models: Any) -> Any:
    await read_models.ensure(wide)
    return read_models.target(wide, 1)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(WIDE, max_size=4, unique_by=wide.key_form.text_of), copied=st.booleans())
async def test_a_row_of_any_types_is_found_by_its_key_as_it_was_stored(
    read_models: Any, target: Any, rows: list[Wide], copied: bool
) -> None:
    canonical = {wide.key_form.text_of(row): wide.shape.canonical(row) for row in rows}
    store = store_new_rows if copied else store_rows

    def there_and_back(connection: Any) -> Any:
        connection.execute(delete(target.table))
        store(connection, target, canonical)
        found = find_rows(connection, target, canonical)
        gone = dict.fromkeys(list(canonical)[1:])
        store_rows(connection, target, gone)
        return found, find_rows(connection, target, canonical)

    found, left = await read_models.transact(there_and_back)
    assert {key: repr(row) for key, row in found.items()} == {
        key: repr(row) for key, row in canonical.items()
    }
    for row in found.values():
        assert repr(wide.shape.canonical(row)) == repr(row)
    assert list(left) == list(canonical)[:1]
    # In Python as from a database, keys are ordered by their values.
    read = [wide.key_form.text_of(row) async for row in read_models.reader(wide).rows()]
    assert read == list(left)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(WIDE, max_size=8, unique_by=wide.key_form.text_of))
async def test_keys_are_ordered_as_their_values_are(
    read_models: Any, target: Any, rows: list[Wide]
) -> None:
    canonical = {wide.key_form.text_of(row): wide.shape.canonical(row) for row in rows}

    def write(connection: Any) -> None:
        connection.execute(delete(target.table))
        store_rows(connection, target, canonical)

    await read_models.transact(write)
    reader = read_models.reader(wide)
    expected = sorted(canonical, key=wide.key_form.values)
    assert [wide.key_form.text_of(row) async for row in reader.rows()] == expected
    seen, after = [], None
    while True:
        page = await reader.page(limit=3, after=after)
        seen += [wide.key_form.text_of(row) for row in page.rows]
        if (after := page.after) is None:
            break
    assert seen == expected
    for key in expected[:2]:
        assert repr(await reader.get(wide.key_form.value(key))) == repr(canonical[key])


async def test_a_row_that_the_model_takes_no_more_is_named(read_models: Any, target: Any) -> None:
    row = Wide(shop="a", number=1, owner=UUID(int=1), tags=[], kind=Kind.ODD)
    async with read_models.begin() as connection:
        values = values_of(wide, row) | {"kind": "gone"}
        await connection.execute(insert(target.table), [values])
    with pytest.raises(
        ProjectionError, match=r"stored row with owner=.*, number=1, shop='a' is no Wide"
    ):
        await read_models.reader(wide).get((UUID(int=1), 1, "a"))


async def test_a_table_with_another_key_or_type_does_not_fit(read_models: Any, target: Any) -> None:
    class Other(Wide):
        tags: bytes  # type: ignore[assignment]  # another type on purpose

    others = [
        Projection("wide", row=Wide, key=("owner", "shop", "number")),
        Projection("wide", row=Other, key=("owner", "number", "shop")),
    ]
    async with read_models.begin() as connection:
        assert await connection.run_sync(fits, target.table)
        for other in others:
            assert other.fingerprint != wide.fingerprint
            assert not await connection.run_sync(fits, build_table(other, target.table.name))
