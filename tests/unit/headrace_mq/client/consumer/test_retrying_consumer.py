import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.retrying_consumer import RetryingConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retry_headers import origin_of, retry_topic
from headrace_mq.errors import ConnectionLost
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import BrokerSettings, ConsumerSettings, RetrySettings, StoreSettings


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def boot_id(self) -> str:
        return "boot"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0), clock=clock)
    await broker.start()
    yield broker
    await broker.aclose()


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[Producer]:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", 1)
        yield producer


async def pending(broker: Broker, count: int) -> None:
    while broker._state.scheduler.describe().pending != count:
        await asyncio.sleep(0)


def move(broker: Broker, clock: FakeClock, ms: int) -> None:
    clock.now += ms
    broker._state.scheduler.look()


async def test_a_failed_record_comes_again_after_its_level_as_it_was_and_others_go_on(
    broker: Broker, producer: Producer, clock: FakeClock
) -> None:
    seen: asyncio.Queue[Record] = asyncio.Queue()

    async def handle(record: Record) -> None:
        seen.put_nowait(record)
        if record.body == b"bad" and origin_of(record) is None:
            raise ValueError("not yet")

    await producer.send_many([Message(topic="t", key="k", body=b) for b in (b"bad", b"good")])
    async with RetryingConsumer(broker.address, group="g", topics=["t"]) as consumer:
        assert QueueRef(retry_topic("g"), 0) in consumer.assignment
        work = asyncio.create_task(consumer.run(handle))
        first, other = await seen.get(), await seen.get()
        assert (first.body, other.body) == (b"bad", b"good")
        await pending(broker, 1)
        move(broker, clock, 9_999)
        assert broker._state.scheduler.describe().pending == 1
        move(broker, clock, 1)
        again = await seen.get()
    await work
    assert (again.queue, again.offset, again.key) == (first.queue, first.offset, "k")
    origin = origin_of(again)
    assert origin is not None
    assert (origin.attempt, origin.reason) == (1, "ValueError: not yet")
    assert broker._state.offsets.get("g", QueueRef("t", 0)) == 2
    assert broker._state.offsets.get("g", QueueRef(retry_topic("g"), 0)) == 1


async def test_a_record_is_a_dead_letter_after_the_last_retry_and_resending_counts_from_one(
    broker: Broker, producer: Producer, clock: FakeClock
) -> None:
    attempts: asyncio.Queue[int] = asyncio.Queue()
    mended = asyncio.Event()

    async def handle(record: Record) -> None:
        origin = origin_of(record)
        attempts.put_nowait(origin.attempt if origin else 0)
        if not mended.is_set():
            raise ValueError("broken")

    await producer.send(Message(topic="t", body=b"x", headers={"a": "b"}))
    retry = RetrySettings(retries_max=2, levels=("1s",))
    async with (
        AdminClient(broker.address) as admin,
        RetryingConsumer(broker.address, group="g", topics=["t"], retry=retry) as consumer,
    ):
        work = asyncio.create_task(consumer.run(handle))
        for number in range(2):
            assert await attempts.get() == number
            await pending(broker, 1)
            move(broker, clock, 1_000)
        assert await attempts.get() == 2
        while not (letters := await admin.dead_letters("g")):
            await asyncio.sleep(0)
        assert letters[0].origin is not None
        assert letters[0].origin.attempt == 3
        mended.set()
        (resent,) = await admin.resend("g", [letters[0].id])
        assert not resent.error
        assert await attempts.get() == 0
        (kept,) = await admin.dead_letters("g")
        assert (kept.id, kept.record) == (letters[0].id, letters[0].record)
        assert kept.resent_at_ms is not None
    await work


async def test_a_group_that_begins_at_the_end_still_handles_all_its_retries(
    broker: Broker, producer: Producer, clock: FakeClock
) -> None:
    settings = ConsumerSettings(start="latest")
    # A retry that was delivered before any member committed an offset of the retry topic.
    await producer.send(Message(topic=retry_topic("g"), body=b"again"))
    await producer.send(Message(topic="t", body=b"old"))
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(record: Record) -> None:
        seen.put_nowait(record.body)

    async with RetryingConsumer(
        broker.address, group="g", topics=["t"], settings=settings
    ) as consumer:
        work = asyncio.create_task(consumer.run(handle))
        assert await seen.get() == b"again"
        await producer.send(Message(topic="t", body=b"new"))
        assert await seen.get() == b"new"
    await work


async def test_records_of_a_failed_batch_are_retried_one_by_one(
    broker: Broker, producer: Producer, clock: FakeClock
) -> None:
    batches: asyncio.Queue[list[bytes]] = asyncio.Queue()

    async def handle(records: Sequence[Record]) -> None:
        batches.put_nowait([record.body for record in records])
        if all(origin_of(record) is None for record in records):
            raise ValueError("all of them")

    await producer.send_many([Message(topic="t", body=b"%d" % n) for n in range(3)])
    retry = RetrySettings(levels=("1s",))
    async with RetryingConsumer(broker.address, group="g", topics=["t"], retry=retry) as consumer:
        work = asyncio.create_task(consumer.run_batches(handle, records_max=3, wait_ms=60_000))
        assert await batches.get() == [b"0", b"1", b"2"]
        await pending(broker, 3)
        move(broker, clock, 1_000)
        again: list[bytes] = []
        while len(again) < 3:
            again += await batches.get()
    await work
    assert again == [b"0", b"1", b"2"]


async def test_without_a_broker_nothing_stays_open(tmp_path: Path) -> None:
    consumer: Any = RetryingConsumer("127.0.0.1:1", group="g", topics=["t"])
    consumer._producer._settings = consumer._producer._settings.__class__(send_timeout_ms=30)
    with pytest.raises(ConnectionLost):
        await consumer.start()
    with pytest.raises(ValueError, match="list of topics"):
        RetryingConsumer("127.0.0.1:1", group="g", topics="t")
