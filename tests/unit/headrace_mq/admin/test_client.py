import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer import Consumer
from headrace_mq.client.producer import Producer
from headrace_mq.errors import (
    ConnectionLost,
    InvalidArgument,
    OffsetOutOfRange,
    TopicExists,
    TopicNotFound,
)
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.bodies import TopicDescription
from headrace_mq.settings import BrokerSettings, StoreSettings


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    yield broker
    await broker.aclose()


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[AdminClient]:
    async with AdminClient(broker.address) as admin:
        yield admin


async def send(broker: Broker, topic: str, count: int) -> None:
    async with Producer(broker.address) as producer:
        await producer.send_many([Message(topic=topic, body=b"x")] * count)


async def test_topics_are_created_confirmed_and_listed_by_name(admin: AdminClient) -> None:
    created = await admin.create_topic("orders", queues=3, retention="forever")
    assert created == TopicDescription("orders", 3, "forever")
    assert await admin.create_topic("orders", queues=2, retention="forever") == created
    await admin.create_topic("commands", queues=1)
    assert [topic.topic for topic in await admin.topics()] == ["commands", "orders"]


async def test_a_topic_with_other_settings_is_an_error(admin: AdminClient) -> None:
    await admin.create_topic("orders", retention="forever")
    with pytest.raises(TopicExists):
        await admin.create_topic("orders", retention="transient")


async def test_ranges_tell_what_each_queue_holds(broker: Broker, admin: AdminClient) -> None:
    await admin.create_topic("orders", queues=2)
    await send(broker, "orders", 5)
    ranges = await admin.ranges(["orders"])
    assert [(one.topic, one.queue_id, one.first) for one in ranges] == [
        ("orders", 0, 0),
        ("orders", 1, 0),
    ]
    assert sorted(one.end for one in ranges) == [2, 3]
    with pytest.raises(TopicNotFound):
        await admin.ranges(["missing"])


async def test_a_groups_offsets_are_told_and_moved_forth_and_back(
    broker: Broker, admin: AdminClient
) -> None:
    await admin.create_topic("orders", queues=1)
    queue = QueueRef("orders", 0)
    await send(broker, "orders", 5)
    assert await admin.offsets("g", ["orders"]) == {queue: -1}
    for offset in (5, 2):
        await admin.set_offsets("g", {queue: offset})
        assert await admin.offsets("g", ["orders"]) == {queue: offset}
    with pytest.raises(OffsetOutOfRange):
        await admin.set_offsets("g", {queue: 6})


async def test_the_offsets_of_a_group_at_work_are_not_moved(
    broker: Broker, admin: AdminClient
) -> None:
    await admin.create_topic("orders", queues=1)
    async with Consumer(broker.address, group="g", topics=["orders"]):
        with pytest.raises(InvalidArgument, match="stop them"):
            await admin.set_offsets("g", {QueueRef("orders", 0): 0})


async def test_the_broker_describes_itself(broker: Broker, admin: AdminClient) -> None:
    description = await admin.describe()
    assert description.broker == broker.address
    assert description.epoch == 1
    assert description.connections == 1
    assert not description.read_only


async def test_without_a_broker_it_says_what_to_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(ConnectionLost, match=f"no broker answers at {address}"):
        await AdminClient(address, timeout_ms=30).start()
