"""
The tables into which several processes copy the rows of a shadow; one transaction takes them over.

    create ─▶ shares are copied in, each in a transaction of its own ─▶ index ─▶ become the shadow
                                                                            └─▶ merge into it

A share counts once: the process that copies it notes that in the same transaction, and where two copy
the same share, only one can commit. The note names the rebuild that owns the tables, so a process that
is left over from a dead rebuild cannot add rows to the next one's, even if the tables have the same names.
A rebuild may go on with what a dead one has copied: it takes the tables over, if a plan tells of what each share is.
Their names begin with the shadow's, and they are dropped with it. PostgreSQL only.

Used by Spark rebuilds, which fill the tables, and by `generations`, which drops them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Select,
    String,
    Table,
    Text,
    cast,
    column,
    delete,
    false,
    func,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy import table as lightweight_table
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.ddl import AddConstraint, CreateTable, DropConstraint, DropTable

from headrace.stores.database.tables import projection_versions

__all__ = [
    "DELETED",
    "VERSION",
    "Filled",
    "Staging",
    "become_shadow",
    "copy_share",
    "create_staging",
    "drop_staging",
    "enter_staging",
    "find_filled",
    "find_noted",
    "find_plan",
    "find_twice",
    "index_staging",
    "is_noted",
    "merge_into_shadow",
    "note_share",
    "staging_of",
    "take_staging",
]

# What the table of others holds.
VERSION: Final = "version"  # aggregate id, its last version
DELETED: Final = "deleted"  # key of a row that is no more, -

_UNLOGGED: Final = ("UNLOGGED",)
# What keeps other owners' notes out.
_OWNED: Final = "owned"
_ACTIVITY: Final = lightweight_table(
    "pg_stat_activity",
    *(column(name) for name in ("pid", "application_name", "datname", "usename")),
)


class Staging(NamedTuple):
    """Names: of the tables next to a shadow's own, and of the sessions that copy into them.

    Attributes:
        rows: columns as the shadow's, without an index.
        others: `kind`, `key` and `number` of versions and of deleted rows.
        shares: `share`, unique, how many `rows` it has, what its task `told`, and the shadow's `owner`.
        plan: one row with a text that says what each share is; only where another rebuild may go on.
        sessions: what the sessions are called, for the caller that ends them.
    """

    rows: str
    others: str
    shares: str
    plan: str
    sessions: str


class Filled(NamedTuple):
    """What was copied."""

    shares: int
    rows: int


def staging_of(table: str) -> Staging:
    """Returns the names that belong to a shadow's table; none has more than 63 characters."""
    return Staging(
        rows=f"{table}__rows",
        others=f"{table}__others",
        shares=f"{table}__shares",
        plan=f"{table}__plan",
        sessions=f"headrace {table}",
    )


async def create_staging(
    connection: AsyncConnection, shadow: Table, owner: str, *, merged: bool, plan: str | None = None
) -> None:
    """Makes the tables, empty.

    Args:
        connection: in the transaction that knows who owns the shadow.
        shadow: its table.
        owner: of the shadow.
        merged: the rows will be written into the shadow, and not become it: they need no log.
        plan: what each share is; None: what is copied is of no use to another owner.
    """
    names = staging_of(shadow.name)
    rows = _rows(names, shadow, prefixes=_UNLOGGED if merged else ())
    for table in (rows, _others(names), _shares(names, owner)):
        await connection.execute(CreateTable(table))
    if plan is not None:
        table = _plan(names)
        await connection.execute(CreateTable(table))
        await connection.execute(insert(table).values(plan=plan))


async def find_plan(connection: AsyncConnection, table: str) -> str | None:
    """Returns what each share is; None: no other owner can go on, or a crash of the database has lost it."""
    if not await _is_there(connection, staging_of(table).plan):
        return None
    plan = _plan(staging_of(table))
    return (await connection.execute(select(plan.c.plan))).scalar_one_or_none()


async def take_staging(connection: AsyncConnection, table: str, owner: str) -> None:
    """Gives the tables to another owner, with the shares that are noted; the one before can add none.

    Args:
        connection: in the transaction that makes it the shadow's owner.
        table: the shadow's.
        owner: of the shadow from now on.
    """
    names = staging_of(table)
    # They hold locks; and what they have not committed is folded again.
    await _end_sessions(connection, names)
    before, after = _shares(names, ""), _shares(names, owner)
    await connection.execute(DropConstraint(_owned(before)))
    await connection.execute(update(after).values(owner=owner))
    await connection.execute(AddConstraint(_owned(after)))


async def find_noted(connection: AsyncConnection, table: str) -> dict[int, bytes]:
    """Returns the shares that were copied and committed, and what their tasks told."""
    shares = _shares(staging_of(table)).c
    found = await connection.execute(select(shares.share, shares.told).order_by(shares.share))
    return {row.share: row.told for row in found}


