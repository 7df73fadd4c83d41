"""
A comparison of two generations before the lock, so that under it only what changed since is compared.

    a snapshot, kept open ─▶ all rows compared ─▶ … events are applied, their keys noted …
      ─▶ the lock ─▶ the rows that changed since compared twice: as they were, and as they are

What changed is what folding has touched since, as the rebuild notes it. On PostgreSQL it is also each row
that a later transaction wrote, also one of a person: rows carry the number of their transaction. A row that
went without a note changes how many there are, and then everything is compared again, under the lock. On
SQLite a row that a person changes between the two comparisons, and no event touches, is not found.

Used by rebuilds, before they switch. It writes nothing.
"""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Table, Text, bindparam, cast, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import UserDefinedType

from headrace.projections.definition.projection import Projection
from headrace.projections.tables.comparison import Comparison, compare_on
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.engines import database_url, is_in_memory

__all__ = ["TOUCHED_MAX", "Survey", "open_survey"]

R = TypeVar("R", bound=BaseModel)

# Rows that are compared for themselves under the lock, some tenths of a second; of more, all are.
TOUCHED_MAX: Final = 50_000


class _Xid(UserDefinedType[str]):
    """PostgreSQL's number of a transaction."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "xid"


class Survey(Generic[R]):
    """What comparing found before the lock.

    Args:
        projection: whose generations they are.
        tables: of the live one, and of the other.
        expected: keys whose rows may differ.
        snapshot: reads one moment as long as it is open.
    """

    def __init__(
        self,
        projection: Projection[R],
        tables: tuple[Table, Table],
        expected: Collection[str],
        snapshot: AsyncConnection,
    ) -> None:
        self._projection = projection
        self._tables = tables
        self._expected = frozenset(expected)
        self._snapshot = snapshot
        self._oldest: str | None = None
        self._whole: Comparison[R] | None = None
        self._touched: set[str] = set()

    def note(self, keys: Collection[str]) -> None:
        """Notes rows that were changed since."""
        # Of too many, their number is enough to know.
        if len(self._touched) <= TOUCHED_MAX:
            self._touched.update(keys)

    async def begin(self) -> None:
        """Compares all rows, as of the moment of the first read."""
        if self._snapshot.dialect.name == "postgresql":
            oldest = cast(func.pg_snapshot_xmin(func.pg_current_snapshot()), _Xid)
            self._oldest = await self._snapshot.scalar(select(cast(oldest, Text)))
        self._whole = await self._compare(self._snapshot, self._expected)

    async def compare(
        self, connection: AsyncConnection, expected: Collection[str] | None = None
    ) -> Comparison[R]:
        """Returns what comparing all rows now finds.

        Args:
            connection: of the transaction that has locked both tables against folding.
            expected: keys whose rows may differ now; None: as before.
        """
        assert self._whole is not None, "begun"
        may_differ = self._expected if expected is None else frozenset(expected)
        self.note(may_differ ^ self._expected)
        counts = []
        for table in self._tables:
            count, changed = await self._find_changed(connection, table)
            counts.append(count)
            self.note(changed)
        if len(self._touched) > TOUCHED_MAX:
            return await self._compare(connection, may_differ)
        before = await self._compare(self._snapshot, self._expected, self._touched)
        now = await self._compare(connection, may_differ, self._touched)
        whole = self._whole.updated(self._touched, before, now, self._projection.key_form.values)
        if tuple(counts) != whole.rows_of:
            # A row went, and nothing has told which one.
            return await self._compare(connection, may_differ)
        return whole

    async def _compare(
        self,
        connection: AsyncConnection,
        expected: frozenset[str],
        among: Collection[str] | None = None,
    ) -> Comparison[R]:
        expected = expected if among is None else expected & frozenset(among)
        return await compare_on(
            connection, self._projection, self._tables, expected=expected, among=among
        )

    async def _find_changed(
        self, connection: AsyncConnection, table: Table
    ) -> tuple[int, Collection[str]]:
        """Returns how many rows there are, and which of them a later transaction has written."""
        count = select(func.count()).select_from(table)
        if self._oldest is None:
            return await connection.scalar(count) or 0, ()
        form = self._projection.key_form
        oldest = cast(cast(bindparam("oldest"), Text), _Xid)
        later = func.age(literal_column("xmin")) <= func.age(oldest)
        # Each list is in the order in which the rows were met.
        lists = (func.array_agg(table.c[name]).filter(later) for name in form.names)
        found = await connection.execute(
            select(func.count(), *lists).select_from(table), {"oldest": self._oldest}
        )
        number, *columns = found.one()
        if columns[0] is None:
            return number, ()
        return number, [form.join(values) for values in zip(*columns, strict=True)]


@asynccontextmanager
async def open_survey(
    read_models: ReadModels,
    projection: Projection[R],
    generations: tuple[int, int],
    expected: Collection[str],
) -> AsyncIterator[Survey[R] | None]:
    """Begins a survey of two generations; None in a database that a second connection cannot see."""
    if is_in_memory(database_url(read_models.url)):
        yield None
        return
    first, second = (read_models.table_for(projection, each) for each in generations)
    async with read_models.snapshot() as connection:
        survey = Survey(projection, (first, second), expected, connection)
        await survey.begin()
        yield survey
