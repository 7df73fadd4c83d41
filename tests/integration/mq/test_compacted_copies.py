"""Each broker of a group compacts its own copy: the newest message of each key is at its offset, from any leader.

Three real stores follow each other by function calls, without a network. They append, compact, fall behind, fail over,
lose what was never confirmed, and come back with an empty disk, in any order. Readers read on meanwhile, from any leader.
"""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.replicas.bodies import FollowAnswer
from headrace_mq.broker.replicas.documents import DOCUMENTS_LOG, Documents
from headrace_mq.broker.replicas.followers import Followers
from headrace_mq.broker.replicas.replica import Replica
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.member import ClusterMember, Turn
from headrace_mq.cluster.record import GroupRecord, Identity
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import BrokerStopping, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, read_header
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.settings import StoreSettings
from headrace_mq.store.check.inspection import check
from headrace_mq.store.compaction.plan import Bounds
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.replication.epochs import EpochFile
from headrace_mq.testing.clock import ManualClock

QUEUE = QueueRef("state", 0)
TOMBSTONE_MS = 10_000
KEYS = 8


class Told(NamedTuple):
    """A message that was acknowledged."""

    offset: int
    key: str
    body: bytes


class Caller:
    """A connection of a replica that keeps the last answer."""

    client_id = "replica"
    body = b""

    def answer(self, _code: int, _correlation: int, *parts: bytes) -> None:
        self.body = b"".join(parts)

    def flush(self) -> None:
        """Everything is there at once."""


class Machine:
    """One broker's folder and rules, with its store open as a replica's or as a leader's."""

    def __init__(self, folder: Path, name: str, clock: ManualClock) -> None:
        self.name, self.folder, self.clock = name, folder / name, clock
        self.disks = 0
        self.seen: GroupRecord | None = None
        self.followers: Followers | None = None
        self.tail: list[Told] = []
        self.caller = Caller()
        self.start()

    def start(self) -> None:
        self.me = Identity(self.name, f"disk {self.disks}")
        self.settings = StoreSettings(
            directory=self.folder, segment_bytes=64 * 1024, compact_segment_bytes=64 * 1024,
            compact_lag_ms=0, compact_bytes_per_s=0, tombstone_ms=TOMBSTONE_MS,
            compact_interval_ms=1_000_000_000,
        )  # fmt: skip
        self.logs = StoreLogs(EpochFile(SystemFiles(), self.folder))
        self.replica = Replica(self.settings, self.logs, clock=self.clock, files=SystemFiles())
        # The test decides when a replica compacts.
        self.replica._compact_at_ms = 1 << 60
        self.logs.epochs.open(self.replica.open().raw.ends())
        self.documents = Documents(self.folder, SystemFiles())
        logs = {**self.logs.by_name, DOCUMENTS_LOG: self.documents}
        self.member = ClusterMember(self.me, logs, seen=self.seen, min_in_sync=1)

    async def stop(self) -> None:
        if self.followers is not None:
            self.followers.close()
            self.followers = None
        await self.replica.aclose()

    async def lead(self, record: MemoryRecord) -> Followers:
        self.member.on_record(await record.read())
        proposal = self.member.stand()
        assert proposal is not None
        assert self.member.on_record(await record.propose(proposal)) is Turn.LEAD
        self.seen = self.member.seen
        for name, end in self.logs.ends().items():
            self.logs.epochs.begin(name, self.member.epoch, end)
        self.documents.begin()
        self.member.lead()
        self.followers = Followers(self.member, self.logs, self.documents, self.clock, lambda: None)
        await self.replica.aclose()
        store = self.replica.open(self.followers.new_gate())
        store.epoch = self.followers.epoch
        self.followers.attach(store)
        self.followers.commit()
        return self.followers

    async def step(self, followers: Followers) -> None:
        """Asks the leader once, and takes its answer over."""
        request = self.replica.question(self.member)
        body = memoryview(encode(type(request)(**{
            **{name: getattr(request, name) for name in request.__struct_fields__}, "wait_ms": 0,
            "bytes_max": 20_000,
        })))  # fmt: skip
        followers.follow(self.caller, Frame(RequestCode.FOLLOW, 1, 0, 1, body))  # type: ignore[arg-type]  # only what is used of it
        await self.replica.take(self.member, decode(FollowAnswer, self.caller.body))
        await self.replica.until_synced()

    async def compact(self, bounds: Bounds) -> bool:
        store = self.logs.store
        done = await store.compaction.run({}, force=True, bounds=bounds)
        assert store.compaction.figures.trouble == ""
        return done

    def held(self) -> Iterator[Told]:
        """Reads what this broker shows."""
        store = self.logs.store
        at, end = store.range(QUEUE)
        while at < end:
            for batch in store.read(QUEUE, at, 50_000):
                for record in decode_records(batch):
                    if record.offset >= at:
                        yield Told(record.offset, record.key, record.body)
                at = max(at, read_header(batch).next_offset)


