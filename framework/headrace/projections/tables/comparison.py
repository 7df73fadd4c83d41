"""
Compares two generations of a projection row for row, in one consistent view of the database.

    the database joins both by key ─▶ rows of which a column differs ─▶ compared again as row models

Equal rows never leave the database: comparing a million takes seconds, and the live projection waits that
long. Python decides about the rows that the database calls different, because 1.0 and 1.00 are equal
numbers and two texts on SQLite. Neither generation has to fit into memory.

Used by rebuilds, before they switch. It writes nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import FromClause, Select, Table, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import read_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.row_tables import row_of

__all__ = ["NO_A", "NO_B", "Comparison", "Difference", "compare", "compare_on"]

R = TypeVar("R", bound=BaseModel)

# Enough to see what kind of difference it is.
_DIFFERENCES_MAX: Final = 20
# Different rows that are fetched at a time.
_FETCHED: Final = 1_000
# Stand for a column where one of the generations has no row; the first one is the live one.
NO_A: Final = "no live row"
NO_B: Final = "no rebuilt row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Generic[R]):
    """A key whose rows differ; None where a generation has no row for it."""

    key: str
    a: R | None
    b: R | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Generic[R]):
    """What comparing two generations found.

    Attributes:
        rows: keys that either generation has.
        mismatches: how many of them differ, all counted but those that were expected to.
        expected: how many of those differ.
        differences: the first of them in key order.
        columns: how many of the mismatches differ in each column, or are NO_A or NO_B.
        same_offsets: whether both have read every queue equally far; if not, differences say
            nothing about the folds.
    """

    rows: int
    mismatches: int
    expected: int
    differences: tuple[Difference[R], ...]
    columns: Mapping[str, int]
    same_offsets: bool


async def compare(
    read_models: ReadModels,
    projection: Projection[R],
    generation_a: int,
    generation_b: int,
    *,
    expected: Collection[str] = (),
) -> Comparison[R]:
    """Compares two generations row for row as of one moment, also while rows are written.

    Args:
        read_models: where they are.
        projection: whose they are.
        generation_a: the one.
        generation_b: the other.
        expected: keys whose rows may differ; they are reported separately.
    """
    async with read_models.snapshot() as connection:
        tables = (
            read_models.table_for(projection, generation_a),
            read_models.table_for(projection, generation_b),
        )
        offsets_a = await read_offsets(connection, projection.name, generation_a)
        offsets_b = await read_offsets(connection, projection.name, generation_b)
        found = await compare_on(connection, projection, tables, expected=expected)
    return replace(found, same_offsets=offsets_a == offsets_b)


async def compare_on(
    connection: AsyncConnection,
    projection: Projection[R],
    tables: tuple[Table, Table],
    *,
    expected: Collection[str] = (),
) -> Comparison[R]:
    """Compares two tables row for row, in the caller's transaction.

    `same_offsets` is true: the caller knows how far they have come.

    Args:
        connection: to which nothing of either appears while it compares.
        projection: whose tables they are.
        tables: the two.
        expected: keys whose rows may differ; they are reported separately.
    """
    live, rebuilt = tables[0].alias("live"), tables[1].alias("rebuilt")
    only_rebuilt = as_expected = mismatches = 0
    differences: list[Difference[R]] = []
    columns: Counter[str] = Counter()
    for statement in (_of_live(projection, live, rebuilt), _of_rebuilt(projection, live, rebuilt)):
        samples: list[Difference[R]] = []
        async for key, a, b in _rows(connection, projection, statement):
            only_rebuilt += a is None
            if a == b:
                continue
            if key in expected:
                as_expected += 1
                continue
            mismatches += 1
            columns.update(_differing(projection.row, a, b))
            if len(samples) < _DIFFERENCES_MAX:
                samples.append(Difference(key=key, a=a, b=b))
        differences += samples
    differences.sort(key=lambda difference: difference.key)
    counted = await connection.scalar(select(func.count()).select_from(tables[0]))
    return Comparison(
        rows=(counted or 0) + only_rebuilt,
        mismatches=mismatches,
        expected=as_expected,
        differences=tuple(differences[:_DIFFERENCES_MAX]),
        columns=dict(columns),
        same_offsets=True,
    )


def _differing(row: type[BaseModel], a: BaseModel | None, b: BaseModel | None) -> list[str]:
    if a is None or b is None:
        return [NO_A if a is None else NO_B]
    return [name for name in row.model_fields if getattr(a, name) != getattr(b, name)]


def _of_live(projection: Projection[Any], live: FromClause, rebuilt: FromClause) -> Select[Any]:
    """Selects the live rows that are not rebuilt, or differently, and what they are rebuilt as."""
    key = projection.key
    differs = [column.is_distinct_from(rebuilt.c[column.name]) for column in live.c]
    return (
        select(*live.c, *rebuilt.c)
        .select_from(live.outerjoin(rebuilt, live.c[key] == rebuilt.c[key]))
        .where(or_(*differs))
        .order_by(live.c[key])
    )


def _of_rebuilt(projection: Projection[Any], live: FromClause, rebuilt: FromClause) -> Select[Any]:
    """Selects the rebuilt rows that have no live one; its columns are null."""
    key = projection.key
    return (
        select(*live.c, *rebuilt.c)
        .select_from(rebuilt.outerjoin(live, live.c[key] == rebuilt.c[key]))
        .where(live.c[key].is_(None))
        .order_by(rebuilt.c[key])
    )


async def _rows(
    connection: AsyncConnection, projection: Projection[R], statement: Select[Any]
) -> AsyncIterator[tuple[str, R | None, R | None]]:
    """Yields the key, the live and the rebuilt row of each result."""
    result = await connection.stream(statement.execution_options(yield_per=_FETCHED))
    names = [field.name for field in projection.shape.fields]
    async for fetched in result.partitions():
        for values in fetched:
            a = _row(projection, dict(zip(names, values[: len(names)], strict=True)))
            b = _row(projection, dict(zip(names, values[len(names) :], strict=True)))
            yield getattr(a or b, projection.key), a, b


def _row(projection: Projection[R], values: Mapping[str, Any]) -> R | None:
    # Its key is null where there is none.
    return None if values[projection.key] is None else row_of(projection, values)
