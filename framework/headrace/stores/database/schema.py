"""
The schema of a database: whether it is up to date, behind or missing, and how to upgrade it.

Runs the migrations with alembic. They are in the installed package, or next to the source in a checkout.
Used by the command line and by every module that opens a database.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, Engine, Table, event, func, inspect, select
from sqlalchemy.ext.asyncio import AsyncEngine

from headrace._runtime.private_files import make_folder
from headrace._runtime.shipped import shipped_folder
from headrace.errors import DefinitionError, SchemaOutOfDate
from headrace.stores.database.engines import (
    EngineLimits,
    autocommit,
    create_engine,
    database_url,
    is_in_memory,
)
from headrace.stores.database.tables import metadata

if TYPE_CHECKING:  # loading alembic takes longer than most commands run
    from alembic.config import Config

__all__ = [
    "ARCHIVE",
    "VERSION_TABLE",
    "Tree",
    "check",
    "downgrade",
    "migrations_folder",
    "prepare",
    "upgrade",
]

# Not alembic's own name: the user's application may keep its migrations in the same database.
VERSION_TABLE = "headrace_schema"


class Tree(NamedTuple):
    """Migrations that follow each other: their folder, their table, and who runs them."""

    folder: str
    version_table: str
    command: str


_EVENTS = Tree("", VERSION_TABLE, "headrace db upgrade")
# The archive of the queue; PostgreSQL's alone.
ARCHIVE = Tree("queue", "headrace_archive_schema", "headrace archive upgrade")

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
    """Returns the folder of the migrations: within the installed package, or next to the checkout.

    Args:
        package: the folder of the package `headrace`; that of the running one by default.

    Raises:
        DefinitionError: neither place has them; the installation is not whole.
    """
    return shipped_folder("_migrations", "migrations", mark="env.py", package=package)


async def upgrade(
    url: str, revision: str = "head", *, tree: Tree = _EVENTS
) -> tuple[str | None, str | None]:
    """Brings a database's schema up to a revision; whole or not at all, one process at a time.

    Returns the revisions before and after; None: the database has no tables of Headrace.

    Args:
        url: of the database.
        revision: where to stop.
        tree: whose tables.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL, or is in memory; for the
            archive, not one of PostgreSQL. Or there is no such revision, or a table or view of
            yours has the name of a table that is to be made.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    return await _migrate(url, "upgrade", revision, tree)


