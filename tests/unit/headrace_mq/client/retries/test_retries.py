import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.group.rules import CurrentGroupRules
from headrace_mq.client.handlers.failures import Again, Failure, Settled
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retries.retries import GiveUp, InPlaceRetryPolicy, RetryAfter, RetryPolicy
from headrace_mq.client.retry_headers import dead_letter_topic, origin_of, retry_topic
from headrace_mq.client_settings import DELAY_LEVELS
from headrace_mq.errors import MessageQueueError, SendTimeout
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import (
    BrokerSettings,
    ConsumerSettings,
    RetrySettings,
    StoreSettings,
)

DEAD, RETRY = dead_letter_topic("g"), retry_topic("g")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    yield broker
    await broker.aclose()


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[Producer]:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", 1)
        yield producer


@pytest.fixture
def read(broker: Broker) -> Callable[..., Awaitable[list[Record]]]:
    async def read(topic: str, count: int = 1) -> list[Record]:
        async with Consumer(broker.address, group="reader", topics=[topic]) as reader:
            found: list[Record] = []
            while len(found) < count:
                found += await reader.poll()
            return found

    return read


def failure(
    error: BaseException | None = None, *, attempt: int = 1, record: Record | None = None
) -> Failure:
    plain = Record(
        queue=QueueRef("t", 0), offset=3, key="k", tag="", headers={}, body=b"x",
        born_at_ms=1, stored_at_ms=2,
    )  # fmt: skip
    return Failure(record or plain, error or ValueError("no"), attempt)


async def test_delays_follow_rocketmqs_levels_from_ten_seconds_to_two_hours(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Message, int]] = []

    async def schedule(message: Message, *, delay_ms: int) -> None:
        asked.append((message, delay_ms))

    monkeypatch.setattr(producer, "schedule", schedule)
    policy = RetryPolicy(producer, "g")
    record = failure().record
    for number in range(16):
        assert isinstance(await policy.decide(failure(record=record)), Settled)
        message, delay_ms = asked[-1]
        assert (message.topic, delay_ms) == (RETRY, list(DELAY_LEVELS.values())[number + 2])
        record = Record(
            queue=QueueRef(RETRY, 0), offset=number, key="k", tag="", headers=message.headers,
            body=b"x", born_at_ms=3, stored_at_ms=4,
        )  # fmt: skip
    total_s = sum(delay_ms for _, delay_ms in asked) // 1_000
    assert total_s == 4 * 3_600 + 45 * 60 + 40
    verdict = await policy.decide(failure(record=record))
    assert verdict == Settled(f"{DEAD} at 0")
    assert len(asked) == 16


async def test_a_number_that_an_operator_said_counts_instead_of_the_members_own(
    producer: Producer,
) -> None:
    rules = CurrentGroupRules("g")
    policy = RetryPolicy(producer, "g", RetrySettings(retries_max=0, levels=("5s",)), rules)
    assert await policy.decide(failure()) == Settled(f"{DEAD} at 0")
    rules.retries = 1
    assert await policy.decide(failure()) == Settled(f"{RETRY} in 5000 ms")
    rules.retries = 0
    assert await policy.decide(failure()) == Settled(f"{DEAD} at 1")


