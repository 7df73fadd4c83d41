import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._net.link import Link
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.fetch.start_offsets import (
    KeptOffset,
    Start,
    TopicIdentities,
    find_starts,
    offsets_at,
)
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.errors import NotLeader, QueueNotFound, TopicNotFound
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.bodies import QueueRange, QueueRangesAnswer
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import BrokerSettings, ConsumerSettings, ProducerSettings, StoreSettings
from tests.unit.headrace_mq.client.two_groups import *  # noqa: F403 - the fixture is found by name
from tests.unit.headrace_mq.client.two_groups import links_of

A, B = QueueRef("t", 0), QueueRef("t", 1)


async def find(link: Link, **changes: Any) -> dict[QueueRef, Start]:
    arguments = {
        "group": "g",
        "settings": ConsumerSettings(),
        "first_seen": frozenset([A, B]),
        "load_offsets": None,
    } | changes
    return await find_starts(link, [A, B], **arguments)


@pytest.fixture(autouse=True)
def two_queues(broker: Any) -> None:
    broker.topics["t"] = 2
    broker.first[A] = 3
    broker.append(A, [b"x"] * 4)
    broker.append(B, [b"x"] * 2)


async def test_a_group_goes_on_where_it_committed(broker: Any, link: Link) -> None:
    broker.offsets["g", A] = 5
    broker.offsets["g", B] = 0
    assert await find(link) == {
        A: Start(5, known=True, committed=5),
        B: Start(0, known=True, committed=0),
    }
    assert broker.count(RequestCode.QUEUE_RANGES) == 0


@pytest.mark.parametrize(("start", "offsets"), [("earliest", (3, 0)), ("latest", (7, 2))])
async def test_a_group_without_an_offset_begins_where_the_settings_say(
    link: Link, start: Any, offsets: tuple[int, int]
) -> None:
    starts = await find(link, settings=ConsumerSettings(start=start))
    assert starts == {
        queue: Start(offset, known=False, committed=-1)
        for queue, offset in zip((A, B), offsets, strict=True)
    }


async def test_queues_that_appeared_later_begin_at_their_first_offset(link: Link) -> None:
    starts = await find(link, settings=ConsumerSettings(start="latest"), first_seen=frozenset([A]))
    assert [starts[A].offset, starts[B].offset] == [7, 0]


async def test_a_time_is_where_the_first_younger_record_stands(broker: Any, link: Link) -> None:
    broker.now_ms = 500
    broker.append(A, [b"x"])
    starts = await find(link, settings=ConsumerSettings(start=400))
    assert [starts[A], starts[B]] == [
        Start(7, known=False, committed=-1),
        Start(2, known=False, committed=-1),
    ]
    settings = ConsumerSettings(start=400)
    starts = await find(link, settings=settings, first_seen=frozenset([B]))
    assert [starts[A].offset, starts[B].offset] == [3, 2]


async def test_offsets_of_a_time_are_those_of_existing_queues(broker: Any, link: Link) -> None:
    assert await offsets_at(link, [], 0, settings=ConsumerSettings()) == {}
    assert await offsets_at(link, [B], 0, settings=ConsumerSettings()) == {B: 0}
    with pytest.raises(QueueNotFound, match="from 0 to 1"):
        await offsets_at(link, [QueueRef("t", 2)], 0, settings=ConsumerSettings())


async def test_the_applications_own_offsets_are_asked_instead_of_the_brokers(
    broker: Any, link: Link
) -> None:
    broker.offsets["g", A] = 5
    asked: list[QueueRef] = []

    async def load(queues: Sequence[QueueRef]) -> Mapping[QueueRef, int]:
        asked.extend(queues)
        return {B: 1}

    assert await find(link, load_offsets=load) == {
        A: Start(3, known=False, committed=-1),
        B: Start(1, known=True, committed=1),
    }
    assert asked == [A, B]
    assert broker.count(RequestCode.GET_OFFSETS) == 0


@pytest.mark.parametrize(
    ("offset", "epoch", "changed", "begins"),
    [
        (5, 2, None, 5),  # kept in the epoch of the loss
        (5, 1, None, 4),
        (4, 1, None, 4),  # just in front of what has changed
        (5, 0, None, 5),  # of a version that kept no epochs
        (5, 0, 3, 3),  # known by this consumer itself
        (5, 1, 3, 4),  # since its own epoch, less has changed
        (5, 2, 3, 5),
        (5, 2, 6, 5),
    ],
)
async def test_an_applications_own_offset_is_moved_back_to_where_messages_have_changed(
    broker: Any, link: Link, offset: int, epoch: int, changed: int | None, begins: int
) -> None:
    broker.epochs, broker.changed[A] = (3, 2), 4

    async def load(_queues: Sequence[QueueRef]) -> Mapping[QueueRef, int | KeptOffset]:
        return {A: KeptOffset(offset, epoch), B: 1}

    known = {} if changed is None else {A: changed}
    starts = await find(link, load_offsets=load, changed=known)
    assert (starts[A].offset, starts[B].offset) == (begins, 1)


async def test_a_loss_is_known_for_each_queue_until_it_is_moved_back(
    broker: Any, link: Link
) -> None:
    identities = TopicIdentities(link, timeout_ms=60_000)
    await identities.ended([A])
    assert identities.epochs == {A: 1}
    broker.epochs, broker.changed = (3, 2), {A: 4, B: 1}
    await identities.ended([A, B])
    # The other one was not read before.
    assert (identities.changed, identities.epochs) == ({A: 4}, {A: 3, B: 3})
    broker.epochs, broker.changed = (6, 5), {A: 5, B: 1}
    await identities.ended([A, B])
    assert identities.changed == {A: 4, B: 1}
    assert identities.told == {A, B}


