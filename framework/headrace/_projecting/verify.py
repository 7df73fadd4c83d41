"""
Two generations of a projection compared row for row, in one consistent view of the database.

Sits between: a rebuild, which wants proof before it switches, and the tables. Reads pages of both
in key order and merges them, so that neither has to fit into memory. Writes nothing.
"""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._projecting.contents import read_offsets
from headrace._projecting.projection import Projection
from headrace._projecting.read_models import ReadModels
from headrace._projecting.reader import read_page

__all__ = ["Comparison", "Difference", "compare"]

R = TypeVar("R", bound=BaseModel)

# Enough to see what kind of difference it is.
_DIFFERENCES_MAX: Final = 20


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
        same_offsets: whether both have read every queue equally far; if not, differences say
            nothing about the folds.
    """

    rows: int
    mismatches: int
    expected: int
    differences: tuple[Difference[R], ...]
    same_offsets: bool


async def compare(
    read_models: ReadModels,
    projection: Projection[R],
    generation_a: int,
    generation_b: int,
    *,
    expected: Collection[str] = (),
) -> Comparison[R]:
    """Compares two generations row for row as of one moment, whatever is written meanwhile.

    Args:
        read_models: where they are.
        projection: whose they are.
        generation_a: the one.
        generation_b: the other.
        expected: keys whose rows may differ, which is told apart.
    """
    rows = mismatches = as_expected = 0
    differences: list[Difference[R]] = []
    async with read_models.snapshot() as connection:
        offsets_a = await read_offsets(connection, projection.name, generation_a)
        offsets_b = await read_offsets(connection, projection.name, generation_b)
        merged = _merge(
            _stream(connection, projection, read_models.table_for(projection, generation_a)),
            _stream(connection, projection, read_models.table_for(projection, generation_b)),
            projection.key,
        )
        async for key, a, b in merged:
            rows += 1
            if a == b:
                continue
            if key in expected:
                as_expected += 1
                continue
            mismatches += 1
            if len(differences) < _DIFFERENCES_MAX:
                differences.append(Difference(key=key, a=a, b=b))
    return Comparison(
        rows=rows,
        mismatches=mismatches,
        expected=as_expected,
        differences=tuple(differences),
        same_offsets=offsets_a == offsets_b,
    )


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
