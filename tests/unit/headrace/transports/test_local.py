"""The local transport holds to the words of the port."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import HeadraceError
from headrace.testing.history import FakeClock
from headrace.transports import local as local_module
from headrace.transports.base import Incoming, Outgoing
from headrace.transports.local import LocalTransport


@pytest.fixture
async def transport() -> AsyncIterator[LocalTransport]:
    """With one topic of three queues that is kept for ever, and one that passes."""
    transport = LocalTransport()
    await transport.ensure_topic("events", queues=3, forever=True)
    await transport.ensure_topic("commands", queues=1, forever=False)
    yield transport
    await transport.aclose()


def message(key: str, body: str = "", topic: str = "events") -> Outgoing:
    return Outgoing(topic=topic, key=key, body=body.encode(), tag="t", headers={"h": "1"})


async def read(subscription, count: int) -> list[Incoming]:
    messages: list[Incoming] = []
    while len(messages) < count:
        messages += await subscription.poll()
    return messages


async def test_a_message_arrives_as_it_was_published(transport):
    subscription = await transport.subscribe("g", ["events"])
    await transport.publish(message("k", "hello"))
    (arrived,) = await subscription.poll()
    assert (arrived.key, arrived.tag, arrived.headers) == ("k", "t", {"h": "1"})
    assert (arrived.body, arrived.offset, arrived.queue[0]) == (b"hello", 0, "events")


async def test_messages_of_one_key_are_in_one_queue_in_order(transport):
    subscription = await transport.subscribe("g", ["events"])
    for number in range(30):
        await transport.publish(message(f"k-{number % 5}", str(number)))
    messages = await read(subscription, 30)
    for key in {each.key for each in messages}:
        own = [each for each in messages if each.key == key]
        assert len({each.queue for each in own}) == 1
        assert [int(each.body) for each in own] == sorted(int(each.body) for each in own)
        assert [each.offset for each in own] == sorted(each.offset for each in own)
    assert len({each.queue for each in messages}) > 1


async def test_publishing_takes_its_place_before_the_first_suspension(transport):
    subscription = await transport.subscribe("g", ["events"])
    tasks = [asyncio.create_task(transport.publish(message("k", str(n)))) for n in range(9)]
    await asyncio.gather(*tasks)
    assert [int(each.body) for each in await subscription.poll()] == list(range(9))


async def test_a_poll_waits_until_there_is_something(transport):
    subscription = await transport.subscribe("g", ["events"])
    polling = asyncio.create_task(subscription.poll())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not polling.done()
    await transport.publish(message("k"))
    assert len(await polling) == 1


async def test_a_poll_returns_a_bounded_number(transport, monkeypatch):
    monkeypatch.setattr(local_module, "POLL_MESSAGES_MAX", 4)
    subscription = await transport.subscribe("g", ["events"])
    for number in range(10):
        await transport.publish(message(f"k-{number}"))
    sizes = []
    while sum(sizes) < 10:
        sizes.append(len(await subscription.poll()))
    assert max(sizes) <= 4


async def test_every_group_gets_every_message_and_members_of_one_share_them(transport):
    alone = await transport.subscribe("alone", ["events"])
    shared = [await transport.subscribe("shared", ["events"]) for _ in range(2)]
    for number in range(30):
        await transport.publish(message(f"k-{number}"))
    assert len(await read(alone, 30)) == 30
    first, second = await shared[0].poll(), await shared[1].poll()
    assert len(first) + len(second) == 30
    assert {each.queue for each in first}.isdisjoint({each.queue for each in second})


async def test_what_a_member_leaves_unacknowledged_comes_to_the_next_one(transport):
    first = await transport.subscribe("g", ["commands"])
    for number in range(5):
        await transport.publish(message("k", str(number), "commands"))
    messages = await read(first, 5)
    for done in (0, 1, 3):
        first.ack(messages[done])
    await first.aclose()
    second = await transport.subscribe("g", ["commands"])
    # The lowest unfinished offset counts: 2, although 3 was done.
    assert [int(each.body) for each in await read(second, 3)] == [2, 3, 4]


async def test_acknowledgements_count_in_any_order_and_twice_is_once(transport):
    first = await transport.subscribe("g", ["commands"])
    for number in range(3):
        await transport.publish(message("k", str(number), "commands"))
    messages = await read(first, 3)
    for place in (2, 0, 0, 1, 1):
        first.ack(messages[place])
    await first.aclose()
    await transport.publish(message("k", "3", "commands"))
    second = await transport.subscribe("g", ["commands"])
    assert [int(each.body) for each in await read(second, 1)] == [3]


async def test_an_acknowledgement_of_a_queue_that_was_taken_away_says_nothing(transport):
    first = await transport.subscribe("g", ["commands"])
    await transport.publish(message("k", "0", "commands"))
    (delivered,) = await first.poll()
    await first.aclose()
    second = await transport.subscribe("g", ["commands"])
    first.ack(delivered)
    assert (await second.poll())[0].offset == 0


async def test_a_queue_that_stays_with_its_member_goes_on_where_it_was(transport):
    first = await transport.subscribe("g", ["events"])
    for number in range(30):
        await transport.publish(message(f"k-{number}"))
    before = await read(first, 30)
    second = await transport.subscribe("g", ["events"])
    redelivered = await second.poll()
    assert {each.queue for each in redelivered} < {each.queue for each in before}
    polling = asyncio.create_task(first.poll())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not polling.done()
    polling.cancel()
    await asyncio.wait({polling})


async def test_offsets_kept_by_the_caller_decide_where_reading_begins(transport):
    for number in range(6):
        await transport.publish(message("k", str(number), "commands"))
    asked = []

    async def load(queues):
        asked.extend(queues)
        return {("commands", 0): 4}

    subscription = await transport.subscribe("p", ["commands"], offsets=load)
    messages = await read(subscription, 2)
    assert [int(each.body) for each in messages] == [4, 5]
    assert asked == [("commands", 0)]
    for each in messages:
        subscription.ack(each)
    await subscription.aclose()
    again = await transport.subscribe("p", ["commands"], offsets=load)
    # Acknowledging moved nothing: the caller keeps the offsets.
    assert [int(each.body) for each in await read(again, 2)] == [4, 5]


async def test_a_queue_left_out_by_the_caller_begins_at_its_beginning(transport):
    await transport.publish(message("k", "0"))

    async def load(queues):
        return {}

    subscription = await transport.subscribe("p", ["events"], offsets=load)
    assert [each.offset for each in await subscription.poll()] == [0]


async def test_a_loader_that_fails_is_asked_again_by_the_next_poll(transport):
    await transport.publish(message("k", "0"))
    failures = [OSError("the database is away")]

    async def load(queues):
        if failures:
            raise failures.pop()
        return {}

    subscription = await transport.subscribe("p", ["events"], offsets=load)
    with pytest.raises(OSError, match="away"):
        await subscription.poll()
    assert len(await subscription.poll()) == 1


async def test_seek_makes_the_next_poll_continue_there(transport):
    subscription = await transport.subscribe("g", ["commands"])
    for number in range(4):
        await transport.publish(message("k", str(number), "commands"))
    await read(subscription, 4)
    subscription.seek(("commands", 0), 1)
    assert [int(each.body) for each in await read(subscription, 3)] == [1, 2, 3]
    with pytest.raises(ValueError, match="0 or more"):
        subscription.seek(("commands", 0), -1)


async def test_a_topic_that_passes_drops_what_all_groups_are_done_with(transport, monkeypatch):
    monkeypatch.setattr(local_module, "TRIM_MESSAGES", 2)
    groups = [await transport.subscribe(name, ["commands"]) for name in ("g", "h")]
    for number in range(10):
        await transport.publish(message("k", str(number), "commands"))
    queue = transport.queue(("commands", 0))
    for each in await read(groups[0], 10):
        groups[0].ack(each)
    assert len(queue.messages) == 10
    for each in await read(groups[1], 10):
        groups[1].ack(each)
    assert len(queue.messages) < 2
    await transport.publish(message("k", "10", "commands"))
    assert (await groups[0].poll())[0].offset == 10


async def test_a_topic_that_is_kept_drops_nothing(transport, monkeypatch):
    monkeypatch.setattr(local_module, "TRIM_MESSAGES", 1)
    subscription = await transport.subscribe("g", ["events"])
    for _ in range(5):
        await transport.publish(message("k"))
    for each in await read(subscription, 5):
        subscription.ack(each)
    late = await transport.subscribe("late", ["events"])
    assert len(await read(late, 5)) == 5


async def test_a_full_queue_refuses(transport, monkeypatch):
    monkeypatch.setattr(local_module, "QUEUE_MESSAGES_MAX", 2)
    for _ in range(2):
        await transport.publish(message("k"))
    with pytest.raises(HeadraceError, match="full"):
        await transport.publish(message("k"))


async def test_an_unknown_topic_is_an_error_and_an_existing_one_stays_as_it_is(transport):
    with pytest.raises(HeadraceError, match="no topic 'nothing'; ensure_topic"):
        await transport.publish(message("k", topic="nothing"))
    with pytest.raises(HeadraceError, match="no topic 'nothing'"):
        await transport.subscribe("g", ["nothing"])
    await transport.publish(message("k", "kept", "commands"))
    await transport.ensure_topic("commands", queues=9, forever=False)
    with pytest.raises(HeadraceError, match="until its groups are done, which cannot change"):
        await transport.ensure_topic("commands", queues=1, forever=True)
    with pytest.raises(HeadraceError, match="kept for ever"):
        await transport.ensure_topic("events", queues=3, forever=False)
    subscription = await transport.subscribe("g", ["commands"])
    assert (await subscription.poll())[0].body == b"kept"


async def test_a_closed_subscription_raises_and_a_waiting_poll_ends(transport):
    subscription = await transport.subscribe("g", ["events"])
    polling = asyncio.create_task(subscription.poll())
    await asyncio.sleep(0)
    await subscription.aclose()
    await subscription.aclose()
    with pytest.raises(HeadraceError, match="closed"):
        await polling


async def test_a_closed_transport_takes_nothing_and_closes_its_subscriptions(transport):
    subscription = await transport.subscribe("g", ["events"])
    await transport.aclose()
    with pytest.raises(HeadraceError, match="closed"):
        await subscription.poll()
    with pytest.raises(HeadraceError, match="closed"):
        await transport.publish(message("k"))
    with pytest.raises(HeadraceError, match="closed"):
        await transport.subscribe("g", ["events"])


async def test_a_reply_reaches_the_receiver_of_its_address_and_nobody_else(transport):
    replies = []
    await transport.reply(transport.reply_address, "early", b"")
    transport.on_reply(lambda correlation, body: replies.append((correlation, body)))
    await transport.reply(transport.reply_address, "c", b"result")
    await transport.reply("elsewhere", "c", b"lost")
    assert replies == [("c", b"result")]


async def test_a_publisher_is_told_the_place_and_a_group_how_far_it_is():
    transport = LocalTransport()
    await transport.ensure_topic("t", queues=3, forever=True)
    assert await transport.committed("g", "t") == {}
    subscription = await transport.subscribe("g", ["t"])
    places = [await transport.publish(Outgoing(topic="t", key="k", body=b"")) for _ in range(3)]
    assert [place.offset for place in places] == [0, 1, 2]
    messages = await subscription.poll()
    assert [message.queue[1] for message in messages] == [place.queue for place in places]
    subscription.ack(messages[1])
    assert await transport.committed("g", "t") == {}
    subscription.ack(messages[0])
    assert await transport.committed("g", "t") == {places[0].queue: 2}
    await transport.aclose()


class FixedClock:
    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic_ms(self):
        return 0


async def test_a_scheduled_message_arrives_when_it_is_due_and_not_before():
    transport = LocalTransport(FixedClock())
    await transport.ensure_topic("events", queues=1, forever=True)
    subscription = await transport.subscribe("g", ["events"])
    now = FixedClock().now()
    await transport.schedule(message("k", "far"), now + timedelta(days=1))
    await transport.schedule(message("k", "past"), now - timedelta(days=1))
    await transport.publish(message("k", "plain"))
    bodies = []
    while len(bodies) < 2:
        bodies += [each.body for each in await subscription.poll()]
    assert sorted(bodies) == [b"past", b"plain"]
    await transport.aclose()
    with pytest.raises(HeadraceError, match="closed"):
        await transport.schedule(message("k", "late"), now)


async def test_a_message_cannot_be_scheduled_for_a_topic_that_is_not_there(transport):
    with pytest.raises(HeadraceError, match="no topic"):
        await transport.schedule(message("k", topic="other"), FixedClock().now())


async def test_who_does_not_wait_is_told_later_the_place_or_why_there_is_none(transport):
    told = []
    assert transport.publish_soon(Outgoing(topic="events", key="k", body=b"1"), told.append)
    assert transport.publish_soon(Outgoing(topic="nowhere", key="k", body=b""), told.append)
    assert told == []
    await asyncio.sleep(0)
    place, error = told
    assert (place.offset, type(error)) == (0, HeadraceError)


async def test_what_waits_is_counted_from_an_offset_and_dated_by_its_first_message():
    clock = FakeClock()
    transport = LocalTransport(clock)
    await transport.ensure_topic("t", queues=1, forever=True)
    began = clock.now()
    for _ in range(3):
        await transport.publish(Outgoing(topic="t", key="k", body=b""))
        clock.advance(1_000)
    for offset, count, age in ((0, 3, 0), (2, 1, 2), (3, 0, None)):
        [waiting] = await transport.waiting("t", {0: offset})
        assert (waiting.queue, waiting.end, waiting.count) == (("t", 0), 3, count)
        assert waiting.since == (None if age is None else began + timedelta(seconds=age))
    await transport.aclose()
