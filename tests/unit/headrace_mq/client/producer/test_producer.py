import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace_mq.client.producer import producer as producer_module
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.producer.scheduled import Scheduled
from headrace_mq.errors import (
    Closed,
    ConnectionLost,
    InvalidArgument,
    ReplyUndeliverable,
    SendTimeout,
    StoreFull,
    TopicExists,
    TopicNotFound,
)
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import decode_records, split_batches
from headrace_mq.protocol.bodies import CreateTopic, Hello, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.scheduled import SCHEDULE_QUEUE
from headrace_mq.settings import ProducerSettings, TransactionSettings

PRODUCE, DESCRIBE = RequestCode.PRODUCE, RequestCode.DESCRIBE_TOPICS
Until = Callable[[Callable[[], object]], Any]


def message(body: bytes = b"x", key: str = "", topic: str = "t") -> Message:
    return Message(topic=topic, body=body, key=key)


def stored(broker: Any, queue: QueueRef) -> list[bytes]:
    return [record.body for batch in broker.batches[queue] for record in decode_records(batch)]


def contents(request: Any) -> list[bytes]:
    return [r.body for batch in split_batches(request.body) for r in decode_records(batch)]


@pytest.fixture
async def producer(broker: Any) -> AsyncIterator[Producer]:
    settings = ProducerSettings(reconnect_ms_min=1, reconnect_ms_max=5)
    async with Producer(broker.address, settings) as producer:
        yield producer


async def test_a_message_is_acknowledged_with_its_place(broker: Any, producer: Producer) -> None:
    broker.topics["t"] = 1
    queue = QueueRef("t", 0)
    assert await producer.send(message(b"a")) == SendResult(queue, 0)
    assert await producer.send(message(b"b")) == SendResult(queue, 1)
    assert stored(broker, queue) == [b"a", b"b"]


async def test_concurrent_sends_go_together(broker: Any, producer: Producer) -> None:
    broker.topics["t"] = 1
    await producer.send(message())
    before = broker.count(PRODUCE)
    results = await asyncio.gather(*(producer.send(message(b"%d" % n)) for n in range(100)))
    assert [result.offset for result in results] == list(range(1, 101))
    assert broker.count(PRODUCE) == before + 1


async def test_sends_keep_their_order_while_the_route_is_unknown_and_the_buffer_full(
    broker: Any,
) -> None:
    broker.topics["t"] = 1
    broker.held = {DESCRIBE}
    settings = ProducerSettings(buffer_bytes_max=200, batch_messages_max=2)
    async with Producer(broker.address, settings) as producer:
        sends = [asyncio.create_task(producer.send(message(b"%d" % n))) for n in range(10)]
        broker.serve(await broker.next(DESCRIBE))
        await asyncio.wait(sends[:1])
        sends += [asyncio.create_task(producer.send(message(b"%d" % n))) for n in range(10, 20)]
        results = await asyncio.gather(*sends)
    assert [result.offset for result in results] == list(range(20))
    assert stored(broker, QueueRef("t", 0)) == [b"%d" % n for n in range(20)]


async def test_a_send_takes_its_place_before_its_first_suspension(
    broker: Any, producer: Producer
) -> None:
    broker.topics["t"] = 1
    await producer.send(message())
    first, second = producer.send(message(b"a")), producer.send(message(b"b"))
    # Started in this order, finished in the other.
    tasks = [asyncio.create_task(first), asyncio.create_task(second)]
    await asyncio.gather(*reversed(tasks))
    assert stored(broker, QueueRef("t", 0))[1:] == [b"a", b"b"]


async def test_messages_of_one_key_stay_in_one_queue(broker: Any, producer: Producer) -> None:
    broker.topics["t"] = 4
    results = await producer.send_many([message(key=f"k{n % 10}") for n in range(100)])
    assert len({(n % 10, result.queue) for n, result in enumerate(results)}) == 10


async def test_a_selector_chooses_the_queue(broker: Any) -> None:
    broker.topics["t"] = 4
    async with Producer(broker.address, selector=lambda message, queues: 2) as producer:
        assert (await producer.send(message(key="any"))).queue == QueueRef("t", 2)


async def test_send_many_returns_the_places_in_the_given_order(
    broker: Any, producer: Producer
) -> None:
    broker.topics |= {"t": 1, "u": 1}
    messages = [message(b"%d" % n, topic="tu"[n % 2]) for n in range(6)]
    results = await producer.send_many(messages)
    assert [(r.queue.topic, r.offset) for r in results] == [
        ("t", 0), ("u", 0), ("t", 1), ("u", 1), ("t", 2), ("u", 2),
    ]  # fmt: skip
    assert await producer.send_many([]) == []