async def drop_staging(connection: AsyncConnection, table: str) -> None:
    """Drops the tables if they are there, and ends sessions that still copy into them."""
    names = staging_of(table)
    await _end_sessions(connection, names)
    for name in (names.rows, names.others, names.shares, names.plan):
        await connection.execute(DropTable(Table(name, MetaData()), if_exists=True))


async def enter_staging(connection: AsyncConnection, table: str, connections_max: int) -> bool:
    """Takes one of the connections that may copy at a time; False: all of them are taken.

    It is free again when the session ends, however that happens.
    """
    sessions = literal(staging_of(table).sessions)
    places = (
        func.generate_series(1, cast(connections_max, Integer))
        .table_valued("place")
        .render_derived()
    )
    # Of a function's rows one after the other is looked at, until one is enough.
    entering = select(func.set_config("application_name", sessions, false())).where(
        func.pg_try_advisory_lock(func.hashtext(sessions), places.c.place)
    )
    found = await connection.execute(entering.select_from(places).limit(1))
    return found.one_or_none() is not None


async def is_noted(connection: AsyncConnection, table: str, share: int) -> bool:
    """Whether a share was copied and committed."""
    shares = _shares(staging_of(table)).c
    found = await connection.execute(select(literal(1)).where(shares.share == share))
    return found.one_or_none() is not None


async def copy_share(
    connection: AsyncConnection,
    table: str,
    rows: Sequence[tuple[Any, ...]],
    others: Sequence[tuple[str, str, int]],
) -> None:
    """Copies rows, a value per column in order, and others: kind, key and number.

    Raises:
        asyncpg.PostgresError: the database refuses them.
    """
    names = staging_of(table)
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    # On the transaction's own connection, so it is committed or rolled back with the rest.
    for name, records in ((names.rows, rows), (names.others, others)):
        if records:
            await driver.copy_records_to_table(name, records=records)


async def note_share(
    connection: AsyncConnection, table: str, owner: str, share: int, rows: int, told: bytes = b""
) -> bool:
    """Notes that a share was copied; False: another one has noted it, and this one must not commit.

    Waits for another one that is about to.

    Args:
        connection: in the transaction that has copied it.
        table: the shadow's.
        owner: of the shadow.
        share: which one.
        rows: how many it has.
        told: what else there is to know of it, for an owner that goes on.

    Raises:
        sqlalchemy.exc.IntegrityError: the tables are another owner's.
    """
    noted = insert(_shares(staging_of(table)))
    noted = noted.values(share=share, rows=rows, told=told, owner=owner)
    result = await connection.execute(noted.on_conflict_do_nothing())
    return result.rowcount == 1


async def find_filled(connection: AsyncConnection, table: str) -> Filled:
    """Returns the shares that were copied and committed."""
    shares = _shares(staging_of(table)).c
    rows = cast(func.coalesce(func.sum(shares.rows), 0), BigInteger)
    found = await connection.execute(select(func.count(shares.share), rows))
    return Filled(*found.one())


async def find_twice(connection: AsyncConnection, table: str) -> str | None:
    """Returns an aggregate that has two versions, if there is one."""
    others = _others(staging_of(table)).c
    twice = (
        select(others.key)
        .where(others.kind == VERSION)
        .group_by(others.key)
        .having(func.count() > 1)
        .order_by(others.key)
        .limit(1)
    )
    found: str | None = (await connection.execute(twice)).scalar_one_or_none()
    return found


async def index_staging(connection: AsyncConnection, shadow: Table) -> None:
    """Makes the rows fit to become the shadow: a primary key, and statistics.

    In a transaction of its own, so that the projection's row is not locked meanwhile: making an
    index of rows that are there costs less than keeping one while they come, but takes its time.

    Raises:
        sqlalchemy.exc.IntegrityError: two rows have the same key.
    """
    names = staging_of(shadow.name)
    await _end_sessions(connection, names)
    rows = _rows(names, shadow)
    # Of a rebuild that was killed behind this, the key is there.
    if not await _is_there(connection, _key_of(names.rows)):
        key = [rows.c[each.name] for each in shadow.primary_key.columns]
        made = PrimaryKeyConstraint(*key, name=_key_of(names.rows))
        await connection.execute(AddConstraint(made))
    # The planner knows nothing of a table that was filled a moment ago.
    await connection.exec_driver_sql(f'ANALYZE "{names.rows}"')


async def become_shadow(
    connection: AsyncConnection, shadow: Table, place: Mapping[str, Any]
) -> None:
    """Puts the indexed rows in the place of an empty shadow's, with the versions.

    Args:
        connection: in the transaction that knows who owns the shadow, and writes the offsets.
        shadow: its table.
        place: its `name` and `generation`.

    Raises:
        sqlalchemy.exc.IntegrityError: an aggregate has two versions.
    """
    from alembic.ddl.base import RenameTable

    names = staging_of(shadow.name)
    await connection.execute(DropTable(shadow))
    await connection.execute(RenameTable(names.rows, shadow.name))
    await connection.exec_driver_sql(
        f'ALTER INDEX "{_key_of(names.rows)}" RENAME TO "{_key_of(shadow.name)}"'
    )
    versions = projection_versions
    await connection.execute(
        insert(versions).from_select(versions.columns.keys(), _versions(names, place))
    )
    await drop_staging(connection, shadow.name)


