"""
What every transport must do, sentence by sentence of the `Transport` port.

    class TestMyTransport(TransportConformance):
        @pytest.fixture
        async def transport(self): ...    # connected; what it holds does not matter

        @pytest.fixture
        async def twin(self, transport): ...    # of another process on the same queue, or the same

    class TestMyDurableTransport(DurableTransportConformance):    # if it outlives the process
        @pytest.fixture
        async def transport(self): ...

        @pytest.fixture
        def reopen(self, transport): ...    # kills and starts the queue; a coroutine function that
                                            # returns a transport connected to what is left

Subclass it in the tests of your adapter.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.testing.conformance.subscriptions import (
    PATIENCE_S,
    SubscriptionConformance,
    fresh,
    new_topic,
    numbers,
    outgoing,
    publish_all,
    take,
)
from headrace.transports.base import Incoming, Place, QueueId, Transport

__all__ = ["DurableTransportConformance", "TransportConformance"]

# How far ahead a test schedules a message: a busy queue takes the next one before that. And how exact the clocks of queue
# and test are.
AHEAD = timedelta(seconds=1)
CLOCK_EXACT_TO = timedelta(milliseconds=50)


async def _read(transport: Transport, queue: QueueId, first: int, end: int) -> list[Incoming]:
    return [each async for some in transport.read(queue, first, end) for each in some]


async def _raises(work: Coroutine[Any, Any, object]) -> bool:
    """Whether it raises an error; which one is the adapter's choice."""
    try:
        await work
    except Exception:  # noqa: BLE001 - the adapter's choice
        return True
    return False


