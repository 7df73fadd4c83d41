"""A reader that follows a PostgreSQL store while eight others append to it misses nothing."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from headrace.stores.base import AppendOutcome, EventStore
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from headrace.stores.postgres.partitions import reshard
from headrace.testing.conformance.streams import conformance_serializer, stream

WRITERS = 8
GROUPS = 20


async def write(store: EventStore, name: str) -> list[tuple[str, int]]:
    """Appends groups of changing size, so that short and long transactions overlap."""
    written: list[tuple[str, int]] = []
    for group in range(GROUPS):
        first = len(written) + 1
        streams = [stream(name, first + place) for place in range(1 + 7 * (group % 4))]
        assert set(await store.append(streams)) == {AppendOutcome.APPENDED}
        written += [(name, each.version or 0) for each in streams]
    return written


@pytest.mark.parametrize("shards", [1, 3])
async def test_a_reader_that_tails_while_eight_writers_append_misses_nothing(
    postgres_database: str, shards: int
) -> None:
    await upgrade(postgres_database)
    await reshard(postgres_database, shards)
    async with AsyncExitStack() as opened:
        stores = []
        for _ in range(WRITERS + 1):
            stores.append(await open_event_store(postgres_database, conformance_serializer()))
            opened.push_async_callback(stores[-1].aclose)
        reader, *writers = stores
        writing = asyncio.gather(*(write(each, f"a-{n}") for n, each in enumerate(writers)))
        seen: list[tuple[str, int]] = []
        position, pages = 0, 0
        while True:
            done = writing.done()
            page = await reader.read_all(after_position=position, limit=50)
            positions = [each.position for each in page]
            assert positions == sorted(set(positions))
            seen += [(each.stream.aggregate_id, each.stream.version or 0) for each in page]
            position = positions[-1] if page else position
            pages += bool(page)
            if done and not page:
                break
        written = [each for one in await writing for each in one]
    assert pages > 1
    assert len(seen) == len(set(seen)) == len(written)
    assert set(seen) == set(written)
    for number in range(WRITERS):
        versions = [version for name, version in seen if name == f"a-{number}"]
        assert versions == list(range(1, len(versions) + 1))
