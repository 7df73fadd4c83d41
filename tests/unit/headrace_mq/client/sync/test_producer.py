import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from headrace_mq.client.sync.producer import BlockingProducer
from headrace_mq.errors import Closed, ConnectionLost
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import decode_records
from headrace_mq.settings import ProducerSettings

QUEUE = QueueRef("t", 0)
T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """Runs blocking work beside the broker, which lives on this loop."""
    return await asyncio.to_thread(work)


def message(body: bytes) -> Message:
    return Message(topic="t", body=body, key="k")


@pytest.fixture
async def producer(broker: Any) -> AsyncIterator[BlockingProducer]:
    broker.topics["t"] = 1
    producer = await aside(lambda: BlockingProducer(broker.address))
    yield producer
    await aside(producer.close)


def stored(broker: Any) -> list[bytes]:
    return [record.body for batch in broker.batches[QUEUE] for record in decode_records(batch)]


async def test_messages_are_sent_in_every_way(broker: Any, producer: BlockingProducer) -> None:
    def work() -> list[Any]:
        one = producer.send(message(b"a"))
        many = producer.send_many([message(b"b"), message(b"c")])
        soon = [producer.send_soon(message(body)) for body in (b"d", b"e")]
        return [one, many, [future.result() for future in soon]]

    assert await aside(work) == [
        SendResult(QUEUE, 0),
        [SendResult(QUEUE, 1), SendResult(QUEUE, 2)],
        [SendResult(QUEUE, 3), SendResult(QUEUE, 4)],
    ]
    assert stored(broker) == [b"a", b"b", b"c", b"d", b"e"]


async def test_a_message_without_acknowledgement_is_sent(
    broker: Any, producer: BlockingProducer, until: Any
) -> None:
    assert await aside(lambda: producer.send_oneway(message(b"a")))
    await until(lambda: stored(broker) == [b"a"])


async def test_many_threads_share_one_producer_and_each_keeps_its_order(
    broker: Any, producer: BlockingProducer
) -> None:
    def work(name: bytes) -> None:
        for number in range(20):
            producer.send(message(b"%s%d" % (name, number)))

    threads = [threading.Thread(target=work, args=(name,)) for name in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        await aside(thread.join)
    for name in (b"a", b"b", b"c"):
        mine = [body for body in stored(broker) if body.startswith(name)]
        assert mine == [b"%s%d" % (name, number) for number in range(20)]


async def test_a_topic_is_created(broker: Any, producer: BlockingProducer) -> None:
    await aside(lambda: producer.create_topic("new", 3))
    assert broker.topics["new"] == 3


async def test_a_message_that_cannot_be_sent_raises_where_it_is_sent(
    producer: BlockingProducer,
) -> None:
    bad = Message(topic="no such name", body=b"")
    with pytest.raises(ValueError, match="use letters"):
        await aside(lambda: producer.send(bad))
    with pytest.raises(ValueError, match="use letters"):
        await aside(lambda: producer.send_soon(bad).result())


async def test_closing_sends_what_was_handed_over_and_can_be_repeated(broker: Any) -> None:
    broker.topics["t"] = 1

    def work() -> SendResult:
        with BlockingProducer(broker.address) as producer:
            future = producer.send_soon(message(b"a"))
            producer.send(message(b"b"))
            producer.close()
        with pytest.raises(Closed):
            producer.send(message(b"c"))
        with pytest.raises(Closed):
            producer.send_soon(message(b"c"))
        return future.result()

    assert await aside(work) == SendResult(QUEUE, 0)
    assert threading.active_count() == 1 or not any(
        thread.name == "headrace-producer" for thread in threading.enumerate()
    )


async def test_without_a_broker_it_says_what_to_check_and_leaves_no_thread(broker: Any) -> None:
    await broker.stop()
    settings = ProducerSettings(send_timeout_ms=50)
    with pytest.raises(ConnectionLost, match="check that it is running"):
        await aside(lambda: BlockingProducer(broker.address, settings))
    assert not any(thread.name == "headrace-producer" for thread in threading.enumerate())
