from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.conformance.streams import stream


async def test_positions_count_from_1_without_holes() -> None:
    store = MemoryEventStore()
    await store.append([stream("a", 1), stream("a", 1, "late"), stream("b", 1)])
    assert [found.position for found in await store.read_all()] == [1, 2]


async def test_the_value_itself_is_kept() -> None:
    store = MemoryEventStore()
    original = stream("a", 1)
    await store.append([original])
    assert await store.find_command("a", "command-1") is original


async def test_a_read_returns_a_list_of_its_own() -> None:
    store = MemoryEventStore()
    await store.append([stream("a", 1)])
    (await store.read_stream("a")).clear()
    (await store.read_all()).clear()
    assert len(await store.read_stream("a")) == len(await store.read_all()) == 1


async def test_negative_versions_read_as_none_stored() -> None:
    store = MemoryEventStore()
    await store.append([stream("a", 1), stream("a", 2)])
    assert len(await store.read_stream("a", after_version=-1)) == 2
    assert await store.read_stream("a", to_version=-1) == []
