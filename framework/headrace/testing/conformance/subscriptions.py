"""
What every subscription must do, sentence by sentence of the `Subscription` port.

Part of `TransportConformance`.
"""

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from headrace.transports.base import Incoming, Outgoing, Place, QueueId, Subscription, Transport

__all__ = ["SubscriptionConformance", "fresh", "new_topic", "outgoing", "publish_all", "take"]

# How long a test waits for a message before it says that it never came.
PATIENCE_S: Final = 30.0


def fresh(what: str) -> str:
    """Makes a name that no other test uses: one queue may serve all of them."""
    return f"{what}-{uuid.uuid4().hex[:12]}"


async def new_topic(transport: Transport, queues: int = 1) -> str:
    """Makes a topic of a test's own that keeps its messages."""
    topic = fresh("topic")
    await transport.ensure_topic(topic, queues=queues, forever=True)
    return topic


def outgoing(topic: str, body: int, key: str = "k") -> Outgoing:
    """Makes a message whose body is a number."""
    return Outgoing(topic, key, str(body).encode(), "tag", {"h": "1"})


async def publish_all(transport: Transport, messages: Iterable[Outgoing]) -> list[Place]:
    """Publishes one after the other."""
    return [await transport.publish(each) for each in messages]


async def take(subscription: Subscription, count: int) -> list[Incoming]:
    """Polls until so many messages have come.

    Raises:
        AssertionError: they did not come in time, or a poll returned nothing.
    """
    messages: list[Incoming] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(messages) < count:
                found = await subscription.poll()
                assert found, "a poll returns messages, or waits"
                messages += found
    except TimeoutError:
        raise AssertionError(f"{len(messages)} of {count} messages came") from None
    return messages


def numbers(messages: Iterable[Incoming]) -> list[int]:
    """Returns the bodies of `outgoing` messages."""
    return [int(each.body) for each in messages]


