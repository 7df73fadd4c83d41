"""Finding single messages with a client: by key, by time, by id."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.lookup import FIND_LIMIT_MAX
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.trace.trace_events import TRACE_TOPIC, Kind, TraceStep, encode_step
from headrace_mq.errors import InvalidArgument, QueueNotFound, RequestTimeout, TopicNotFound
from headrace_mq.message import Message, SendResult
from headrace_mq.message_id import message_id
from headrace_mq.settings import BrokerSettings, StoreSettings

COUNT = 60


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(BrokerSettings(store=StoreSettings(directory=tmp_path), port=0))
    await broker.start()
    yield broker
    await broker.aclose()


@pytest.fixture
async def sent(broker: Broker) -> list[SendResult]:
    messages = [Message(topic="orders", body=b"%d" % n, key=f"k{n % 3}") for n in range(COUNT)]
    async with Producer(broker.address) as producer:
        return await producer.send_many(messages)


async def test_messages_are_found_by_key_in_stored_order(
    broker: Broker, sent: list[SendResult]
) -> None:
    async with AdminClient(broker.address) as admin:
        found = await admin.find("orders", "k1")
        assert [record.body for record in found] == [b"%d" % n for n in range(1, COUNT, 3)]
        assert {record.key for record in found} == {"k1"}
        assert [r.body for r in await admin.find("orders", "k1", limit=2)] == [b"1", b"4"]
        assert await admin.find("orders", "none") == []


async def test_a_time_range_limits_what_is_found(broker: Broker, sent: list[SendResult]) -> None:
    async with AdminClient(broker.address) as admin:
        all_of_them = await admin.find("orders", "k1")
        first, last = all_of_them[0].stored_at_ms, all_of_them[-1].stored_at_ms
        assert await admin.find("orders", "k1", from_ms=first, to_ms=last + 1) == all_of_them
        assert await admin.find("orders", "k1", to_ms=first) == []
        assert await admin.find("orders", "k1", from_ms=last + 1) == []


async def test_every_message_is_found_by_its_id(broker: Broker, sent: list[SendResult]) -> None:
    async with AdminClient(broker.address) as admin:
        for n, (queue, offset, _) in enumerate(sent):
            record = await admin.message(f"{queue.topic}:{queue.queue_id}:{offset}")
            assert record is not None
            assert record.body == b"%d" % n
            assert (message_id(record).queue, message_id(record).offset) == (queue, offset)


async def test_a_message_that_is_not_there_is_none_and_a_wrong_id_an_error(
    broker: Broker, sent: list[SendResult]
) -> None:
    async with AdminClient(broker.address) as admin:
        for offset in (COUNT, COUNT + 1):
            assert await admin.message(f"orders:0:{offset}") is None
        with pytest.raises(QueueNotFound):
            await admin.message("orders:99:0")
        with pytest.raises(QueueNotFound):
            await admin.message("none:0:0")
        with pytest.raises(ValueError, match="topic:queue:offset"):
            await admin.message("orders/0/0")


async def test_a_search_that_makes_no_sense_is_refused(
    broker: Broker, sent: list[SendResult]
) -> None:
    async with AdminClient(broker.address) as admin:
        with pytest.raises(TopicNotFound):
            await admin.find("none", "k1")
        with pytest.raises(InvalidArgument):
            await admin.find("orders", "")
        for limit in (0, FIND_LIMIT_MAX + 1):
            with pytest.raises(ValueError, match="limit is 1 to"):
                await admin.find("orders", "k1", limit=limit)


async def test_a_search_that_takes_too_long_says_what_to_do(
    broker: Broker, sent: list[SendResult]
) -> None:
    async with AdminClient(broker.address) as admin:
        admin._timeout_ms = 0
        with pytest.raises(RequestTimeout, match="shorter time range"):
            await admin.find("orders", "k1")


async def test_messages_of_a_deleted_queue_are_not_found_in_a_new_one_of_its_name(
    broker: Broker,
) -> None:
    async with AdminClient(broker.address) as admin, Producer(broker.address) as producer:
        await admin.create_topic("bills", queues=1)
        old = await producer.send(Message(topic="bills", body=b"old", key="k"))
        await admin.freeze("bills", writing=True, reading=True)
        await admin.delete_queues("bills")
        with pytest.raises(TopicNotFound):
            await admin.find("bills", "k")
        await admin.create_topic("bills", queues=1)
        assert await admin.find("bills", "k") == []
        new = await producer.send(Message(topic="bills", body=b"new", key="k"))
        assert new.offset > old.offset
        assert [record.body for record in await admin.find("bills", "k")] == [b"new"]
        assert await admin.message(f"bills:0:{old.offset}") is None


async def test_the_producers_of_records_are_found(broker: Broker, sent: list[SendResult]) -> None:
    async with Producer(broker.address) as producer, AdminClient(broker.address) as admin:
        await producer.send(Message(topic="orders", body=b"", key="later"))
        found = await admin.find("orders", "k1") + await admin.find("orders", "later")
        senders = await admin.producers(found)
        assert senders.keys() == {record.producer_id for record in found}
        assert len({sender.client_id for sender in senders.values()}) == 2
        connected = await admin.connections("producer")
        last = senders[found[-1].producer_id]
        assert [(one.client_id, one.address) for one in connected] == [
            (last.client_id, last.address)
        ]
        assert await admin.producers([]) == {}


def step(kind: Kind, at_ms: int) -> TraceStep:
    return TraceStep(kind=kind, at_ms=at_ms, group="g", client_id="c")


async def test_steps_are_listed_in_the_order_of_their_times(broker: Broker) -> None:
    bodies = [encode_step(step("acknowledged", 2)), b"not a step", encode_step(step("begun", 1))]
    async with Producer(broker.address) as producer, AdminClient(broker.address) as admin:
        assert await admin.steps("orders:0:1") == []
        await producer.send_many(
            [Message(topic=TRACE_TOPIC, body=body, key="orders:0:1") for body in bodies]
        )
        assert [found.kind for found in await admin.steps("orders:0:1")] == [
            "begun",
            "acknowledged",
        ]
        assert await admin.steps("orders:0:2") == []


async def test_a_text_that_is_no_id_is_refused(broker: Broker) -> None:
    async with AdminClient(broker.address) as admin:
        with pytest.raises(ValueError, match="is no message id"):
            await admin.steps("orders")