async def test_send_many_sends_what_a_generator_makes(
    producer: Producer,
) -> None:
    results = await producer.send_many(message(key=f"k{n}") for n in range(20))
    assert len(results) == 20


async def test_send_many_sends_nothing_when_one_message_cannot_be_sent(
    broker: Any, producer: Producer
) -> None:
    with pytest.raises(ValueError, match="topic"):
        await producer.send_many([message(), message(topic="no good")])
    assert broker.count(PRODUCE) == 0


async def test_send_many_raises_the_first_failure(broker: Any, producer: Producer) -> None:
    broker.creates_topics = False
    broker.topics["known"] = 1
    with pytest.raises(TopicNotFound, match="'missing' does not exist"):
        await producer.send_many([message(topic="known"), message(topic="missing")])


async def test_cancelling_send_many_in_the_line_takes_its_messages_along(
    broker: Any, producer: Producer
) -> None:
    broker.held = {DESCRIBE}
    many = asyncio.create_task(producer.send_many([message(b"many")] * 3))
    request = await broker.next(DESCRIBE)
    many.cancel()
    await asyncio.wait([many])
    one = asyncio.create_task(producer.send(message(b"one")))
    broker.serve(request)
    queue = (await one).queue
    assert many.cancelled()
    assert stored(broker, queue) == [b"one"]


async def test_cancelling_one_send_leaves_the_others_of_its_batch_alone(
    broker: Any, producer: Producer
) -> None:
    broker.topics["t"] = 1
    await producer.send(message())
    broker.held = {PRODUCE}
    sends = [asyncio.create_task(producer.send(message(b"%d" % n))) for n in range(5)]
    request = await broker.next(PRODUCE)
    for send in (sends[1], sends[3]):
        send.cancel()
    await asyncio.wait([sends[1], sends[3]])
    late = asyncio.create_task(producer.send(message(b"late")))
    await asyncio.sleep(0)
    assert not sends[0].done()
    broker.held = set()
    broker.serve(request)
    kept = [await sends[n] for n in (0, 2, 4)]
    assert [result.offset for result in kept] == [1, 3, 5]
    assert sends[1].cancelled()
    assert sends[3].cancelled()
    assert (await late).offset == 6


async def test_a_timeout_around_a_send_ends_that_send_alone(
    broker: Any, producer: Producer
) -> None:
    broker.topics["t"] = 1
    await producer.send(message())
    broker.held = {PRODUCE}

    async def impatient() -> SendResult:
        async with asyncio.timeout(0.01):
            return await producer.send(message(b"a"))

    patient = asyncio.create_task(producer.send(message(b"b")))
    with pytest.raises(TimeoutError):
        await impatient()
    broker.serve(await broker.next(PRODUCE))
    assert (await patient).offset in {1, 2}


async def test_a_send_during_the_cancellation_of_its_task_still_waits_for_its_batch(
    broker: Any, producer: Producer
) -> None:
    broker.topics["t"] = 1
    await producer.send(message())
    broker.held = {PRODUCE}
    results: list[SendResult] = []

    async def says_goodbye() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            results.append(await producer.send(message(b"bye")))

    task = asyncio.create_task(says_goodbye())
    await asyncio.sleep(0)
    task.cancel()
    other = asyncio.create_task(producer.send(message(b"other")))
    request = await broker.next(PRODUCE)
    other.cancel()
    await asyncio.wait([other])
    broker.serve(request)
    await asyncio.wait([task])
    assert [result.offset for result in results] == [1]


async def test_an_unknown_topic_is_created_when_the_broker_does_that(
    broker: Any, producer: Producer
) -> None:
    await producer.send(message(topic="new"))
    assert "new" in broker.topics


async def test_an_unknown_topic_is_an_error_when_the_broker_creates_none(
    broker: Any, producer: Producer
) -> None:
    broker.creates_topics = False
    with pytest.raises(TopicNotFound, match=r"'t' does not exist .* create it first"):
        await producer.send(message())
    broker.topics["t"] = 1
    assert (await producer.send(message())).offset == 0


async def test_a_message_sent_while_the_broker_is_away_is_stored_when_it_comes_back(
    broker: Any, producer: Producer
) -> None:
    broker.topics["t"] = 1
    await producer.send(message(b"a"))
    await broker.stop()
    send = asyncio.create_task(producer.send(message(b"b")))
    await asyncio.sleep(0)
    await broker.start()
    assert (await send).offset == 1


async def test_without_a_broker_a_send_times_out(broker: Any, clock: Any) -> None:
    settings = ProducerSettings(reconnect_ms_min=1, reconnect_ms_max=5)
    async with Producer(broker.address, settings, clock=clock) as producer:
        await broker.stop()
        send = asyncio.create_task(producer.send(message()))
        await asyncio.sleep(0)
        clock.time_ms += settings.send_timeout_ms
        with pytest.raises(SendTimeout, match="not sent within 30000 ms"):
            await send


