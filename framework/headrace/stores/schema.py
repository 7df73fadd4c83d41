"""
The schema of a database: up to date, behind, or not there yet.

Runs the migrations, which are found in the installed package or beside the checkout. Sits between:
the command line and whatever opens a database, and alembic. Knows no statement of its own.
"""

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, inspect, select
from sqlalchemy.ext.asyncio import AsyncEngine

from headrace.errors import DefinitionError, SchemaOutOfDate
from headrace.stores.engines import (
    EngineLimits,
    autocommit,
    create_engine,
    database_url,
    is_in_memory,
)
from headrace.stores.tables import metadata

if TYPE_CHECKING:  # loading alembic takes longer than most commands run
    from alembic.config import Config

__all__ = [
    "VERSION_TABLE",
    "check",
    "downgrade",
    "migrations_folder",
    "prepare",
    "upgrade",
]

# Not alembic's own name: the user's application may keep its migrations in the same database.
VERSION_TABLE = "headrace_schema"

# The advisory lock under which one process at a time migrates a PostgreSQL database.
_MIGRATING = int.from_bytes(b"hrschema")

# Rewriting a large table takes longer than any other statement; an hour bounds a forgotten one.
_MIGRATION_LIMITS = EngineLimits(
    connections_max=1, statement_timeout_ms=3_600_000, idle_transaction_ms=3_600_000
)

# Guards alembic's module globals, which hold the running migration. A lock of threads, because
# each migration runs in a thread and event loop of its own.
_one_migration = threading.Lock()


def migrations_folder(package: Path | None = None) -> Path:
    """Returns the folder of the migrations: within the installed package, or beside the checkout.

    Args:
        package: the folder of the package `headrace`; that of the running one by default.

    Raises:
        DefinitionError: neither place has them; the installation is not whole.
    """
    package = package or Path(__file__).parents[1]
    for folder in (package / "_migrations", package.parent.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise DefinitionError(f"no migrations found for {package}; install headrace again")


async def upgrade(url: str, revision: str = "head") -> None:
    """Brings a database's schema up to a revision; whole or not at all, one process at a time.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL, or is in memory.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    await _migrate(url, "upgrade", revision)


async def downgrade(url: str, revision: str) -> None:
    """Takes a database's schema back to a revision; `base` removes all tables with their data.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL, or is in memory.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    await _migrate(url, "downgrade", revision)


async def check(url: str) -> None:
    """Returns if the schema is the one that this version needs.

    Raises:
        SchemaOutOfDate: it is not; the sentence says what to do.
        DefinitionError: the URL is not one of SQLite or PostgreSQL, or is in memory.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    _refuse_memory(url)
    engine = create_engine(url)
    try:
        if _has_file(engine):
            await _check(engine)
        else:
            raise SchemaOutOfDate(_out_of_date(engine))
    finally:
        await engine.dispose()


async def prepare(engine: AsyncEngine) -> None:
    """Makes sure of the schema before a database is used.

    A new SQLite file gets its folder and its tables, and a database in memory its tables, so that
    the embedded default works at once; anything else that is behind is refused.

    Raises:
        SchemaOutOfDate: the schema is not the one that this version needs.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    if is_in_memory(engine.url):
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        return
    if engine.dialect.name == "sqlite" and (not _has_file(engine) or await _is_empty(engine)):
        await upgrade(_text_of(engine))
        return
    await _check(engine)


def _has_file(engine: AsyncEngine) -> bool:
    """Whether connecting opens a database that exists; an SQLite file would be created by it."""
    return engine.dialect.name != "sqlite" or Path(engine.url.database or "").is_file()


def _make_folder(engine: AsyncEngine) -> None:
    if engine.dialect.name == "sqlite":
        Path(engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)


async def _is_empty(engine: AsyncEngine) -> bool:
    async with autocommit(engine).connect() as connection:
        return not await connection.run_sync(lambda sync: inspect(sync).get_table_names())


async def _check(engine: AsyncEngine) -> None:
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    def heads(connection: Connection) -> set[str]:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        return set(context.get_current_heads())

    scripts = ScriptDirectory.from_config(_config())
    async with autocommit(engine).connect() as connection:
        current = await connection.run_sync(heads)
    if current == set(scripts.get_heads()):
        return
    known = {script.revision for script in scripts.walk_revisions()}
    if current <= known:
        raise SchemaOutOfDate(_out_of_date(engine))
    raise SchemaOutOfDate(
        f"the schema of {_shown(engine)} is at {', '.join(sorted(current))}, which this version"
        " does not know: a newer one made it; install that version"
    )


def _out_of_date(engine: AsyncEngine) -> str:
    return (
        f"the schema of {_shown(engine)} is behind this version;"
        f" run: headrace db upgrade --url {_shown(engine)}"
    )


def _shown(engine: AsyncEngine) -> str:
    name = engine.url.drivername.partition("+")[0]
    return engine.url.set(drivername=name).render_as_string(hide_password=True)


def _text_of(engine: AsyncEngine) -> str:
    return engine.url.render_as_string(hide_password=False)


def _refuse_memory(url: str) -> None:
    if is_in_memory(database_url(url)):
        raise DefinitionError(f"{url} is in memory and has no schema to keep; name a file")


async def _migrate(url: str, direction: str, revision: str) -> None:
    _refuse_memory(url)

    def run() -> None:
        with _one_migration:
            asyncio.run(_migrate_alone(url, direction, revision))

    await asyncio.to_thread(run)


async def _migrate_alone(url: str, direction: str, revision: str) -> None:
    from alembic import command

    def run(connection: Connection) -> None:
        config = _config()
        config.attributes["connection"] = connection
        if direction == "upgrade":
            command.upgrade(config, revision)
        else:
            command.downgrade(config, revision)

    engine = create_engine(url, _MIGRATION_LIMITS)
    try:
        _make_folder(engine)
        async with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                await connection.execute(select(func.pg_advisory_xact_lock(_MIGRATING)))
            await connection.run_sync(run)
    finally:
        await engine.dispose()


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