async def test_fewer_levels_than_retries_repeat_the_last_one(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[int] = []

    async def schedule(message: Message, *, delay_ms: int) -> None:
        delays.append(delay_ms)
        monkeypatch.setattr(producer, "last", message, raising=False)

    monkeypatch.setattr(producer, "schedule", schedule)
    policy = RetryPolicy(producer, "g", RetrySettings(levels=("1s", "5s")))
    record = failure().record
    for number in range(3):
        await policy.decide(failure(record=record))
        headers = producer.last.headers  # type: ignore[attr-defined]  # set above
        record = Record(
            queue=QueueRef(RETRY, 0), offset=number, key="", tag="", headers=headers, body=b"x",
            born_at_ms=3, stored_at_ms=4,
        )  # fmt: skip
    assert delays == [1_000, 5_000, 5_000]


async def test_a_handler_chooses_its_own_delay_or_gives_up_at_once(
    producer: Producer, read: Any
) -> None:
    policy = RetryPolicy(producer, "g")
    assert await policy.decide(failure(RetryAfter(0, "busy"))) == Settled(f"{RETRY} in 0 ms")
    (again,) = await read(RETRY)
    origin = origin_of(again)
    assert origin is not None
    assert (origin.attempt, origin.reason) == (1, "RetryAfter: busy")
    assert await policy.decide(failure(GiveUp("never"))) == Settled(f"{DEAD} at 0")
    (letter,) = await read(DEAD)
    origin = origin_of(letter)
    assert origin is not None
    assert (origin.topic, origin.offset, origin.back_to) == ("t", 3, RETRY)
    assert origin.reason == "GiveUp: never"


async def test_dead_letters_are_kept_forever_unless_the_settings_say_otherwise(
    broker: Broker, producer: Producer
) -> None:
    await RetryPolicy(producer, "g").decide(failure(GiveUp()))
    settings = RetrySettings(dead_letters="transient", retries_max=0)
    await RetryPolicy(producer, "h", settings).decide(failure())
    kept = {topic.topic: topic.retention for topic in broker._state.topics.all()}
    assert (kept["%DLQ%g"], kept["%DLQ%h"]) == ("forever", "transient")


async def test_a_record_is_acknowledged_only_when_its_next_copy_is_durable(
    broker: Broker, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await producer.send(Message(topic="t", body=b"x"))
    schedule = producer.schedule
    between, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*given: Any, **named: Any) -> Any:
        done = await schedule(*given, **named)
        between.set()
        await go_on.wait()
        return done

    async def fails(_record: Record) -> None:
        raise ValueError("no")

    queue = QueueRef("t", 0)
    monkeypatch.setattr(producer, "schedule", slow)
    async with Consumer(broker.address, group="g", topics=["t"]) as consumer:
        work = asyncio.create_task(consumer.run(fails, on_failure=RetryPolicy(producer, "g")))
        await between.wait()
        # The copy is durable and nothing is acknowledged: the consumer dies here.
        await consumer.commit()
        assert broker._state.scheduler.describe().pending == 1
        work.cancel()
        await asyncio.wait([work])
    assert broker._state.offsets.get("g", queue) <= 0
    go_on.set()
    async with Consumer(broker.address, group="g", topics=["t"]) as consumer:
        work = asyncio.create_task(consumer.run(fails, on_failure=RetryPolicy(producer, "g")))
        while broker._state.offsets.get("g", queue) < 1:
            await consumer.commit()
            await asyncio.sleep(0)
    await work
    # Handled twice, as at least once allows; lost never.
    assert broker._state.scheduler.describe().pending == 2


async def test_a_retry_that_cannot_be_stored_leaves_the_record_unacknowledged(
    broker: Broker, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await producer.send(Message(topic="t", body=b"x"))
    refused = asyncio.Event()

    async def refuse(*_given: Any, **_named: Any) -> Any:
        refused.set()
        raise SendTimeout("no broker")

    async def fails(_record: Record) -> None:
        raise ValueError("no")

    monkeypatch.setattr(producer, "schedule", refuse)
    async with Consumer(broker.address, group="g", topics=["t"]) as consumer:
        work = asyncio.create_task(consumer.run(fails, on_failure=RetryPolicy(producer, "g")))
        await refused.wait()
        await consumer.commit()
    await work
    assert broker._state.offsets.get("g", QueueRef("t", 0)) <= 0


async def test_parking_holds_the_record_first_and_then_lets_its_key_go_on(
    producer: Producer, read: Any
) -> None:
    consumer = ConsumerSettings(retry_ms_min=10, retry_ms_max=15)
    policy = InPlaceRetryPolicy(producer, "g", consumer, RetrySettings(retries_max=2))
    assert await policy.decide(failure(attempt=1)) == Again(10)
    assert await policy.decide(failure(attempt=2)) == Again(15)
    assert await policy.decide(failure(attempt=3)) == Settled(f"{DEAD} at 0")
    assert await policy.decide(failure(GiveUp(), attempt=1)) == Settled(f"{DEAD} at 1")
    letter = (await read(DEAD, 2))[0]
    origin = origin_of(letter)
    assert origin is not None
    assert (origin.attempt, origin.back_to) == (3, "t")


def with_headers(count: int) -> Record:
    """Returns a record with as many headers as it takes for no copy to fit."""
    return replace(failure().record, headers={f"h{n}": "x" for n in range(count)})


@pytest.mark.parametrize("count", [61, 62, 63, 64])
async def test_a_record_that_cannot_be_copied_becomes_a_letter_that_says_where_it_stands(
    producer: Producer, read: Any, count: int
) -> None:
    policy = RetryPolicy(producer, "g", RetrySettings(retries_max=2))
    record = with_headers(count)
    verdicts = [await policy.decide(failure(record=record, attempt=n)) for n in (1, 2)]
    assert await policy.decide(failure(GiveUp("enough"), record=record, attempt=3)) == Settled(
        f"{DEAD} at 0"
    )
    (letter,) = await read(DEAD)
    origin = origin_of(letter)
    assert origin is not None
    assert (origin.topic, origin.queue_id, origin.offset, letter.key) == ("t", 0, 3, "k")
    fits = origin.apart is False
    assert fits is (count < 64)
    # A scheduled message has headers of its own: what fits as a letter may not fit there.
    assert all(isinstance(one, Settled if count == 61 else Again) for one in verdicts)
    assert (letter.headers.keys() >= record.headers.keys()) is fits


async def test_a_record_that_cannot_be_copied_is_tried_in_place_and_given_up_after_as_many_attempts(
    producer: Producer, read: Any
) -> None:
    policy = RetryPolicy(producer, "g", RetrySettings(retries_max=2))
    record = with_headers(64)
    for attempt in (1, 2):
        assert isinstance(await policy.decide(failure(record=record, attempt=attempt)), Again)
    assert isinstance(await policy.decide(failure(record=record, attempt=3)), Settled)
    (letter,) = await read(DEAD)
    origin = origin_of(letter)
    assert origin is not None
    assert (origin.apart, origin.attempt) == (True, 3)


async def test_letters_that_are_kept_otherwise_hold_up_nothing(producer: Producer) -> None:
    await producer.create_topic(DEAD, 1, "transient")
    policy = RetryPolicy(producer, "g", RetrySettings(retries_max=0, dead_letters="forever"))
    assert await policy.decide(failure()) == Settled(f"{DEAD} at 0")


async def test_a_message_sent_by_mistake_makes_no_topic_of_dead_letters(
    producer: Producer,
) -> None:
    with pytest.raises(MessageQueueError, match=DEAD):
        await producer.send(Message(topic=DEAD, body=b"stray"))
