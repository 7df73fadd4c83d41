"""The event topic by offsets, from a real broker."""

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.rebuild import event_topic
from headrace.rebuild.event_topic import EventTopic, Portion, versions_before
from headrace.rebuild.shadow import open_truth
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import ConnectionLost, DataCorrupt
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header
from headrace_mq.protocol.bodies import QueueRange


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


async def test_a_topic_that_was_made_again_is_read_from_where_its_queues_began(
    event_broker: Any, ledger: Any
) -> None:
    streams = [ledger.stream("a", version, ledger.Ended()) for version in range(1, 6)]
    await event_broker.publish(*streams)
    async with AdminClient(event_broker.address) as admin:
        await admin.freeze(ledger.topic_name, writing=True, reading=True)
        await admin.delete_queues(ledger.topic_name)
        await admin.create_topic(ledger.topic_name, queues=2, retention="forever")
    await event_broker.publish(*streams[:3])
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=100)
    (queue,) = [queue for queue, (first, end) in (await topic.ranges()).items() if first < end]
    assert (await topic.starts())[queue] == 5
    for start in (0, 3, 5):
        (messages,) = [some async for some in topic.read(queue, start, 8)]
        assert [message.offset for message in messages] == [5, 6, 7]
        (portion,) = [portion async for portion in topic.bodies(queue, start, 8)]
        assert list(portion.offsets) == [5, 6, 7]
    assert [some async for some in topic.read(queue, 0, 3)] == []


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


async def test_messages_of_some_keys_are_told_apart_before_they_are_decoded(
    event_broker: Any, ledger: Any
) -> None:
    streams = [
        ledger.stream(key, version, ledger.Ended()) for version in range(1, 6) for key in "abc"
    ]
    await event_broker.publish(*streams)
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=2)
    found: list[tuple[str, int | None]] = []
    for queue, (first, end) in (await topic.ranges()).items():
        all_of_it = [each async for some in topic.read(queue, first, end) for each in some]
        of_keys = topic.bodies(queue, first, end, keys=frozenset("ac"))
        portions = [portion async for portion in of_keys]
        assert all(len(portion.offsets) == len(portion.bodies) <= 2 for portion in portions)
        offsets = [offset for portion in portions for offset in portion.offsets]
        assert offsets == [each.offset for each in all_of_it if each.key in "ac"]
        decoded = [
            ledger.serializer.decode_published(body) for each in portions for body in each.bodies
        ]
        found += [(stream.aggregate_id, stream.version) for stream in decoded]
    assert sorted(found) == [(key, version) for key in "ac" for version in range(1, 6)]


async def test_offsets_at_a_time_are_the_brokers(event_broker: Any, ledger: Any) -> None:
    await event_broker.publish(ledger.stream("a", 1, ledger.Ended()))
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=2)
    ranges = await topic.ranges()
    assert await topic.offsets_at(0) == {queue: first for queue, (first, _) in ranges.items()}
    assert await topic.offsets_at(1 << 50) == {queue: end for queue, (_, end) in ranges.items()}
    with pytest.raises(ProjectionError, match=r"topic nothing\.events"):
        await EventTopic(event_broker.address, "nothing.events", messages_max=2).offsets_at(0)


async def test_reading_ends_with_whoever_stops_early(event_broker: Any, ledger: Any) -> None:
    await event_broker.publish(
        *[ledger.stream("a", version, ledger.Ended()) for version in range(1, 8)]
    )
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=2)
    for queue, (_, end) in (await topic.ranges()).items():
        if end:
            async with aclosing(topic.bodies(queue, 0, end)) as portions:
                assert len((await anext(portions)).bodies) == 2


async def test_the_next_messages_are_read_when_they_are_asked_for(event_broker: Any) -> None:
    read: list[int] = []

    def batches(_broker: str, queue: QueueRef, start: int, end: int) -> Iterator[Any]:
        for offset in range(start, end, 2):
            read.append(offset)
            sent = Columns([], [], [], [b"x", b"y"], [])
            header = read_header(encode_batch(queue, sent, born_first_ms=1))
            yield header._replace(base_offset=offset), sent, 0, 2

    topic = EventTopic(event_broker.address, "ledger.events", messages_max=2, read=batches)
    async with aclosing(topic.bodies(("ledger.events", 0), 0, 6)) as portions:
        for seen in ([0], [0, 2], [0, 2, 4]):
            assert (await anext(portions)).offsets == [seen[-1], seen[-1] + 1]
            assert read == seen


async def test_what_the_broker_cannot_give_is_a_sentence(event_broker: Any, ledger: Any) -> None:
    unknown = EventTopic(event_broker.address, "ledger.other", messages_max=10)
    with pytest.raises(ProjectionError, match=r"ledger\.other"):
        await unknown.ranges()
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=10)
    with pytest.raises(ProjectionError, match=r"ledger\.events/0 does not hold.*--from store"):
        _ = [some async for some in topic.read((ledger.topic_name, 0), 0, 5)]
    with pytest.raises(ProjectionError, match=r"ledger\.events/0 does not hold.*--from store"):
        _ = [some async for some in topic.bodies((ledger.topic_name, 0), 0, 5)]
    away = EventTopic("127.0.0.1:1", ledger.topic_name, messages_max=10)
    with pytest.raises(ProjectionError, match=r"127\.0\.0\.1:1"):
        await away.ranges()


