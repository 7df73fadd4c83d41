"""Messages that the log holds no longer come from PostgreSQL, as if they had never gone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.stores.schema import ARCHIVE, upgrade
from headrace_mq.admin.client import AdminClient
from headrace_mq.archive.archive import Archive
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer import Consumer
from headrace_mq.client.producer import Producer
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import (
    ArchiveSettings,
    BrokerSettings,
    ConsumerSettings,
    StoreSettings,
)
from headrace_mq.testing.awaiting import take

WAIT_S_MAX = 60
TOPIC, QUEUE = "orders", QueueRef("orders", 0)
Start = Callable[..., AbstractAsyncContextManager[Broker]]


@pytest.fixture
async def archive_url(postgres_database: str) -> str:
    await upgrade(postgres_database, tree=ARCHIVE)
    return postgres_database


@pytest.fixture
def start(archive_url: str, tmp_path: Path) -> Start:
    """Runs a broker for a block: segments of 64 KiB, and no window beside what must stay."""

    @asynccontextmanager
    async def run(url: str | None = archive_url, **changed: Any) -> AsyncIterator[Broker]:
        values: dict[str, Any] = {"window_bytes": 0, "interval_ms": 5, "retry_ms_max": 100}
        archive = None if url is None else ArchiveSettings(url=url, **(values | changed))
        store = StoreSettings(
            directory=tmp_path / "broker", segment_bytes=64 << 10, retention_interval_ms=10
        )
        broker = Broker(BrokerSettings(store=store, port=0, archive=archive))
        await broker.start()
        try:
            yield broker
        finally:
            await broker.aclose()

    return run


async def send(broker: Broker, first: int, count: int, **kinds: Any) -> None:
    messages = [
        Message(topic=TOPIC, body=b"%d" % n, key=f"k{n % 10}", tag="t", headers={"n": str(n)})
        for n in range(first, first + count)
    ]
    async with Producer(broker.address) as producer:
        await producer.create_topic(TOPIC, queues=1, **kinds)
        await producer.send_many(messages)


def archive_of(broker: Broker) -> Archive:
    assert broker._archive is not None
    return broker._archive


def held(broker: Broker) -> int:
    """The first offset that the log still holds."""
    assert broker._state is not None
    known = broker._state.store._queues.get(QUEUE)
    assert known is not None
    return known.index.first


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():
            await asyncio.sleep(0)


async def bodies(broker: Broker, group: str, count: int) -> list[bytes]:
    settings = ConsumerSettings(in_flight_max=100_000, in_flight_span_max=100_000)
    async with Consumer(broker.address, group=group, topics=[TOPIC], settings=settings) as consumer:
        return [record.body for record in await take(consumer, count)]


@pytest.mark.parametrize("retention", ["transient", "forever"])
async def test_a_new_group_reads_from_the_first_message_although_its_segment_is_gone(
    start: Start, retention: str
) -> None:
    async with start() as broker:
        await send(broker, 0, 12_000, retention=retention)
        await until(lambda: held(broker) > 8_000)
        assert await bodies(broker, "g", 12_000) == [b"%d" % n for n in range(12_000)]
        async with AdminClient(broker.address) as admin:
            (found,) = await admin.ranges([TOPIC])
            (archive,) = (await admin.status()).archive
        assert (found.first, found.end) == (0, 12_000)
        assert archive.blocks_read >= 1
        assert archive.messages > 8_000
    async with start() as broker:
        assert await bodies(broker, "h", 12_000) == [b"%d" % n for n in range(12_000)]
