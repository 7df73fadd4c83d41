"""What readers acknowledge is noted; where the topic is another one they all subscribe again."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from headrace.errors import LineageError
from headrace.events.publisher import HEARTBEAT
from headrace.lineage.marked_transport import MarkedTransport, TopicReplaced
from headrace.lineage.verdict import Mark
from headrace.transports.base import DAMAGED, Incoming, Outgoing
from headrace.transports.local import LocalTransport


class Door:
    """Lets readers in, or not."""

    refused = False
    asked = 0
    trimmed = False
    damaged: Sequence[Incoming] = ()
    begins: Any = None

    async def enter(self) -> None:
        self.asked += 1
        if self.refused:
            raise LineageError("no")

    async def require(
        self, reader: str, begins: Mapping[int, int], queues: Collection[int] | None
    ) -> None:
        self.begins = (reader, dict(begins), queues)
        if self.trimmed:
            raise LineageError("events were trimmed")

    async def note(self, markers: Sequence[Incoming]) -> None:
        self.damaged = [*self.damaged, *markers]


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture
async def marked(door: Door) -> MarkedTransport:
    plain = LocalTransport()
    await plain.ensure_topic("t", queues=1, forever=True)
    return MarkedTransport(plain, {"g": "reader"}, door.enter, door.note, door.require)


async def send(marked: Any, *commands: str, tag: str = "") -> None:
    for command in commands:
        await marked.publish(Outgoing("t", "k", b"", tag, {"command": command}))


async def test_the_last_message_that_is_done_is_noted(marked: MarkedTransport) -> None:
    subscription = await marked.subscribe("g", ["t"])
    await send(marked, "1", "2")
    await send(marked, "beat", tag=HEARTBEAT)
    first, second, beat = await subscription.poll()
    assert not marked.seen["reader"].changed
    subscription.ack(first)
    subscription.ack(second)
    assert marked.seen["reader"].changed
    assert marked.seen["reader"].marks() == {
        0: Mark(next_offset=2, message_id="2", stream=("k", "2"))
    }
    subscription.ack(beat)
    # A heartbeat is a message of the topic, and in no store.
    assert marked.seen["reader"].marks() == {
        0: Mark(next_offset=3, message_id="beat", stream=("k", "2"))
    }


async def test_readers_are_checked_before_their_offsets_are_loaded(
    marked: MarkedTransport, door: Door
) -> None:
    loaded: list[Any] = []

    async def load(queues: Any) -> dict[Any, int]:
        loaded.extend(queues)
        return {}

    subscription = await marked.subscribe("g", ["t"], offsets=load)
    await send(marked, "1")
    door.refused = True
    with pytest.raises(LineageError):
        await subscription.poll()
    assert loaded == []
    with pytest.raises(LineageError):
        await marked.subscribe("g", ["t"])
    # Others are nobody's concern.
    await marked.subscribe("another", ["t"])


async def test_no_reader_goes_past_damage_before_it_is_stored(
    marked: MarkedTransport, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = await marked.subscribe("g", ["t"])
    await send(marked, "1")
    marker = Outgoing("t", "", b"", "", {"kind": "rejection", DAMAGED: "1"})
    await marked.publish(marker)
    monkeypatch.setattr(LocalTransport, "damaged", lambda _: {"t": 1})
    noted = asyncio.Event()

    async def note(markers: Sequence[Incoming]) -> None:
        await noted.wait()
        await door.note(markers)

    monkeypatch.setattr(marked, "_note_damage", note)
    polled = asyncio.create_task(subscription.poll())
    await asyncio.wait({polled}, timeout=0.01)
    assert not polled.done()
    # Who gives the poll up loses nothing by it.
    polled.cancel()
    await asyncio.gather(polled, return_exceptions=True)
    noted.set()
    messages = await subscription.poll()
    assert [each.offset for each in messages] == [0, 1]
    assert [each.offset for each in door.damaged] == [1]
    for each in messages:
        subscription.ack(each)
    # What stands for damage is no stream that the store must have.
    (mark,) = marked.seen["reader"].marks().values()
    assert (mark.next_offset, mark.stream) == (2, ("k", "1"))
    subscription.seek(("t", 0), 1)
    assert [each.offset for each in await subscription.poll()] == [1]


async def test_another_topic_ends_every_subscription(marked: MarkedTransport) -> None:
    subscription = await marked.subscribe("g", ["t"])
    await send(marked, "1")
    (message,) = await subscription.poll()
    marked.begin_epoch()
    subscription.ack(message)
    assert marked.seen["reader"].marks() == {}
    with pytest.raises(TopicReplaced):
        await subscription.poll()
    await subscription.aclose()
    again = await marked.subscribe("g", ["t"])
    assert [each.headers["command"] for each in await again.poll()] == ["1"]


async def test_a_reader_is_asked_for_where_it_begins_and_does_not_begin_before_what_is_held(
    marked: MarkedTransport, door: Door
) -> None:
    await send(marked, "1")
    subscription = await marked.subscribe("g", ["t"])
    assert door.begins == ("reader", {}, None)
    subscription.ack((await subscription.poll())[0])
    await subscription.aclose()

    async def load(queues: Sequence[Any]) -> dict[Any, int]:
        return {("t", 0): 1}

    own = await marked.subscribe("g", ["t"], offsets=load)
    await send(marked, "2")
    await own.poll()
    assert door.begins == ("reader", {0: 1}, {0})
    await own.aclose()
    door.trimmed = True
    with pytest.raises(LineageError, match="trimmed"):
        await marked.subscribe("g", ["t"])
