"""Everything is read from replicas while the leader is written to, a replica is killed, and then the leader."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import ConnectionLost, NotLeader, RequestTimeout
from headrace_mq.message import QueueRef
from tests.integration.mq.broker_group import (
    PATIENT_S,
    QUEUES,
    TOPIC,
    Group,
    Member,
    Senders,
    running,
)

# With a start and a failover on a busy machine; see `PATIENT_S`.
pytestmark = pytest.mark.timeout(320)
# A reader that has everything looks again after this.
_PAUSE_S = 0.02
_GONE = (ConnectionLost, NotLeader, RequestTimeout)


@pytest.fixture
async def group(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[Group]:
    members = [
        Member(tmp_path / name, f"127.0.0.1:{free_port()}", postgres_database) for name in "abc"
    ]
    async with running(Group(members, postgres_database)) as made:
        yield made


class Follower:
    """Reads a topic to its end, again and again, in a thread: what each queue holds from the leader, messages from replicas."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.found: dict[int, list[bytes]] = {number: [] for number in range(QUEUES)}
        self._stop = threading.Event()
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        # What it must have at the end.
        self._goal = 0
        self._task = asyncio.create_task(asyncio.to_thread(self._run))

    def _run(self) -> None:
        while not (self._stop.is_set() and self.count >= self._goal):
            try:
                with BlockingReader(self._address, read_from="replica") as reader:
                    while not (self._stop.is_set() and self.count >= self._goal):
                        self._read(reader)
            except _GONE:
                continue

    def _read(self, reader: BlockingReader) -> None:
        before = self.count
        for one in reader.ranges([TOPIC]):
            own = self.found[one.queue_id]
            assert one.end >= len(own)
            for header, columns, first, last in reader.read(
                QueueRef(TOPIC, one.queue_id), len(own), one.end
            ):
                assert header.base_offset + first == len(own)
                own += columns.bodies[first:last]
                self._loop.call_soon_threadsafe(self._news.set)
        if self.count == before:
            self._stop.wait(_PAUSE_S)

    @property
    def count(self) -> int:
        return sum(map(len, self.found.values()))

    async def until(self, count: int) -> None:
        """Returns when it has so many messages."""
        async with asyncio.timeout(PATIENT_S):
            while self.count < count:
                self._news.clear()
                if self.count < count:
                    news = asyncio.create_task(self._news.wait())
                    await asyncio.wait([news, self._task], return_when=asyncio.FIRST_COMPLETED)
                    news.cancel()
                if self._task.done():
                    self._task.result()

    async def end(self, goal: int) -> None:
        self._goal = goal
        self._stop.set()
        async with asyncio.timeout(PATIENT_S):
            await self._task


def served_by(member: Member) -> bool:
    """Whether a broker serves reads as a replica."""
    try:
        with BlockingReader(member.address, read_from="replica", timeout_ms=10_000) as reader:
            return reader._replicas is not None and reader._replicas.connection() is not None
    except _GONE:
        return False


async def test_every_message_is_read_once_and_in_order_while_replicas_and_the_leader_are_killed(
    group: Group,
) -> None:
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    senders = Senders(group.address)
    follower = Follower(group.address)
    try:
        await senders.more(200)
        await follower.until(200)
        leader = await group.leader()
        replicas = [one for one in group.members if one is not leader]
        # The leader is no replica; both of the others are, as soon as they have heard how much is committed.
        assert not await asyncio.to_thread(served_by, leader)
        async with asyncio.timeout(PATIENT_S):
            while not all([await asyncio.to_thread(served_by, one) for one in replicas]):
                pass
        await replicas[0].end()
        await senders.more(200)
        await follower.until(follower.count + 100)
        await replicas[0].start()
        await group.in_sync()
        await leader.end()
        await senders.more(200)
        await follower.until(follower.count + 100)
        await leader.start()
    finally:
        await senders.end(group)
        await follower.end(len(senders.acknowledged))
    found = [body for own in follower.found.values() for body in own]
    assert sorted(found) == sorted(senders.acknowledged)
    for number in range(4):
        counts = [int(one.split()[1]) for one in found if one.startswith(b"%d " % number)]
        assert counts == sorted(counts)
