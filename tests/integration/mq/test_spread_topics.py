"""A topic whose queues are in two broker groups: producers, consumers, readers, and what goes on while one group is away."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal, NamedTuple

import pytest

from headrace_mq._net import name_servers
from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.spread.division import spread_topic
from headrace_mq.broker import registration
from headrace_mq.broker.registration import Registrar
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.producer import producer as producer_module
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.requester import Requester, answering
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import (
    InvalidArgument,
    NotLeader,
    QueueElsewhere,
    SendTimeout,
    TopicExists,
    TopicNotFound,
)
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.nameserver.name_server import NameServer
from headrace_mq.protocol.keys import queue_for_key
from headrace_mq.protocol.names.routes import ALONE, Register
from headrace_mq.settings import ConsumerSettings, ProducerSettings
from headrace_mq.testing.embedded import broker, memory_disk, name_server
from headrace_mq.testing.simulated_disk import SimulatedDisk

TOPIC, QUEUES = "orders", 8
GROUPS = ("g1", "g2")
QUICK = ConsumerSettings(start="earliest", heartbeat_ms=50, commit_interval_ms=20)
# What a busy machine may need; no test waits for it while all is well.
PATIENT_S = 60


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers and clients ask as often as they can."""
    monkeypatch.setattr(registration, "REGISTER_MS", 1)
    monkeypatch.setattr(producer_module, "ROUTE_REFRESH_MS", 20)
    for name in ("SOON_MS", "AGAIN_MS"):
        monkeypatch.setattr(name_servers, name, 10)


class Cluster:
    """Two broker groups of one broker each, and a name server."""

    def __init__(self, server: NameServer) -> None:
        self.server = server
        self.address = f"nameserver://{server.address}/c/{','.join(GROUPS)}"
        self._disks: dict[str, SimulatedDisk] = {group: memory_disk() for group in GROUPS}
        self._stacks: dict[str, AsyncExitStack] = {}

    def of(self, group: str) -> str:
        """The address of one group."""
        return f"nameserver://{self.server.address}/c/{group}"

    async def start(self, group: str) -> None:
        stack = self._stacks[group] = AsyncExitStack()
        place = await stack.enter_async_context(broker(disk=self._disks[group]))
        said = Register("c", group, place, ALONE, 1, [place])
        registering = Registrar(self.server.address, lambda: said)
        registering.start()
        stack.push_async_callback(registering.aclose)
        while place not in {one.broker for one in self.server.routes("", "").brokers}:
            await asyncio.sleep(0)

    def lose_disk(self, group: str) -> None:
        self._disks[group] = memory_disk()

    async def stop(self, group: str) -> None:
        await self._stacks.pop(group).aclose()

    async def aclose(self) -> None:
        for group in list(self._stacks):
            await self.stop(group)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with name_server() as server:
        made = Cluster(server)
        for group in GROUPS:
            await made.start(group)
        try:
            yield made
        finally:
            await made.aclose()


