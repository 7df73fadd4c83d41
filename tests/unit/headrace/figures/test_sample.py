"""A look at a broker finds what is on it, and leaves out what was not asked for."""

from headrace.figures.rates import rates
from headrace.figures.sample import take_sample
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.testing.embedded import broker


async def test_a_look_finds_topics_groups_and_connections() -> None:
    async with broker() as address, AdminClient(address) as admin:
        await admin.create_topic("orders", 2)
        before = await take_sample(admin)
        async with Producer(address) as producer:
            await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
            for number in range(6):
                await producer.send(Message(topic="orders", body=b"tea", key=str(number)))
            now = await take_sample(admin)
    found = rates(before, now)
    (topic,) = found.topics
    assert (topic.topic, topic.queues, topic.messages) == ("orders", 2, 6)
    assert topic.messages_in * found.seconds > 5.99
    (group,) = found.groups
    assert (group.group, group.lag, group.members) == ("kitchen", 6, 0)
    assert group.lag_ms is not None
    assert [one.roles for one in found.connections if one.messages_in] == ["producer"]
    assert found.broker is not None
    assert found.broker.memory_bytes is not None
    assert (found.replicas, found.denied) == ([], ())


async def test_a_look_without_queues_and_ages_asks_for_neither() -> None:
    async with broker() as address, AdminClient(address) as admin:
        await admin.create_topic("orders", 2)
        await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
        async with Producer(address) as producer:
            await producer.send(Message(topic="orders", body=b"tea"))
        found = await take_sample(admin, aged=0, with_queues=False)
    assert (found.queues, found.oldest_ms) == ([], {})
    assert [(one.group, one.lag) for one in found.groups] == [("kitchen", 1)]
    assert found.status is not None
    assert found.status.topics == 1
