from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_mq._net.link import software
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.handlers import groups as handlers
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import GroupNotFound, TopicNotFound
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ConsumerSettings

Send = Callable[[str, int], Awaitable[None]]


async def test_lag_shrinks_as_a_consumer_goes_on(
    broker: Broker, admin: AdminClient, send: Send
) -> None:
    await admin.create_topic("orders", queues=2)
    await send("orders", 6)
    behind = await admin.lag("g", ["orders"])
    assert [queue.lag for queue in behind.queues] == [3, 3]
    assert all(0 < queue.oldest_stored_at_ms <= behind.now_ms for queue in behind.queues)
    async with Consumer(broker.address, group="g", topics=["orders"]) as consumer:
        got = 0
        while got < 6:
            for record in await consumer.poll():
                consumer.ack(record)
                got += 1
        group = await admin.group("g")
        (member,) = group.members
        assert (member.topics, group.topics) == (["orders"], ["orders"])
        (connection,) = await admin.connections("consumer")
        assert (connection.client_id, connection.groups) == (member.member, ["g"])
        assert connection.address == member.address
    (left,) = await admin.groups()
    assert (left.group, left.members, left.queues, left.lag) == ("g", 0, 2, 0)
    assert [queue.lag for queue in (await admin.lag("g", ["orders"])).queues] == [0, 0]


@pytest.mark.parametrize("handling", ["per_key", "per_queue", "parallel"])
async def test_the_lag_names_the_member_that_has_each_queue(
    broker: Broker, admin: AdminClient, handling: Any
) -> None:
    await admin.create_topic("orders", queues=4)
    settings = ConsumerSettings(handling=handling, heartbeat_ms=20)

    async def owners() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for one in (await admin.lag("g", ["orders"])).queues:
            found.setdefault(one.member, []).append(one.queue_id)
        return found

    def theirs(*consumers: Consumer) -> dict[str, list[int]]:
        return {
            one._client_id: sorted(queue.queue_id for queue in one.assignment) for one in consumers
        }

    one = Consumer(broker.address, group="g", topics=["orders"], settings=settings)
    other = Consumer(broker.address, group="g", topics=["orders"], settings=settings)
    async with one:
        while await owners() != theirs(one):
            pass
        async with other:
            while await owners() != theirs(one, other):
                pass
            assert len(one.assignment) == len(other.assignment) == 2
            members = [member.member for member in (await admin.group("g")).members]
            assert members == sorted(theirs(one, other))
        while await owners() != theirs(one):
            pass
    assert await owners() == {"": [0, 1, 2, 3]}


async def test_groups_of_several_answers_are_listed_together(
    admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "GROUPS_LISTED_MAX", 2)
    await admin.create_topic("orders", queues=1)
    for number in range(5):
        await admin.set_offsets(f"g{number}", {QueueRef("orders", 0): 0})
    assert [group.group for group in await admin.groups()] == [f"g{n}" for n in range(5)]


async def test_lag_over_more_queues_than_one_answer_takes(admin: AdminClient) -> None:
    for topic in ("a", "b"):
        await admin.create_topic(topic, queues=800)
    answer = await admin.lag("g", ["a", "b"])
    assert [(one.topic, one.queue_id) for one in answer.queues] == [
        (topic, number) for topic in ("a", "b") for number in range(800)
    ]
    assert answer.now_ms > 0


async def test_producers_are_listed_apart_from_others(broker: Broker, admin: AdminClient) -> None:
    async with Producer(broker.address) as producer:
        assert await admin.connections("producer") == []
        await producer.send(Message(topic="orders", body=b"x"))
        (one,) = await admin.connections("producer")
        assert (one.roles, one.produced, one.software) == (["producer"], 1, software())
        assert len(await admin.connections()) == 2
    assert await admin.connections("producer") == []


async def test_the_broker_tells_what_it_holds(broker: Broker, admin: AdminClient) -> None:
    await admin.create_topic("orders", queues=3)
    status = await admin.status()
    assert (status.topics, status.queues, status.groups, status.connections) == (1, 3, 0, 1)
    described = await admin.describe()
    assert (described.broker, described.epoch) == (broker.address, 1)
    assert (described.connections, described.read_only) == (1, False)


async def test_an_unknown_group_or_topic_is_an_error(admin: AdminClient) -> None:
    with pytest.raises(GroupNotFound, match="correct the name"):
        await admin.group("nobody")
    with pytest.raises(TopicNotFound):
        await admin.lag("g", ["nothing"])
