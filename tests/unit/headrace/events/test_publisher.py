"""Publishing: at least once, each aggregate in order."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace._runtime.backoff import Backoff
from headrace._runtime.tasks import TaskSet
from headrace.events.publisher import WAVE_MAX, Publisher, event_topic, message_topic
from headrace.transports.base import Place
from headrace.transports.local import LocalTransport


class WatchedTransport(LocalTransport):
    """Notes what it takes; fails for the command ids it is told to, that often."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []
        self.messages = []
        self.failures: dict[str, int] = {}
        self.go_on = asyncio.Event()
        self.go_on.set()
        # How many messages it takes before it has no room any more.
        self.rooms = 0

    async def publish(self, message) -> Place:
        await self.go_on.wait()
        self._take(message)
        return await super().publish(message)

    def publish_soon(self, message, told) -> bool:
        if not self.rooms:
            return False
        self.rooms -= 1
        try:
            self._take(message)
        except OSError as error:
            asyncio.get_running_loop().call_soon(told, error)
            return True
        return super().publish_soon(message, told)

    def _take(self, message) -> None:
        command_id = message.headers["command"]
        if self.failures.get(command_id):
            self.failures[command_id] -= 1
            raise OSError("the broker is away")
        self.taken.append(command_id)
        self.messages.append(message)


@pytest.fixture(params=[0, 10_000], ids=["full", "roomy"])
async def transport(request) -> AsyncIterator[WatchedTransport]:
    """A transport with the event topic, which has no room or much."""
    transport = WatchedTransport()
    transport.rooms = request.param
    await transport.ensure_topic("app.events", queues=2, forever=True)
    await transport.ensure_topic("app.messages", queues=2, forever=False)
    yield transport
    await transport.aclose()


@pytest.fixture
async def publish(transport, serializer) -> AsyncIterator:
    """Publishes streams and returns, once all are, the command ids in the order of the calls."""
    tasks = TaskSet("test")
    publisher = Publisher(
        name="app",
        transport=transport,
        serializer=serializer,
        tasks=tasks,
        backoff=Backoff(ms_min=1, ms_max=1),
    )

    async def publish(*streams) -> list[str]:
        done: list[str] = []
        everything = asyncio.Event()

        def published(command_id: str) -> None:
            done.append(command_id)
            if len(done) == len(streams):
                everything.set()

        for stream in streams:
            publisher.offer(
                stream,
                serializer.encode_stream(stream),
                lambda place, command_id=stream.command_id: published(command_id),
            )
        await tasks.watch(everything.wait())
        return done

    yield publish
    await tasks.aclose()


def test_the_event_topic_is_named_after_the_application():
    assert event_topic("bank") == "bank.events"
    assert message_topic("bank") == "bank.messages"


async def test_a_stream_becomes_a_message_of_its_aggregates_key(
    publish, transport, serializer, stream
):
    events = stream("a-1", 3, "c-1")
    await publish(events)
    (message,) = transport.messages
    assert (message.topic, message.key, message.tag) == ("app.events", "a-1", "Thing")
    assert message.headers == {"kind": "events", "version": "3", "command": "c-1"}
    assert serializer.decode_stream(message.body) == events


async def test_a_rejections_message_has_its_kind_and_no_version(publish, transport, stream):
    await publish(stream("a-1", None, "c-1"))
    (message,) = transport.messages
    assert message.headers == {"kind": "rejection", "version": "", "command": "c-1"}


async def test_streams_of_one_aggregate_are_published_in_the_order_of_the_calls(
    publish, transport, stream
):
    streams = [stream("a", version) for version in range(1, 2 * WAVE_MAX + 50)]
    ids = [each.command_id for each in streams]
    assert await publish(*streams) == ids
    assert transport.taken == ids


async def test_streams_from_a_failure_on_are_published_again_in_order(publish, transport, stream):
    transport.failures = {"a-3": 5}
    done = await publish(*(stream("a", version) for version in range(1, 7)))
    assert done == [f"a-{version}" for version in range(1, 7)]
    last = transport.taken.index("a-3")
    assert transport.taken[last:] == ["a-3", "a-4", "a-5", "a-6"]
    assert transport.taken[:2] == ["a-1", "a-2"]


async def test_a_stream_is_published_only_after_the_streams_before_it(publish, transport, stream):
    transport.failures = {"a-1": 3}
    assert await publish(stream("a", 1), stream("a", 2)) == ["a-1", "a-2"]


async def test_messages_behind_one_without_room_wait_for_it(publish, transport, stream):
    transport.rooms = 2
    transport.go_on.clear()
    publishing = asyncio.ensure_future(publish(*(stream("a", version) for version in range(1, 6))))
    while len(transport.taken) < 2:
        await asyncio.sleep(0)
    transport.rooms = 10_000
    transport.go_on.set()
    assert await publishing == [f"a-{version}" for version in range(1, 6)]
    assert transport.taken == [f"a-{version}" for version in range(1, 6)]


async def test_a_bug_in_a_publications_callback_stops_the_owner(transport, serializer, stream):
    tasks = TaskSet("test")
    publisher = Publisher(
        name="app",
        transport=transport,
        serializer=serializer,
        tasks=tasks,
        backoff=Backoff(ms_min=1, ms_max=1),
    )

    def published(place: Place | None) -> None:
        raise AssertionError("a defect")

    events = stream("a", 1)
    publisher.offer(events, serializer.encode_stream(events), published)
    with pytest.raises(AssertionError, match="a defect"):
        await tasks.watch(asyncio.Event().wait())
    await tasks.aclose()


async def test_a_stopped_owner_gets_no_report(transport, serializer, stream):
    tasks = TaskSet("test")
    publisher = Publisher(
        name="app",
        transport=transport,
        serializer=serializer,
        tasks=tasks,
        backoff=Backoff(ms_min=1, ms_max=1),
    )
    done = []
    events = stream("a", 1)
    publisher.offer(events, serializer.encode_stream(events), done.append)
    await tasks.aclose()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (done, len(tasks)) == ([], 0)


async def test_other_aggregates_are_not_held_up_by_one_that_fails(publish, transport, stream):
    transport.failures = {"a-1": 3}
    done = await publish(stream("a", 1), stream("b", 1))
    assert done == ["b-1", "a-1"]


async def test_application_messages_follow_the_events_of_their_command_in_a_topic_of_their_own(
    publish, transport, serializer, stream, told
):
    both = told(stream("a", 1), "one", "two")
    alone = told(stream("a", None, "c-2"), "three")
    assert await publish(both, alone) == ["a-1", "c-2"]
    assert [message.topic for message in transport.messages] == [
        "app.events",
        "app.messages",
        "app.messages",
        "app.messages",
    ]
    found = [serializer.decode_message(message.body) for message in transport.messages[1:]]
    assert [(message.text, context.message_id) for message, context in found] == [
        ("one", "a/a-1/1"),
        ("two", "a/a-1/2"),
        ("three", "a/c-2/1"),
    ]
    assert {(message.key, message.tag) for message in transport.messages[1:]} == {("a", "Told")}


async def test_messages_are_published_again_with_their_events_after_a_failure(
    publish, transport, stream, told
):
    transport.failures = {"a-1": 2}
    assert await publish(told(stream("a", 1), "one"), told(stream("a", 2), "two")) == ["a-1", "a-2"]
    topics = [(message.topic, message.headers["command"]) for message in transport.messages]
    # Nothing is missing at the end, and what was sent too early came again.
    assert topics[-4:] == [
        ("app.events", "a-1"),
        ("app.messages", "a-1"),
        ("app.events", "a-2"),
        ("app.messages", "a-2"),
    ]
