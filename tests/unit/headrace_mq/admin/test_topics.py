from collections.abc import Awaitable, Callable

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer import producer as producer_module
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import (
    InvalidArgument,
    QueueFrozen,
    QueueNotFound,
    TopicExists,
    TopicInUse,
    TopicNotFound,
)
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.bodies import TopicDescription
from headrace_mq.settings import ConsumerSettings

Send = Callable[[str, int], Awaitable[None]]
ALERT = ConsumerSettings(heartbeat_ms=20, topics_refresh_ms=20)


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


async def test_the_lineage_of_a_topic_is_its_identity_with_its_ranges(
    admin: AdminClient, send: Send
) -> None:
    await admin.create_topic("orders", 2)
    identity, ranges = await admin.lineage("orders")
    assert await admin.life_of("orders") == (identity, ranges, 1, 0, 2)
    assert [(one.queue_id, one.first, one.end) for one in ranges] == [(0, 0, 0), (1, 0, 0)]
    assert (await admin.lineage("orders"))[0] == identity
    await admin.freeze("orders", writing=True, reading=True)
    await admin.delete_queues("orders")
    with pytest.raises(TopicNotFound):
        await admin.lineage("orders")
    await admin.create_topic("orders", 2)
    assert (await admin.lineage("orders"))[0] not in {identity, ""}


async def test_ranges_tell_what_each_queue_holds(admin: AdminClient, send: Send) -> None:
    await admin.create_topic("orders", queues=2)
    await send("orders", 5)
    ranges = await admin.ranges(["orders"])
    assert [(one.topic, one.queue_id, one.first) for one in ranges] == [
        ("orders", 0, 0),
        ("orders", 1, 0),
    ]
    assert sorted(one.end for one in ranges) == [2, 3]
    with pytest.raises(TopicNotFound):
        await admin.ranges(["missing"])


async def test_queues_are_added_and_found_by_clients_at_work(
    broker: Broker, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_module, "ROUTE_REFRESH_MS", 20)
    await admin.create_topic("orders", queues=1, retention="forever")
    async with (
        Producer(broker.address) as producer,
        Consumer(broker.address, group="g", topics=["orders"], settings=ALERT) as consumer,
    ):
        await producer.send(Message(topic="orders", body=b"0"))
        assert (await admin.add_queues("orders", 3)).queues == 3
        sent: set[int] = set()
        while len(sent) < 3:
            result = await producer.send(Message(topic="orders", body=b"x"))
            sent.add(result.queue.queue_id)
        received: set[int] = set()
        while len(received) < 3:
            for record in await consumer.poll():
                received.add(record.queue.queue_id)
                consumer.ack(record)
    assert sent == received == {0, 1, 2}
    with pytest.raises(TopicNotFound):
        await admin.add_queues("missing", 3)
    with pytest.raises(InvalidArgument):
        await admin.add_queues("orders", 1_000_000)


async def test_queues_of_many_topics_are_described(admin: AdminClient, send: Send) -> None:
    for number in range(3):
        await admin.create_topic(f"t{number}", queues=600)
    await send("t1", 1)
    described = await admin.queues(await admin.topics())
    assert [(one.topic, one.queue_id) for one in described] == [
        (f"t{number}", queue) for number in range(3) for queue in range(600)
    ]
    (held,) = [one for one in described if one.end]
    assert (held.topic, held.first, held.end) == ("t1", 0, 1)
    assert 0 < held.first_stored_at_ms == held.last_stored_at_ms


async def test_one_topic_is_described_or_missing(admin: AdminClient) -> None:
    created = await admin.create_topic("orders", queues=2)
    assert await admin.topic("orders") == created
    with pytest.raises(TopicNotFound, match="correct the name"):
        await admin.topic("order")


async def test_a_producer_learns_that_its_queue_is_frozen(
    broker: Broker, admin: AdminClient
) -> None:
    await admin.create_topic("orders", queues=1)
    async with Producer(broker.address) as producer:
        frozen = await admin.freeze("orders", writing=True)
        assert frozen == TopicDescription("orders", 1, "transient", [0], [])
        with pytest.raises(QueueFrozen):
            await producer.send(Message(topic="orders", key="k", body=b"x"))
        assert await admin.thaw("orders") == TopicDescription("orders", 1, "transient")
        await producer.send(Message(topic="orders", key="k", body=b"x"))


async def test_a_consumer_waits_at_a_queue_frozen_for_reading_and_goes_on(
    broker: Broker, admin: AdminClient, send: Send
) -> None:
    await admin.create_topic("orders", queues=2)
    await admin.freeze("orders", [1], reading=True)
    await send("orders", 4)
    async with Consumer(broker.address, group="g", topics=["orders"], settings=ALERT) as consumer:
        got: list[int] = []
        while len(got) < 2:
            got += [record.queue.queue_id for record in await consumer.poll()]
        assert got == [0, 0]
        await admin.thaw("orders", [1])
        while len(got) < 4:
            got += [record.queue.queue_id for record in await consumer.poll()]
    assert got == [0, 0, 1, 1]


async def test_only_named_queues_that_exist_are_frozen(admin: AdminClient) -> None:
    await admin.create_topic("orders", queues=2)
    with pytest.raises(QueueNotFound):
        await admin.freeze("orders", [0, 2], writing=True)
    with pytest.raises(InvalidArgument):
        await admin.freeze("orders")
    assert (await admin.topic("orders")).unwritable == []


async def test_a_topic_is_deleted_when_it_is_drained(admin: AdminClient, send: Send) -> None:
    await admin.create_topic("orders", queues=2)
    await send("orders", 4)
    await admin.set_offsets("g", {QueueRef("orders", 0): 2, QueueRef("orders", 1): 1})
    await admin.freeze("orders", writing=True, reading=True)
    would = await admin.delete_queues("orders", dry_run=True)
    assert not would.deleted
    assert [queue.obstacles for queue in would.queues] == [
        [],
        ["has 1 messages that group 'g' has not consumed"],
    ]
    with pytest.raises(TopicInUse, match="orders/1 has 1 messages"):
        await admin.delete_queues("orders")
    await admin.set_offsets("g", {QueueRef("orders", 1): 2})
    assert (await admin.delete_queues("orders", keep=1)).deleted
    assert (await admin.topic("orders")).queues == 1
    assert (await admin.delete_queues("orders")).deleted
    assert await admin.topics() == []
