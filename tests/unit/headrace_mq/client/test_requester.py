import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.requester import Requester, address_of, answering, reply_to
from headrace_mq.errors import Closed, RequestTimeout
from headrace_mq.message import Message, Record
from headrace_mq.settings import BrokerSettings, StoreSettings

LONG_MS = 20_000


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
        await producer.create_topic("sums", 2)
        yield producer


@pytest.fixture
async def consumer(broker: Broker) -> AsyncIterator[Consumer]:
    async with Consumer(broker.address, group="adders", topics=["sums"]) as consumer:
        yield consumer


def question(body: bytes, **headers: str) -> Message:
    return Message(topic="sums", key=body.decode(), body=body, headers=headers)


async def doubled(record: Record) -> bytes:
    return b"%d" % (2 * int(record.body))


async def test_many_requests_in_flight_each_get_their_own_reply(
    producer: Producer, consumer: Consumer
) -> None:
    requester = Requester(producer)
    working = asyncio.create_task(consumer.run(answering(producer, doubled)))
    asked = [requester.request(question(b"%d" % n), LONG_MS) for n in range(500)]
    assert await asyncio.gather(*asked) == [b"%d" % (2 * n) for n in range(500)]
    assert len(requester) == 0
    await consumer.aclose()
    await working


async def test_a_request_keeps_its_own_headers_and_names_its_reply_address(
    producer: Producer, consumer: Consumer
) -> None:
    requester = Requester(producer)
    asked = asyncio.create_task(requester.request(question(b"1", a="b"), LONG_MS))
    (record,) = await consumer.poll()
    address = address_of(record)
    assert address is not None
    assert (record.headers["a"], address.client_id) == ("b", producer.client_id)
    assert await reply_to(producer, record, b"one")
    assert await asked == b"one"


async def test_without_a_reply_in_time_it_says_so_and_a_late_or_second_reply_is_dropped(
    producer: Producer, consumer: Consumer
) -> None:
    requester = Requester(producer)
    with pytest.raises(RequestTimeout, match="no reply from topic 'sums' within 1 ms"):
        await requester.request(question(b"1"), 1)
    asked = asyncio.create_task(requester.request(question(b"2"), LONG_MS))
    records: list[Record] = []
    while not any(record.body == b"2" for record in records):
        records += await consumer.poll()
    for record in records:
        for _ in range(2):
            assert await reply_to(producer, record, b"for " + record.body)
    assert await asked == b"for 2"
    assert len(requester) == 0


async def test_replies_to_another_requester_of_the_same_producer_are_not_mixed_up(
    producer: Producer, consumer: Consumer
) -> None:
    first = asyncio.create_task(Requester(producer).request(question(b"1"), LONG_MS))
    (record,) = await consumer.poll()
    second = asyncio.create_task(Requester(producer).request(question(b"2"), LONG_MS))
    (other,) = await consumer.poll()
    assert await reply_to(producer, record, b"one")
    assert await reply_to(producer, other, b"two")
    assert await second == b"two"
    assert not first.done()
    first.cancel()


async def test_more_requests_than_places_wait_for_one_within_their_time(
    producer: Producer, consumer: Consumer
) -> None:
    requester = Requester(producer, in_flight_max=1)
    first = asyncio.create_task(requester.request(question(b"1"), LONG_MS))
    (record,) = await consumer.poll()
    with pytest.raises(RequestTimeout):
        await requester.request(question(b"2"), 1)
    third = asyncio.create_task(requester.request(question(b"3"), LONG_MS))
    assert await reply_to(producer, record, b"one")
    assert await first == b"one"
    (record,) = await consumer.poll()
    assert record.body == b"3"
    assert await reply_to(producer, record, b"three")
    assert await third == b"three"


async def test_closing_ends_the_waiting_requests(producer: Producer, consumer: Consumer) -> None:
    requester = Requester(producer)
    asked = asyncio.create_task(requester.request(question(b"1"), LONG_MS))
    (record,) = await consumer.poll()
    requester.close()
    with pytest.raises(Closed):
        await asked
    with pytest.raises(Closed):
        await requester.request(question(b"2"), LONG_MS)
    assert await reply_to(producer, record, b"one")


async def test_a_cancelled_request_leaves_nothing_behind(
    producer: Producer, consumer: Consumer
) -> None:
    requester = Requester(producer)
    asked = asyncio.create_task(requester.request(question(b"1"), LONG_MS))
    await consumer.poll()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert len(requester) == 0


async def test_a_requester_that_is_gone_costs_its_responder_nothing(
    broker: Broker, producer: Producer, consumer: Consumer
) -> None:
    async with Producer(broker.address) as other:
        asked = asyncio.create_task(Requester(other).request(question(b"1"), LONG_MS))
        (record,) = await consumer.poll()
        asked.cancel()
    assert not await reply_to(producer, record, b"one")


async def test_a_record_that_asks_for_nothing_is_handled_and_cannot_be_replied_to(
    producer: Producer, consumer: Consumer
) -> None:
    handled: list[bytes] = []

    async def handle(record: Record) -> bytes:
        handled.append(record.body)
        return b""

    await producer.send(question(b"1"))
    (record,) = await consumer.poll()
    await answering(producer, handle)(record)
    assert handled == [b"1"]
    with pytest.raises(ValueError, match="asks for no reply"):
        await reply_to(producer, record, b"")