async def downgrade(url: str, revision: str, *, tree: Tree = _EVENTS) -> None:
    """Takes a database's schema back to a revision; `base` removes all tables with their data.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL, or is in memory, or there is
            no such revision.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    await _migrate(url, "downgrade", revision, tree)


async def check(url: str, *, tree: Tree = _EVENTS) -> None:
    """Returns if the schema is the one that this version needs.

    Raises:
        SchemaOutOfDate: it is not; the sentence says what to do.
        DefinitionError: the URL is not one of SQLite or PostgreSQL, or is in memory.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
    """
    _refuse_unfit(url, tree)
    engine = create_engine(url)
    try:
        if _has_file(engine):
            await _check(engine, tree)
        else:
            raise SchemaOutOfDate(
                f"there is no database {_shown(engine)}; correct the URL, or make it:"
                f" {tree.command} --url {_shown(engine)}"
            )
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
    await _check(engine, _EVENTS)


def _has_file(engine: AsyncEngine) -> bool:
    """Whether connecting opens a database that exists; an SQLite file would be created by it."""
    return engine.dialect.name != "sqlite" or Path(engine.url.database or "").is_file()


def _make_folder(engine: AsyncEngine) -> None:
    if engine.dialect.name == "sqlite":
        file = Path(engine.url.database or "")
        if file.is_dir():
            raise DefinitionError(f"{file} is a folder; name a file in it: {_shown(engine)}/FILE")
        make_folder(file.parent)


async def _is_empty(engine: AsyncEngine) -> bool:
    async with autocommit(engine).connect() as connection:
        return not await connection.run_sync(lambda sync: inspect(sync).get_table_names())


async def _check(engine: AsyncEngine, tree: Tree) -> None:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_config(tree))
    async with autocommit(engine).connect() as connection:
        current = await connection.run_sync(_heads, tree)
    if current == set(scripts.get_heads()):
        return
    known = {script.revision for script in scripts.walk_revisions()}
    if current <= known:
        raise SchemaOutOfDate(_out_of_date(engine, tree))
    raise SchemaOutOfDate(
        f"the schema of {_shown(engine)} is at {', '.join(sorted(current))}, which this version"
        " does not know: a newer one made it; install that version"
    )


def _heads(connection: Connection, tree: Tree) -> set[str]:
    """Where the schema is: one revision, or none where there are no tables yet."""
    from alembic.runtime.migration import MigrationContext

    context = MigrationContext.configure(connection, opts={"version_table": tree.version_table})
    return set(context.get_current_heads())


def _out_of_date(engine: AsyncEngine, tree: Tree) -> str:
    return (
        f"the schema of {_shown(engine)} is behind this version;"
        f" run: {tree.command} --url {_shown(engine)}"
    )


def _shown(engine: AsyncEngine | Engine) -> str:
    name = engine.url.drivername.partition("+")[0]
    return engine.url.set(drivername=name).render_as_string(hide_password=True)


def _text_of(engine: AsyncEngine) -> str:
    return engine.url.render_as_string(hide_password=False)


def _refuse_unfit(url: str, tree: Tree) -> None:
    if tree is ARCHIVE and not database_url(url).drivername.startswith("postgresql"):
        raise DefinitionError("an archive is a database of PostgreSQL: postgresql://USER@HOST/NAME")
    if is_in_memory(database_url(url)):
        raise DefinitionError(f"{url} is in memory and has no schema to keep; name a file")


async def _migrate(
    url: str, direction: str, revision: str, tree: Tree
) -> tuple[str | None, str | None]:
    _refuse_unfit(url, tree)

    def run() -> tuple[str | None, str | None]:
        with _one_migration:
            return asyncio.run(_migrate_alone(url, direction, revision, tree))

    return await asyncio.to_thread(run)


async def _migrate_alone(
    url: str, direction: str, revision: str, tree: Tree
) -> tuple[str | None, str | None]:
    from alembic import command
    from alembic.util import CommandError

    def run(connection: Connection) -> tuple[str | None, str | None]:
        before = _heads(connection, tree)
        config = _config(tree)
        config.attributes["connection"] = connection
        if direction == "upgrade":
            with _names_are_free(connection):
                command.upgrade(config, revision)
        else:
            command.downgrade(config, revision)
        after = _heads(connection, tree)
        return next(iter(before), None), next(iter(after), None)

    engine = create_engine(url, _MIGRATION_LIMITS)
    try:
        _make_folder(engine)
        async with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                await connection.execute(select(func.pg_advisory_xact_lock(_MIGRATING)))
            return await connection.run_sync(run)
    except CommandError as error:
        raise DefinitionError(
            f"the schema cannot be taken to {revision!r} ({error}); a revision is the number that"
            " a file of the migrations begins with, head or base"
        ) from error
    finally:
        await engine.dispose()


@contextmanager
def _names_are_free(connection: Connection) -> Iterator[None]:
    """Refuses to make a table where there is a table or view of its name.

    Raises:
        DefinitionError: there is one, which is not of these migrations.
    """

    def refuse(table: Table, bind: Connection, **_options: object) -> None:
        if bind is connection and inspect(bind).has_table(table.name, table.schema):
            raise DefinitionError(
                f"{_shown(connection.engine)} has a table or view {table.name!r} that is not Headrace's,"
                " which needs that name; give yours another name, a projection with the version"
                " that it runs on, and upgrade again; nothing was changed"
            )

    event.listen(Table, "before_create", refuse)
    try:
        yield
    finally:
        event.remove(Table, "before_create", refuse)


def _config(tree: Tree) -> "Config":
    from alembic.config import Config

    config = Config()
    folder = migrations_folder() / tree.folder
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
