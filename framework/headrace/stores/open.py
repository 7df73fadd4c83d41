"""
Opens an event store by its URL, and what else stands in its database: parked commands, messages for later.

Used by the application, by `headrace.parked`, by rebuilds and by the command line; picks the adapter.
"""

import sqlite3
from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncEngine

from headrace._runtime.log import get_logger
from headrace.serialization import Serializer
from headrace.stores.base import CommandLetterStore, EventStore
from headrace.stores.database.engines import create_engine, database_url, is_in_memory
from headrace.stores.database.schema import prepare
from headrace.stores.memory.letters import MemoryCommandLetters
from headrace.stores.memory.store import MemoryEventStore

if TYPE_CHECKING:  # the extra of Kafka may not be installed
    from headrace.transports.kafka.schedule import Schedule

__all__ = ["is_kept_in_memory", "open_command_letters", "open_event_store", "open_schedule"]

_log = get_logger(__name__)

# Earlier libraries may damage a database when two connections write the log back at once
# (3.7.0 to 3.51.2); one writer in one process does not.
_SQLITE_SOUND = (3, 51, 3)


def is_kept_in_memory(url: str) -> bool:
    """Whether what stands at a URL of an event store or of read models ends with the process.

    Raises:
        DefinitionError: it is no such URL.
    """
    return url == "memory://" or is_in_memory(database_url(url))


async def open_event_store(url: str, serializer: Serializer) -> EventStore:
    """Opens the event store of a URL, ready to use.

    Args:
        url: `memory://`, `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`. A new SQLite file
            gets its folder and its tables.
        serializer: makes the stored bodies and reads them.

    Raises:
        DefinitionError: the URL is none of these.
        SchemaOutOfDate: the schema is behind; the sentence says the command to run.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database cannot be reached.
    """
    if url == "memory://":
        return MemoryEventStore()
    backend = database_url(url).get_backend_name()
    store = _sqlite(url, serializer) if backend == "sqlite" else _postgres(url, serializer)
    engine = create_engine(url)
    try:
        await prepare(engine)
    except BaseException:
        await store.aclose()
        raise
    finally:
        await engine.dispose()
    return store


async def open_command_letters(url: str) -> CommandLetterStore:
    """Opens the letters of commands in the database of an event store.

    Args:
        url: as for `open_event_store`.

    Raises:
        DefinitionError: the URL is none of these.
        SchemaOutOfDate: the schema is behind; the sentence says the command to run.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database cannot be reached.
    """
    if url == "memory://":
        return MemoryCommandLetters()
    from headrace.stores.letters import DatabaseCommandLetters

    return DatabaseCommandLetters(await _prepared(url))


async def open_schedule(url: str) -> "Schedule":
    """Opens the messages for later in the database of an event store; over Kafka they are kept there.

    Args:
        url: as for `open_event_store`.

    Raises:
        DefinitionError: the URL is none of these.
        SchemaOutOfDate: the schema is behind; the sentence says the command to run.
        sqlalchemy.exc.SQLAlchemyError, OSError: the database cannot be reached.
    """
    from headrace.transports.kafka.schedule import MemorySchedule

    if url == "memory://":
        return MemorySchedule()
    from headrace.stores.schedule import DatabaseSchedule

    return DatabaseSchedule(await _prepared(url))


async def _prepared(url: str) -> AsyncEngine:
    engine = create_engine(url)
    try:
        await prepare(engine)
    except BaseException:
        await engine.dispose()
        raise
    return engine


def _sqlite(url: str, serializer: Serializer) -> EventStore:
    from headrace.stores.sqlite.store import SqliteEventStore

    _say_unsound(sqlite3.sqlite_version, sqlite3.sqlite_version_info)
    return SqliteEventStore(url, serializer)


def _postgres(url: str, serializer: Serializer) -> EventStore:
    from headrace.stores.postgres.store import PostgresEventStore

    return PostgresEventStore(url, serializer)


@cache  # once in a process, however many stores it opens
def _say_unsound(name: str, version: tuple[int, ...]) -> None:
    if version < _SQLITE_SOUND:
        _log.warning(
            "this SQLite library may damage a file that several processes write: run one process that"
            " writes, or PostgreSQL, or a newer library; see Databases in docs/operations.md",
            library=name,
            sound_from=".".join(map(str, _SQLITE_SOUND)),
        )
