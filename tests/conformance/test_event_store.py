"""Memory, SQLite and PostgreSQL, whole and in shards, keep the event store port's promises."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from headrace.stores.base import EventStore
from headrace.stores.open import open_event_store
from headrace.stores.postgres.partitions import reshard
from headrace.testing.conformance.event_store import EventStoreConformance
from headrace.testing.conformance.streams import conformance_serializer


class TestMemoryEventStore(EventStoreConformance):
    @pytest.fixture
    async def store(self) -> AsyncIterator[EventStore]:
        store = await open_event_store("memory://", conformance_serializer())
        yield store
        await store.aclose()

    @pytest.fixture
    def twin(self, store: EventStore) -> EventStore:
        return store


class DatabaseConformance(EventStoreConformance):
    @pytest.fixture
    async def store(self, database: str) -> AsyncIterator[EventStore]:
        store = await open_event_store(database, conformance_serializer())
        yield store
        await store.aclose()

    @pytest.fixture
    async def twin(self, database: str, store: EventStore) -> AsyncIterator[EventStore]:
        twin = await open_event_store(database, conformance_serializer())
        yield twin
        await twin.aclose()


class TestSqliteEventStore(DatabaseConformance):
    @pytest.fixture
    def database(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'events.db'}"


class TestPostgresEventStore(DatabaseConformance):
    @pytest.fixture
    async def database(
        self, postgres_database: str, give_schema: Callable[[str], Awaitable[None]]
    ) -> str:
        await give_schema(postgres_database)
        return postgres_database


class TestShardedPostgresEventStore(DatabaseConformance):
    @pytest.fixture
    async def database(
        self, postgres_database: str, give_schema: Callable[[str], Awaitable[None]]
    ) -> str:
        await give_schema(postgres_database)
        await reshard(postgres_database, 3)
        return postgres_database
