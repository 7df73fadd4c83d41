"""Compared at start: another topic is made whole and read from its begin, another store is refused."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import HeadraceError, LineageError
from headrace.lineage.check import LineageCheck, reader_names, topic_reader
from headrace.lineage.generation_epochs import GenerationEpochs
from headrace.lineage.marked_transport import TopicReplaced
from headrace.projections.tables.contents import write_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.shadow import Building
from headrace.settings import Settings
from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.history import FakeClock
from headrace.transports.base import DAMAGED, Incoming, Outgoing, TopicLineage
from headrace.transports.local import LocalTransport

TOPIC = "shop.events"


class Parts:
    """What belongs together, each of which may be exchanged."""

    def __init__(self, models: ReadModels, totals: Any) -> None:
        self.models = models
        self.totals = totals
        self.store = MemoryEventStore()
        self.transport = LocalTransport()
        self.fills = 0

    async def check(self) -> LineageCheck:
        await self.transport.ensure_topic(TOPIC, queues=1, forever=True)
        return LineageCheck(
            app_name="shop",
            readers=reader_names("shop", {"totals": 1}, [], []),
            read_models=self.models,
            store=self.store,
            transport=self.transport,
            settings=Settings(),
            fill=self._fill,
        )

    async def _fill(self) -> None:
        self.fills += 1
        for stored in await self.store.read_all():
            one = stored.stream
            headers = {"kind": "events", "command": one.command_id}
            await self.transport.publish(Outgoing(TOPIC, one.aggregate_id, b"", "", headers))

    async def read(self, check: LineageCheck, count: int) -> None:
        """Lets the reader do its work, and keep its offset."""
        subscription = await check.transport.subscribe("shop.projection.totals", [TOPIC])
        found: list[Any] = []
        while len(found) < count:
            found += await subscription.poll()
        for message in found:
            subscription.ack(message)
        await subscription.aclose()
        async with self.models.begin() as connection:
            target = self.models.target(self.totals, 1)
            await write_offsets(connection, target, {(TOPIC, 0): found[-1].offset + 1})
        await check.look()


@pytest.fixture
async def parts(totals: Any, domain: Any) -> AsyncIterator[Parts]:
    models = ReadModels("sqlite://")
    await models.ensure(totals)
    parts = Parts(models, totals)
    await parts.store.append([domain.stream("a", 1), domain.stream("b", 1)])
    yield parts
    await models.aclose()


async def test_an_empty_topic_is_filled_once(parts: Any) -> None:
    check = await parts.check()
    await check.begin()
    assert parts.fills == 1
    await parts.read(check, 2)
    again = await parts.check()
    await again.begin()
    assert parts.fills == 1
    assert await parts.models.offsets("totals", 1) == {(TOPIC, 0): 2}


async def test_an_interrupted_fill_is_finished_at_the_next_start(parts: Any) -> None:
    check = await parts.check()

    async def dies() -> None:
        await parts.transport.publish(Outgoing(TOPIC, "a", b"", "", {"command": "a-1"}))
        raise ConnectionError

    check._fill = dies
    with pytest.raises(ConnectionError):
        await check.begin()
    again = await parts.check()
    await again.begin()
    assert parts.fills == 1


async def test_readers_of_another_topic_begin_at_its_start(parts: Any) -> None:
    check = await parts.check()
    await check.begin()
    await parts.read(check, 2)
    parts.transport = LocalTransport()
    again = await parts.check()
    await again.begin()
    assert parts.fills == 2
    assert await parts.models.offsets("totals", 1) == {}


class Brokers(LocalTransport):
    """Brokers that may have lost messages."""

    epochs = (3, 0)

    async def topic_lineage(self, topic: str) -> TopicLineage:
        epoch, lossy = self.epochs
        found = await super().topic_lineage(topic)
        return replace(found, identity="one topic", epoch=epoch, lossy=lossy)


async def test_a_topic_that_lost_messages_is_filled_also_where_no_reader_had_them(
    parts: Any,
) -> None:
    parts.transport = Brokers()
    check = await parts.check()
    await check.begin()
    assert parts.fills == 1
    await parts.read(check, 2)
    # Another broker leads, and has everything.
    parts.transport.epochs = (4, 0)
    await check.look()
    assert parts.fills == 1
    # One led that lacks messages. As many are there as before.
    parts.transport.epochs = (6, 5)
    await check.look()
    assert parts.fills == 2
    await check.look()
    assert parts.fills == 2
    assert await parts.models.offsets("totals", 1) == {(TOPIC, 0): 2}


async def test_readers_of_lost_messages_begin_again_though_others_have_their_offsets(
    parts: Any,
) -> None:
    parts.transport = Brokers()
    check = await parts.check()
    await check.begin()
    await parts.read(check, 2)
    other = Brokers()
    await other.ensure_topic(TOPIC, queues=1, forever=True)
    for number in range(5):
        headers = {"kind": "events", "command": f"c-{number}"}
        await other.publish(Outgoing(TOPIC, "a", b"", "", headers))
    check._plain = other
    other.epochs = (6, 5)
    await check.look()
    assert await parts.models.offsets("totals", 1) == {}


class Leaders(Brokers):
    """Brokers that say as well from where on messages have changed."""

    changed_from = 1

    async def topic_lineage(
        self, topic: str, known: Mapping[int, int] | None = None
    ) -> TopicLineage:
        found = await super().topic_lineage(topic)
        epoch, lossy = self.epochs
        lost = {n: self.changed_from for n, each in (known or {}).items() if 0 < each < lossy}
        return replace(found, epochs=dict.fromkeys(found.ranges, epoch), changed=lost)

    async def publish_others(self, count: int) -> None:
        """What stands in the place of lost messages."""
        for number in range(count):
            headers = {"kind": "events", "command": f"other-{number}"}
            await self.publish(Outgoing(TOPIC, "a", b"", "", headers))


async def lossy(parts: Any, kept: int, others: int) -> Leaders:
    """Returns brokers that have only the first messages of those before, and then got others."""
    made = Leaders()
    await made.ensure_topic(TOPIC, queues=1, forever=True)
    async for messages in parts.transport.read((TOPIC, 0), 0, kept):
        for each in messages:
            await made.publish(Outgoing(TOPIC, each.key, each.body, each.tag, each.headers))
    await made.publish_others(others)
    made.epochs, made.changed_from = (6, 5), kept
    return made


@pytest.mark.parametrize("others", [0, 1, 5])
async def test_readers_go_back_at_the_start_after_a_loss_while_no_service_ran(
    parts: Any, others: int
) -> None:
    parts.transport = Leaders()
    check = await parts.check()
    await check.begin()
    await parts.read(check, 2)
    assert parts.fills == 1
    parts.transport = await lossy(parts, 1, others)
    again = await parts.check()
    await again.begin()
    # The topic has again what it lacked, and the reader meets what stands in the place of the second message.
    assert parts.fills == 2
    assert await parts.models.offsets("totals", 1) == {(TOPIC, 0): 1}
    await parts.read(again, others + 2)
    once_more = await parts.check()
    await once_more.begin()
    assert parts.fills == 2
    assert await parts.models.offsets("totals", 1) == {(TOPIC, 0): 1 + others + 2}


async def test_a_rebuilt_projection_goes_back_at_the_start_after_a_loss(parts: Any) -> None:
    parts.transport = Leaders()
    check = await parts.check()
    await check.begin()
    await parts.read(check, 2)

    async def ask(known: Mapping[int, int], *, patient: bool) -> TopicLineage:
        assert not patient
        return await parts.transport.topic_lineage(TOPIC, known)

    epochs = GenerationEpochs(topic=TOPIC, ask=ask)
    shadow = await Building(parts.models, parts.totals).begin(take_over=False, epochs=epochs)
    async with parts.models.begin() as connection:
        target = parts.models.target(parts.totals, shadow.generation)
        await write_offsets(connection, target, {(TOPIC, 0): 2})
    await parts.models.switch(parts.totals, shadow.generation, shadow.owner)
    parts.transport = await lossy(parts, 1, 5)
    await (await parts.check()).begin()
    assert await parts.models.offsets("totals", shadow.generation) == {(TOPIC, 0): 1}


async def test_the_topic_is_filled_after_a_loss_of_messages_that_no_reader_has_seen(
    parts: Any,
) -> None:
    parts.transport = Leaders()
    check = await parts.check()
    await check.begin()
    await parts.read(check, 2)
    await parts.transport.publish_others(1)
    parts.transport = await lossy(parts, 2, 0)
    again = await parts.check()
    await again.begin()
    assert parts.fills == 2
    assert await parts.models.offsets("totals", 1) == {(TOPIC, 0): 2}


async def test_a_reader_that_runs_goes_back_and_subscribes_again(parts: Any) -> None:
    parts.transport = Leaders()
    check = await parts.check()
    await check.begin()
    await parts.read(check, 2)
    check._plain = await lossy(parts, 1, 5)
    with pytest.raises(TopicReplaced):
        await check.transport.subscribe("shop.projection.totals", [TOPIC])
    assert await parts.models.offsets("totals", 1) == {(TOPIC, 0): 1}
    assert check._lacking


async def test_a_reader_of_an_earlier_version_goes_on_and_notices_the_next_loss(parts: Any) -> None:
    parts.transport = Brokers()
    check = await parts.check()
    await check.begin()
    await parts.read(check, 2)
    before, parts.transport = parts.transport, Leaders()
    await parts.transport.ensure_topic(TOPIC, queues=1, forever=True)
    async for messages in before.read((TOPIC, 0), 0, 2):
        for each in messages:
            await parts.transport.publish(
                Outgoing(TOPIC, each.key, each.body, each.tag, each.headers)
            )
    parts.transport.epochs = (6, 5)
    again = await parts.check()
    await again.begin()
    assert parts.fills == 1
    assert await parts.models.offsets("totals", 1) == {(TOPIC, 0): 2}
    parts.transport = await lossy(parts, 1, 5)
    parts.transport.epochs = (9, 8)
    await (await parts.check()).begin()
    assert parts.fills == 2
    assert await parts.models.offsets("totals", 1) == {(TOPIC, 0): 1}


async def test_another_store_is_refused_and_nothing_is_changed(parts: Any) -> None:
    check = await parts.check()
    await check.begin()
    await parts.read(check, 2)
    parts.store = MemoryEventStore()
    again = await parts.check()
    with pytest.raises(LineageError, match=r"totals of shop\.events have read events of another"):
        await again.begin()
    assert again.refused is not None
    with pytest.raises(LineageError):
        await again.check()
    assert await parts.models.offsets("totals", 1) == {(TOPIC, 0): 2}


async def test_a_message_that_the_store_lacks_leaves_no_mark(parts: Any) -> None:
    """Anybody who reaches the broker can send one; it must not make a good store look old."""
    check = await parts.check()
    await check.begin()
    await parts.transport.publish(Outgoing(TOPIC, "forged", b"", "", {"command": "f"}))
    await parts.read(check, 3)
    again = await parts.check()
    await again.begin()
    assert again.refused is None


async def test_damage_is_filled_once_and_takes_a_tenth_of_the_time_at_most(
    parts: Any,
) -> None:
    clock = FakeClock()
    check = await parts.check()
    await check.begin()
    check._clock = clock
    fill, before = check._fill, parts.fills

    async def slow() -> None:
        clock.advance(100)
        await fill()

    check._fill = slow

    async def meet(offset: int) -> None:
        headers = {"kind": "rejection", DAMAGED: str(offset)}
        await check._note_damage([Incoming((TOPIC, 0), offset, "", "", headers, b"")])
        await check.look()

    await meet(5)
    await meet(5)
    assert (parts.fills - before, check.damaged()) == (1, {})
    await meet(6)
    assert (parts.fills - before, check.damaged()) == (1, {TOPIC: 1})
    clock.advance(900)
    await check.look()
    assert (parts.fills - before, check.damaged()) == (2, {})


async def test_unfilled_damage_is_filled_at_the_next_start(parts: Any) -> None:
    check = await parts.check()
    await check.begin()
    headers = {"kind": "rejection", DAMAGED: "5"}
    await check._note_damage([Incoming((TOPIC, 0), 5, "", "", headers, b"")])
    again = await parts.check()
    await again.begin()
    before = parts.fills
    await again.look()
    assert parts.fills == before + 1


def test_readers_have_names_by_group() -> None:
    assert reader_names("shop", {"stock": 1, "bins": 2}, ["mail"], ["orders"]) == {
        "shop.projection.stock": "stock",
        "shop.projection.bins.v2": "bins",
        "shop.handlers.mail": "handlers:mail",
        "shop.process.orders": "process:orders",
    }
    assert topic_reader(TOPIC) == "topic:shop.events"


class Parted(LocalTransport):
    """Queues of several groups of brokers, some of which are away."""

    away: frozenset[int] = frozenset()

    async def topic_lineage(
        self, topic: str, known: Mapping[int, int] | None = None
    ) -> TopicLineage:
        if self.away:
            raise ConnectionError("a group of brokers is away")
        return await super().topic_lineage(topic, known)

    def contested(self, _topic: str) -> bool:
        return False

    async def lineage_there(self, topic: str) -> TopicLineage:
        whole = await super().topic_lineage(topic)
        return replace(
            whole,
            ranges={
                number: held for number, held in whole.ranges.items() if number not in self.away
            },
            away=self.away,
        )


async def parted(parts: Any) -> tuple[LineageCheck, Parted]:
    """A check that has compared a topic of two queues, both with messages."""
    transport = parts.transport = Parted()
    await transport.ensure_topic(TOPIC, queues=2, forever=True)
    check = await parts.check()
    await check.begin()
    for number in range(20):
        headers = {"kind": "events", "command": f"c-{number}"}
        await transport.publish(Outgoing(TOPIC, f"k-{number}", b"", "", headers))
    await check.look()
    held = await transport.topic_lineage(TOPIC)
    assert all(end > 0 for _, end in held.ranges.values())
    return check, transport


async def test_readers_go_on_while_queues_are_away_and_what_is_away_is_not_empty(
    parts: Any,
) -> None:
    check, transport = await parted(parts)
    known = check._lineage
    transport.away = frozenset({1})
    await check.look()
    await check.transport._enter()
    assert check._lineage.ranges == known.ranges
    assert parts.fills == 1, "nothing is believed to be lost"
    # One that is there is read; one that is away is asked for again later.
    await check.transport._require("totals", {0: 0}, {0})
    for queues in ({0, 1}, None):
        with pytest.raises(HeadraceError, match="queue 1 of"):
            await check.transport._require("totals", {}, queues)
    transport.away = frozenset()
    await check.look()
    await check.transport._require("totals", {}, None)
    assert check._lineage.away == frozenset()
    assert parts.fills == 1


async def test_a_queue_that_comes_back_with_fewer_messages_has_lost_them(parts: Any) -> None:
    check, transport = await parted(parts)
    transport.away = frozenset({1})
    await check.look()
    await check.look()
    transport.away = frozenset()
    del transport.queue((TOPIC, 1)).messages[-1]
    assert await check._is_replaced(await check._there())
    await check.look()
    assert parts.fills == 1, "no reader had it"


async def test_a_loss_in_a_queue_that_is_there_is_noticed_while_another_is_away(
    parts: Any,
) -> None:
    check, transport = await parted(parts)
    transport.away = frozenset({1})
    del transport.queue((TOPIC, 0)).messages[-1]
    # To compare them needs all queues: readers wait.
    with pytest.raises(ConnectionError):
        await check.look()
    with pytest.raises(ConnectionError):
        await check.transport._enter()
    transport.away = frozenset()
    await check.look()
    assert not await check._is_replaced(await check._there())


async def test_a_start_needs_all_queues(parts: Any) -> None:
    parts.transport = Parted()
    parts.transport.away = frozenset({0})
    check = await parts.check()
    with pytest.raises(ConnectionError):
        await check.begin()