async def test_a_refusal_of_the_broker_is_raised(broker: Any, link: Link) -> None:
    del broker.topics["t"]
    with pytest.raises(TopicNotFound):
        await find(link)


Restart = Callable[[], Awaitable[None]]


class Brokers:
    """One address, at which one broker follows the other."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self._port = port
        self._broker: Broker | None = None

    async def start(self) -> None:
        store = StoreSettings(directory=self.directory, segment_bytes=1 << 20)
        self._broker = Broker(BrokerSettings(store=store, port=self._port))
        await self._broker.start()

    async def stop(self) -> None:
        assert self._broker is not None
        await self._broker.aclose()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"


@pytest.fixture
async def brokers(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Brokers]:
    brokers = Brokers(tmp_path / "mq", free_port())
    await brokers.start()
    yield brokers
    await brokers.stop()


@pytest.fixture
async def producer(brokers: Brokers) -> AsyncIterator[Producer]:
    producer = Producer(brokers.address, ProducerSettings())
    await producer.start()
    await producer.create_topic("t", 1, "forever")
    yield producer
    await producer.aclose()


async def read(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        records = await consumer.poll()
        consumer.ack_all(records)
        found += [record.body for record in records]
    return found


async def send(producer: Producer, *bodies: bytes) -> None:
    for body in bodies:
        await producer.send(Message(topic="t", body=body, key="k"))


async def test_a_consumer_reads_a_topic_that_was_made_again_from_its_first_message(
    brokers: Brokers, producer: Producer
) -> None:
    consumer = Consumer(brokers.address, group="g", topics=["t"], settings=ConsumerSettings())
    await consumer.start()
    try:
        await send(producer, b"1", b"2", b"3")
        assert await read(consumer, 3) == [b"1", b"2", b"3"]
        await brokers.stop()
        shutil.rmtree(brokers.directory)
        await brokers.start()
        await send(producer, b"4", b"5")
        async with asyncio.timeout(60):
            assert await read(consumer, 2) == [b"4", b"5"]
    finally:
        await consumer.aclose()


async def test_a_restart_with_the_same_messages_changes_nothing(
    brokers: Brokers, producer: Producer
) -> None:
    consumer = Consumer(brokers.address, group="g", topics=["t"], settings=ConsumerSettings())
    await consumer.start()
    try:
        await send(producer, b"1", b"2")
        assert await read(consumer, 2) == [b"1", b"2"]
        await brokers.stop()
        await brokers.start()
        await send(producer, b"3")
        async with asyncio.timeout(60):
            assert await read(consumer, 1) == [b"3"]
    finally:
        await consumer.aclose()


async def test_a_producer_makes_a_topic_that_was_lost_as_it_was(
    brokers: Brokers, producer: Producer
) -> None:
    await send(producer, b"1")
    await brokers.stop()
    shutil.rmtree(brokers.directory)
    await brokers.start()
    await send(producer, b"2")
    async with AdminClient(brokers.address) as admin:
        topic = await admin.topic("t")
        assert (topic.queues, topic.retention) == (1, "forever")
        (held,) = await admin.ranges(["t"])
        assert (QueueRef(held.topic, held.queue_id), held.end) == (QueueRef("t", 0), 1)


async def test_a_group_of_brokers_that_lost_messages_is_noticed_once(
    broker: Any, link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    identities = TopicIdentities(link, timeout_ms=60_000)
    # What was lost before the first look is nothing that this client knew.
    broker.epochs = (5, 4)
    assert await identities.ended([A, B]) == frozenset()
    # Another broker leads, and has everything.
    broker.epochs = (6, 4)
    assert await identities.ended([A, B]) == frozenset()
    broker.epochs = (8, 7)
    assert await identities.ended([A, B]) == {"t"}
    assert "lost messages" in caplog.text
    assert await identities.ended([A, B]) == frozenset()
    # An older broker says neither.
    broker.epochs = (0, 0)
    assert await identities.ended([A, B]) == frozenset()


async def test_a_loss_is_noticed_for_each_topic_though_they_are_asked_about_one_by_one(
    broker: Any, link: Link
) -> None:
    broker.topics["u"] = 1
    other = QueueRef("u", 0)
    identities = TopicIdentities(link, timeout_ms=60_000)
    broker.epochs = (5, 4)
    assert await identities.ended([A, other]) == frozenset()
    broker.epochs = (8, 7)
    assert await identities.ended([A]) == {"t"}
    assert await identities.ended([other]) == {"u"}
    assert await identities.ended([A, other]) == frozenset()


async def test_a_queue_of_a_broker_group_that_is_away_is_not_taken_for_one_that_there_is_not(
    two_groups: Callable[..., SpreadLink],
) -> None:
    link = two_groups(patient=True)
    one, two = links_of(link)
    one.answers[RequestCode.QUEUE_RANGES] = QueueRangesAnswer(
        [QueueRange("t", number, 0, 5) for number in (0, 1)]
    )
    two.is_up = False

    async def nothing(_queues: Sequence[QueueRef]) -> Mapping[QueueRef, int]:
        return {}

    async def find_these(*queues: QueueRef) -> dict[QueueRef, Start]:
        return await find_starts(
            link, queues, group="", settings=ConsumerSettings(),
            first_seen=frozenset(queues), load_offsets=nothing,
        )  # fmt: skip

    assert set(await find_these(A, B)) == {A, B}
    with pytest.raises(NotLeader, match="broker group g2"):
        await find_these(A, QueueRef("t", 2))
    with pytest.raises(QueueNotFound):
        await find_these(A, QueueRef("t", 4))
