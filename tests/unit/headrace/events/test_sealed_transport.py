"""The door to the event topic: what goes out is sealed, and nothing foreign comes in."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.events.publisher import HEARTBEAT
from headrace.events.sealed_transport import SealedTransport, seal_events
from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.conformance.streams import conformance_serializer, stream
from headrace.transports.base import Outgoing, Place
from headrace.transports.local import LocalTransport

SERIALIZER = conformance_serializer()


def message(version: int, topic: str = "app.events", text: str = "x") -> Outgoing:
    body = SERIALIZER.encode_stream(stream("a", version, text=text))
    return Outgoing(topic, "a", body, "Notebook", {"kind": "events"})


@pytest.fixture
async def plain() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport()
    for topic in ("app.events", "app.commands"):
        await transport.ensure_topic(topic, queues=1, forever=True)
    yield transport
    await transport.aclose()


@pytest.fixture
def store() -> MemoryEventStore:
    return MemoryEventStore()


@pytest.fixture
async def sealed(plain: LocalTransport, store: MemoryEventStore) -> SealedTransport:
    transport, _ = await seal_events(plain, "app", store, SERIALIZER)
    return transport


async def test_published_messages_come_unchanged_but_for_the_seal(
    plain: LocalTransport, sealed: SealedTransport
) -> None:
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    await sealed.publish(message(1))
    assert sealed.publish_soon(message(2), told.set_result)
    assert isinstance(await told, Place)
    within = await sealed.subscribe("app.projection.one", ["app.events"])
    got: list[object] = []
    while len(got) < 2:
        got += [SERIALIZER.decode_stream(each.body) for each in await within.poll()]
    assert got == [stream("a", 1), stream("a", 2)]
    raw = await plain.subscribe("g", ["app.events"])
    (first, *_) = await raw.poll()
    assert b'"seal":"' in first.body


async def test_read_messages_are_checked_like_polled_ones(
    plain: LocalTransport, sealed: SealedTransport
) -> None:
    await sealed.publish(message(1))
    await plain.publish(message(2))
    found = [each async for some in sealed.read(("app.events", 0), 0, 2) for each in some]
    assert [each.tag for each in found] == ["Notebook", HEARTBEAT]
    await plain.publish(message(3, topic="app.commands"))
    ((command,),) = [some async for some in sealed.read(("app.commands", 0), 0, 1)]
    assert command.tag == "Notebook"


async def test_messages_of_other_topics_pass_unchanged(
    plain: LocalTransport, sealed: SealedTransport
) -> None:
    await sealed.publish(message(1, "app.commands"))
    subscription = await sealed.subscribe("app.commands", ["app.commands"])
    (found,) = await subscription.poll()
    assert found.body == message(1).body
    subscription.ack(found)
    await subscription.aclose()


async def test_a_forged_event_is_skipped_and_the_genuine_one_comes(
    plain: LocalTransport, sealed: SealedTransport
) -> None:
    await sealed.publish(message(1))
    await plain.publish(message(2, text="1000000"))
    await sealed.publish(message(2, text="5"))
    subscription = await sealed.subscribe("app.projection.one", ["app.events"])
    got = []
    while len(got) < 3:
        got += await subscription.poll()
    assert [each.key for each in got] == ["a", HEARTBEAT, "a"]
    assert SERIALIZER.decode_stream(got[2].body) == stream("a", 2, text="5")


async def test_messages_from_before_there_were_seals_come(
    plain: LocalTransport, store: MemoryEventStore, sealed: SealedTransport
) -> None:
    await store.append([stream("a", 1)])
    await plain.publish(message(1))
    subscription = await sealed.subscribe("app.projection.one", ["app.events"])
    (found,) = await subscription.poll()
    assert found.body == message(1).body


async def test_a_poll_cancelled_during_a_query_to_the_store_loses_no_message(
    plain: LocalTransport,
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    class Slow(MemoryEventStore):
        async def find_stored(self, commands):  # type: ignore[no-untyped-def]  # as the port
            asked.set()
            await answer.wait()
            return await super().find_stored(commands)

    slow = Slow()
    await slow.append([stream("a", 1)])
    await plain.publish(message(1))
    transport, _ = await seal_events(plain, "app", slow, SERIALIZER)
    subscription = await transport.subscribe("app.projection.one", ["app.events"])
    poll = asyncio.create_task(subscription.poll())
    await asked.wait()
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)
    answer.set()
    (found,) = await subscription.poll()
    assert found.body == message(1).body


async def test_a_seek_drops_unchecked_messages_of_its_queue(plain: LocalTransport) -> None:
    class Away(MemoryEventStore):
        away = True

        async def find_stored(self, commands):  # type: ignore[no-untyped-def]  # as the port
            if self.away:
                raise OSError("away")
            return await super().find_stored(commands)

    store = Away()
    await store.append([stream("a", 1), stream("a", 2)])
    for version in (1, 2):
        await plain.publish(message(version))
    transport, _ = await seal_events(plain, "app", store, SERIALIZER)
    subscription = await transport.subscribe("app.projection.one", ["app.events"])
    with pytest.raises(OSError, match="away"):
        await subscription.poll()
    store.away = False
    subscription.seek(("app.events", 0), 1)
    (found,) = await subscription.poll()
    assert found.offset == 1
