"""Messages that the log holds no longer come from PostgreSQL, as if they had never gone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import make_url

from headrace.stores.database.schema import ARCHIVE, upgrade
from headrace_mq.admin.client import AdminClient
from headrace_mq.archive.archive import Archive
from headrace_mq.archive.database import ArchiveMismatch
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.administration import ArchiveDescription
from headrace_mq.settings import (
    ArchiveSettings,
    BrokerSettings,
    ConsumerSettings,
    ProducerSettings,
    StoreSettings,
)
from headrace_mq.testing.arrivals import take

WAIT_S_MAX = 60
# With it a segment holds some 300 messages.
PAD = "x" * 100
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
        Message(topic=TOPIC, body=b"%d" % n, key=f"k{n % 10}", headers={"n": str(n), "pad": PAD})
        for n in range(first, first + count)
    ]
    async with Producer(broker.address) as producer:
        await producer.create_topic(TOPIC, queues=1, **kinds)
        await producer.send_many(messages)


def archive_of(broker: Broker) -> Archive:
    assert broker._storage.archive is not None
    return broker._storage.archive


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
        return [
            record.body for record in await take(consumer, count, timeout_ms=WAIT_S_MAX * 1_000)
        ]


@pytest.mark.parametrize("retention", ["transient", "forever"])
async def test_a_new_group_reads_from_the_first_message_although_its_segment_is_gone(
    start: Start, retention: str
) -> None:
    async with start() as broker:
        await send(broker, 0, 3_000, retention=retention)
        await until(lambda: held(broker) > 2_000)
        assert await bodies(broker, "g", 3_000) == [b"%d" % n for n in range(3_000)]
        async with AdminClient(broker.address) as admin:
            (found,) = await admin.ranges([TOPIC])
            (archive,) = (await admin.status()).archive
        assert (found.first, found.end) == (0, 3_000)
        assert archive.blocks_read >= 1
        assert archive.messages > 2_000
    async with start() as broker:
        assert await bodies(broker, "h", 3_000) == [b"%d" % n for n in range(3_000)]


@asynccontextmanager
async def away(url: str) -> AsyncIterator[None]:
    """Takes the database away: nobody may connect, and whoever was is cut off."""
    parsed = make_url(url)
    name = parsed.database
    server = parsed.set(database="postgres").render_as_string(hide_password=False)
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        yield
    finally:
        await connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        await connection.close()


async def rows(url: str) -> list[bytes]:
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(
            "SELECT body FROM archived_messages WHERE topic = $1 ORDER BY queue_offset", TOPIC
        )
    finally:
        await connection.close()
    return [row[0] for row in found]


async def status(broker: Broker) -> ArchiveDescription:
    async with AdminClient(broker.address) as admin:
        (archive,) = (await admin.status()).archive
    return archive


async def test_no_message_is_lost_while_the_database_is_away(
    start: Start, archive_url: str
) -> None:
    async with start() as broker:
        await send(broker, 0, 300)
        await archive_of(broker).archiver.caught_up()
        async with away(archive_url):
            await send(broker, 300, 300)
            archive = archive_of(broker)
            await until(lambda: bool(archive.describe().failure))
            assert (await status(broker)).waiting_bytes > 0
            assert await bodies(broker, "g", 600) == [b"%d" % n for n in range(600)]
        await archive.archiver.caught_up()
        await until(lambda: not archive.describe().failure)
        assert await rows(archive_url) == [b"%d" % n for n in range(600)]


async def test_a_broker_starts_without_its_database_and_skips_nothing(
    start: Start, archive_url: str
) -> None:
    async with start() as broker:
        await send(broker, 0, 3_000)
        await until(lambda: held(broker) > 2_000)
    gone = away(archive_url)
    await gone.__aenter__()
    async with start() as broker:
        try:
            async with AdminClient(broker.address) as admin:
                (found,) = await admin.ranges([TOPIC])
            assert found.first == 0
            reading = asyncio.create_task(bodies(broker, "g", 3_000))
            await until(lambda: bool(archive_of(broker)._past.blocks._jobs))
        finally:
            await gone.__aexit__(None, None, None)
        assert await reading == [b"%d" % n for n in range(3_000)]


async def test_messages_are_refused_above_the_bound_and_taken_again_by_themselves(
    start: Start, archive_url: str
) -> None:
    async with start(backlog_bytes_max=20_000, alarm_bytes=1_000) as broker:
        await send(broker, 0, 1)
        await archive_of(broker).archiver.caught_up()
        settings = ProducerSettings(send_timeout_ms=WAIT_S_MAX * 1_000)
        async with Producer(broker.address, settings=settings) as producer:
            async with away(archive_url):
                await producer.send(Message(topic=TOPIC, body=bytes(30_000), key="k1"))
                waiting = asyncio.create_task(
                    producer.send(Message(topic=TOPIC, body=b"late", key="k1"))
                )
                async with AdminClient(broker.address) as admin:
                    await until(lambda: bool(archive_of(broker).refusal))
                    assert "wait for the archive" in (await admin.status()).refuses
                    archive_of(broker).look()
                    assert "wait for the archive" in (await status(broker)).alarm
                assert not waiting.done()
            assert (await waiting).offset == 2


async def test_rows_deleted_by_hand_are_passed_over(start: Start, archive_url: str) -> None:
    async with start() as broker:
        await send(broker, 0, 3_000)
        await until(lambda: held(broker) > 2_000)
    connection = await asyncpg.connect(archive_url)
    await connection.execute("DELETE FROM archived_records WHERE queue_offset < 500")
    await connection.close()
    async with start() as broker:
        async with AdminClient(broker.address) as admin:
            (found,) = await admin.ranges([TOPIC])
        assert found.first == 500
        assert await bodies(broker, "g", 2_500) == [b"%d" % n for n in range(500, 3_000)]


async def test_a_broker_without_its_archive_does_not_start(start: Start) -> None:
    async with start() as broker:
        await send(broker, 0, 1)
    with pytest.raises(MessageQueueError, match="name it with --archive"):
        async with start(url=None):
            pass


async def test_a_broker_does_not_start_on_tables_that_are_not_there(
    start: Start, postgres_url: str
) -> None:
    with pytest.raises(ArchiveMismatch, match="headrace archive upgrade"):
        async with start(url=postgres_url):
            pass
