"""The rules of a group drive three real stores: messages survive their leader, and its lone ones go.

Frames pass by function calls; no network and no broker is here yet.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.cluster.frames import Parted, Send
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.member import ClusterMember, Turn
from headrace_mq.cluster.record import GroupRecord, Identity
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import BrokerStopping
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.commit_gate import CommitGate, Durable
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.replication.cut import cut_log
from headrace_mq.store.replication.epochs import EpochFile, EpochHistory

LOG = "forever"
QUEUE = QueueRef("orders", 0)


class Machine:
    """A store with the rules of its broker; to them it is the log as well."""

    def __init__(self, folder: Path, name: str) -> None:
        self.settings = StoreSettings(directory=folder / name, segment_bytes=64 * 1024)
        self.files = SystemFiles()
        self.me = Identity(name, f"disk of {name}")
        self.seen: GroupRecord | None = None
        self.open()

    def open(self) -> None:
        self.gate = CommitGate()
        epoch = self.seen.epoch if self.seen else 1
        self.store = MessageStore(self.settings, epoch=epoch, files=self.files, gate=self.gate)
        self.store.open()
        self.epochs = EpochFile(self.files, self.settings.directory)
        self.epochs.open(self.store.raw.ends())
        self.member = ClusterMember(self.me, {LOG: self}, seen=self.seen, min_in_sync=2)

    @property
    def end(self) -> int:
        return self.store.raw.ends()[LOG]

    durable = end

    @property
    def history(self) -> EpochHistory:
        return self.epochs.of(LOG)

    @property
    def leadership(self) -> Leadership:
        assert self.member.leadership is not None
        return self.member.leadership

    async def stand(self, record: MemoryRecord) -> None:
        """Wins the next epoch, and opens its store as a leader."""
        self.member.on_record(await record.read())
        proposal = self.member.stand()
        assert proposal is not None
        assert self.member.on_record(await record.propose(proposal)) is Turn.LEAD
        self.seen = self.member.seen
        self.store.epoch = self.member.epoch
        self.epochs.begin(LOG, self.member.epoch, self.end)
        self.member.lead()
        self.gate.on_held = self.commit

    def commit(self) -> None:
        self.member.on_synced()
        self.gate.reached(LOG, self.leadership.committed(LOG))

    async def send(self, number: int) -> Durable:
        """A producer sends a message of 9 KB; returns when it is on this disk, with the future of its answer."""
        batch = encode_batch(
            QUEUE, Columns([], [], [], [b"%d " % number * 4_500], []), born_first_ms=0,
            producer_id=7, first_sequence=number,
        )  # fmt: skip
        end, appended = self.end, self.store.append(batch, retention=LOG)
        answer = self.store.durable()
        while not appended.duplicate and self.end == end:
            await asyncio.sleep(0)
        return answer

    async def follow(self, leader: "Machine", record: MemoryRecord) -> None:
        """Asks until there is nothing more, and reports what is on the disk."""
        self.member.on_record(await record.read())
        self.seen = self.member.seen
        while True:
            answer = leader.member.on_follow(self.member.follow(LOG))
            if isinstance(answer, Parted):
                await self.cut(answer, record)
                continue
            assert isinstance(answer, Send)
            raw = leader.store.raw.read(LOG, answer.position, 20_000)
            behind = raw.position + len(raw.data)
            assert self.member.on_send(answer, len(raw.data))
            if raw.data:
                starts = [one for one in leader.history.after(raw.position) if one[1] < behind]
                self.epochs.take_over(LOG, raw.position, starts)
                self.store.raw.append(raw)
                while self.end < behind:
                    await asyncio.sleep(0)
            self.gate.reached(LOG, self.member.readable(LOG))
            for frame in self.member.report():
                leader.member.on_durable(frame)
            leader.commit()
            if not raw.data:
                return

    async def cut(self, answer: Parted, record: MemoryRecord) -> None:
        cut = self.member.on_parted(answer)
        assert cut is not None
        await self.store.aclose()
        cut_log(self.files, self.settings, cut.log, cut.position)
        self.epochs.cut(cut.log, cut.position)
        self.open()
        self.member.on_record(await record.read())

    def numbers(self) -> list[int]:
        """What readers of the queue see."""
        first, end = self.store.range(QUEUE)
        found: list[int] = []
        while first < end and (batches := self.store.read(QUEUE, first, 1 << 20)):
            records = [one for batch in batches for one in decode_records(batch)]
            found += [int(one.body.split()[0]) for one in records]
            first = records[-1].offset + 1
        return found


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[list[Machine]]:
    made = [Machine(tmp_path, name) for name in "abc"]
    yield made
    for machine in made:
        await machine.store.aclose()


async def test_messages_survive_their_leader_and_its_lone_ones_are_cut(
    machines: list[Machine],
) -> None:
    a, b, c = machines
    record = MemoryRecord()
    await record.create(a.me, [machine.me for machine in machines])
    await a.stand(record)
    answers = [await a.send(number) for number in range(10)]
    assert not any(answer.done() for answer in answers)
    await b.follow(a, record)
    # One of three has nothing yet, so nothing is acknowledged or seen.
    assert not any(answer.done() for answer in answers)
    assert a.numbers() == b.numbers() == []
    await c.follow(a, record)
    await asyncio.gather(*answers)
    assert a.numbers() == list(range(10))

    # The leader is cut off, and writes on over the border of a segment: no producer hears that it succeeded.
    lone = [await a.send(number) for number in range(10, 20)]
    assert not any(answer.done() for answer in lone)
    await b.stand(record)
    assert not b.leadership.serves
    assert b.leadership.required == {b.me, c.me}
    await c.follow(b, record)
    assert b.leadership.serves
    assert b.numbers() == list(range(10))

    # The producer sends again: what was acknowledged is known, the rest is new.
    again = [await b.send(number) for number in range(8, 15)]
    await c.follow(b, record)
    await asyncio.gather(*again)
    assert b.numbers() == list(range(15))

    # The old leader comes back, cuts what only it has, and enters the set.
    assert a.member.on_record(await record.read()) is Turn.FOLLOW
    await a.follow(b, record)
    for answer in lone:
        with pytest.raises(BrokerStopping):
            await answer
    assert b.leadership.entrants() == [a.me]
    proposal = b.member.grow(a.me)
    assert proposal is not None
    b.member.on_record(await record.propose(proposal))
    last = await b.send(15)
    for replica in (a, c):
        await replica.follow(b, record)
    await last
    for replica in (a, c):
        await replica.follow(b, record)
    assert [machine.numbers() for machine in machines] == [list(range(16))] * 3
    assert a.history == b.history == c.history
    assert [machine.store.damage for machine in machines] == [[], [], []]
