"""Two generations are compared row for row."""

from typing import Any

import pytest
from sqlalchemy import insert

from headrace.projections.tables.comparison import Difference, compare
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
