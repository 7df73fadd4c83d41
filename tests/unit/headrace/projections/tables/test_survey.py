"""All rows are compared before the lock, and under it those that changed since: the sum is the whole."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, update

from headrace.projections.tables import survey as survey_module
from headrace.projections.tables.comparison import Comparison, compare_on
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.survey import Survey, open_survey

KEYS = "abcdef"
ROWS = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 2))
# Of one table or the other: a row that gets a value, or goes; and whether that is noted.
CHANGES = st.lists(
    st.tuples(
        st.integers(1, 2), st.sampled_from(KEYS), st.none() | st.integers(0, 2), st.booleans()
    ),
    max_size=5,
)


@pytest.fixture
async def models(read_models: Any, totals: Any) -> Any:
    """Read models with a live generation 1 and a shadow 2."""
    await read_models.ensure(totals)
    await read_models.begin_shadow(totals, "me")
    return read_models


async def put(models: Any, totals: Any, generation: int, rows: dict[str, int]) -> None:
    table = models.table_for(totals, generation)
    async with models.begin() as connection:
        await connection.execute(delete(table))
        if rows:
            values = [{"counter_id": k, "total": v, "folded": 1} for k, v in rows.items()]
            await connection.execute(insert(table), values)


async def change(models: Any, totals: Any, generation: int, key: str, total: int | None) -> None:
    table = models.table_for(totals, generation)
    at = table.c.counter_id == key
    async with models.begin() as connection:
        if total is None:
            await connection.execute(delete(table).where(at))
            return
        done = await connection.execute(update(table).where(at).values(total=total))
        if not done.rowcount:
            await connection.execute(insert(table).values(counter_id=key, total=total, folded=1))


async def both(models: Any, totals: Any, survey: Survey[Any] | None) -> list[Comparison[Any]]:
    """Returns what a survey finds now, and what comparing everything finds."""
    assert survey is not None
    tables = (models.table_for(totals, 1), models.table_for(totals, 2))
    async with models.begin() as connection:
        whole = await compare_on(connection, totals, tables, expected=["a"])
        return [await survey.compare(connection), whole]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(live=ROWS, rebuilt=ROWS, changes=CHANGES)
async def test_a_survey_finds_what_comparing_everything_finds(
    models: Any,
    totals: Any,
    live: dict[str, int],
    rebuilt: dict[str, int],
    changes: list[tuple[int, str, int | None, bool]],
) -> None:
    await put(models, totals, 1, live)
    await put(models, totals, 2, rebuilt)
    by_hand = models.engine.dialect.name == "postgresql"
    async with open_survey(models, totals, (1, 2), ["a"]) as survey:
        assert survey is not None
        for generation, key, total, noted in changes:
            await change(models, totals, generation, key, total)
            if noted or not by_hand:
                survey.note([key])
        found, whole = await both(models, totals, survey)
    assert (found.rows, found.mismatches, found.expected) == (
        whole.rows,
        whole.mismatches,
        whole.expected,
    )
    assert (found.columns, found.rows_of) == (whole.columns, whole.rows_of)
    assert (found.differences, found.samples) == (whole.differences, whole.samples)


@pytest.mark.parametrize("gone", [False, True])
async def test_a_row_that_went_without_a_note_is_found_in_each_database(
    models: Any, totals: Any, gone: bool
) -> None:
    for generation in (1, 2):
        await put(models, totals, generation, {"b": 1, "c": 1})
    async with open_survey(models, totals, (1, 2), []) as survey:
        if gone:
            await change(models, totals, 1, "b", None)
        found, whole = await both(models, totals, survey)
    assert found.mismatches == whole.mismatches == gone


async def test_of_too_many_touched_rows_everything_is_compared(
    models: Any, totals: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey_module, "TOUCHED_MAX", 2)
    for generation in (1, 2):
        await put(models, totals, generation, dict.fromkeys(KEYS, 1))
    async with open_survey(models, totals, (1, 2), ["a"]) as survey:
        assert survey is not None
        for key in KEYS:
            await change(models, totals, 1, key, 2)
            survey.note([key])
        found, whole = await both(models, totals, survey)
    assert found.mismatches == whole.mismatches == len(KEYS) - 1


async def test_a_database_in_memory_has_no_second_moment(totals: Any) -> None:
    models = ReadModels("sqlite://")
    async with open_survey(models, totals, (1, 2), []) as survey:
        assert survey is None
    await models.aclose()