class TransportConformance(SubscriptionConformance):
    """The suite; subclass it with the fixtures `transport` and `twin`."""

    # Publishing.

    async def test_a_place_is_the_next_one_of_its_queue(self, transport: Transport) -> None:
        """Offsets count from 0 without a gap; a key has one queue."""
        topic = await new_topic(transport, queues=3)
        places = await publish_all(transport, [outgoing(topic, number) for number in range(3)])
        assert [place.offset for place in places] == [0, 1, 2]
        assert len({place.queue for place in places}) == 1

    async def test_a_message_takes_its_place_before_the_first_suspension(
        self, transport: Transport
    ) -> None:
        """Tasks that publish, and those who do not wait, keep the order in which they began."""
        topic = await new_topic(transport)
        told: list[Place | BaseException] = []
        publishing: list[asyncio.Task[Place]] = []
        for number in range(0, 40, 2):
            publishing.append(asyncio.create_task(transport.publish(outgoing(topic, number))))
            await asyncio.sleep(0)
            assert transport.publish_soon(outgoing(topic, number + 1), told.append)
        together = [outgoing(topic, number) for number in range(40, 60)]
        publishing += [asyncio.create_task(transport.publish(each)) for each in together]
        await asyncio.gather(*publishing)
        assert numbers(await _read(transport, (topic, 0), 0, 60)) == list(range(60))

    async def test_who_does_not_wait_is_told_later_and_once(self, transport: Transport) -> None:
        """The callback never runs during the call; it gets what `publish` would return or raise."""
        topic = await new_topic(transport)
        told: list[Place | BaseException] = []
        assert transport.publish_soon(outgoing(topic, 0), told.append)
        assert told == [], "reports come after the call"
        place = await transport.publish(outgoing(topic, 1))
        await publish_all(transport, [outgoing(topic, number) for number in range(2, 5)])
        assert told == [Place(place.queue, 0)]

    async def test_a_publisher_that_gives_up_leaves_the_others_in_order(
        self, transport: Transport
    ) -> None:
        """The message of a cancelled call comes once or not at all."""
        topic = await new_topic(transport)
        publishing = [
            asyncio.create_task(transport.publish(outgoing(topic, number))) for number in range(9)
        ]
        await asyncio.sleep(0)
        publishing[4].cancel()
        await asyncio.gather(*publishing, return_exceptions=True)
        last = await transport.publish(outgoing(topic, 9))
        found = numbers(await _read(transport, (topic, 0), 0, last.offset + 1))
        assert [number for number in found if number != 4] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert found == sorted(found)

    async def test_a_scheduled_message_takes_its_place_when_it_is_due(
        self, transport: Transport
    ) -> None:
        """A delayed message does not come early; one that is overdue comes at once."""
        topic = await new_topic(transport)
        subscription = await transport.subscribe(fresh("g"), [topic])
        due = datetime.now(UTC) + AHEAD
        await transport.schedule(outgoing(topic, 2), due)
        await transport.schedule(outgoing(topic, 1), datetime(2000, 1, 1, tzinfo=UTC))
        messages = await take(subscription, 1)
        assert numbers(messages) == [1]
        messages += await take(subscription, 1)
        assert datetime.now(UTC) >= due - CLOCK_EXACT_TO
        assert numbers(messages) == [1, 2]
        assert [each.offset for each in messages] == [0, 1]
        await subscription.aclose()

    async def test_a_message_is_scheduled_by_a_delay_too(self, transport: Transport) -> None:
        """It does not come early, and one without a delay comes at once."""
        topic = await new_topic(transport)
        subscription = await transport.subscribe(fresh("g"), [topic])
        loop = asyncio.get_running_loop()
        began = loop.time()
        await transport.schedule(outgoing(topic, 2), AHEAD)
        await transport.schedule(outgoing(topic, 1), timedelta(0))
        messages = await take(subscription, 1)
        messages += await take(subscription, 1)
        assert loop.time() - began >= (AHEAD - CLOCK_EXACT_TO).total_seconds()
        assert numbers(messages) == [1, 2]
        await subscription.aclose()

    # What a topic holds, and how far groups are.

    async def test_a_topic_that_is_there_stays_as_it_is(
        self, transport: Transport, twin: Transport
    ) -> None:
        """It never has fewer queues than it had, and how long it keeps messages does not change."""
        topic = await new_topic(transport, queues=2)
        await transport.publish(outgoing(topic, 0))
        before = await transport.topic_lineage(topic)
        await twin.ensure_topic(topic, queues=1, forever=True)
        assert await _raises(twin.ensure_topic(topic, queues=2, forever=False))
        assert await transport.topic_lineage(topic) == before
        assert len(await twin.waiting(topic, {})) == 2

    async def test_a_group_is_told_how_far_it_is(self, transport: Transport) -> None:
        """A group has an offset in each queue where it has acknowledged a message: the lowest one not done."""
        topic, group = await new_topic(transport, queues=3), fresh("g")
        assert await transport.committed(group, topic) == {}
        places = await publish_all(transport, [outgoing(topic, number) for number in range(3)])
        subscription = await transport.subscribe(group, [topic])
        messages = await take(subscription, 3)
        for done in (2, 0):
            subscription.ack(messages[done])
        await subscription.aclose()
        committed = await transport.committed(group, topic)
        assert committed[places[0].queue] == 1
        # An adapter may report the beginning as the group's offset in a queue without messages.
        assert set(committed.values()) <= {0, 1}

    async def test_what_waits_is_counted_from_an_offset(self, transport: Transport) -> None:
        """Per queue, in the order of their numbers, with the age of the first message."""
        topic = await new_topic(transport, queues=2)
        before = datetime.now(UTC) - CLOCK_EXACT_TO
        places = await publish_all(transport, [outgoing(topic, number) for number in range(3)])
        mine = places[0].queue
        for offset, count in ((None, 3), (0, 3), (2, 1), (3, 0)):
            found = await transport.waiting(topic, {} if offset is None else {mine: offset})
            assert [each.queue for each in found] == [(topic, 0), (topic, 1)]
            assert (found[mine].end, found[mine].count) == (3, count)
            other = found[1 - mine]
            assert (other.end, other.count, other.since) == (0, 0, None)
            since = found[mine].since
            if count:
                assert since is not None
                assert before <= since <= datetime.now(UTC) + CLOCK_EXACT_TO
            else:
                assert since is None

    async def test_a_topic_has_an_identity_and_ranges(
        self, transport: Transport, twin: Transport
    ) -> None:
        """A topic has one identity for all callers, and no other topic has it; a missing topic is an error."""
        topic, other = await new_topic(transport, queues=2), await new_topic(transport)
        empty = await transport.topic_lineage(topic)
        assert empty.is_empty
        assert set(empty.ranges) == {0, 1}
        place = await transport.publish(outgoing(topic, 0))
        lineage = await twin.topic_lineage(topic)
        assert lineage.identity == empty.identity
        assert lineage.ranges[place.queue] == (0, 1)
        assert not lineage.is_empty
        assert (await transport.topic_lineage(other)).identity != lineage.identity or (
            lineage.identity == ""
        )
        assert await _raises(transport.topic_lineage(fresh("nowhere")))

    async def test_a_queue_is_read_for_no_group(self, transport: Transport) -> None:
        """A range has the messages from one offset to before another, in order, as far as there are any."""
        topic, group = await new_topic(transport, queues=2), fresh("g")
        sent = [outgoing(topic, number) for number in range(600)]
        place, *_ = await asyncio.gather(*[transport.publish(each) for each in sent])
        queue, empty = (topic, place.queue), (topic, 1 - place.queue)
        for first, end, expected in ((0, 600, 600), (3, 5, 2), (5, 5, 0), (598, 1_000, 2)):
            found = await _read(transport, queue, first, end)
            assert numbers(found) == list(range(first, first + expected))
            assert [each.offset for each in found] == numbers(found)
            assert {each.queue for each in found} <= {queue}
        assert await _read(transport, empty, 0, 5) == []
        assert await transport.committed(group, topic) == {}

    async def test_no_message_is_damaged_and_no_group_is_paused(self, transport: Transport) -> None:
        """Of a queue with whom all is well; to mark damage changes nothing for its readers."""
        topic, group = await new_topic(transport), fresh("g")
        transport.mark_damage(topic)
        subscription = await transport.subscribe(group, [topic])
        await transport.publish(outgoing(topic, 0))
        assert numbers(await take(subscription, 1)) == [0]
        assert topic not in transport.damaged()
        assert group not in await transport.paused()
        assert list(await transport.paused([group, fresh("unknown")])) == []
        await subscription.aclose()

    # Replies.

    async def test_a_reply_reaches_the_process_of_its_address(
        self, transport: Transport, twin: Transport
    ) -> None:
        """With its correlation and its body."""
        came: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        transport.on_reply(lambda correlation, body: came.put_nowait((correlation, body)))
        for number in range(3):
            await twin.reply(transport.reply_address, f"c-{number}", bytes([number, 255]))
        async with asyncio.timeout(PATIENCE_S):
            got = [await came.get() for _ in range(3)]
        assert sorted(got) == [(f"c-{number}", bytes([number, 255])) for number in range(3)]

    async def test_a_reply_that_is_not_waited_for_is_dropped(
        self, transport: Transport, twin: Transport
    ) -> None:
        """Neither an unknown address nor a process without a receiver is an error."""
        await twin.reply(transport.reply_address, "c-1", b"early")
        came: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        await twin.reply(fresh("elsewhere"), "c-2", b"lost")
        transport.on_reply(lambda correlation, body: came.put_nowait((correlation, body)))
        await twin.reply(transport.reply_address, "c-3", b"awaited")
        async with asyncio.timeout(PATIENCE_S):
            while (got := await came.get())[0] == "c-1":  # where it came after the receiver
                pass
        assert got == ("c-3", b"awaited")

    # The end.

    async def test_what_was_handed_over_goes_out_before_the_end(self, transport: Transport) -> None:
        """Closing waits for the outcome of a message under way."""
        topic = await new_topic(transport)
        told: list[Place | BaseException] = []
        for number in range(5):
            assert transport.publish_soon(outgoing(topic, number), told.append)
        await transport.aclose()
        await asyncio.sleep(0)
        assert told == [Place(0, number) for number in range(5)]

    async def test_a_closed_transport_takes_nothing(self, transport: Transport) -> None:
        """Each call says so; closing twice is closing."""
        topic = await new_topic(transport)
        await transport.aclose()
        await transport.aclose()
        assert await _raises(transport.publish(outgoing(topic, 0)))
        assert await _raises(transport.schedule(outgoing(topic, 0), datetime.now(UTC)))
        assert await _raises(transport.subscribe(fresh("g"), [topic]))
        told: asyncio.Queue[Place | BaseException] = asyncio.Queue()
        if transport.publish_soon(outgoing(topic, 0), told.put_nowait):
            async with asyncio.timeout(PATIENCE_S):
                assert isinstance(await told.get(), Exception)