async def test_a_message_that_was_refused_until_its_time_was_up_is_not_stored(
    broker: Any, clock: Any, until: Any
) -> None:
    broker.topics["t"] = 1
    broker.held = {PRODUCE}
    # No second attempt in this test.
    settings = ProducerSettings(reconnect_ms_min=60_000, reconnect_ms_max=60_000)
    async with Producer(broker.address, settings, clock=clock) as producer:
        send = asyncio.create_task(producer.send(message()))
        (await broker.next(PRODUCE)).refuse(StoreFull("the disk is full"))
        assert producer._open is not None
        senders = producer._open._senders
        await until(lambda: any(sender.paused for sender in senders.values()))
        clock.time_ms += settings.send_timeout_ms
        with pytest.raises(SendTimeout, match=r"not stored: .* last because the disk is full"):
            await send


async def test_a_route_that_could_not_be_asked_for_in_time_is_asked_for_again(
    broker: Any, clock: Any
) -> None:
    broker.topics["t"] = 1
    broker.held = {DESCRIBE}
    async with Producer(broker.address, clock=clock) as producer:
        # Of the question alone: messages have the time that they had at the start.
        producer._settings = ProducerSettings(send_timeout_ms=20)
        early = asyncio.create_task(producer.send(message(b"early")))
        await broker.next(DESCRIBE)
        clock.time_ms += ProducerSettings().send_timeout_ms
        late = asyncio.create_task(producer.send(message(b"late")))
        with pytest.raises(SendTimeout, match="not sent within 30000 ms"):
            await early
        await broker.next(DESCRIBE)
        broker.held = set()
        assert (await late).offset == 0


async def test_closing_sends_what_was_handed_over(broker: Any) -> None:
    broker.topics["t"] = 1
    producer = Producer(broker.address)
    await producer.start()
    sends = [asyncio.create_task(producer.send(message(b"%d" % n))) for n in range(50)]
    await asyncio.sleep(0)
    await producer.aclose()
    assert [send.result().offset for send in sends] == list(range(50))
    with pytest.raises(Closed):
        producer.reply_soon("a", "b", b"")
    for use in (producer.send(message()), producer.send_many([]), producer.reply("a", "b", b"")):
        with pytest.raises(Closed):
            await use
    await producer.aclose()


async def test_closing_gives_up_after_the_send_timeout(broker: Any, clock: Any) -> None:
    broker.topics["t"] = 1
    producer = Producer(broker.address, clock=clock)
    await producer.start()
    broker.held = {PRODUCE}
    send = asyncio.create_task(producer.send(message()))
    await broker.next(PRODUCE)
    clock.time_ms += ProducerSettings().send_timeout_ms
    await producer.aclose()
    with pytest.raises(SendTimeout, match="unknown outcome"):
        await send


