"""
Compares two generations of a projection row for row, in one consistent view of the database.

Used by rebuilds, before they switch. It reads pages of both generations in key order and merges them, so
neither has to fit into memory. It writes nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import read_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.reader import read_page

__all__ = ["NO_A", "NO_B", "Comparison", "Difference", "compare", "compare_on"]

R = TypeVar("R", bound=BaseModel)

# Enough to see what kind of difference it is.
_DIFFERENCES_MAX: Final = 20
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
    rows = mismatches = as_expected = 0
    differences: list[Difference[R]] = []
    columns: Counter[str] = Counter()
    first, second = (_stream(connection, projection, table) for table in tables)
    async for key, a, b in _merge(first, second, projection.key):
        rows += 1
        if a == b:
            continue
        if key in expected:
            as_expected += 1
            continue
        mismatches += 1
        columns.update(_differing(projection.row, a, b))
        if len(differences) < _DIFFERENCES_MAX:
            differences.append(Difference(key=key, a=a, b=b))
    return Comparison(
        rows=rows,
        mismatches=mismatches,
        expected=as_expected,
        differences=tuple(differences),
        columns=dict(columns),
        same_offsets=True,
    )


def _differing(row: type[BaseModel], a: BaseModel | None, b: BaseModel | None) -> list[str]:
    if a is None or b is None:
        return [NO_A if a is None else NO_B]
    return [name for name in row.model_fields if getattr(a, name) != getattr(b, name)]


async def _stream(
    connection: AsyncConnection, projection: Projection[R], table: Table
) -> AsyncIterator[R]:
    after: str | None = None
    while page := await read_page(connection, projection, table, after):
        for row in page:
            yield row
        after = getattr(page[-1], projection.key)


async def _merge(
    rows_a: AsyncIterator[R], rows_b: AsyncIterator[R], key: str
) -> AsyncIterator[tuple[str, R | None, R | None]]:
    a, b = await anext(rows_a, None), await anext(rows_b, None)
    while a is not None or b is not None:
        keys = [getattr(row, key) for row in (a, b) if row is not None]
        lowest: str = min(keys)
        first_a = a if a is not None and getattr(a, key) == lowest else None
        first_b = b if b is not None and getattr(b, key) == lowest else None
        yield lowest, first_a, first_b
        if first_a is not None:
            a = await anext(rows_a, None)
        if first_b is not None:
            b = await anext(rows_b, None)