async def test_what_is_damaged_is_a_sentence_that_names_the_way_on(event_broker: Any) -> None:
    def damaged(_broker: str, queue: QueueRef, start: int, end: int) -> Iterator[Any]:
        raise DataCorrupt("the batch at 3 fails its checksum")
        yield

    topic = EventTopic(event_broker.address, "ledger.events", messages_max=2, read=damaged)
    told = r"reading ledger\.events/0: the batch at 3 .*--from store"
    with pytest.raises(ProjectionError, match=told):
        _ = [some async for some in topic.read(("ledger.events", 0), 0, 5)]
    with pytest.raises(ProjectionError, match=told):
        _ = [some async for some in topic.bodies(("ledger.events", 0), 0, 5)]


async def test_the_ends_of_a_topic_that_is_not_there_are_none(
    event_broker: Any, ledger: Any
) -> None:
    await event_broker.publish(ledger.stream("a", 1, ledger.Ended()))
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=2)
    assert await topic.ends() == {queue: end for queue, (_, end) in (await topic.ranges()).items()}
    missing = EventTopic(event_broker.address, "ledger.other", messages_max=2)
    assert await missing.ends() == {}
    with pytest.raises(ProjectionError, match="--from store"):
        await missing.ranges()
    away = EventTopic("127.0.0.1:1", ledger.topic_name, messages_max=2)
    with pytest.raises(ProjectionError, match=r"127\.0\.0\.1:1"):
        await away.ends()


async def test_the_versions_before_an_offset_are_those_of_what_lies_before_it(
    event_broker: Any, ledger: Any
) -> None:
    ended = [ledger.stream("a", version, ledger.Ended()) for version in (1, 2, 3, 4)]
    await event_broker.publish(*ended[:2], ledger.rejection("a"), *ended[2:])
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=2)
    (queue,) = [queue for queue, (_, end) in (await topic.ranges()).items() if end]
    assert await versions_before(topic, {queue: 4}) == {"a": 3}
    assert await versions_before(topic, {queue: 0}) == {}
    with pytest.raises(ProjectionError, match="has no offset 6; it holds 0 to 5"):
        await versions_before(topic, {queue: 6})
    with pytest.raises(ProjectionError, match=r"there is no queue ledger\.events/9"):
        await versions_before(topic, {(ledger.topic_name, 9): 0})


async def test_what_is_foreign_moves_no_version_before_an_offset(
    event_broker: Any, ledger: Any, believing: Any
) -> None:
    true = [believing.stream("a", version, 1) for version in (1, 2)]
    seal = await believing.store(*true)
    await believing.publish(*true, seal=seal)
    await believing.publish(believing.stream("a", 900, 1), believing.stream("b", 7, 1), seal=None)
    async with open_truth(believing.url, ledger.serializer) as truth:
        topic = EventTopic(
            event_broker.address, ledger.topic_name, messages_max=2, belief=truth.belief
        )
        ends = await topic.ends()
        assert await versions_before(topic, ends) == {"a": 2}


async def test_what_does_not_decode_lies_before_an_offset_all_the_same(
    event_broker: Any, ledger: Any, believing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    streams = [believing.stream("a", version, version) for version in (1, 2)]
    await believing.publish(*streams, seal=None, spoil=("a", 2))
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=2)
    assert await versions_before(topic, await topic.ends()) == {"a": 2}
    message = Message(topic=ledger.topic_name, key="a", headers={"kind": "events"}, body=b"{")
    await event_broker.producer.send(message)
    assert await versions_before(topic, await topic.ends()) == {"a": 2}
    assert "a message that does not decode is passed over" in caplog.text


async def test_a_broker_that_is_away_while_another_takes_over_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Reader:
        failures = 2

        def __enter__(self) -> "Reader":
            return self

        def __exit__(self, *_of: object) -> None:
            pass

        def ranges(self, topics: list[str], known: dict[QueueRef, int]) -> list[QueueRange]:
            if self.failures:
                self.failures -= 1
                raise ConnectionLost("away")
            assert (topics, known) == (["t"], {QueueRef("t", 0): 3})
            return [
                QueueRange("t", 0, 0, 9, 0, 5, 4),
                QueueRange("t", 1, 0, 9, 0, 5),
                QueueRange("t", 2, 0, 9),
            ]

    async def at_once(*_of: object) -> None:
        pass

    reader = Reader()
    monkeypatch.setattr(event_topic, "open_topic_reader", lambda _address: reader)
    monkeypatch.setattr(event_topic.Backoff, "pause", at_once)
    topic = EventTopic("127.0.0.1:1", "t", messages_max=1)
    with pytest.raises(ProjectionError, match="topic t: away"):
        await topic.lineage({0: 3}, patient=False)
    found = await topic.lineage({0: 3}, patient=True)
    assert (found.epochs, found.changed) == ({0: 5, 1: 5}, {0: 4})
    reader.failures = 1_000
    with pytest.raises(ProjectionError, match="topic t: away"):
        await topic.lineage({0: 3}, patient=True)


async def test_a_topic_that_is_not_there_yet_has_no_epochs(event_broker: Any) -> None:
    topic = EventTopic(event_broker.address, "another", messages_max=1)
    assert not (await topic.lineage({}, patient=True)).epochs
