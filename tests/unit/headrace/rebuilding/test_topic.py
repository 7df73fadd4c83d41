"""The event topic by offsets, from a real broker."""

from contextlib import aclosing
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.rebuilding.topic import EventTopic, Portion, versions_before


async def test_ranges_and_messages_are_those_of_the_broker(event_broker: Any, ledger: Any) -> None:
    streams = [
        ledger.stream(key, version, ledger.Booked(partner="p", amount=version))
        for version in range(1, 8)
        for key in ("a", "b", "c")
    ]
    await event_broker.publish(*streams)
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=4)
    ranges = await topic.ranges()
    assert sorted(ranges) == [(ledger.topic_name, 0), (ledger.topic_name, 1)]
    assert sum(end - first for first, end in ranges.values()) == 21
    found = []
    for queue, (first, end) in ranges.items():
        async for messages in topic.read(queue, first, end):
            assert 1 <= len(messages) <= 4
            assert {message.queue for message in messages} == {queue}
            found += messages
    keys = [(m.key, ledger.serializer.decode_published(m.body).version) for m in found]
    assert sorted(keys) == sorted((each.aggregate_id, each.version) for each in streams)
    for key in "abc":
        assert [v for k, v in keys if k == key] == list(range(1, 8))


async def test_a_part_of_a_queue_is_read_exactly(event_broker: Any, ledger: Any) -> None:
    await event_broker.publish(
        *(ledger.stream("a", version, ledger.Ended()) for version in range(1, 10))
    )
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=100)
    (queue,) = [queue for queue, (_, end) in (await topic.ranges()).items() if end]
    (messages,) = [some async for some in topic.read(queue, 3, 7)]
    assert [message.offset for message in messages] == [3, 4, 5, 6]
    assert [some async for some in topic.read(queue, 5, 5)] == []


async def test_columns_are_those_of_the_messages(event_broker: Any, ledger: Any) -> None:
    for first in (1, 4):
        await event_broker.publish(
            *(ledger.stream("a", version, ledger.Ended()) for version in range(first, first + 3))
        )
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=2)
    (queue,) = [queue for queue, (_, end) in (await topic.ranges()).items() if end]
    messages = [message async for some in topic.read(queue, 1, 6) for message in some]
    portions = [portion async for portion in topic.bodies(queue, 1, 6)]
    assert [len(portion.bodies) for portion in portions] == [2, 2, 1]
    assert [offset for each in portions for offset in each.offsets] == [m.offset for m in messages]
    assert [body for each in portions for body in each.bodies] == [m.body for m in messages]
    assert [portion async for portion in topic.bodies(queue, 5, 5)] == []
    whole = Portion([7, 8, 9], [b"a", b"b", b"c"])
    assert list(whole.pieces(2)) == [Portion([7, 8], [b"a", b"b"]), Portion([9], [b"c"])]


async def test_reading_ends_with_whoever_stops_early(event_broker: Any, ledger: Any) -> None:
    await event_broker.publish(
        *[ledger.stream("a", version, ledger.Ended()) for version in range(1, 8)]
    )
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=2)
    for queue, (_, end) in (await topic.ranges()).items():
        if end:
            async with aclosing(topic.bodies(queue, 0, end)) as portions:
                assert len((await anext(portions)).bodies) == 2


async def test_what_the_broker_cannot_give_is_a_sentence(event_broker: Any, ledger: Any) -> None:
    unknown = EventTopic(event_broker.address, "ledger.other", messages_max=10)
    with pytest.raises(ProjectionError, match=r"ledger\.other"):
        await unknown.ranges()
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=10)
    with pytest.raises(ProjectionError, match=r"reading ledger\.events/0"):
        _ = [some async for some in topic.read((ledger.topic_name, 0), 0, 5)]
    with pytest.raises(ProjectionError, match=r"reading ledger\.events/0"):
        _ = [some async for some in topic.bodies((ledger.topic_name, 0), 0, 5)]
    away = EventTopic("127.0.0.1:1", ledger.topic_name, messages_max=10)
    with pytest.raises(ProjectionError, match=r"127\.0\.0\.1:1"):
        await away.ranges()


async def test_the_versions_before_an_offset_are_those_of_what_lies_before_it(
    event_broker: Any, ledger: Any
) -> None:
    ended = [ledger.stream("a", version, ledger.Ended()) for version in (1, 2, 3, 4)]
    await event_broker.publish(*ended[:2], ledger.rejection("a"), *ended[2:])
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=2)
    (queue,) = [queue for queue, (_, end) in (await topic.ranges()).items() if end]
    assert await versions_before(topic, {queue: 4}, ledger.serializer) == {"a": 3}
    assert await versions_before(topic, {queue: 0}, ledger.serializer) == {}
    with pytest.raises(ProjectionError, match="has no offset 6; it holds 0 to 5"):
        await versions_before(topic, {queue: 6}, ledger.serializer)
    with pytest.raises(ProjectionError, match=r"there is no queue ledger\.events/9"):
        await versions_before(topic, {(ledger.topic_name, 9): 0}, ledger.serializer)
