"""Topics, the broker itself, and a search over the wire: answer by answer, within a frame."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_mq.broker.handlers import admin as module
from headrace_mq.broker.users.guard import Guard
from headrace_mq.errors import InvalidArgument, TopicExists, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    DescribeProducers,
    FindMessages,
    ProducersAnswer,
    decode_find_answer,
)
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, split_batches
from headrace_mq.protocol.bodies import (
    BrokerDescription,
    CreateTopic,
    DescribeTopics,
    KnownEpoch,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    TopicDescription,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame


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


async def test_ranges_of_all_queues_of_the_topics(broker, client, batch) -> None:
    await create(client, "t", 2)
    await create(client, "u", 1)
    await client.produce(batch("t", 1, b"a", b"b"))
    body = await client.ask(RequestCode.QUEUE_RANGES, QueueRanges(["u", "t"]))
    epoch = broker._state.epoch
    assert decode(QueueRangesAnswer, body).ranges == [
        QueueRange("u", 0, 0, 0, 0, epoch),
        QueueRange("t", 0, 0, 0, 0, epoch),
        QueueRange("t", 1, 0, 2, 0, epoch),
    ]
    await create(client, "t", 3)
    body = await client.ask(RequestCode.QUEUE_RANGES, QueueRanges(["u", "t"]))
    told = {each.topic: each.settled for each in decode(QueueRangesAnswer, body).identities}
    assert told == {"u": True, "t": False}


async def test_ranges_say_where_messages_have_changed_since_an_epoch(
    broker, client, batch, monkeypatch
) -> None:
    await create(client, "t", 2)
    await client.produce(batch("t", 1, b"a", b"b"))
    await client.produce(batch("t", 1, b"c"))
    own = broker._state.epoch

    def told(epoch: int) -> list[tuple[int, int]]:
        known = [KnownEpoch("t", 1, epoch), KnownEpoch("other", 0, epoch)]
        body = memoryview(encode(QueueRanges(["t"], known)))
        frame = Frame(RequestCode.QUEUE_RANGES, 1, 0, 1, body)
        (body,) = module.queue_ranges(broker._state, None, frame)
        return [(one.epoch, one.changed_from) for one in decode(QueueRangesAnswer, body).ranges]

    # A broker without a group has lost nothing that it acknowledged.
    assert told(3) == [(own, -1), (own, -1)]
    second = (
        1 + next(iter(broker._state.store._queues.get(QueueRef("t", 1)).index.find(0, 1))).position
    )
    ends = {3: 0, 4: second, 5: 1 << 40}
    logs = SimpleNamespace(common_ends=lambda epoch: defaultdict(lambda: ends[epoch]))
    monkeypatch.setattr(broker._state, "followers", SimpleNamespace(last_loss=6, logs=logs))
    # Of 6 and 7 the logs have nothing, and are not asked: no loss came since.
    assert [told(epoch)[1] for epoch in (0, 3, 4, 5, 6, 7)] == [
        (own, -1), (own, 0), (own, 2), (own, 3), (own, -1), (own, -1),
    ]  # fmt: skip
    assert told(4)[0] == (own, -1)
    monkeypatch.undo()


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


NEVER = (1 << 63) - 1


def asked(**values: Any) -> FindMessages:
    wanted = {
        "topic": "orders", "key": "k", "from_ms": 0, "to_ms": NEVER,
        "messages_max": 1_000, "bytes_max": 1 << 20,
    }  # fmt: skip
    return FindMessages(**wanted | values)


async def fill(client: Any, count: int) -> None:
    for n in range(count):
        columns = Columns(["k" if n % 2 else "other"], [], [], [b"%d" % n * 10], [])
        batch = encode_batch(QueueRef("orders", 0), columns, born_first_ms=0)
        await client.ask(RequestCode.PRODUCE, bytes(batch))


async def test_the_answer_holds_batches_with_the_key_and_where_to_go_on(client: Any) -> None:
    await fill(client, 9)
    found = []
    log, position = "", 0
    while True:
        body = await client.ask(
            RequestCode.FIND_MESSAGES, asked(messages_max=2, log=log, position=position)
        )
        answer, batches = decode_find_answer(body)
        records = [r for batch in split_batches(batches) for r in decode_records(batch)]
        assert len(records) == answer.messages <= 2
        found += [record.body[:1] for record in records]
        log, position = answer.log, answer.position
        if not log:
            break
    assert found == [b"1", b"3", b"5", b"7"]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"topic": "none"}, TopicNotFound),
        ({"key": ""}, InvalidArgument),
        ({"key": "x" * 1_025}, InvalidArgument),
        ({"messages_max": 0}, InvalidArgument),
        ({"bytes_max": 0}, InvalidArgument),
        ({"log": "nowhere"}, InvalidArgument),
        ({"log": "forever", "position": -1}, InvalidArgument),
    ],
)
async def test_a_search_that_makes_no_sense_is_refused(
    client: Any, values: dict[str, Any], error: type[Exception]
) -> None:
    await fill(client, 1)
    with pytest.raises(error):
        await client.ask(RequestCode.FIND_MESSAGES, asked(**values))


async def test_a_position_that_no_answer_gave_finds_nothing_wrong(client: Any) -> None:
    await fill(client, 4)
    for position in (1, 200, 1 << 40, (1 << 63) - 1):
        for log in ("forever", "transient"):
            await client.ask(RequestCode.FIND_MESSAGES, asked(log=log, position=position))


async def test_the_sender_of_a_message_is_known_across_connections_and_restarts(
    start: Any, connect: Any, batch: Any
) -> None:
    broker = await start()
    first = await connect(broker, "first")
    await first.produce(batch(producer_id=7), batch(producer_id=8), batch())
    second = await connect(broker, "second")
    await second.produce(batch(producer_id=8, first_sequence=1))
    port = second.writer.get_extra_info("sockname")[1]

    async def told(client: Any) -> dict[int, tuple[str, str]]:
        body = await client.ask(RequestCode.DESCRIBE_PRODUCERS, DescribeProducers([7, 8, 9]))
        found = decode(ProducersAnswer, body).producers
        return {one.producer_id: (one.client_id, one.address) for one in found}

    before = await told(second)
    assert before.keys() == {7, 8}
    assert (before[7][0], before[8]) == ("first", ("second", f"127.0.0.1:{port}"))
    await broker.aclose()
    assert await told(await connect(await start())) == before


async def test_more_producers_than_one_answer_may_hold_are_refused(client: Any) -> None:
    asked_for = DescribeProducers(list(range(1_001)))
    assert isinstance(
        await client.refusal(RequestCode.DESCRIBE_PRODUCERS, asked_for), InvalidArgument
    )


@pytest.mark.parametrize(
    ("count", "others", "records_max", "answers"),
    [
        (3, 2, 6, [[0, 3], [6]]),
        # Few messages, too, because each may be in a batch of its own.
        (9, 0, 100, [[0, 1, 2, 3, 4, 5, 6, 7], [8]]),
    ],
)
async def test_a_search_makes_few_records_into_heads_at_a_time(
    client, broker, monkeypatch, count: int, others: int, records_max: int, answers: list[list[int]]
) -> None:
    await create(client, "orders", 1)
    for _ in range(count):
        keys = ["k", *["other"] * others]
        columns = Columns(keys, [], [], [b"1"] * len(keys), [])
        batch = encode_batch(QueueRef("orders", 0), columns, born_first_ms=0)
        await client.ask(RequestCode.PRODUCE, bytes(batch))
    no_audit: Any = None
    guard = Guard(None, lambda _: 1, no_audit)
    monkeypatch.setattr(guard, "hides", lambda *_: True)
    monkeypatch.setattr(broker._state, "guard", guard)
    monkeypatch.setattr(module, "HEAD_RECORDS_MAX", records_max)
    found, log, position = [], "", 0
    while True:
        body = await client.ask(
            RequestCode.FIND_MESSAGES, asked(log=log, position=position, heads=True)
        )
        answer, batches = decode_find_answer(body)
        found.append(
            [one.offset for view in split_batches(batches) for one in decode_records(view)]
        )
        log, position = answer.log, answer.position
        if not log:
            break
    assert [each for each in found if each] == answers
