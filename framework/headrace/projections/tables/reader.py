"""
Reads a projection: typed rows of its live generation, or of a generation you name.

`join` reads rows together with the rows of another projection that they refer to. The join is made when
rows are read, not when they are folded. The events of two aggregates have no fixed order, so a fold that read
another projection's rows would depend on when it ran, and a rebuild could not repeat it. Each read of a join is
one statement and sees the tables as of one moment.

Used by the application's queries and by `comparison`. It writes nothing.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from operator import gt
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import RowMapping, Select, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.row_query import RowQuery, compared
from headrace.projections.tables.row_tables import row_of

__all__ = ["JoinedReader", "Page", "ProjectionReader", "read_page"]

R = TypeVar("R", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)

# Rows per page of a stream: a few hundred kilobytes, and few round trips.
_PAGE_ROWS: Final = 1_000
# Most rows, or pairs of a join, in the list that `where` returns; for more use `rows` or your own query.
_WHERE_ROWS_MAX: Final = 10_000
_ALL: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[R]):
    """Some rows.

    Attributes:
        rows: in the order that was asked for.
        after: what `page` takes for the next page; None: this is the last.
    """

    rows: list[R]
    after: str | None


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
        self._query = RowQuery(projection, table, engine.dialect.name)

    @property
    def table(self) -> Table:
        """The rows as a table of SQLAlchemy, for statements of your own; see `select`."""
        return self._table

    async def select(self, statement: Select[Any]) -> Sequence[RowMapping]:
        """Returns what a statement of your own finds, as mappings by column name.

        It may join tables of several readers of one database. All of the result is in memory.
        """
        async with self._engine.connect() as connection:
            found: Sequence[RowMapping] = (await connection.execute(statement)).mappings().all()
        return found

    async def get(self, key: Any) -> R | None:
        """Returns the row of a key, or None; of a key of several fields, a tuple in their order.

        Raises:
            ValueError: no row can have this key, because it is of another type.
        """
        statement = select(self._table).where(self._query.has_key(key))
        async with self._engine.connect() as connection:
            row = (await connection.execute(statement)).mappings().one_or_none()
        return None if row is None else row_of(self._projection, row)

    async def where(self, **conditions: Any) -> list[R]:
        """Returns the rows that fit all conditions, in key order: `where(owner="ann", balance__ge=100)`.

        After a field's name may follow `__ge`, `__gt`, `__le`, `__lt`, `__ne` or `__in`. None finds
        rows without a value.

        Raises:
            ValueError: a name is not a field of the row, or `__in` has more than 1,000 values.
            ProjectionError: more than 10,000 rows; use `page`, `rows`, or a statement of your own.
        """
        page = await self.page(conditions, limit=_WHERE_ROWS_MAX)
        if page.after is not None:
            raise ProjectionError(
                f"projection {self._projection.name}: more than {_WHERE_ROWS_MAX} rows fit"
                f" {conditions!r}; use page(), rows(), or SQL of your own"
            )
        return page.rows

    async def page(
        self,
        conditions: Mapping[str, Any] = _ALL,
        *,
        order_by: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[R]:
        """Returns the next rows that fit all conditions.

        Args:
            conditions: as `where` takes them, by name.
            order_by: a field, with a `-` in front for the greatest first; None: the key. Rows without
                a value come last. A database sorts all rows that fit, as it has no index for it.
            limit: rows at most.
            after: of the page before, with the same order; None: begin.

        Raises:
            ValueError: a name is not a field of the row, or `after` is of another order.
        """
        order = self._query.order(order_by)
        wanted = self._query.conditions(conditions)
        if after is not None:
            wanted.append(order.behind(after))
        statement = select(self._table).where(*wanted).order_by(*order.clauses).limit(limit + 1)
        found = await self.select(statement)
        rows = [row_of(self._projection, row) for row in found[:limit]]
        return Page(rows=rows, after=order.cursor(rows[-1]) if len(found) > limit else None)

    def join(self, other: "ProjectionReader[S]", *, on: str) -> "JoinedReader[R, S]":
        """Returns a reader of these rows, each with the other projection's row that it names.

        Args:
            other: a reader of the other projection.
            on: the field of these rows that holds a key of the other's.

        Raises:
            ValueError: the rows have no such field, or it is of another type than the key.
        """
        others = (other._projection, other._table)  # noqa: SLF001 - another one of this class
        return JoinedReader(self._engine, (self._projection, self._table), others, on)

    async def count(self, **conditions: Any) -> int:
        """Returns how many rows fit all conditions, which are those of `where`; raises as it does."""
        wanted = self._query.conditions(conditions)
        statement = select(func.count()).select_from(self._table).where(*wanted)
        async with self._engine.connect() as connection:
            return (await connection.execute(statement)).scalar_one()

    async def rows(self) -> AsyncIterator[R]:
        """Yields every row in key order, by code point, a page at a time.

        Pages are read one after another: a row that changes meanwhile may be seen either way.
        """
        after: tuple[Any, ...] | None = None
        while True:
            async with self._engine.connect() as connection:
                page = await read_page(connection, self._projection, self._table, after)
            for row in page:
                yield row
            if len(page) < _PAGE_ROWS:
                return
            after = self._query.key_of(page[-1])


async def read_page(
    connection: AsyncConnection,
    projection: Projection[R],
    table: Table,
    after: tuple[Any, ...] | None,
) -> list[R]:
    """Returns the next rows after a key, in key order; fewer than a page's worth are the last."""
    keys = [table.c[name] for name in projection.key_form.names]
    statement = select(table).order_by(*keys).limit(_PAGE_ROWS)
    if after is not None:
        statement = statement.where(compared(gt, keys, after))
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
        ValueError: the rows have no such field, it is of another type than the key of the others, or
            that has several fields.
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
        self._query = RowQuery(self._projection, self._table, engine.dialect.name)
        kinds = {field.name: field.kind for field in self._projection.shape.fields}
        wanted = self._other.key_form.kinds
        if len(wanted) > 1:
            raise ValueError(
                f"the key of {self._other.name} has several fields; join the tables by a statement of your"
                " own, with table and select"
            )
        if kinds.get(on) is not wanted[0]:
            raise ValueError(
                f"{self._projection.row.__name__} has no {wanted[0].value} field {on!r} to hold a key of"
                f" {self._other.name}"
            )
        # Under another name, so that a projection can be joined with itself.
        self._others = table.alias("others")
        self._on = self._table.c[on] == self._others.c[self._other.key_form.names[0]]

    async def get(self, key: Any) -> tuple[R, S | None] | None:
        """Returns the row of a key and the row it names, None where there is none; or None."""
        pairs = await self._fetch(self._pairs().where(self._query.has_key(key)))
        return pairs[0] if pairs else None

    async def where(self, **conditions: Any) -> list[tuple[R, S | None]]:
        """Returns the rows whose own fields fit all conditions, in key order, each with the other.

        Raises:
            ValueError: a name is not a field of the row, or `__in` has more than 1,000 values.
            ProjectionError: more than 10,000 rows; use SQL of your own on the two views.
        """
        wanted = self._query.conditions(conditions)
        statement = self._pairs().where(*wanted).order_by(*self._query.keys)
        pairs = await self._fetch(statement.limit(_WHERE_ROWS_MAX + 1))
        if len(pairs) > _WHERE_ROWS_MAX:
            raise ProjectionError(
                f"projection {self._projection.name}: more than {_WHERE_ROWS_MAX} rows fit {conditions!r};"
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
            named = other[self._other.key_form.names[0]] is not None
            pairs.append((row, row_of(self._other, other) if named else None))
        return pairs