async def until(what: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    """Returns when something is so."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            found = what()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0)


class Receiver(NamedTuple):
    """A consumer that notes what it gets."""

    consumer: Consumer
    got: list[Record]


@asynccontextmanager
async def receiving(
    address: str, group: str = "g", settings: ConsumerSettings = QUICK
) -> AsyncIterator[Receiver]:
    got: list[Record] = []

    async def note(record: Record) -> None:
        got.append(record)

    async with Consumer(address, group=group, topics=[TOPIC], settings=settings) as consumer:
        running = asyncio.create_task(consumer.run(note))
        try:
            yield Receiver(consumer, got)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def messages(count: int, *, first: int = 0) -> list[Message]:
    return [
        Message(topic=TOPIC, key=f"k{number % 40}", body=str(number).encode())
        for number in range(first, first + count)
    ]


def bodies(*receivers: Receiver) -> Counter[bytes]:
    return Counter(record.body for each in receivers for record in each.got)


async def test_a_producer_and_a_consumer_use_the_queues_of_all_groups_in_the_order_of_keys(
    cluster: Cluster,
) -> None:
    assert await spread_topic(cluster.address, TOPIC, QUEUES) == {
        "g1": [0, 1, 2, 3],
        "g2": [4, 5, 6, 7],
    }
    async with Producer(cluster.address) as producer, receiving(cluster.address) as one:
        sent = await producer.send_many(messages(400))
        for message, result in zip(messages(400), sent, strict=True):
            assert result.queue == QueueRef(TOPIC, queue_for_key(message.key, QUEUES))
        await until(lambda: len(one.got) >= 400)
        assert len(one.consumer.assignment) == QUEUES
    assert set(bodies(one).values()) == {1}
    by_key: dict[str, list[int]] = {}
    for record in one.got:
        by_key.setdefault(record.key, []).append(int(record.body))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert {record.queue.queue_id for record in one.got} == set(range(QUEUES))


@pytest.mark.parametrize("handling", ["per_key", "parallel"])
async def test_members_divide_the_queues_of_all_groups_evenly_and_go_on_where_they_were(
    cluster: Cluster, handling: Literal["per_key", "parallel"]
) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES)
    settings = ConsumerSettings(
        start="earliest", heartbeat_ms=50, commit_interval_ms=20, handling=handling
    )
    async with Producer(cluster.address) as producer:
        async with (
            receiving(cluster.address, settings=settings) as one,
            receiving(cluster.address, settings=settings) as two,
        ):
            await until(
                lambda: len(one.consumer.assignment) == len(two.consumer.assignment) == QUEUES // 2
            )
            await producer.send_many(messages(100))
            await until(lambda: len(bodies(one, two)) == 100)
        async with receiving(cluster.address, settings=settings) as three:
            await producer.send_many(messages(100, first=100))
            await until(lambda: len(three.got) >= 100)
        assert min(int(record.body) for record in three.got) == 100
        assert len(three.got) == 100


async def test_the_other_queues_go_on_while_a_group_is_away_and_none_is_lost(
    cluster: Cluster,
) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES)
    settings = ProducerSettings(send_timeout_ms=PATIENT_S * 1_000)
    async with Producer(cluster.address, settings) as producer, receiving(cluster.address) as one:
        await producer.send_many(messages(80))
        await until(lambda: len(bodies(one)) == 80)
        await cluster.stop("g2")
        sending = {
            message.body: producer.send_soon(message) for message in messages(80, first=1_000)
        }
        here = {
            message.body
            for message in messages(80, first=1_000)
            if queue_for_key(message.key, QUEUES) < 4
        }
        await until(lambda: here <= bodies(one).keys())
        assert {body for body, future in sending.items() if future.done()} == here
        await cluster.start("g2")
        async with asyncio.timeout(PATIENT_S):
            await asyncio.gather(*sending.values())
        await until(lambda: len(bodies(one)) == 160)


async def test_a_group_that_comes_back_without_its_disk_makes_no_topic_of_its_own(
    cluster: Cluster,
) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES, retention="forever")
    settings = ProducerSettings(send_timeout_ms=PATIENT_S * 1_000)
    producer = Producer(cluster.address, settings)
    await producer.start()
    await producer.create_topic(TOPIC, retention="forever")
    await producer.send_many(messages(80))
    connections = producer._link.connections
    await cluster.stop("g1")
    sending = [producer.send_soon(message) for message in messages(80, first=100)]
    cluster.lose_disk("g1")
    await cluster.start("g1")
    await until(lambda: producer._link.connections > connections)
    there = [one for one in messages(80, first=200) if queue_for_key(one.key, QUEUES) >= 4]
    for message in there:
        await producer.send(message)
    async with AdminClient(cluster.of("g1")) as first, AdminClient(cluster.address) as admin:
        assert await first.topics() == []
        assert (await admin.topic(TOPIC)).queues == QUEUES
    assert {future.done() for future in sending} == {True, False}
    closing = asyncio.create_task(producer.aclose())
    await asyncio.sleep(0)
    closing.cancel()  # it would wait for the messages of g1
    await asyncio.gather(closing, *sending, return_exceptions=True)


async def test_queues_of_a_group_that_is_away_are_not_assigned_and_the_others_are(
    cluster: Cluster,
) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES)
    await cluster.stop("g2")
    async with PullConsumer(cluster.address, settings=QUICK) as pulling:
        with pytest.raises(NotLeader, match="broker group g2"):
            await pulling.assign([QueueRef(TOPIC, number) for number in range(QUEUES)])
        await pulling.assign([QueueRef(TOPIC, number) for number in range(4)])
        assert len(pulling.assignment) == 4


async def test_a_client_starts_while_a_group_is_away(cluster: Cluster) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES)
    await cluster.stop("g1")
    settings = ProducerSettings(send_timeout_ms=PATIENT_S * 1_000)
    async with Producer(cluster.address, settings) as producer, receiving(cluster.address) as one:
        sending = [producer.send_soon(message) for message in messages(40)]
        await until(lambda: {record.queue.queue_id for record in one.got} == {4, 5, 6, 7})
        await cluster.start("g1")
        async with asyncio.timeout(PATIENT_S):
            await asyncio.gather(*sending)
        await until(lambda: len(bodies(one)) == 40)


async def test_a_topic_that_is_not_spread_is_used_where_it_is(cluster: Cluster) -> None:
    async with AdminClient(cluster.of("g2")) as second:
        await second.create_topic("elsewhere", 2)
    async with Producer(cluster.address) as producer, AdminClient(cluster.address) as admin:
        await producer.send(Message(topic="elsewhere", body=b"x"))
        await producer.send(Message(topic="new", body=b"x"))
        assert [each.topic for each in await admin.topics()] == ["elsewhere", "new"]
        with pytest.raises(InvalidArgument, match="first group"):
            await producer.schedule(Message(topic="elsewhere", body=b"x"), delay_ms=1)
        await producer.schedule(Message(topic="new", body=b"x"), delay_ms=1)
    async with AdminClient(cluster.of("g1")) as first:
        assert "new" in {each.topic for each in await first.topics()}


async def test_requests_get_their_replies_over_any_group(cluster: Cluster) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES)

    async def reversed_body(record: Record) -> bytes:
        return record.body[::-1]

    async with (
        Producer(cluster.address) as asking,
        Producer(cluster.address) as replying,
        Consumer(cluster.address, group="g", topics=[TOPIC], settings=QUICK) as consumer,
    ):
        running = asyncio.create_task(consumer.run(answering(replying, reversed_body)))
        requester = Requester(asking)
        for message in messages(16):
            reply = await requester.request(message, PATIENT_S * 1_000)
            assert reply == message.body[::-1]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_readers_read_all_queues_or_say_what_is_missing(cluster: Cluster) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES, retention="forever")
    async with Producer(cluster.address) as producer:
        await producer.send_many(messages(120))

    def read() -> list[bytes]:
        found: list[bytes] = []
        with BlockingReader(cluster.address) as reader:
            for held in reader.ranges([TOPIC]):
                queue = QueueRef(held.topic, held.queue_id)
                for _, columns, first, last in reader.read(queue, held.first, held.end):
                    found += columns.bodies[first:last]
            assert reader.is_settled(TOPIC)
            assert reader.identity(TOPIC)
            assert len(reader.offsets_at([TOPIC], 0)) == QUEUES
            reader.commit("r", {QueueRef(TOPIC, number): 1 for number in range(QUEUES)})
            assert set(reader.committed("r", [TOPIC]).values()) == {1}
        return found

    assert len(set(await asyncio.to_thread(read))) == 120

    def read_a_part() -> None:
        with BlockingReader(cluster.of("g1")) as reader:
            reader.ranges([TOPIC])

    with pytest.raises(QueueElsewhere, match="name all groups"):
        await asyncio.to_thread(read_a_part)
    async with PullConsumer(cluster.address, settings=QUICK) as pulling:
        await pulling.assign([QueueRef(TOPIC, number) for number in range(QUEUES)])
        got: list[Record] = []
        while len(got) < 120:
            got += await pulling.fetch(timeout_ms=PATIENT_S * 1_000)
    assert len({record.body for record in got}) == 120


async def test_a_client_of_one_group_is_refused_instead_of_seeing_a_part(cluster: Cluster) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES)
    async with Producer(cluster.of("g1")) as producer:
        with pytest.raises(QueueElsewhere, match="name all of them"):
            await producer.send(messages(1)[0])
    consumer = Consumer(cluster.of("g1"), group="g", topics=[TOPIC], settings=QUICK)
    with pytest.raises(QueueElsewhere, match="name all of them"):
        await consumer.start()


async def test_administration_sees_one_topic_and_says_what_it_cannot_do(cluster: Cluster) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES)
    async with (
        Producer(cluster.address) as producer,
        receiving(cluster.address) as one,
        AdminClient(cluster.address) as admin,
    ):
        await producer.send_many(messages(40))
        await until(lambda: len(one.got) == 40)
        await one.consumer.commit()
        topic = await admin.topic(TOPIC)
        assert (topic.queues, topic.owned) == (QUEUES, [])
        assert sum(each.end for each in await admin.queues([topic])) == 40
        assert len(await admin.ranges([TOPIC])) == QUEUES
        assert [each.lag for each in (await admin.lag("g", [TOPIC])).queues] == [0] * QUEUES
        (group,) = await admin.groups()
        assert (group.members, group.queues, group.lag) == (1, QUEUES, 0)
        assert [each.topic for each in (await admin.topics())] == [TOPIC]
        assert len((await admin.group("g")).members) == 1
        frozen = await admin.freeze(TOPIC, [1, 6], writing=True)
        assert frozen.unwritable == [1, 6]
        for each in one.got:
            found = await admin.message(f"{TOPIC}:{each.queue.queue_id}:{each.offset}")
            assert found is not None
        with pytest.raises(InvalidArgument, match="name one of them"):
            await admin.status()
        with pytest.raises(TopicNotFound):
            await admin.ranges(["none"])


async def test_a_topic_grows_into_a_new_group_while_it_is_used(cluster: Cluster) -> None:
    async with AdminClient(cluster.of("g1")) as first:
        await first.create_topic(TOPIC, 4)
    async with Producer(cluster.address) as producer, receiving(cluster.address) as one:
        await producer.send_many(messages(40))
        await spread_topic(cluster.address, TOPIC, QUEUES)
        assert await spread_topic(cluster.address, TOPIC, QUEUES) == {
            "g1": [0, 1, 2, 3],
            "g2": [4, 5, 6, 7],
        }
        async with Producer(cluster.address) as later:
            await later.send_many(messages(80, first=100))
        await until(lambda: len(bodies(one)) == 120)
    async with AdminClient(cluster.address) as admin:
        await admin.freeze(TOPIC, [0, 1, 2, 3], writing=True)
        async with Producer(cluster.address) as drained:
            sent = await drained.send_many(messages(40, first=500))
        assert {result.queue.queue_id for result in sent} <= {4, 5, 6, 7}


async def test_two_topics_of_one_name_are_refused(cluster: Cluster) -> None:
    for group in GROUPS:
        async with AdminClient(cluster.of(group)) as admin:
            await admin.create_topic(TOPIC, 4)
    with pytest.raises(TopicExists, match="both have queue"):
        await spread_topic(cluster.address, TOPIC, QUEUES)
    async with Producer(cluster.address) as producer:
        with pytest.raises(TopicExists, match="both have queue"):
            await producer.send(messages(1)[0])


async def test_a_message_for_a_group_that_stays_away_fails_by_its_time(cluster: Cluster) -> None:
    await spread_topic(cluster.address, TOPIC, QUEUES)
    producer = Producer(cluster.address, ProducerSettings(send_timeout_ms=300))
    await producer.start(within_ms=PATIENT_S * 1_000)
    try:
        await cluster.stop("g2")
        away = next(one for one in messages(40) if queue_for_key(one.key, QUEUES) >= 4)
        with pytest.raises(SendTimeout):
            await producer.send(away)
    finally:
        await producer.aclose()
