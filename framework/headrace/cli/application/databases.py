"""
Opens the databases of an application for commands that inspect or repair them; never creates one.

Used by the commands about streams, projections, processes and events. If you mistype the path of an SQLite
file, you get an error instead of a new, empty database that looks healthy.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import Serializer
from headrace.stores.base import EventStore
from headrace.stores.database.schema import check
from headrace.stores.open import open_event_store

__all__ = ["existing_events", "existing_read_models"]


@asynccontextmanager
async def existing_read_models(url: str) -> AsyncIterator[ReadModels]:
    """The read models that are there.

    Raises:
        SchemaOutOfDate: there is no database, or its schema is not this version's.
        DefinitionError: the URL is not one of SQLite or PostgreSQL, or is in memory.
    """
    await check(url)
    models = ReadModels(url)
    try:
        yield models
    finally:
        await models.aclose()


@asynccontextmanager
async def existing_events(url: str, serializer: Serializer) -> AsyncIterator[EventStore]:
    """The event store that is there.

    Raises:
        SchemaOutOfDate: there is no database, or its schema is not this version's.
        DefinitionError: the URL is not one of SQLite or PostgreSQL, or is in memory.
    """
    await check(url)
    store = await open_event_store(url, serializer)
    try:
        yield store
    finally:
        await store.aclose()
