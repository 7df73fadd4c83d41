"""What a consumer whose settings ask for it tells of each message, against a broker."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.retrying_consumer import RetryingConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retries.retries import GiveUp, RetryAfter
from headrace_mq.client.trace.trace_events import TRACE_TOPIC, TraceStep
from headrace_mq.errors import TopicNotFound
from headrace_mq.message import Message, Record
from headrace_mq.message_id import message_id
from headrace_mq.settings import BrokerSettings, ConsumerSettings, StoreSettings

TRACED = ConsumerSettings(trace_share=1.0, heartbeat_ms=100, retry_ms_min=1, retry_ms_max=1)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(BrokerSettings(store=StoreSettings(directory=tmp_path), port=0))
    await broker.start()
    async with Producer(broker.address) as producer:
        await producer.create_topic("orders", 1)
        await producer.send_many([Message(topic="orders", body=b"%d" % n) for n in range(3)])
    yield broker
    await broker.aclose()


async def steps(broker: Broker, message_id: str) -> list[TraceStep]:
    async with AdminClient(broker.address) as admin:
        return await admin.steps(message_id)


async def handle_until(
    done: asyncio.Event, consumer: Consumer | RetryingConsumer, handle: Any
) -> None:
    """Runs a handler until it says that it has seen everything, and then to its end."""
    async with consumer:
        running = asyncio.create_task(consumer.run(handle))
        await done.wait()
    await running


def kinds(found: list[TraceStep]) -> list[str]:
    return [step.kind for step in found]


async def test_messages_that_are_polled_are_delivered_and_acknowledged(broker: Broker) -> None:
    async with Consumer(broker.address, group="g", topics=["orders"], settings=TRACED) as consumer:
        records: list[Record] = []
        while len(records) < 3:
            records += await consumer.poll()
        consumer.ack(records[0])
        consumer.ack_all(records[1:2])
    first, second, third = [await steps(broker, f"orders:0:{offset}") for offset in range(3)]
    assert kinds(first) == kinds(second) == ["delivered", "acknowledged"]
    assert kinds(third) == ["delivered"]
    assert {step.group for step in first} == {"g"}
    assert first[0].at_ms <= first[1].at_ms


async def test_columns_are_traced_like_records(broker: Broker) -> None:
    async with Consumer(broker.address, group="g", topics=["orders"], settings=TRACED) as consumer:
        taken = 0
        while taken < 3:
            for run in await consumer.poll_columns():
                taken += len(run)
                consumer.ack_columns(run)
    assert kinds(await steps(broker, "orders:0:2")) == ["delivered", "acknowledged"]


async def test_what_fails_in_place_is_begun_again(broker: Broker) -> None:
    done, seen = asyncio.Event(), 0
    first: list[str] = []

    async def handle(record: Record) -> None:
        nonlocal seen
        seen += 1
        first.append(str(message_id(record)))
        if seen == 1:
            raise ValueError("not yet")
        if seen == 4:
            done.set()

    consumer = Consumer(broker.address, group="g", topics=["orders"], settings=TRACED)
    await handle_until(done, consumer, handle)
    told = await steps(broker, first[0])
    assert sorted(kinds(told)) == sorted(["delivered", "begun", "failed", "begun", "acknowledged"])
    (failed,) = [step for step in told if step.kind == "failed"]
    assert failed.detail == "again in 1 ms: ValueError: not yet"
    assert [step.attempt for step in told if step.kind == "begun"] == [1, 2]


async def test_a_retried_message_keeps_its_trace_until_it_is_a_dead_letter(broker: Broker) -> None:
    done = asyncio.Event()

    async def handle(record: Record) -> None:
        if record.offset == 0 and record.headers:
            done.set()
            raise GiveUp("hopeless")
        if record.offset == 0:
            raise RetryAfter(1, "later")

    consumer = RetryingConsumer(broker.address, group="g", topics=["orders"], settings=TRACED)
    await handle_until(done, consumer, handle)
    told = await steps(broker, "orders:0:0")
    assert [(step.kind, step.attempt) for step in told if step.kind in {"retried", "dead letter"}] == [
        ("retried", 1), ("dead letter", 2),
    ]  # fmt: skip
    assert "hopeless" in told[-1].detail
    assert "acknowledged" not in kinds(told)


async def test_without_the_setting_nothing_is_told(broker: Broker) -> None:
    async with Consumer(broker.address, group="g", topics=["orders"]) as consumer:
        consumer.ack_all(await consumer.poll())
    async with AdminClient(broker.address) as admin:
        assert await admin.steps("orders:0:0") == []
        with pytest.raises(TopicNotFound):
            await admin.find(TRACE_TOPIC, "orders:0:0")
