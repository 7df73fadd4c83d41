"""
Reads rows of one projection together with the rows of another projection that they refer to.

The join is made when rows are read, not when they are folded. The events of two aggregates have no fixed
order, so a fold that read another projection's rows would depend on when it ran, and a rebuild could not
repeat it. Each read is one statement and sees the tables as of one moment.

Used by `reader`. It writes nothing.
"""

from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Select, Table, select
from sqlalchemy.ext.asyncio import AsyncEngine

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.shape import ColumnKind
from headrace.projections.tables.row_tables import row_of

__all__ = ["JoinedReader"]

R = TypeVar("R", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)

# Pairs that `where` hands out as one list, as for rows alone.
_PAIRS_MAX: Final = 10_000


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
        pairs = await self._fetch(statement.limit(_PAIRS_MAX + 1))
        if len(pairs) > _PAIRS_MAX:
            raise ProjectionError(
                f"projection {self._projection.name}: more than {_PAIRS_MAX} rows fit {equals!r};"
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
