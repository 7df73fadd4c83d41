"""Two generations are compared row for row."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from sqlalchemy import delete, insert

from headrace.projections.definition.projection import Projection
from headrace.projections.tables import comparison
from headrace.projections.tables.comparison import NO_A, NO_B, Difference, compare
from headrace.projections.tables.contents import write_offsets


@pytest.fixture
async def models(read_models: Any, totals: Any) -> Any:
    """Read models with a live generation 1 and a shadow 2."""
    await read_models.ensure(totals)
    await read_models.begin_shadow(totals, "me")
    return read_models


async def fill(models: Any, totals: Any, generation: int, rows: dict[str, int]) -> None:
    values = [{"counter_id": key, "total": total, "folded": 1} for key, total in rows.items()]
    async with models.begin() as connection:
        await connection.execute(insert(models.table_for(totals, generation)), values)


async def test_equal_generations_have_no_mismatch(models: Any, totals: Any) -> None:
    rows = {f"{n:04}": n for n in range(2_500)}
    await fill(models, totals, 1, rows)
    await fill(models, totals, 2, dict(reversed(rows.items())))
    found = await compare(models, totals, 1, 2)
    assert (found.rows, found.mismatches, found.differences) == (2_500, 0, ())
    assert found.same_offsets


async def test_empty_generations_are_equal(models: Any, totals: Any) -> None:
    found = await compare(models, totals, 1, 2)
    assert (found.rows, found.mismatches) == (0, 0)


async def test_every_kind_of_difference_is_shown_in_key_order(
    models: Any, totals: Any, domain: Any
) -> None:
    def row(key: str, total: int) -> Any:
        return domain.Total(counter_id=key, total=total, folded=1)

    await fill(models, totals, 1, {"a": 1, "b": 2, "c": 3, "e": 5})
    await fill(models, totals, 2, {"b": 2, "c": 4, "d": 5, "f": 6})
    found = await compare(models, totals, 1, 2)
    assert (found.rows, found.mismatches) == (6, 5)
    assert found.differences == (
        Difference(key="a", a=row("a", 1), b=None),
        Difference(key="c", a=row("c", 3), b=row("c", 4)),
        Difference(key="d", a=None, b=row("d", 5)),
        Difference(key="e", a=row("e", 5), b=None),
        Difference(key="f", a=None, b=row("f", 6)),
    )


async def test_rows_that_are_expected_to_differ_are_counted_for_themselves(
    models: Any, totals: Any
) -> None:
    await fill(models, totals, 1, {"a": 1, "b": 2, "c": 3, "d": 4})
    await fill(models, totals, 2, {"b": 9, "c": 8, "d": 4, "e": 5})
    found = await compare(models, totals, 1, 2, expected={"a", "b", "d", "z"})
    assert (found.rows, found.mismatches, found.expected) == (5, 2, 2)
    assert [one.key for one in found.differences] == ["c", "e"]


async def test_all_mismatches_are_counted_and_the_first_twenty_shown(
    models: Any, totals: Any
) -> None:
    await fill(models, totals, 1, {f"{n:04}": n for n in range(1_500)})
    found = await compare(models, totals, 1, 2)
    assert (found.rows, found.mismatches) == (1_500, 1_500)
    assert [difference.key for difference in found.differences] == [f"{n:04}" for n in range(20)]


async def test_a_column_that_seldom_differs_has_samples_too(
    models: Any, totals: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_LOOKED_THROUGH_MAX", 30)
    await fill(models, totals, 1, {f"{n:04}": n for n in range(100)})
    await fill(models, totals, 2, {f"{n:04}": n + 1 for n in range(99)} | {"a": 1})
    async with models.begin() as connection:
        table = models.table_for(totals, 2)
        await connection.execute(
            table.update().where(table.c.counter_id == "0090").values(folded=5)
        )
    found = await compare(models, totals, 1, 2)
    assert found.columns == {"total": 99, "folded": 1, NO_A: 1, NO_B: 1}
    keys = {name: [one.key for one in each] for name, each in found.samples.items()}
    assert keys == {
        "total": ["0000", "0001", "0002", "0003", "0004"],
        "folded": ["0090"],
        NO_A: ["a"],
        NO_B: ["0099"],
    }


async def test_generations_at_different_offsets_are_reported(models: Any, totals: Any) -> None:
    async with models.begin() as connection:
        await write_offsets(connection, models.target(totals, 1), {("t", 0): 5})
        await write_offsets(connection, models.target(totals, 2), {("t", 0): 4})
    assert not (await compare(models, totals, 1, 2)).same_offsets


async def test_a_comparison_sees_both_tables_as_of_one_moment(models: Any, totals: Any) -> None:
    await fill(models, totals, 1, {"a": 1})
    await fill(models, totals, 2, {"a": 1})
    async with models.snapshot() as connection:
        table = models.table_for(totals, 1)
        before = (await connection.execute(table.select())).all()
        await fill(models, totals, 1, {"b": 2})
        assert (await connection.execute(table.select())).all() == before
    assert (await compare(models, totals, 1, 2)).mismatches == 1


class Sheet(BaseModel):
    """A row with a column of each kind."""

    sheet_id: str
    text: str | None = None
    number: int = 0
    share: float = 0.0
    price: Decimal | None = None
    open: bool = False
    day: date | None = None
    at: datetime | None = None


# Few values of each kind, so that equal, nearly equal and absent ones meet.
SHEETS = st.dictionaries(
    st.sampled_from(["", "a", "A", "a ", "é", "Z", "\U0001f600"]),
    st.fixed_dictionaries({
        "text": st.sampled_from([None, "", "null", "x", "X"]),
        "number": st.sampled_from([0, 1, -(2**63)]),
        "share": st.sampled_from([0.0, -0.0, 0.1, 0.1 + 1e-16]),
        "price": st.sampled_from([None, Decimal("1.0"), Decimal("1.00"), Decimal("100"),
                                  Decimal("1E+2"), Decimal("-0.0"), Decimal(0)]),
        "open": st.booleans(),
        "day": st.sampled_from([None, date(2026, 1, 31), date(2026, 2, 1)]),
        "at": st.sampled_from([None, datetime(2026, 1, 31, tzinfo=UTC),
                               datetime(2026, 1, 31, 0, 0, 0, 1, tzinfo=UTC)]),
    }),
)  # fmt: skip


@pytest.fixture
async def sheets(read_models: Any) -> tuple[Any, Projection[Sheet]]:
    """Two generations of a projection with a column of each kind."""
    projection = Projection("sheets", row=Sheet, key="sheet_id")
    await read_models.ensure(projection)
    await read_models.begin_shadow(projection, "me")
    return read_models, projection


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(live=SHEETS, rebuilt=SHEETS)
async def test_a_comparison_finds_what_comparing_the_row_models_finds(
    sheets: tuple[Any, Projection[Sheet]], live: dict[str, Any], rebuilt: dict[str, Any]
) -> None:
    models, projection = sheets
    sides: list[dict[str, Sheet]] = []
    for generation, rows in ((1, live), (2, rebuilt)):
        table = models.table_for(projection, generation)
        sides.append({key: Sheet(sheet_id=key, **values) for key, values in rows.items()})
        async with models.begin() as connection:
            await connection.execute(delete(table))
            if rows:
                values = [sheet.model_dump() for sheet in sides[-1].values()]
                await connection.execute(insert(table), values)
    a, b = sides
    keys = sorted(a.keys() | b.keys())
    found = await compare(models, projection, 1, 2)
    assert found.rows == len(keys)
    assert [(one.key, one.a, one.b) for one in found.differences] == [
        (key, a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)
    ]
    assert found.mismatches == len(found.differences)
    by_column: dict[str, list[str]] = {}
    for one in found.differences:
        for name in one.columns:
            by_column.setdefault(name, []).append(one.key)
    assert found.columns == {name: len(differing) for name, differing in by_column.items()}
    assert {name: [one.key for one in samples] for name, samples in found.samples.items()} == {
        name: differing[:5] for name, differing in by_column.items()
    }
