"""Collected trace events: bounded, never in the way, and counted when lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.retrying_consumer import RetryingConsumer
from headrace_mq.client.handlers.failures import Again, Failure, Settled
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retries.retries import GiveUp, RetryAfter
from headrace_mq.client.trace import tracer as module
from headrace_mq.client.trace.trace_events import TRACE_TOPIC, TraceStep, decode_step
from headrace_mq.client.trace.tracer import Tracer, tracer_of
from headrace_mq.errors import ConnectionLost, TopicNotFound
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.message_id import message_id
from headrace_mq.settings import BrokerSettings, ConsumerSettings, StoreSettings

QUEUE = QueueRef("t", 0)


class Clock:
    def now_ms(self) -> int:
        return 1_000

    def monotonic_ms(self) -> int:
        return 0


class Sending:
    """A producer that keeps what it is given, or fails."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, TraceStep | None]] = []
        self.fails = False
        self.asked, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.may_go_on.set()

    async def start(self) -> None:
        pass

    async def create_topic(self, topic: str) -> None:
        pass

    async def aclose(self) -> None:
        pass

    async def send_columns(self, topic: str, bodies: list[bytes], *, keys: list[str]) -> None:
        self.asked.set()
        await self.may_go_on.wait()
        if self.fails:
            raise ConnectionLost("the broker is away")
        self.sent += zip(keys, map(decode_step, bodies), strict=True)


@pytest.fixture
def sending() -> Sending:
    return Sending()


@pytest.fixture
def tracer(sending: Sending) -> Tracer:
    producer: Any = sending
    return Tracer(producer, group="g", client_id="c", share=1.0, clock=Clock())


def record(offset: int) -> Record:
    return Record(
        queue=QUEUE,
        offset=offset,
        key="",
        tag="",
        headers={},
        body=b"",
        born_at_ms=0,
        stored_at_ms=0,
    )


def told(sending: Sending) -> list[tuple[str, str, int]]:
    return [(name, step.kind, step.attempt) for name, step in sending.sent if step is not None]


async def test_everything_told_is_sent_when_it_is_closed(tracer: Tracer, sending: Sending) -> None:
    await tracer.start()
    tracer.delivered(record(0))
    tracer.begun(record(0))
    tracer.acknowledged(QUEUE, 0)
    await tracer.aclose()
    assert told(sending) == [("t:0:0", "delivered", 1), ("t:0:0", "begun", 1), ("t:0:0", "acknowledged", 1)]  # fmt: skip


async def test_steps_on_their_way_when_the_tracer_is_closed_are_sent_once(
    tracer: Tracer, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INTERVAL_MS", 0)
    await tracer.start()
    sending.may_go_on.clear()
    tracer.delivered(record(0))
    await sending.asked.wait()
    tracer.acknowledged(QUEUE, 0)
    closing = asyncio.create_task(tracer.aclose())
    await asyncio.sleep(0)
    sending.may_go_on.set()
    await closing
    assert [kind for _, kind, _ in told(sending)] == ["delivered", "acknowledged"]


async def test_a_record_is_acknowledged_once_and_only_where_it_was_delivered(
    tracer: Tracer, sending: Sending
) -> None:
    await tracer.start()
    tracer.delivered(record(0))
    for offset in (0, 0, 5):
        tracer.acknowledged(QUEUE, offset)
    await tracer.aclose()
    assert [kind for _, kind, _ in told(sending)] == ["delivered", "acknowledged"]


async def test_failures_count_attempts_and_a_settled_record_is_not_acknowledged(
    tracer: Tracer, sending: Sending
) -> None:
    await tracer.start()
    tracer.delivered(record(0))
    for attempt, verdict in ((1, Again(10)), (2, Settled("%RETRY%g in 5 ms"))):
        tracer.begun(record(0))
        tracer.decided(Failure(record(0), ValueError("no"), attempt), verdict)
    tracer.acknowledged(QUEUE, 0)
    tracer.decided(Failure(record(9), ValueError("no"), 1), Again(1))
    await tracer.aclose()
    assert told(sending)[1:] == [
        ("t:0:0", "begun", 1), ("t:0:0", "failed", 1), ("t:0:0", "begun", 2), ("t:0:0", "retried", 2),
    ]  # fmt: skip


async def test_too_many_steps_are_lost_and_counted(
    tracer: Tracer, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEPS_MAX", 2)
    await tracer.start()
    for offset in range(5):
        tracer.delivered(record(offset))
    assert tracer.lost == 3
    await tracer.aclose()
    assert len(sending.sent) == 2


async def test_records_that_are_never_finished_do_not_pile_up(
    tracer: Tracer, sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNDER_WAY_MAX", 2)
    await tracer.start()
    for offset in range(3):
        tracer.delivered(record(offset))
    tracer.acknowledged(QUEUE, 0)
    tracer.acknowledged(QUEUE, 2)
    await tracer.aclose()
    assert [name for name, kind, _ in told(sending) if kind == "acknowledged"] == ["t:0:2"]


async def test_a_broker_that_is_away_costs_steps_and_nothing_else(
    tracer: Tracer, sending: Sending
) -> None:
    await tracer.start()
    sending.fails = True
    tracer.delivered(record(0))
    await tracer.aclose()
    assert (tracer.lost, sending.sent) == (1, [])


def test_a_consumer_has_no_tracer_unless_it_is_asked_for() -> None:
    def made(share: float) -> Tracer | None:
        settings = ConsumerSettings(trace_share=share)
        return tracer_of("127.0.0.1:1", settings, group="g", client_id="c", clock=Clock())

    assert made(0.0) is None
    assert made(0.5) is not None


def test_a_share_is_between_nothing_and_everything() -> None:
    with pytest.raises(ValueError, match="trace_share must be 0 to 1"):
        ConsumerSettings(trace_share=1.5)


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


async def test_a_record_that_fails_in_place_is_begun_again(broker: Broker) -> None:
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


async def test_a_consumer_without_the_setting_writes_no_trace(broker: Broker) -> None:
    async with Consumer(broker.address, group="g", topics=["orders"]) as consumer:
        consumer.ack_all(await consumer.poll())
    async with AdminClient(broker.address) as admin:
        assert await admin.steps("orders:0:0") == []
        with pytest.raises(TopicNotFound):
            await admin.find(TRACE_TOPIC, "orders:0:0")
