"""
A broker leads that lacks messages: because an operator says so, or because leaders acknowledge alone. What is lost is told, and the
group goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker import replicated_broker
from headrace_mq.broker.replicas.progress import progress
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.fetch.start_offsets import KeptOffset
from headrace_mq.client.producer.producer import Producer
from headrace_mq.cluster.operations import acknowledgement, promotion
from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    GroupRecord,
    Identity,
    OutcomeUnknown,
    Proposal,
    Registration,
)
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import MessageQueueError, OffsetOutOfRange, SequenceGap
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import BrokerSettings, GroupSettings, ProducerSettings, StoreSettings
from headrace_mq.spark.source import SCHEMA, HeadraceDataSource

pytestmark = pytest.mark.timeout(900)

QUEUE = QueueRef("t", 0)
PATIENT = ProducerSettings(send_timeout_ms=60_000, reconnect_ms_min=20, reconnect_ms_max=100)


class Way:
    """One broker's way to the record, which may be cut."""

    def __init__(self, record: MemoryRecord) -> None:
        self._record = record
        self.is_cut = False

    def __getattr__(self, name: str) -> Any:
        async def asked(*rest: Any) -> Any:
            if self.is_cut:
                raise OutcomeUnknown("the way to the record is cut")
            return await getattr(self._record, name)(*rest)

        return asked


class Group:
    """Brokers, each with its own way to their record."""

    def __init__(self, folder: Path, free_port: Callable[[], int]) -> None:
        self._folder, self._free_port = folder, free_port
        self._ports: dict[str, int] = {}
        self.record = MemoryRecord()
        self.brokers: dict[str, ReplicatedBroker] = {}
        self.ways: dict[str, Way] = {}

    async def add(self, name: str, min_in_sync: int = 1) -> ReplicatedBroker:
        settings = BrokerSettings(
            store=StoreSettings(directory=self._folder / name, segment_bytes=64 * 1024),
            port=self._ports.setdefault(name, self._free_port()),
            group=GroupSettings(record="etcd://unused:1", min_in_sync=min_in_sync),
        )
        way = self.ways[name] = Way(self.record)
        broker = self.brokers[name] = ReplicatedBroker(settings, record=way)
        await broker.start()
        return broker

    async def stop(self, name: str) -> None:
        await self.brokers.pop(name).aclose()

    @property
    def address(self) -> str:
        return ",".join(one.address for one in self.brokers.values())

    async def promote(self, broker: ReplicatedBroker) -> GroupRecord:
        """As `headrace cluster promote --accept-loss`, once those in sync have been silent for long."""
        record = await self.record.read()
        known = [Registration(broker._member.me, (), 0)]
        return await self.record.propose(promotion(record, known, broker._member.me.name))

    async def acknowledge(self, by: str) -> None:
        """As an operator who chooses who acknowledges; on return all brokers act on it."""
        known = await self.record.registered()
        change = acknowledgement(await self.record.read(), known, by)
        assert change is not None
        await self.record.propose(change)
        async with asyncio.timeout(120):
            while (await self.record.read()).ack != by:
                await asyncio.sleep(0)
        version = (await self.record.read()).version
        for broker in self.brokers.values():
            await until(lambda broker=broker: broker._member.seen.version >= version)

    async def bodies(self) -> list[bytes]:
        """Every message that a reader gets, in order."""
        async with AdminClient(self.address, timeout_ms=60_000) as admin:
            end = sum(one.end for one in await admin.ranges(["t"]))
        found: list[bytes] = []
        async with PullConsumer(self.address, group="reader") as consumer:
            await consumer.assign([QUEUE])
            consumer.seek(QUEUE, 0)
            while len(found) < end:
                found += [one.body for one in await consumer.fetch(100, timeout_ms=5_000)]
        return found


@pytest.fixture
async def group(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Group]:
    made = Group(tmp_path, free_port)
    yield made
    for name in list(made.brokers):
        await made.stop(name)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():
            await asyncio.sleep(0)


async def test_an_old_leader_that_is_cut_from_the_record_alone_costs_no_acknowledged_message(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It shall lead no longer because it heard of a later epoch, and not because it heard nothing.
    monkeypatch.setattr(progress, "ALONE_LAG_MS_MAX", 600_000)
    first = await group.add("a")
    async with Producer(first.address, settings=PATIENT) as producer:
        await producer.create_topic("t", 1)
        await producer.send(Message(topic="t", key="k", body=b"0"))
    # From here on it can let no other one enter: whether it did is not known, so it waits for both.
    group.ways["a"].is_cut = True
    second = await group.add("b")
    await until(lambda: second._logs.ends() == first._logs.ends())
    acknowledged = [b"0"]

    async def send_all(producer: Producer) -> None:
        for number in range(1, 10_000):
            body = b"%d" % number
            await producer.send(Message(topic="t", key="k", body=body))
            acknowledged.append(body)

    async with Producer(group.address, settings=PATIENT) as producer:
        sending = asyncio.create_task(send_all(producer))
        await until(lambda: len(acknowledged) > 20)
        await group.promote(second)
        await until(lambda: second.state is not None)
        await until(lambda: first.state is None)
        assert group.ways["a"].is_cut
        count = len(acknowledged)
        await until(lambda: len(acknowledged) > count + 20)
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
    found = await group.bodies()
    # One may be there that was sent last, and not acknowledged yet.
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) - len(acknowledged) in {0, 1}
    group.ways["a"].is_cut = False
    members = {one._member.me for one in group.brokers.values()}
    async with asyncio.timeout(120):
        while (await group.record.read()).in_sync != members:
            await asyncio.sleep(0)
    assert await group.bodies() == found


