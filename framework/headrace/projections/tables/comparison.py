"""
Compares two generations of a projection row for row, in one consistent view of the database.

    the database joins both by key ─▶ how many rows differ, and in which columns ─▶ the first of them

Counting is the database's work and rows stay there, however many differ: of a million, seconds. Only
samples come here. What the database calls different the row models call different, too: numbers on
SQLite, where 1.0 and 1.00 are two texts, are compared as numbers.

Used by rebuilds, before they switch. It writes nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import (
    ColumnElement,
    Dialect,
    Select,
    Table,
    Text,
    and_,
    case,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    type_coerce,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import read_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.row_tables import ExactDecimal, row_of
from headrace.projections.tables.statements import has_key_among, listed_keys

__all__ = ["NO_A", "NO_B", "Comparison", "Difference", "compare", "compare_on"]

R = TypeVar("R", bound=BaseModel)

# Enough to see what kind of difference it is: of all, and of each column.
_DIFFERENCES_MAX: Final = 20
_SAMPLES_MAX: Final = 5
# Rows that are looked through for samples of each column, before a column without one is asked for.
_LOOKED_THROUGH_MAX: Final = 200
# The argument with the keys of the rows that are compared.
_COMPARED: Final = "compared"
# Stand for a column where one of the generations has no row; the first one is the live one.
NO_A: Final = "no live row"
NO_B: Final = "no rebuilt row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Generic[R]):
    """A key whose rows differ, as text; None where a generation has no row for it."""

    key: str
    a: R | None
    b: R | None

    @property
    def columns(self) -> list[str]:
        """The columns that differ; NO_A or NO_B."""
        a, b = self.a, self.b
        if a is None or b is None:
            return [NO_A if a is None else NO_B]
        return [name for name in type(a).model_fields if getattr(a, name) != getattr(b, name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Generic[R]):
    """What comparing two generations found.

    Attributes:
        rows: keys that either generation has.
        mismatches: how many of them differ, all counted but those that were expected to.
        expected: how many of those differ.
        differences: the first of them in key order.
        columns: how many of the mismatches differ in each column, or are NO_A or NO_B.
        samples: some of them for each of those.
        same_offsets: whether both have read every queue equally far; if not, differences say
            nothing about the folds.
        only_a: how many keys only the first generation has, expected or not.
        only_b: the same of the second one.
    """

    rows: int
    mismatches: int
    expected: int
    differences: tuple[Difference[R], ...]
    columns: Mapping[str, int]
    samples: Mapping[str, tuple[Difference[R], ...]] = field(default_factory=dict)
    same_offsets: bool
    only_a: int = 0
    only_b: int = 0

    @property
    def rows_of(self) -> tuple[int, int]:
        """How many rows each generation has."""
        return self.rows - self.only_b, self.rows - self.only_a

    def updated(
        self,
        keys: Collection[str],
        before: "Comparison[R]",
        now: "Comparison[R]",
        order: Callable[[str], Any],
    ) -> "Comparison[R]":
        """Returns what comparing everything now would find.

        Args:
            keys: of the rows that are not as they were; there are no others.
            before: the comparison of these rows alone, as they were when all was compared.
            now: the same as they are now.
            order: what keys are sorted by.
        """

        def kept(
            found: tuple[Difference[R], ...], new: tuple[Difference[R], ...], count: int
        ) -> Any:
            others = (each for each in found if each.key not in keys)
            return tuple(sorted((*others, *new), key=lambda each: order(each.key))[:count])

        columns = Counter(self.columns)
        columns.subtract(before.columns)
        columns.update(now.columns)
        columns = +columns
        return Comparison(
            rows=self.rows - before.rows + now.rows,
            mismatches=self.mismatches - before.mismatches + now.mismatches,
            expected=self.expected - before.expected + now.expected,
            differences=kept(self.differences, now.differences, _DIFFERENCES_MAX),
            columns=dict(columns),
            samples={
                name: kept(self.samples.get(name, ()), now.samples.get(name, ()), _SAMPLES_MAX)
                for name in columns
            },
            same_offsets=now.same_offsets,
            only_a=self.only_a - before.only_a + now.only_a,
            only_b=self.only_b - before.only_b + now.only_b,
        )


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
    among: Collection[str] | None = None,
) -> Comparison[R]:
    """Compares two tables row for row, in the caller's transaction.

    `same_offsets` is true: the caller knows how far they have come.

    Args:
        connection: to which nothing of either appears while it compares.
        projection: whose tables they are.
        tables: the two.
        expected: keys whose rows may differ; they are reported separately.
        among: keys of the rows to compare; None: all.
    """
    sides = _Sides(projection, tables, connection.dialect, expected, among)
    mismatches, as_expected, only_live, only_rebuilt, columns = await sides.count(connection)
    only_new = columns.get(NO_A, 0)
    there_are = (mismatches - only_new, only_new)
    looked_through = await sides.find(connection, there_are, _LOOKED_THROUGH_MAX)
    samples = {}
    for name in columns:
        found = [each for each in looked_through if name in each.columns]
        if not found:
            there_are = (0, columns[name]) if name == NO_A else (columns[name], 0)
            found = await sides.find(connection, there_are, _SAMPLES_MAX, kind=name)
        samples[name] = tuple(found[:_SAMPLES_MAX])
    return Comparison(
        rows=await sides.count_live(connection) + only_rebuilt,
        mismatches=mismatches,
        expected=as_expected,
        differences=tuple(looked_through[:_DIFFERENCES_MAX]),
        columns=columns,
        samples=samples,
        same_offsets=True,
        only_a=only_live,
        only_b=only_rebuilt,
    )


class _Sides(Generic[R]):
    """Both tables joined by key, and the keys that may differ.

    Attributes:
        kinds: by name of a column, or NO_A or NO_B, when two rows differ in that.
    """

    def __init__(
        self,
        projection: Projection[R],
        tables: tuple[Table, Table],
        dialect: Dialect,
        expected: Collection[str],
        among: Collection[str] | None,
    ) -> None:
        self._projection = projection
        self._live, self._rebuilt = tables[0].alias("live"), tables[1].alias("rebuilt")
        form = projection.key_form
        names = form.names
        self._arguments: dict[str, Any] = {}
        if expected:
            self._arguments |= listed_keys(dialect, [form.values(key) for key in expected])
        if among:
            compared = [form.values(key) for key in among]
            self._arguments |= listed_keys(dialect, compared, _COMPARED)
        self._is_compared = [
            true()
            if among is None
            else has_key_among([side.c[name] for name in names], dialect, _COMPARED)
            if among
            else false()
            for side in (self._live, self._rebuilt)
        ]
        # Where there is no row every column is null, and no column of a key is where there is one.
        live, rebuilt = self._live.c[names[0]], self._rebuilt.c[names[0]]
        both = and_(live.is_not(None), rebuilt.is_not(None))
        differ = {
            name: _comparable(a, dialect).is_distinct_from(_comparable(b, dialect))
            for (name, a), b in zip(self._live.c.items(), self._rebuilt.c, strict=True)
            if name not in names
        }
        self._differs = tuple(differ.values())
        self.kinds = {name: and_(both, each) for name, each in differ.items()}
        self.kinds |= {NO_A: live.is_(None), NO_B: rebuilt.is_(None)}
        keys = [func.coalesce(self._live.c[name], self._rebuilt.c[name]) for name in names]
        self._expected = has_key_among(keys, dialect) if expected else false()

    async def count_live(self, connection: AsyncConnection) -> int:
        """Counts the rows of the first table."""
        query = select(func.count()).select_from(self._live).where(self._is_compared[0])
        return await connection.scalar(query, self._arguments) or 0

    async def count(self, connection: AsyncConnection) -> tuple[int, int, int, int, dict[str, int]]:
        """Counts rows that differ and may not, those that may, and those that only one side has.

        Returns:
            The four, and how many of the first differ in each of `kinds` where any does.
        """
        flags = [case((self._expected, 1), else_=0).label("expected")]
        flags += [
            case((kind, 1), else_=0).label(f"kind_{place}")
            for place, kind in enumerate(self.kinds.values())
        ]
        halves = (each.with_only_columns(*flags).order_by(None) for each in self._halves())
        found = union_all(*halves).subquery()
        sums = [func.sum(each) for each in list(found.c)[1:]]
        query = select(found.c.expected, func.count(), *sums).group_by(found.c.expected)
        rows, only_live, only_rebuilt = [0, 0], 0, 0
        columns: dict[str, int] = {}
        for as_expected, count, *by_kind in await connection.execute(query, self._arguments):
            kinds = dict(zip(self.kinds, by_kind, strict=True))
            rows[as_expected] = count
            only_rebuilt += kinds[NO_A]
            only_live += kinds[NO_B]
            if not as_expected:
                columns = {name: number for name, number in kinds.items() if number}
        return rows[0], rows[1], only_live, only_rebuilt, columns

    async def find(
        self,
        connection: AsyncConnection,
        there_are: tuple[int, int],
        rows_max: int,
        *,
        kind: str | None = None,
    ) -> list[Difference[R]]:
        """Returns the first rows in key order that differ and may not, of a kind or of any.

        Args:
            connection: to read on.
            there_are: how many of these have a live row, and have none: reading ends at the last.
            rows_max: how many to return at most.
            kind: in what they differ.
        """
        found: list[Difference[R]] = []
        for half, rows in zip(self._halves(), there_are, strict=True):
            if rows:
                query = half.where(not_(self._expected)).limit(min(rows, rows_max))
                if kind is not None:
                    query = query.where(self.kinds[kind])
                found += [each async for each in self._differences(connection, query)]
        values = self._projection.key_form.values
        return sorted(found, key=lambda difference: values(difference.key))[:rows_max]

    def _halves(self) -> tuple[Select[Any], Select[Any]]:
        """Selects the live rows that are not rebuilt, or differently; and rows that are not live."""
        live, rebuilt, names = self._live, self._rebuilt, self._projection.key_form.names
        same = and_(*(live.c[name] == rebuilt.c[name] for name in names))
        columns = select(*live.c, *rebuilt.c)
        return (
            columns.select_from(live.outerjoin(rebuilt, same))
            .where(or_(*self._differs, self.kinds[NO_B]), self._is_compared[0])
            .order_by(*(live.c[name] for name in names)),
            columns.select_from(rebuilt.outerjoin(live, same))
            .where(live.c[names[0]].is_(None), self._is_compared[1])
            .order_by(*(rebuilt.c[name] for name in names)),
        )

    async def _differences(
        self, connection: AsyncConnection, query: Select[Any]
    ) -> AsyncIterator[Difference[R]]:
        names = [each.name for each in self._projection.shape.fields]
        for values in await connection.execute(query, self._arguments):
            a = _row(self._projection, dict(zip(names, values[: len(names)], strict=True)))
            b = _row(self._projection, dict(zip(names, values[len(names) :], strict=True)))
            yield Difference(key=self._projection.key_form.text_of(a or b), a=a, b=b)


def _comparable(column: ColumnElement[Any], dialect: Dialect) -> ColumnElement[Any]:
    """Returns what is the same of equal values: SQLite keeps numbers as text, with every digit."""
    if dialect.name != "sqlite" or not isinstance(column.type, ExactDecimal):
        return column
    text = type_coerce(column, Text)
    short = func.rtrim(func.rtrim(text, "0"), ".")
    number = case((func.instr(text, ".") > 0, short), else_=text)
    return case((number == "-0", literal("0")), else_=number)


def _row(projection: Projection[R], values: Mapping[str, Any]) -> R | None:
    # Its key is null where there is none.
    return None if values[projection.key_form.names[0]] is None else row_of(projection, values)
