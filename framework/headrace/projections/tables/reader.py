"""
Reads a projection: typed rows of its live generation, or of a generation you name.

`join` reads rows together with the rows of another projection that they refer to. The join is made when
rows are read, not when they are folded. The events of two aggregates have no fixed order, so a fold that read
another projection's rows would depend on when it ran, and a rebuild could not repeat it. Each read of a join is
one statement and sees the tables as of one moment.

Used by the application's queries and by `comparison`. It writes nothing.
"""

from collections.abc import AsyncIterator
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Select, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.shape import ColumnKind
from headrace.projections.tables.row_tables import row_of

__all__ = ["JoinedReader", "ProjectionReader", "read_page"]

R = TypeVar("R", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)

# Rows per page of a stream: a few hundred kilobytes, and few round trips.
_PAGE_ROWS: Final = 1_000
# Most rows, or pairs of a join, in the list that `where` returns; for more use `rows` or your own query.
_WHERE_ROWS_MAX: Final = 10_000


class ProjectionReader(Generic[R]):
    """Reads one projection; every call sees what was committed before it.

    Args:
        engine: of the read database, in autocommit.
        projection: what the rows are.
        table: the view of the live generation, or one generation's table.
    """

    def __init__(self, engine: AsyncEngine, projection: Projection[R], table: Table) -> None:
        self._engine = engine
        self._projection = projection
        self._table = table
        self._key = table.c[projection.key]

    async def get(self, key: str) -> R | None:
        """Returns the row of a key, or None."""
        statement = select(self._table).where(self._key == key)
        async with self._engine.connect() as connection:
            row = (await connection.execute(statement)).mappings().one_or_none()
        return None if row is None else row_of(self._projection, row)

    async def where(self, **equals: Any) -> list[R]:
        """Returns the rows whose fields have these values, in key order; None finds no value.

        Raises:
            ValueError: a name is not a field of the row.
            ProjectionError: more than 10,000 rows; use `rows`, or SQL of your own on the view.
        """
        unknown = sorted(equals.keys() - self._table.c.keys())
        if unknown:
            raise ValueError(f"{self._projection.row.__name__} has no field {', '.join(unknown)}")
        conditions = [self._table.c[name] == value for name, value in equals.items()]
        statement = select(self._table).where(*conditions).order_by(self._key)
        async with self._engine.connect() as connection:
            found = await connection.execute(statement.limit(_WHERE_ROWS_MAX + 1))
            rows = found.mappings().all()
        if len(rows) > _WHERE_ROWS_MAX:
            raise ProjectionError(
                f"projection {self._projection.name}: more than {_WHERE_ROWS_MAX} rows fit"
                f" {equals!r}; use rows(), or SQL of your own"
            )
        return [row_of(self._projection, row) for row in rows]

    def join(self, other: "ProjectionReader[S]", *, on: str) -> "JoinedReader[R, S]":
        """Returns a reader of these rows, each with the other projection's row that it names.

        Args:
            other: a reader of the other projection.
            on: the field of these rows that holds a key of the other's.

        Raises:
            ValueError: the rows have no such field, or it is no text.
        """
        others = (other._projection, other._table)  # noqa: SLF001 - another one of this class
        return JoinedReader(self._engine, (self._projection, self._table), others, on)

    async def count(self) -> int:
        """Returns how many rows there are."""
        statement = select(func.count()).select_from(self._table)
        async with self._engine.connect() as connection:
            return (await connection.execute(statement)).scalar_one()

    async def rows(self) -> AsyncIterator[R]:
        """Yields every row in key order, by code point, a page at a time.

        Pages are read one after another: a row that changes meanwhile may be seen either way.
        """
        after: str | None = None
        while True:
            async with self._engine.connect() as connection:
                page = await read_page(connection, self._projection, self._table, after)
            for row in page:
                yield row
            if len(page) < _PAGE_ROWS:
                return
            after = getattr(page[-1], self._projection.key)


async def read_page(
    connection: AsyncConnection, projection: Projection[R], table: Table, after: str | None
) -> list[R]:
    """Returns the next rows after a key, in key order; fewer than a page's worth are the last."""
    key = table.c[projection.key]
    statement = select(table).order_by(key).limit(_PAGE_ROWS)
    if after is not None:
        statement = statement.where(key > after)
    found = await connection.execute(statement)
    return [row_of(projection, row) for row in found.mappings()]


class JoinedReader(Generic[R, S]):
    """Reads rows, each with the row of another projection that one of its fields names.

    Args:
        engine: of the read database, in autocommit.
        rows: a projection and its table.
        others: the other one and its table.
        on: the field of the rows that holds a key of the others.

    Raises:
        ValueError: the rows have no such field, or it is no text.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        rows: tuple[Projection[R], Table],
        others: tuple[Projection[S], Table],
        on: str,
    ) -> None:
        self._engine = engine
        self._projection, self._table = rows
        self._other, table = others
        kinds = {field.name: field.kind for field in self._projection.shape.fields}
        if kinds.get(on) is not ColumnKind.TEXT:
            raise ValueError(
                f"{self._projection.row.__name__} has no text field {on!r} to hold a key of"
                f" {self._other.name}"
            )
        # Under another name, so that a projection can be joined with itself.
        self._others = table.alias("others")
        self._on = self._table.c[on] == self._others.c[self._other.key]

    async def get(self, key: str) -> tuple[R, S | None] | None:
        """Returns the row of a key and the row it names, None where there is none; or None."""
        pairs = await self._fetch(self._pairs().where(self._table.c[self._projection.key] == key))
        return pairs[0] if pairs else None

    async def where(self, **equals: Any) -> list[tuple[R, S | None]]:
        """Returns the rows whose own fields have these values, in key order, each with the other.

        Raises:
            ValueError: a name is not a field of the row.
            ProjectionError: more than 10,000 rows; use SQL of your own on the two views.
        """
        unknown = sorted(equals.keys() - self._table.c.keys())
        if unknown:
            raise ValueError(f"{self._projection.row.__name__} has no field {', '.join(unknown)}")
        conditions = [self._table.c[name] == value for name, value in equals.items()]
        statement = self._pairs().where(*conditions).order_by(self._table.c[self._projection.key])
        pairs = await self._fetch(statement.limit(_WHERE_ROWS_MAX + 1))
        if len(pairs) > _WHERE_ROWS_MAX:
            raise ProjectionError(
                f"projection {self._projection.name}: more than {_WHERE_ROWS_MAX} rows fit {equals!r};"
                " use SQL of your own"
            )
        return pairs

    def _pairs(self) -> Select[Any]:
        joined = self._table.outerjoin(self._others, self._on)
        return select(*self._table.c, *self._others.c).select_from(joined)

    async def _fetch(self, statement: Select[Any]) -> list[tuple[R, S | None]]:
        async with self._engine.connect() as connection:
            found = (await connection.execute(statement)).all()
        names, other_names = self._table.c.keys(), self._others.c.keys()
        pairs: list[tuple[R, S | None]] = []
        for values in found:
            row = row_of(self._projection, dict(zip(names, values[: len(names)], strict=True)))
            other = dict(zip(other_names, values[len(names) :], strict=True))
            # Its key is never null, unless there is no such row.
            named = other[self._other.key] is not None
            pairs.append((row, row_of(self._other, other) if named else None))
        return pairs
