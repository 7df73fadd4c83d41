"""Which store this is: made once, never shown."""

from headrace.serialization import JsonSerializer
from headrace.stores.base import EventStore
from headrace.stores.database.identity import new_identity
from headrace.stores.memory.store import MemoryEventStore
from headrace.stores.open import open_event_store
from headrace.testing.conformance.streams import conformance_serializer


def test_no_two_are_alike_and_no_key_is_printed() -> None:
    one, other = new_identity(), new_identity()
    assert one.id != other.id
    assert one.seal_key != other.seal_key
    assert "seal_key" not in repr(one)


async def test_a_store_keeps_its_identity_when_it_is_opened_again(sqlite_database: str) -> None:
    first = await _identity_of(sqlite_database)
    assert await _identity_of(sqlite_database) == first


async def test_stores_in_memory_are_different_ones() -> None:
    assert await MemoryEventStore().identity() != await MemoryEventStore().identity()


async def _identity_of(url: str) -> object:
    serializer: JsonSerializer = conformance_serializer()
    store: EventStore = await open_event_store(url, serializer)
    try:
        return await store.identity()
    finally:
        await store.aclose()