class DurableTransportConformance:
    """What a durable transport must do; subclass it with the fixtures `transport` and `reopen`."""

    async def test_what_was_published_outlives_a_crash(
        self, transport: Transport, reopen: Callable[[], Awaitable[Transport]]
    ) -> None:
        """Every message with a place has it still, and the next one gets the next."""
        topic = await new_topic(transport)
        before = await transport.topic_lineage(topic)
        told: list[Place | BaseException] = []
        assert transport.publish_soon(outgoing(topic, 0), told.append)
        await publish_all(transport, [outgoing(topic, number) for number in range(1, 20)])
        after = await reopen()
        assert told == [Place(0, 0)]
        assert (await after.topic_lineage(topic)).identity == before.identity
        assert await after.publish(outgoing(topic, 20)) == Place(0, 20)
        assert numbers(await _read(after, (topic, 0), 0, 21)) == list(range(21))

    async def test_what_was_scheduled_outlives_a_crash(
        self, transport: Transport, reopen: Callable[[], Awaitable[Transport]]
    ) -> None:
        """A delayed message comes when it is due, or at once if it is overdue."""
        topic = await new_topic(transport)
        await transport.schedule(outgoing(topic, 1), datetime.now(UTC) + AHEAD)
        after = await reopen()
        subscription = await after.subscribe(fresh("g"), [topic])
        assert numbers(await take(subscription, 1)) == [1]
        await subscription.aclose()

    async def test_what_was_not_done_comes_again_after_a_crash(
        self, transport: Transport, reopen: Callable[[], Awaitable[Transport]]
    ) -> None:
        """From the lowest unfinished message on, or from further back; in order, and none is lost."""
        topic, group = await new_topic(transport), fresh("g")
        await publish_all(transport, [outgoing(topic, number) for number in range(10)])
        first = await transport.subscribe(group, [topic])
        for each in (await take(first, 10))[:4]:
            first.ack(each)
        after = await reopen()
        # It is connected again, and would keep its queue.
        await first.aclose()
        second = await after.subscribe(group, [topic])
        found: list[int] = []
        while not found or found[-1] < 9:
            found += numbers(await take(second, 1))
        assert found == list(range(found[0], 10))
        assert found[0] <= 4
        await second.aclose()
