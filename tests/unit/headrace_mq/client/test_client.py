"""The ways of sending, with producer, outbox, lanes and routes together."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer import producer as producer_module
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.producer.route import queue_for_key
from headrace_mq.errors import BufferFull, InvalidArgument, QueueFrozen, TopicNotFound
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.protocol.batch import decode_records
from headrace_mq.protocol.bodies import DescribeTopics, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings, ProducerSettings

PRODUCE, DESCRIBE = RequestCode.PRODUCE, RequestCode.DESCRIBE_TOPICS
Until = Callable[[Callable[[], object]], Any]


def message(body: bytes = b"x", key: str = "", topic: str = "t") -> Message:
    return Message(topic=topic, body=body, key=key)


def stored(broker: Any, queue: QueueRef) -> list[bytes]:
    return [record.body for batch in broker.batches[queue] for record in decode_records(batch)]


@pytest.fixture
async def producer(broker: Any) -> AsyncIterator[Producer]:
    settings = ProducerSettings(reconnect_ms_min=1, reconnect_ms_max=5)
    async with Producer(broker.address, settings) as producer:
        yield producer


async def test_columns_are_sent_like_messages(broker: Any, producer: Producer) -> None:
    await producer.send(Message(topic="t", body=b"so that the route is known", key="k"))
    bodies, keys = [b"a", b"b", b"c"], ["k", "l", "k"]
    tags, headers = ["x", "", ""], [{}, {}, {"h": "v"}]
    results = await producer.send_columns("t", bodies, keys=keys, tags=tags, headers=headers)
    again = await producer.send_many(
        [
            Message(topic="t", body=body, key=key, tag=tag, headers=header)
            for body, key, tag, header in zip(bodies, keys, tags, headers, strict=True)
        ]
    )
    assert [result.queue for result in results] == [result.queue for result in again]
    records = [
        record
        for held in broker.batches.values()
        for batch in held
        for record in decode_records(batch)
        if record.body in bodies
    ]
    assert sorted((r.body, r.key, r.tag, tuple(r.headers)) for r in records) == sorted(
        2 * [(b"a", "k", "x", ()), (b"b", "l", "", ()), (b"c", "k", "", ("h",))]
    )
    assert list(await producer.send_columns("t", [])) == []


async def test_columns_to_an_unknown_topic_wait_for_its_route(
    broker: Any, producer: Producer
) -> None:
    results = await producer.send_columns("new", [b"a", b"b"], keys=["k", "k"])
    assert [result.offset for result in results] == [0, 1]


async def test_columns_that_cannot_be_sent_are_refused_whole(
    broker: Any, producer: Producer
) -> None:
    await producer.send(Message(topic="t", body=b"so that the route is known"))
    for columns in ({"keys": ["k"]}, {"keys": ["k" * 2_000, "l"]}, {"tags": [1, 2]}):
        with pytest.raises((ValueError, TypeError)):
            await producer.send_columns("t", [b"a", b"b"], **columns)  # type: ignore[arg-type]  # wrong on purpose
    assert broker.count(RequestCode.PRODUCE) == 1


async def test_sending_soon_takes_places_at_once_and_tells_results_later(
    broker: Any, producer: Producer
) -> None:
    broker.topics["t"] = 1
    futures = [producer.send_soon(message(b"%d" % n)) for n in range(3)]
    assert [(await future).offset for future in futures] == [0, 1, 2]
    futures = [producer.send_soon(message(b"%d" % n)) for n in range(3, 6)]
    futures[1].cancel()
    assert (await futures[2]).offset == 5
    assert stored(broker, QueueRef("t", 0)) == [b"%d" % n for n in range(6)]


async def test_the_result_of_a_message_sent_soon_is_in_its_future(
    broker: Any, producer: Producer
) -> None:
    broker.creates_topics = False
    missing = producer.send_soon(message(topic="missing"))
    with pytest.raises(TopicNotFound):
        await missing
    with pytest.raises(ValueError, match="use letters"):
        producer.send_soon(message(topic="no such name"))


async def test_sending_soon_is_refused_when_the_buffer_is_full(broker: Any) -> None:
    broker.held = {DESCRIBE}
    async with Producer(broker.address, ProducerSettings(buffer_bytes_max=100)) as producer:
        first = producer.send_soon(message(bytes(100)))
        with pytest.raises(BufferFull, match="await some of them first"):
            producer.send_soon(message(b"a"))
        request = await broker.next(DESCRIBE)
        broker.held = set()
        broker.serve(request)
        await first
        assert (await producer.send_soon(message(b"b"))).offset >= 0


async def test_a_message_without_acknowledgement_reaches_the_broker(
    broker: Any, producer: Producer, until: Until
) -> None:
    broker.topics["t"] = 1
    assert await producer.send_oneway(message(b"a", key="k"))
    assert await producer.send_oneway(message(b"b", key="k"))
    await until(lambda: stored(broker, QueueRef("t", 0)) == [b"a", b"b"])
    with pytest.raises(ValueError, match="use letters"):
        await producer.send_oneway(message(topic="no such name"))
    broker.creates_topics = False
    with pytest.raises(TopicNotFound):
        await producer.send_oneway(message(topic="missing"))


async def test_closing_sends_what_wants_no_acknowledgement_too(broker: Any, until: Until) -> None:
    broker.topics["t"] = 1
    async with Producer(broker.address) as producer:
        await producer.send(message(b"a"))
        await producer.send_oneway(message(b"b"))
    await until(lambda: stored(broker, QueueRef("t", 0)) == [b"a", b"b"])


async def test_messages_leave_a_queue_that_is_frozen_for_writing(
    broker: Any, producer: Producer
) -> None:
    broker.topics["t"] = 2
    await producer.send_many([message(b"a"), message(b"b")])
    broker.frozen = {QueueRef("t", 0)}
    results = await producer.send_many([message(b"%d" % n) for n in range(4)])
    assert {result.queue for result in results} == {QueueRef("t", 1)}
    assert sorted(result.offset for result in results) == [1, 2, 3, 4]
    key = next(key for key in map(str, range(9)) if queue_for_key(key, 2) == 0)
    assert (await producer.send(message(b"x", key=key))).queue == QueueRef("t", 1)
    broker.frozen = {QueueRef("t", 0), QueueRef("t", 1)}
    with pytest.raises(QueueFrozen):
        await producer.send(message(b"x"))
    with pytest.raises(QueueFrozen):
        await producer.send(message(b"x", key=key))
    broker.frozen = set()
    await producer.send(message(b"x", key=key))


async def test_frozen_queues_that_the_broker_names_are_left_out_from_the_start(
    broker: Any, producer: Producer
) -> None:
    broker.topics["t"], broker.frozen = 3, {QueueRef("t", 1)}
    results = [await producer.send(message(b"%d" % n)) for n in range(4)]
    assert {result.queue.queue_id for result in results} == {0, 2}
    assert broker.count(PRODUCE) == 4


async def test_many_records_are_acknowledged_at_once_and_name_their_producer(
    broker: Any, producer: Producer
) -> None:
    broker.topics["t"] = 2
    await producer.send_many([message(b"%d" % n) for n in range(10)])
    settings = ConsumerSettings(commit_interval_ms=60_000, heartbeat_ms=2)
    async with Consumer(broker.address, group="g", topics=["t"], settings=settings) as consumer:
        records: list[Record] = []
        while len(records) < 10:
            records += await consumer.poll()
        consumer.ack_all(records[:-1])
        consumer.ack_all([])
        await consumer.commit()
        last = records[-1].queue.queue_id
        expected = {QueueRef("t", n): 5 - (n == last) for n in range(2)}
        assert {queue: broker.offsets["g", queue] for queue in expected} == expected
        assert len({record.producer_id for record in records}) == 1
        assert records[0].producer_id > 0


async def test_topics_that_are_named_together_are_asked_for_together(
    broker: Any, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "TOPICS_RESOLVED_MAX", 3)
    broker.held = {DESCRIBE}
    sends = [asyncio.create_task(producer.send(message(topic=f"t{n}"))) for n in (1, 2, 3, 4, 1)]
    asked = [await broker.next(DESCRIBE) for _ in range(2)]
    broker.held = set()
    for request in asked:
        broker.serve(request)
    await asyncio.gather(*sends)
    named = [decode(DescribeTopics, request.body).topics for request in asked]
    assert named == [["t1", "t2", "t3"], ["t4"]]
    assert set(broker.topics) == {"t1", "t2", "t3", "t4"}


async def test_a_topic_that_is_refused_keeps_none_of_those_that_were_named_with_it(
    broker: Any, producer: Producer
) -> None:
    broker.held = {DESCRIBE}
    sends = [asyncio.create_task(producer.send(message(topic=name))) for name in ("a", "b")]
    (await broker.next(DESCRIBE)).refuse(InvalidArgument("not these"))
    alone = [await broker.next(DESCRIBE) for _ in range(2)]
    alone[0].refuse(InvalidArgument("not this one"))
    broker.held = set()
    broker.serve(alone[1])
    with pytest.raises(InvalidArgument, match="not this one"):
        await sends[0]
    assert (await sends[1]).offset == 0