async def merge_into_shadow(
    connection: AsyncConnection, shadow: Table, place: Mapping[str, Any]
) -> None:
    """Writes the rows and versions in place of a shadow's own, and deletes rows.

    Args:
        connection: in the transaction that knows who owns the shadow, and writes the offsets.
        shadow: its table.
        place: its `name` and `generation`.
    """
    names = staging_of(shadow.name)
    await _end_sessions(connection, names)
    others = _others(names).c
    await _merge(connection, shadow, select(*_rows(names, shadow).columns))
    keys = list(shadow.primary_key.columns)
    gone = select(*_parts_of(others.key, keys)).where(others.kind == DELETED)
    await connection.execute(delete(shadow).where(tuple_(*keys).in_(gone)))
    await _merge(connection, projection_versions, _versions(names, place))
    await drop_staging(connection, shadow.name)


async def _merge(connection: AsyncConnection, table: Table, chosen: Select[Any]) -> None:
    written = insert(table).from_select(table.columns.keys(), chosen)
    keys: list[ColumnElement[Any]] = list(table.primary_key.columns)
    others = {
        each.name: written.excluded[each.name] for each in table.columns if not each.primary_key
    }
    await connection.execute(
        written.on_conflict_do_update(index_elements=keys, set_=others)
        if others
        else written.on_conflict_do_nothing(index_elements=keys)
    )


def _parts_of(text: Column[str], keys: Sequence[Column[Any]]) -> list[ColumnElement[Any]]:
    """Returns the values of a key that is written as one text; see `key_form`."""
    parts: list[ColumnElement[Any]] = [text]
    if len(keys) > 1:
        parts = [
            func.replace(func.replace(func.split_part(text, ",", at), "%2C", ","), "%25", "%")
            for at in range(1, len(keys) + 1)
        ]
    return [
        part if isinstance(key.type, String) else cast(part, key.type)
        for part, key in zip(parts, keys, strict=True)
    ]


def _versions(names: Staging, place: Mapping[str, Any]) -> Select[Any]:
    others = _others(names).c
    name = cast(literal(place["name"]), String)
    generation = cast(literal(place["generation"]), Integer)
    return select(name, generation, others.key, others.number).where(others.kind == VERSION)


def _rows(names: Staging, shadow: Table, prefixes: Sequence[str] = ()) -> Table:
    columns = (Column(each.name, each.type, nullable=each.nullable) for each in shadow.columns)
    return Table(names.rows, MetaData(), *columns, prefixes=list(prefixes))


def _key_of(table: str) -> str:
    # As PostgreSQL itself names a primary key.
    return f"{table}_pkey"


def _others(names: Staging) -> Table:
    return Table(
        names.others,
        MetaData(),
        Column("kind", Text, nullable=False),
        # Compared with keys, which are sorted by code point.
        Column("key", Text(collation="C"), nullable=False),
        Column("number", BigInteger, nullable=False),
        prefixes=list(_UNLOGGED),
    )


def _shares(names: Staging, owner: str | None = None) -> Table:
    owned = Column("owner", Text, nullable=False)
    return Table(
        names.shares,
        MetaData(),
        Column("share", Integer, primary_key=True, autoincrement=False),
        Column("rows", BigInteger, nullable=False),
        Column("told", LargeBinary, nullable=False),
        owned,
        *([] if owner is None else [CheckConstraint(owned == owner, name=_OWNED)]),
        prefixes=list(_UNLOGGED),
    )


def _owned(shares: Table) -> CheckConstraint:
    return next(each for each in shares.constraints if isinstance(each, CheckConstraint))


def _plan(names: Staging) -> Table:
    # A database that crashes loses it together with the notes.
    column = Column("plan", Text, nullable=False)
    return Table(names.plan, MetaData(), column, prefixes=list(_UNLOGGED))


async def _is_there(connection: AsyncConnection, name: str) -> bool:
    """Whether there is a table or an index of a name."""
    found = await connection.execute(select(func.to_regclass(f'"{name}"')))
    return found.scalar_one() is not None


async def _end_sessions(connection: AsyncConnection, names: Staging) -> None:
    # A session that still copies belongs to a job that has ended, or to a task whose result is not
    # waited for any more. Its locks would hold up this transaction, and with it the live runner.
    sessions = _ACTIVITY.c
    await connection.execute(
        select(func.pg_terminate_backend(sessions.pid)).where(
            sessions.application_name == names.sessions,
            sessions.datname == func.current_database(),
            sessions.usename == func.current_user(),
        )
    )