class Reader:
    """Reads the topic from its beginning, piece by piece, from from any leader."""

    def __init__(self, now_ms: int) -> None:
        self.began_ms, self.at = now_ms, 0
        self.state: dict[str, Told] = {}

    def read(self, machine: Machine, most: int) -> None:
        end = machine.logs.store.range(QUEUE)[1]
        for one in machine.held():
            if one.offset >= self.at:
                self.state[one.key] = one
                self.at = one.offset + 1
                most -= 1
                if not most:
                    return
        self.at = max(self.at, end)


class Group:
    """Three machines, what was acknowledged, and chance."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.machines = {name: Machine(folder, name, self.clock) for name in "abc"}
        self.record = MemoryRecord()
        self.acked: list[Told] = []
        self.unsure: list[Told] = []
        self.away: set[str] = set()
        self.stats: Counter[str] = Counter()
        self.readers: list[Reader] = []
        self.number = 0
        self.leader = self.machines["a"]

    async def begin(self) -> None:
        await self.record.create(self.leader.me, [self.leader.me])
        await self.leader.lead(self.record)

    @property
    def followers(self) -> Followers:
        assert self.leader.followers is not None
        return self.leader.followers

    def others(self) -> list[Machine]:
        return [one for one in self.machines.values() if one is not self.leader]

    async def in_sync(self) -> list[Machine]:
        known = (await self.record.read()).in_sync
        return [one for one in self.others() if one.me in known and one.name not in self.away]

    async def exchange(self, rounds: int = 3) -> None:
        """Lets everyone who is there follow; who has all enters, and who is away leaves."""
        for _ in range(rounds):
            for one in self.others():
                if one.name in self.away:
                    continue
                one.member.on_record(await self.record.read())
                one.seen = one.member.seen
                end = one.logs.ends()[COMPACT]
                with suppress(MessageQueueError):
                    await one.step(self.followers)
                self.stats["dropped"] += one.logs.ends()[COMPACT] < end
            self.followers.commit()
            member = self.leader.member
            for gone in self.others():
                if gone.name in self.away and (proposal := member.shrink(gone.me)):
                    member.on_record(await self.record.propose(proposal))
            for entrant in self.followers.progress.entrants():
                if proposal := member.grow(entrant):
                    member.on_record(await self.record.propose(proposal))
                    self.stats["entered"] += 1
            self.followers.commit()
            self.clock.advance(10)

    async def catch_up(self) -> None:
        """Lets everyone follow until all have all."""
        self.away.clear()
        for _ in range(400):
            await self.exchange(1)
            ends = [one.logs.ends() for one in self.machines.values()]
            known = (await self.record.read()).in_sync
            if ends[0] == ends[1] == ends[2] and len(known) == 3:
                await self.exchange(2)
                return
            for one in self.others():
                # It is behind with its own compaction; in time it is due.
                await one.compact(self.bounds(one))
        raise AssertionError(f"the group does not come together: {ends}, {known}")

    def bounds(self, one: Machine) -> Bounds:
        if one is self.leader:
            return self.followers.bounds(TOMBSTONE_MS)
        return Bounds(one.member.readable(COMPACT), one.logs.tombstones)

    # What happens.

    async def appended(self) -> tuple[list[Told], asyncio.Future[None]]:
        """Appends some messages to the leader's log; they are on its disk on return."""
        count = self.chance.randint(1, 4)
        end = self.acked[-1].offset + 1 if self.acked else 0
        found = []
        for at in range(count):
            key = (
                f"k{self.chance.randrange(KEYS)}"
                if self.chance.random() < 0.9
                else f"n{self.number}"
            )
            self.number += 1
            body = (
                b""
                if self.chance.random() < 0.25
                else b"%d " % self.number * self.chance.randint(1, 2_500)
            )
            found.append(Told(end + at, key, body))
        columns = Columns([one.key for one in found], [], [], [one.body for one in found], [])
        batch = encode_batch(QUEUE, columns, born_first_ms=1)
        logs = self.leader.logs
        before = logs.ends()[COMPACT]
        appended = logs.store.append(batch, retention=COMPACT)
        assert appended.base_offset == end
        done = logs.store.durable()
        async with asyncio.timeout(120):
            while logs.ends()[COMPACT] == before:
                await asyncio.sleep(0)
        return found, done

    async def append(self) -> None:
        found, done = await self.appended()
        for _ in range(50):
            await self.exchange(1)
            if done.done():
                break
        assert done.done(), "it is not committed"
        self.acked += found

    async def append_alone(self) -> None:
        """The leader writes what no replica has, and another one leads."""
        if not await self.in_sync():
            return
        found, done = await self.appended()
        if self.chance.random() < 0.5:
            for one in await self.in_sync():
                if self.chance.random() < 0.5:
                    await one.step(self.followers)
        self.stats["alone"] += 1
        await self.fail_over()
        if self.leader.logs.store.range(QUEUE)[1] > found[0].offset:
            self.acked += found
        with suppress(BrokerStopping):
            await done

    async def fail_over(self) -> None:
        heirs = await self.in_sync()
        if not heirs:
            return
        self.stats["failed over"] += 1
        old, self.leader = self.leader, self.chance.choice(heirs)
        await old.stop()
        old.start()
        for one in self.machines.values():
            await one.replica.until_synced()
        await self.leader.lead(self.record)
        if self.chance.random() < 0.3:
            self.away.add(old.name)
        for _ in range(100):
            await self.exchange(1)
            if self.followers.leadership.serves:
                return
        raise AssertionError("the new leader serves no client")

    async def wipe(self) -> None:
        one = self.chance.choice(self.others())
        if one.name not in self.away:
            return
        await self.exchange()
        self.stats["wiped"] += 1
        await one.stop()
        shutil.rmtree(one.folder)
        one.disks += 1
        one.seen = None
        one.start()
        self.away.discard(one.name)

    async def restart(self) -> None:
        one = self.chance.choice(self.others())
        await one.stop()
        one.start()

    async def go_away(self) -> None:
        if len(self.away) < 2:
            self.away.add(self.chance.choice(self.others()).name)
            await self.exchange()

    async def come_back(self) -> None:
        if self.away:
            self.away.discard(self.chance.choice(sorted(self.away)))
            self.stats["came back"] += 1

    async def compact(self) -> None:
        one = self.chance.choice(list(self.machines.values()))
        before = one.logs.store.raw.compacted(COMPACT).version
        if await one.compact(self.bounds(one)):
            self.stats["compacted"] += 1
            after = one.logs.store.raw.compacted(COMPACT).version
            self.stats["tombstones removed"] += after - before

    async def wait(self) -> None:
        self.clock.advance(self.chance.randint(1, TOMBSTONE_MS // 2))

    async def read_on(self) -> None:
        if len(self.readers) < 5:
            self.readers.append(Reader(self.clock.monotonic_ms()))
        for reader in self.chance.sample(self.readers, 2 if len(self.readers) > 1 else 1):
            if self.clock.monotonic_ms() - reader.began_ms > TOMBSTONE_MS:
                self.readers.remove(reader)
                continue
            hurries = self.chance.random() < 0.15
            reader.read(self.leader, 1 << 30 if hurries else self.chance.randint(1, 3))
            if reader.at == self.leader.logs.store.range(QUEUE)[1]:
                self.readers.remove(reader)
                alive = {key: one for key, one in reader.state.items() if one.body}
                assert alive == self.state(reader.at)
                self.stats["read"] += 1

    def state(self, end: int) -> dict[str, Told]:
        newest = {one.key: one for one in self.acked[:end]}
        return {key: one for key, one in newest.items() if one.body}

    # What holds.

    async def check(self) -> None:
        for one in [self.leader, *await self.in_sync()]:
            self.check_one(one)

    def check_one(self, one: Machine) -> None:
        end = one.logs.store.range(QUEUE)[1]
        assert end <= len(self.acked)
        held = list(one.held())
        for each in held:
            assert each == self.acked[each.offset], one.name
        newest = {told.key: told for told in self.acked[:end]}
        found = {told.key: told for told in held}
        for key, told in newest.items():
            if told.body or key in found:
                assert found.get(key) == told, (one.name, key)
        assert one.logs.store.damage == []

    async def play(self, steps: int) -> None:
        await self.begin()
        acts = [
            (self.append, 30), (self.compact, 16), (self.read_on, 25), (self.wait, 6),
            (self.exchange, 6), (self.append_alone, 2), (self.fail_over, 2), (self.wipe, 2),
            (self.restart, 2), (self.go_away, 3), (self.come_back, 4),
        ]  # fmt: skip
        for _ in range(steps):
            act = self.chance.choices([act for act, _ in acts], [often for _, often in acts])[0]
            await act()
            await self.check()
        await self.catch_up()
        await self.check()
        for one in self.machines.values():
            assert one.logs.ends() == self.leader.logs.ends()
            assert self.written_epochs(one) == self.written_epochs(self.leader)

    @staticmethod
    def written_epochs(one: Machine) -> list[tuple[int, int]]:
        end = one.logs.ends()[COMPACT]
        return [start for start in one.logs.by_name[COMPACT].history.starts if start[1] < end]

    async def aclose(self) -> None:
        for one in self.machines.values():
            await one.stop()


async def play(folder: Path, seed: int, steps: int = 120) -> Counter[str]:
    group = Group(folder, seed)
    try:
        await group.play(steps)
    finally:
        await group.aclose()
    for one in group.machines.values():
        assert not check(one.folder, metadata={}).findings
    return group.stats


@pytest.mark.parametrize("seed", range(6))
async def test_a_group_keeps_the_newest_message_of_each_key(tmp_path: Path, seed: int) -> None:
    await play(tmp_path, seed)