async def test_a_consumer_leaves_out_no_message_of_a_broker_that_was_promoted_with_loss(
    group: Group,
) -> None:
    first = await group.add("a")
    second = await group.add("b")
    await until(lambda: len(first.figures().in_sync) == 2)
    address, read = group.address, []
    async with Producer(address, settings=PATIENT) as producer:
        await producer.create_topic("t", 1)
        await producer.send(Message(topic="t", key="k", body=b"both have it"))
        await group.stop("b")
        await until(lambda: len(first.figures().in_sync) == 1)

        async def consume(consumer: Consumer) -> None:
            while True:
                for record in await consumer.poll():
                    read.append(record.body)
                    consumer.ack(record)

        async with Consumer(address, group="g", topics=["t"]) as consumer:
            consuming = asyncio.create_task(consume(consumer))
            for number in range(10):
                await producer.send(Message(topic="t", key="k", body=b"lost %d" % number))
            await until(lambda: b"lost 9" in read)
            before = len(read)
            await group.stop("a")
            second = await group.add("b")
            await until(lambda: second._member.seen is not None)
            await group.promote(second)
            await until(lambda: second.state is not None)
            # More than were lost, and some before the consumer is there again.
            new = [b"new %d" % number for number in range(30)]
            # Its next number follows one that is lost; it says so once, and nothing is stored.
            with pytest.raises(SequenceGap):
                await producer.send(Message(topic="t", key="k", body=b"refused"))
            for body in new:
                await producer.send(Message(topic="t", key="k", body=body))
            await until(lambda: new[-1] in read)
            consuming.cancel()
            with suppress(asyncio.CancelledError):
                await consuming
    # Some may come again: what the group had committed last may be lost as well.
    assert [body for body in dict.fromkeys(read[before:]) if body in new] == new
    again = await group.add("a")
    await until(lambda: again.figures().lost == 10)


