"""
The table of streams in several parts, by a hash of the aggregate's id.

PostgreSQL keeps the parts behind one name, so every statement stays as it is: a row finds its part,
and a lookup by aggregate reads one of them. All parts take their positions from one sequence, so one
order holds over all of them. Used by `headrace db shard`; needs a database whose schema is up to date.
"""

from typing import Final

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    Table,
    TextClause,
    select,
    text,
)

from headrace.errors import DefinitionError
from headrace.stores.database.engines import EngineLimits, create_engine, database_url
from headrace.stores.database.schema import check
from headrace.stores.database.statements import load_statement
from headrace.stores.database.tables import COMMAND_CONSTRAINT, VERSION_CONSTRAINT, event_streams

__all__ = ["SHARDS_MAX", "reshard", "shards_of"]

# Every append opens every shard. The server's time for an append of one stream: 0.4 ms without shards and
# with 4, 0.6 with 16, 1.1 with 64; for each of 200 streams in an append: 13, 14, 16 and 25 us.
SHARDS_MAX: Final = 64

# All streams are copied in one transaction; a day bounds a forgotten one.
_LIMITS: Final = EngineLimits(
    connections_max=1, statement_timeout_ms=86_400_000, idle_transaction_ms=86_400_000
)
_NEW: Final = "event_streams_new"


async def shards_of(url: str) -> int:
    """Returns how many parts the table of streams has; 1: it is one plain table.

    Raises:
        DefinitionError: the database is not PostgreSQL.
        SchemaOutOfDate: the schema is behind; the sentence says the command to run.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    await _check(url)
    engine = create_engine(url, _LIMITS)
    try:
        async with engine.connect() as connection:
            return await connection.run_sync(_count)
    finally:
        await engine.dispose()


async def reshard(url: str, shards: int) -> None:
    """Gives the table of streams another number of parts; whole or not at all.

    All streams are copied, with their positions; meanwhile no client reads or writes any, and who
    wants to waits. Costs nothing while there are none.

    Raises:
        DefinitionError: the database is not PostgreSQL, or the number is none of 1 to `SHARDS_MAX`.
        SchemaOutOfDate: the schema is behind; the sentence says the command to run.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    if not 1 <= shards <= SHARDS_MAX:
        raise DefinitionError(f"{shards} shards: use 1 to {SHARDS_MAX}")
    await _check(url)
    engine = create_engine(url, _LIMITS)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_reshard, shards)
    finally:
        await engine.dispose()


async def _check(url: str) -> None:
    if database_url(url).get_backend_name() != "postgresql":
        raise DefinitionError("only PostgreSQL keeps streams in shards; an SQLite file is one")
    await check(url)


def _count(connection: Connection) -> int:
    parts: int = connection.execute(_sql("shards")).scalar_one()
    return max(1, parts)


def _reshard(connection: Connection, shards: int) -> None:
    connection.execute(_sql("shard_lock"))
    if _count(connection) == shards:
        return
    new = _new_table(partitioned=shards > 1)
    new.create(connection)
    if shards > 1:
        for shard in range(shards):
            connection.execute(_sql("shard_part", shards=shards, shard=shard))
    names = [column.name for column in event_streams.columns]
    connection.execute(new.insert().from_select(names, select(event_streams)))
    connection.execute(_sql("shard_sequence"))
    event_streams.drop(connection)
    name = event_streams.name
    change = Operations(MigrationContext.configure(connection))
    change.rename_table(_NEW, name)
    # Built last, over all rows at once. The key must contain the column that divides the rows.
    key = ["position", "aggregate_id"] if shards > 1 else ["position"]
    change.create_primary_key(f"{name}_pkey", name, key)
    change.create_unique_constraint(VERSION_CONSTRAINT, name, ["aggregate_id", "version"])
    change.create_unique_constraint(COMMAND_CONSTRAINT, name, ["aggregate_id", "command_id"])


def _new_table(*, partitioned: bool) -> Table:
    position = Column(
        "position",
        BigInteger,
        nullable=False,
        server_default=text("nextval('event_streams_position_seq')"),
    )
    others = [
        Column(column.name, column.type, nullable=column.nullable)
        for column in event_streams.columns
        if column.name != position.name
    ]
    if not partitioned:
        return Table(_NEW, MetaData(), position, *others)
    divided = "HASH (aggregate_id)"
    return Table(_NEW, MetaData(), position, *others, postgresql_partition_by=divided)


def _sql(name: str, **places: int) -> TextClause:
    return text(load_statement("headrace.stores.postgres", name).format(**places))