class SubscriptionConformance:
    """The part of the suite about groups, positions and delivery; fixtures as the whole suite's."""

    # Delivery.

    async def test_a_message_arrives_whole_at_its_place(self, transport: Transport) -> None:
        """Key, tag, headers and body arrive as they left, at the place that `publish` returned."""
        topic = await new_topic(transport, queues=3)
        sent = [
            Outgoing(topic, "ä☂", bytes(range(256)), "tag", {"a": "ü☂", "b": ""}),
            Outgoing(topic, "k", b""),
            Outgoing(topic, "k", b"x" * 200_000, "", {"a": "y" * 5_000}),
        ]
        places = await publish_all(transport, sent)
        subscription = await transport.subscribe(fresh("g"), [topic])
        arrived = {(each.queue, each.offset): each for each in await take(subscription, 3)}
        await subscription.aclose()
        for message, place in zip(sent, places, strict=True):
            found = arrived[(topic, place.queue), place.offset]
            assert (found.key, found.tag, found.body) == (message.key, message.tag, message.body)
            assert dict(found.headers) == dict(message.headers)

    async def test_messages_of_a_key_stand_in_one_queue_in_their_order(
        self, transport: Transport
    ) -> None:
        """Order holds within a key; different keys spread over the queues."""
        topic = await new_topic(transport, queues=3)
        subscription = await transport.subscribe(fresh("g"), [topic])
        sent = [outgoing(topic, number, f"k-{number % 7}") for number in range(70)]
        await publish_all(transport, sent)
        messages = await take(subscription, 70)
        await subscription.aclose()
        for key in {each.key for each in messages}:
            own = [each for each in messages if each.key == key]
            assert len({each.queue for each in own}) == 1
            assert numbers(own) == sorted(numbers(own))
            assert [each.offset for each in own] == sorted(each.offset for each in own)
        assert len({each.queue for each in messages}) > 1

    async def test_a_poll_waits_for_a_message(self, transport: Transport) -> None:
        """It neither returns an empty list nor needs another call."""
        topic = await new_topic(transport)
        subscription = await transport.subscribe(fresh("g"), [topic])
        polling = asyncio.create_task(take(subscription, 1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not polling.done()
        await transport.publish(outgoing(topic, 7))
        assert numbers(await polling) == [7]
        await subscription.aclose()

    async def test_a_poll_that_is_given_up_loses_nothing(self, transport: Transport) -> None:
        """A cancelled poll raises CancelledError, and the next one continues from the same place."""
        topic = await new_topic(transport)
        subscription = await transport.subscribe(fresh("g"), [topic])
        got: list[Incoming] = []
        for number in range(20):
            polling = asyncio.create_task(subscription.poll())
            for _ in range(number % 4):
                await asyncio.sleep(0)
            publishing = asyncio.create_task(transport.publish(outgoing(topic, number)))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            polling.cancel()
            with suppress(asyncio.CancelledError):
                got += await polling
            await publishing
        if len(got) < 20:
            got += await take(subscription, 20 - len(got))
        assert numbers(got) == list(range(20))
        await subscription.aclose()

    async def test_one_subscription_may_follow_several_topics(self, transport: Transport) -> None:
        """It gets the messages of all of them."""
        topics = [await new_topic(transport) for _ in range(2)]
        subscription = await transport.subscribe(fresh("g"), topics)
        await publish_all(transport, [outgoing(topic, 1) for topic in topics])
        assert {each.queue[0] for each in await take(subscription, 2)} == set(topics)
        await subscription.aclose()

    # Groups.

    async def test_every_group_gets_every_message_also_one_that_comes_late(
        self, transport: Transport
    ) -> None:
        """What one group is done with is still there for the others."""
        topic = await new_topic(transport)
        early = await transport.subscribe(fresh("early"), [topic])
        await publish_all(transport, [outgoing(topic, number) for number in range(5)])
        for each in await take(early, 5):
            early.ack(each)
        await early.aclose()
        late = await transport.subscribe(fresh("late"), [topic])
        assert numbers(await take(late, 5)) == [0, 1, 2, 3, 4]
        await late.aclose()

    async def test_the_members_of_a_group_share_its_messages(
        self, transport: Transport, twin: Transport
    ) -> None:
        """Each message comes to one of the subscribers, and none of them is idle."""
        topic, group = await new_topic(transport, queues=4), fresh("g")
        members = [await one.subscribe(group, [topic]) for one in (transport, twin)]
        got: list[list[Incoming]] = [[], []]
        sent, news = 0, asyncio.Event()

        async def follow(number: int) -> None:
            while True:
                found = await members[number].poll()
                assert found, "a poll returns messages, or waits"
                for each in found:
                    members[number].ack(each)
                    got[number].append(each)
                news.set()

        following = [asyncio.create_task(follow(number)) for number in range(2)]
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (all(got) and sent >= 100):
                    await transport.publish(outgoing(topic, sent, f"k-{sent % 20}"))
                    sent += 1
                while len({each.body for some in got for each in some}) < sent:
                    news.clear()
                    await news.wait()
        except TimeoutError:
            raise AssertionError(f"of {sent} messages {[len(one) for one in got]} came") from None
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            for member in members:
                await member.aclose()
        arrived = numbers(got[0] + got[1])
        assert sorted(set(arrived)) == list(range(sent))
        # When a queue moves, some of its messages may come again; all of them do not.
        assert len(arrived) < sent + sent // 2

    async def test_a_member_that_leaves_hands_over_what_it_has_not_done(
        self, transport: Transport, twin: Transport
    ) -> None:
        """The next subscriber starts at the lowest unfinished message, even if later ones are done."""
        topic, group = await new_topic(transport), fresh("g")
        await publish_all(transport, [outgoing(topic, number) for number in range(5)])
        first = await transport.subscribe(group, [topic])
        messages = await take(first, 5)
        for done in (1, 0, 0, 3):
            first.ack(messages[done])
        await first.aclose()
        # Too late to say anything.
        first.ack(messages[2])
        second = await twin.subscribe(group, [topic])
        assert numbers(await take(second, 3)) == [2, 3, 4]
        await second.aclose()

    async def test_what_was_done_does_not_come_again(self, transport: Transport) -> None:
        """Acknowledged in any order, and twice, is done."""
        topic, group = await new_topic(transport), fresh("g")
        await publish_all(transport, [outgoing(topic, number) for number in range(3)])
        first = await transport.subscribe(group, [topic])
        messages = await take(first, 3)
        for done in (2, 0, 0, 1, 1):
            first.ack(messages[done])
        await first.aclose()
        await transport.publish(outgoing(topic, 3))
        second = await transport.subscribe(group, [topic])
        assert numbers(await take(second, 1)) == [3]
        await second.aclose()

    # Positions.

    async def test_a_group_that_keeps_its_offsets_decides_where_it_begins(
        self, transport: Transport
    ) -> None:
        """It is asked for its queues; acknowledging moves nothing at the queue."""
        topic, group = await new_topic(transport, queues=2), fresh("g")
        places = await publish_all(transport, [outgoing(topic, number) for number in range(6)])
        mine, asked = (topic, places[0].queue), set[QueueId]()

        async def load(queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
            asked.update(queues)
            return {mine: 4}

        for _ in range(2):
            subscription = await transport.subscribe(group, [topic], offsets=load)
            messages = await take(subscription, 2)
            assert numbers(messages) == [4, 5]
            for each in messages:
                subscription.ack(each)
            await subscription.aclose()
        assert asked == {(topic, 0), (topic, 1)}
        assert await transport.committed(group, topic) == {}

    async def test_a_queue_without_an_offset_begins_where_the_topic_begins(
        self, transport: Transport
    ) -> None:
        """A loader may leave queues out."""
        topic = await new_topic(transport)
        await publish_all(transport, [outgoing(topic, number) for number in range(2)])

        async def load(_queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
            return {}

        subscription = await transport.subscribe(fresh("g"), [topic], offsets=load)
        assert numbers(await take(subscription, 2)) == [0, 1]
        await subscription.aclose()

    async def test_an_offset_beyond_the_end_is_taken_for_the_end(
        self, transport: Transport
    ) -> None:
        """The next message that is published comes, although its offset is lower."""
        topic = await new_topic(transport, queues=2)
        first = await transport.publish(outgoing(topic, 0))

        async def load(queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
            return dict.fromkeys(queues, 1_000)

        subscription = await transport.subscribe(fresh("g"), [topic], offsets=load)
        polling = asyncio.create_task(take(subscription, 1))
        # The end of the queue is read at some moment; messages published before it may be skipped.
        number = 0
        while not polling.done():
            number += 1
            await transport.publish(outgoing(topic, number))
        [message, *_] = await polling
        assert message.queue == (topic, first.queue)
        assert 0 < message.offset < 1_000
        await subscription.aclose()

    async def test_a_loader_that_fails_is_asked_again(self, transport: Transport) -> None:
        """The poll raises what the loader raised, and the next one delivers."""
        topic = await new_topic(transport)
        await transport.publish(outgoing(topic, 0))
        failures = [OSError("the database is away")]

        async def load(_queues: Sequence[QueueId]) -> Mapping[QueueId, int]:
            if failures:
                raise failures.pop()
            return {}

        subscription = await transport.subscribe(fresh("g"), [topic], offsets=load)
        raised: BaseException | None = None
        try:
            await take(subscription, 1)
        except OSError as error:
            raised = error
        assert str(raised) == "the database is away"
        assert numbers(await take(subscription, 1)) == [0]
        await subscription.aclose()

    async def test_a_seek_makes_the_next_poll_go_on_there(self, transport: Transport) -> None:
        """Back and forth; of a queue that is not the member's it says nothing."""
        topic, group = await new_topic(transport), fresh("g")
        await publish_all(transport, [outgoing(topic, number) for number in range(4)])
        subscription = await transport.subscribe(group, [topic])
        messages = await take(subscription, 4)
        subscription.seek((topic, 0), 1)
        assert numbers(await take(subscription, 3)) == [1, 2, 3]
        subscription.seek((topic, 0), 3)
        assert numbers(await take(subscription, 1)) == [3]
        subscription.seek((topic, 7), 0)
        subscription.seek((fresh("topic"), 0), 0)
        try:
            subscription.seek((topic, 0), -1)
        except ValueError:
            pass
        else:
            raise AssertionError("an offset is 0 or more")
        await transport.publish(outgoing(topic, 4))
        assert numbers(await take(subscription, 1)) == [4]
        assert messages[0].offset == 0
        await subscription.aclose()

    # The end.

    async def test_a_closed_subscription_raises_an_error(self, transport: Transport) -> None:
        """Also a poll that waits ends by it; closing twice is closing."""
        topic = await new_topic(transport)
        subscription = await transport.subscribe(fresh("g"), [topic])
        polling = asyncio.create_task(subscription.poll())
        for _ in range(10):
            await asyncio.sleep(0)
        await subscription.aclose()
        await subscription.aclose()
        waited = asyncio.create_task(subscription.poll())
        done, open_ = await asyncio.wait({polling, waited}, timeout=PATIENCE_S)
        for task in open_:
            task.cancel()
        assert not open_, "a poll of a closed subscription ends"
        for task in done:
            assert not task.cancelled()
            assert isinstance(task.exception(), Exception)
