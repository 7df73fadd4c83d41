import pytest

from headrace_mq.errors import InvalidArgument, TopicExists, TopicNotFound
from headrace_mq.protocol.bodies import (
    BrokerDescription,
    CreateTopic,
    DescribeTopics,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    TopicDescription,
    TopicsAnswer,
    decode,
)
from headrace_mq.protocol.codes import RequestCode


async def create(client, *values) -> TopicDescription:
    body = await client.ask(RequestCode.CREATE_TOPIC, CreateTopic(*values))
    (topic,) = decode(TopicsAnswer, body).topics
    return topic


async def describe(client, *topics: str, create_missing: bool = False) -> list[TopicDescription]:
    request = DescribeTopics(list(topics), create_missing)
    return decode(TopicsAnswer, await client.ask(RequestCode.DESCRIBE_TOPICS, request)).topics


async def test_a_topic_is_created_confirmed_and_grown(client) -> None:
    assert await create(client, "t", 2, "forever") == TopicDescription("t", 2, "forever")
    assert await create(client, "t", 1, "forever") == TopicDescription("t", 2, "forever")
    assert await create(client, "t", 3, "forever") == TopicDescription("t", 3, "forever")
    assert client.pushes == []


async def test_another_retention_is_refused(client) -> None:
    await create(client, "t", 2, "forever")
    refused = await client.refusal(RequestCode.CREATE_TOPIC, CreateTopic("t", 2, "transient"))
    assert isinstance(refused, TopicExists)


async def test_a_wrong_name_is_refused(client) -> None:
    refused = await client.refusal(RequestCode.CREATE_TOPIC, CreateTopic("a topic"))
    assert isinstance(refused, InvalidArgument)


async def test_grown_queues_take_messages(client, batch) -> None:
    await create(client, "t", 1)
    await create(client, "t", 2)
    assert (await client.produce(batch("t", 1))).results[0].code == 0


async def test_all_topics_or_the_named_ones_are_described(client) -> None:
    b, a = await create(client, "b", 1), await create(client, "a", 2)
    assert await describe(client) == [a, b]
    assert await describe(client, "b", "unknown") == [b]


async def test_missing_topics_are_created_when_asked_for(client) -> None:
    assert await describe(client, "new", create_missing=True) == [
        TopicDescription("new", 4, "transient")
    ]


async def test_missing_topics_stay_missing_where_topics_are_created_by_hand(start, connect) -> None:
    client = await connect(await start(auto_create_topics=False))
    assert await describe(client, "new", create_missing=True) == []


async def test_ranges_of_all_queues_of_the_topics(client, batch) -> None:
    await create(client, "t", 2)
    await create(client, "u", 1)
    await client.produce(batch("t", 1, b"a", b"b"))
    body = await client.ask(RequestCode.QUEUE_RANGES, QueueRanges(["u", "t"]))
    assert decode(QueueRangesAnswer, body).ranges == [
        QueueRange("u", 0, 0, 0),
        QueueRange("t", 0, 0, 0),
        QueueRange("t", 1, 0, 2),
    ]


async def test_ranges_of_an_unknown_topic_are_refused(client) -> None:
    refused = await client.refusal(RequestCode.QUEUE_RANGES, QueueRanges(["unknown"]))
    assert isinstance(refused, TopicNotFound)


@pytest.mark.parametrize("connections", [1, 3])
async def test_the_broker_describes_itself(start, connect, clock, connections: int) -> None:
    broker = await start(clock=clock)
    clients = [await connect(broker, f"c{number}") for number in range(connections)]
    body = await clients[0].ask(RequestCode.DESCRIBE_BROKER)
    assert decode(BrokerDescription, body) == BrokerDescription(
        broker.address, 1, clock.now, connections, read_only=False
    )