async def test_a_cancelled_close_still_closes(broker: Any) -> None:
    broker.topics["t"] = 1
    producer = Producer(broker.address)
    await producer.start()
    broker.held = {PRODUCE}
    send = asyncio.create_task(producer.send(message()))
    await broker.next(PRODUCE)
    closing = asyncio.create_task(producer.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    with pytest.raises(Closed):
        await send
    assert not producer._link.is_up


async def test_before_the_start_nothing_is_sent(broker: Any) -> None:
    with pytest.raises(Closed, match="start it first"):
        await Producer(broker.address).send(message())


async def test_starting_without_a_broker_says_what_to_check_and_can_be_tried_again(
    broker: Any,
) -> None:
    await broker.stop()
    settings = ProducerSettings(send_timeout_ms=30, reconnect_ms_min=1, reconnect_ms_max=5)
    producer = Producer(broker.address, settings)
    with pytest.raises(ConnectionLost, match=f"no broker answers at {broker.address}"):
        await producer.start()
    await broker.start()
    producer._settings = ProducerSettings()
    await producer.start()
    await producer.aclose()


async def test_a_codec_that_is_not_installed_is_refused_at_the_start(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(ValueError, match=r"pip install 'headrace\[compression\]'"):
        await Producer(broker.address, ProducerSettings(codec="lz4")).start()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
async def test_a_codec_compresses_what_is_sent(broker: Any, codec: Any) -> None:
    broker.topics["t"] = 1
    async with Producer(broker.address, ProducerSettings(codec=codec)) as producer:
        await producer.send(message(b"x" * 10_000))
    (batch,) = broker.batches[QueueRef("t", 0)]
    assert len(batch) < 1_000
    assert stored(broker, QueueRef("t", 0)) == [b"x" * 10_000]


async def test_a_topic_is_created_with_its_settings(broker: Any, producer: Producer) -> None:
    await producer.create_topic("t", queues=7, retention="forever")
    (request,) = [r for r in broker.seen if r.code == RequestCode.CREATE_TOPIC]
    assert decode(CreateTopic, request.body) == CreateTopic("t", 7, "forever")


async def test_a_topic_with_other_settings_is_an_error(broker: Any, producer: Producer) -> None:
    broker.held = {RequestCode.CREATE_TOPIC}
    creating = asyncio.create_task(producer.create_topic("t"))
    (await broker.next(RequestCode.CREATE_TOPIC)).refuse(TopicExists("has another retention"))
    with pytest.raises(TopicExists, match="another retention"):
        await creating


async def test_replies_reach_the_producer_they_are_addressed_to(
    broker: Any, producer: Producer
) -> None:
    got: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    producer.on_reply(lambda correlation, body: got.put_nowait((correlation, body)))
    async with Producer(broker.address) as other:
        await other.reply(producer.client_id, "c1", b"result")
        assert await got.get() == ("c1", b"result")
        with pytest.raises(ReplyUndeliverable):
            await producer.reply("nobody", "c2", b"")
        # Nobody takes replies there.
        await producer.reply(other.client_id, "c3", b"")


async def test_a_reply_without_an_answer_arrives_and_a_lost_one_is_not_reported(
    broker: Any, producer: Producer
) -> None:
    got: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    producer.on_reply(lambda correlation, body: got.put_nowait((correlation, body)))
    async with Producer(broker.address) as other:
        assert other.reply_soon("nobody", "c0", b"")
        assert other.reply_soon(producer.client_id, "c1", b"result")
        assert await got.get() == ("c1", b"result")


async def test_a_reply_without_an_answer_is_not_taken_without_a_connection(
    broker: Any, producer: Producer, until: Until
) -> None:
    broker.drop()
    await until(lambda: not producer._link.is_up)
    assert not producer.reply_soon(producer.client_id, "c", b"")


async def test_the_address_for_replies_survives_a_reconnection(
    broker: Any, producer: Producer, until: Until
) -> None:
    got: asyncio.Queue[str] = asyncio.Queue()
    producer.on_reply(lambda correlation, body: got.put_nowait(correlation))
    broker.drop()
    await until(lambda: broker.count(RequestCode.HELLO) == 2)
    await producer.reply(producer.client_id, "again", b"")
    assert await got.get() == "again"
    hellos = [decode(Hello, r.body) for r in broker.seen if r.code == RequestCode.HELLO]
    assert {hello.client_id for hello in hellos} == {producer.client_id}


async def test_queues_that_were_added_are_used_after_a_refresh(
    broker: Any, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(producer_module, "ROUTE_REFRESH_MS", 5)
    broker.topics["t"] = 1
    async with Producer(broker.address) as producer:
        await producer.send(message())
        broker.topics["t"] = 3
        seen = broker.count(DESCRIBE)
        await until(lambda: broker.count(DESCRIBE) > seen + 1)
        results = await producer.send_many([message()] * 3)
        assert {result.queue.queue_id for result in results} == {0, 1, 2}
        # A failing refresh is tried again.
        broker.held = {DESCRIBE}
        (await broker.next(DESCRIBE)).refuse(InvalidArgument("no"))
        await broker.next(DESCRIBE)


async def test_the_journal_of_the_schedule_is_made_once_and_takes_what_is_scheduled(
    broker: Any, producer: Producer
) -> None:
    first = await producer.schedule(message(b"a", key="k"), delay_ms=10)
    second = await producer.schedule(message(b"b"), at_ms=77)
    assert (first.id, second) == (0, Scheduled(1, 77))
    assert broker.count(RequestCode.CREATE_TOPIC) == 1
    assert stored(broker, SCHEDULE_QUEUE) == [b"a", b"b"]


async def test_a_message_that_cannot_be_scheduled_is_refused_before_anything_is_sent(
    broker: Any, producer: Producer
) -> None:
    with pytest.raises(ValueError, match="say once"):
        await producer.schedule(message())
    with pytest.raises(ValueError, match="366 days"):
        await producer.schedule(message(), at_ms=1 << 52)
    assert broker.count(PRODUCE) == broker.count(RequestCode.CREATE_TOPIC) == 0


async def test_a_closed_producer_cancels_nothing(broker: Any) -> None:
    with pytest.raises(Closed):
        await Producer(broker.address).cancel(0)


def test_queues_that_are_added_are_used_within_the_seconds_that_are_promised() -> None:
    assert producer_module.ROUTE_REFRESH_MS <= 5_000
    assert TransactionSettings().route_refresh_ms <= 5_000