async def pulled(consumer: PullConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [one.body for one in await consumer.fetch(100, timeout_ms=5_000)]
    return found


async def test_readers_that_keep_offsets_find_the_messages_that_stand_in_the_place_of_lost_ones(
    group: Group,
) -> None:
    first = await group.add("a")
    await group.add("b")
    await until(lambda: len(first.figures().in_sync) == 2)
    address = group.address
    stream = HeadraceDataSource({"broker": address, "topic": "t"}).streamReader(SCHEMA)
    async with Producer(address, settings=PATIENT) as producer, PullConsumer(address) as consumer:
        await producer.create_topic("t", 1)
        await producer.send(Message(topic="t", key="k", body=b"both have it"))
        await group.stop("b")
        await until(lambda: len(first.figures().in_sync) == 1)
        await consumer.assign([QUEUE])
        for number in range(10):
            await producer.send(Message(topic="t", key="k", body=b"lost %d" % number))
        assert len(await pulled(consumer, 11)) == 11
        kept = KeptOffset(consumer.position(QUEUE), consumer.epochs[QUEUE])
        start = await asyncio.to_thread(stream.initialOffset)
        place = await asyncio.to_thread(stream.latestOffset, start, ReadAllAvailable())
        assert place["t"] == {"0": 11}
        await group.stop("a")
        second = await group.add("b")
        await until(lambda: second._member.seen is not None)
        await group.promote(second)
        await until(lambda: second.state is not None)
        new = [b"new %d" % number for number in range(30)]
        async with Producer(address, settings=PATIENT) as other:
            for body in new:
                await other.send(Message(topic="t", key="k", body=body))
        assert await pulled(consumer, 30) == new
    # A reader that was away meanwhile, and once more after the broker was.
    for restart in (False, True):
        if restart:
            await group.stop("b")
            await group.add("b")
            await until(lambda: group.brokers["b"].state is not None)
        async with PullConsumer(address) as consumer:
            await consumer.assign([QUEUE], offsets={QUEUE: kept})
            assert await pulled(consumer, 30) == new
        async with AdminClient(address, timeout_ms=60_000) as admin:
            life = await admin.life_of("t", {0: kept.epoch})
        assert [one.changed_from for one in life.ranges] == [1]
        with pytest.raises(OffsetOutOfRange, match="brokers lost its messages from 1 on"):
            await asyncio.to_thread(stream.latestOffset, place, ReadAllAvailable())


async def test_a_leader_alone_acknowledges_without_its_replica_and_a_failover_keeps_what_that_lacks(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The replica stays in sync, however far behind it is, and the leader that stops does not wait for it.
    monkeypatch.setattr(progress, "REPLICA_LAG_MS_MAX", 600_000)
    monkeypatch.setattr(progress, "ALONE_LAG_MS_MAX", 600_000)
    for name in ("HAND_OVER_MS_MAX", "_DRAIN_MS"):
        monkeypatch.setattr(replicated_broker, name, 1)
    first = await group.add("a")
    second = await group.add("b")
    await until(lambda: len(first.figures().in_sync) == 2)
    for broker in group.brokers.values():
        await until(lambda broker=broker: broker._reports.names is not None)  # type: ignore[misc]  # a broker of the group
    async with Producer(first.address, settings=PATIENT) as producer:
        await producer.create_topic("t", 1)
        await producer.send(Message(topic="t", key="k", body=b"both have it"))
        await group.acknowledge(ACK_LEADER)
        await until(lambda: second._logs.ends() == first._logs.ends())
        # The disk of the replica takes nothing more.
        held = asyncio.Event()
        taken = second._replica.take

        async def stuck(*_: Any) -> None:
            await held.wait()

        monkeypatch.setattr(second._replica, "take", stuck)
        for number in range(10):
            await producer.send(Message(topic="t", key="k", body=b"lost %d" % number))
        assert second._logs.ends() != first._logs.ends()
    await group.stop("a")
    monkeypatch.setattr(second._replica, "take", taken)
    held.set()
    await until(lambda: second.state is not None)
    record = await group.record.read()
    assert (record.ack, record.lossy, record.unclean) == (ACK_LEADER, record.epoch, 0)
    assert await group.bodies() == [b"both have it"]
    async with Producer(second.address, settings=PATIENT) as producer:
        await producer.send(Message(topic="t", key="k", body=b"new"))
    again = await group.add("a")
    await until(lambda: again.figures().lost == 10)
    await until(lambda: len(second.figures().in_sync) == 2)
    await group.acknowledge(ACK_IN_SYNC)
    # A failover loses nothing any more, and says so.
    await group.stop("b")
    await until(lambda: again.state is not None)
    assert await group.bodies() == [b"both have it", b"new"]
    assert (await group.record.read()).lossy == record.lossy


async def test_a_planned_switch_of_a_leader_that_acknowledges_alone_loses_nothing(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HAND_OVER_MS_MAX", "_DRAIN_MS"):
        monkeypatch.setattr(replicated_broker, name, 60_000)
    # A slow disk takes no replica out of the set.
    monkeypatch.setattr(progress, "REPLICA_LAG_MS_MAX", 600_000)
    first = await group.add("a")
    second = await group.add("b")
    await until(lambda: len(first.figures().in_sync) == 2)
    for broker in group.brokers.values():
        await until(lambda broker=broker: broker._reports.names is not None)  # type: ignore[misc]  # a broker of the group
    await group.acknowledge(ACK_LEADER)
    bodies = [b"%d" % number for number in range(10)]
    async with Producer(group.address, settings=PATIENT) as producer:
        await producer.create_topic("t", 1)
        for body in bodies:
            await producer.send(Message(topic="t", key="k", body=body))
            if body == b"5":
                await group.stop("a")
    await until(lambda: second.state is not None)
    assert await group.bodies() == bodies
    record = await group.record.read()
    assert (record.leader, record.ack) == (second._member.me.name, ACK_LEADER)


async def test_a_promoted_broker_that_is_too_few_says_how_to_go_on_and_serves_with_fewer(
    group: Group, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(f"{ReplicatedBroker.__module__}.LEASE_MS", 1)
    lost = Identity("127.0.0.1:1", "a disk that is lost")
    await group.record.create(lost, [lost])
    broker = await group.add("a", min_in_sync=2)
    await until(lambda: broker._member.seen is not None)
    await group.promote(broker)
    await until(lambda: "does not serve yet" in caplog.text)
    assert "start this one again with --min-in-sync 1" in caplog.text
    with pytest.raises(MessageQueueError, match="of the 2 brokers that must be in sync, 1 is"):
        await AdminClient(broker.address, connect_ms=5_000).start()
    await group.stop("a")
    again = await group.add("a", min_in_sync=1)
    await until(lambda: again.state is not None)


async def test_a_leader_that_was_elected_without_all_that_was_acknowledged_says_so(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    lost = Identity("127.0.0.1:1", "a disk that is lost")
    before = await group.record.create(lost, [lost])
    broker = await group.add("a")
    members = frozenset({lost, broker._member.me})
    await group.record.propose(
        Proposal(before.version, before.epoch, lost.name, members, ack=ACK_LEADER)
    )
    await until(lambda: broker.state is not None)
    assert "messages may be lost: the leader before acknowledged alone" in caplog.text
    assert broker.figures().ack == ACK_LEADER
