"""Real brokers of one group that compact all the time, are killed while they do, and copy from each other."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.metadata import METADATA
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import InvalidArgument
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ConsumerSettings
from headrace_mq.store.check.inspection import check
from tests.integration.mq.broker_group import (
    PATIENT,
    PATIENT_S,
    QUEUES,
    TOPIC,
    Group,
    Member,
    a_moment,
)

# With a start and a failover on a busy machine; see `PATIENT_S`.
pytestmark = pytest.mark.timeout(320)
KEYS = [f"k{number}" for number in range(60)]
OPTIONS = (
    "--compact-segment-size", "64KiB", "--compact-interval", "1ms", "--compact-lag", "0",
    "--tombstone-age", "100ms", "--compact-dirty", "1%", "--compact-rate", "2MiB",
)  # fmt: skip


@pytest.fixture
async def group(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[Group]:
    """Two of three brokers run."""
    members = [
        Member(tmp_path / name, f"127.0.0.1:{free_port()}", postgres_database, *OPTIONS)
        for name in "abc"
    ]
    async with AsyncExitStack() as stack:
        for member in members:
            stack.push_async_callback(member.end)
        made = Group(members, postgres_database)
        stack.push_async_callback(made.record.aclose)
        await members[0].start()
        await in_sync(made, 1)
        await members[1].start()
        await in_sync(made, 2)
        yield made


async def in_sync(group: Group, count: int) -> None:
    async with asyncio.timeout(PATIENT_S):
        while await group._in_sync() != count:
            await a_moment()


async def lead(group: Group, member: Member) -> None:
    """Lets a broker lead that is in sync."""
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        while await group.leader() is not member:
            with suppress(InvalidArgument):  # it leads by now
                await admin.hand_over(member.address)


class Prices:
    """A producer of latest states, which knows the last one of each key that was acknowledged, and its offset."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.last: dict[str, tuple[int, int, bytes]] = {}
        self.chance = random.Random(7)
        self.count = 0

    async def send(self, rounds: int) -> None:
        async with Producer(self.group.address, settings=PATIENT) as producer:
            for _ in range(rounds):
                keys = self.chance.sample(KEYS, 20)
                await asyncio.gather(*(self._send(producer, key) for key in keys))

    async def _send(self, producer: Producer, key: str) -> None:
        self.count += 1
        body = b"" if self.chance.random() < 0.2 else b"%d " % self.count * 200
        sent = await producer.send(Message(topic=TOPIC, key=key, body=body))
        self.last[key] = (sent.queue.queue_id, sent.offset, body)

    async def until_compacted(self) -> None:
        """Sends until the leader has compacted, with what it sends."""
        async with AdminClient(self.group.address, timeout_ms=PATIENT_S * 1_000) as admin:
            before = (await admin.status()).compaction.runs
            async with asyncio.timeout(PATIENT_S):
                while (await admin.status()).compaction.runs < before + 2:
                    await self.send(3)

    async def check(self) -> None:
        """Reads the topic from its beginning: the last message of each key is at its offset."""
        found: dict[str, tuple[int, int, bytes]] = {}
        async with AdminClient(self.group.address, timeout_ms=PATIENT_S * 1_000) as admin:
            ends = {QueueRef(TOPIC, one.queue_id): one.end for one in await admin.ranges([TOPIC])}
        settings = ConsumerSettings(start="earliest")
        async with PullConsumer(self.group.address, settings=settings) as consumer:
            await consumer.assign(ends)
            while any(consumer.position(queue) < end for queue, end in ends.items()):
                for one in await consumer.fetch(10_000, timeout_ms=100):
                    found[one.key] = (one.queue.queue_id, one.offset, one.body)
        assert {key: told for key, told in found.items() if told[2]} == {
            key: told for key, told in self.last.items() if told[2]
        }
        # One that deletes its key may be gone; if it is there, it is the last one.
        assert {key: self.last[key] for key in found} == found


async def test_the_last_message_of_each_key_survives_kills_of_brokers_that_compact(
    group: Group, tmp_path: Path
) -> None:
    prices = Prices(group)
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES, retention="compact")
    await prices.until_compacted()
    # A replica is killed while it may be compacting its copy.
    for _ in range(2):
        leader = await group.leader()
        replica = next(one for one in group.members[:2] if one is not leader)
        goal = prices.count + prices.chance.randrange(100)
        sending = asyncio.create_task(prices.send(6))
        while prices.count < goal:
            await asyncio.sleep(0)
        await replica.end()
        await sending
        await replica.start()
        await in_sync(group, 2)
    # An empty broker copies what the leader has compacted.
    third = group.members[2]
    await third.start()
    await prices.until_compacted()
    await in_sync(group, 3)
    await prices.check()
    leader = await group.leader()
    await leader.end()
    await prices.send(5)
    await prices.check()
    # The dead one has been away while the others compacted.
    await prices.until_compacted()
    await leader.start()
    await in_sync(group, 3)
    for member in group.members:
        await lead(group, member)
        await prices.check()
    for member in group.members:
        await member.end()
    for name in "abc":
        found = check(tmp_path / name / "data", metadata=METADATA)
        assert not [one for one in found.findings if one.kind in {"damaged", "missing"}]
        assert (tmp_path / name / "log").read_text().count("the log was compacted")
