"""What tests of a leader and its replicas share: both as stores in one process, and frames that pass by calls."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from headrace_mq._runtime.clock import SystemClock
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.replicas.bodies import FollowAnswer
from headrace_mq.broker.replicas.documents import DOCUMENTS_LOG, Documents
from headrace_mq.broker.replicas.followers import Followers
from headrace_mq.broker.replicas.replica import Replica
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.member import ClusterMember, Turn
from headrace_mq.cluster.record import Identity
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, read_header
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.settings import StoreSettings
from headrace_mq.store.compaction.plan import Bounds
from headrace_mq.store.log.commit_log import COMPACT, SegmentInfo
from headrace_mq.store.replication.epochs import EpochFile

QUEUE, STATE = QueueRef("orders", 0), QueueRef("state", 0)


class Caller:
    """A connection of a replica that keeps the last answer."""

    def __init__(self) -> None:
        self.client_id = "replica"
        self.code = -1
        self.answer_body = b""
        self.answers = 0
        self.on_answer: Callable[[], None] = lambda: None

    def answer(self, code: int, _correlation: int, *parts: bytes) -> None:
        self.code, self.answer_body = code, b"".join(parts)
        self.answers += 1
        self.on_answer()

    def flush(self) -> None:
        pass


class Place:
    """One broker's folder, with its store open as a replica's."""

    def __init__(self, folder: Path, name: str) -> None:
        self.settings = StoreSettings(
            directory=folder / name, segment_bytes=64 * 1024, compact_segment_bytes=64 * 1024,
            compact_lag_ms=0, compact_bytes_per_s=0,
        )  # fmt: skip
        self.logs = StoreLogs(EpochFile(SystemFiles(), self.settings.directory))
        self.replica = Replica(self.settings, self.logs, clock=SystemClock(), files=SystemFiles())
        self.logs.epochs.open(self.replica.open().raw.ends())
        self.documents = Documents(self.settings.directory, SystemFiles())
        self.me = Identity(name, f"disk-{name}")
        self.member = ClusterMember(
            self.me, {**self.logs.by_name, DOCUMENTS_LOG: self.documents}, min_in_sync=1,
            documents=[DOCUMENTS_LOG],
        )  # fmt: skip
        self.caller = Caller()
        self.changes = 0

    async def lead(self, record: MemoryRecord) -> Followers:
        """Wins the next epoch, and opens the store behind the followers' gate."""
        self.member.on_record(await record.read())
        proposal = self.member.stand()
        assert proposal is not None
        assert self.member.on_record(await record.propose(proposal)) is Turn.LEAD
        for name, end in self.logs.ends().items():
            self.logs.epochs.begin(name, self.member.epoch, end)
        self.documents.begin()
        self.member.lead()
        followers = Followers(self.member, self.logs, self.documents, SystemClock(), self._changed)
        await self.replica.aclose()
        store = self.replica.open(followers.new_gate())
        store.epoch = followers.epoch
        followers.attach(store)
        followers.commit()
        return followers

    def _changed(self) -> None:
        self.changes += 1

    def append(self, *numbers: int) -> None:
        """Appends a message of each number."""
        for number in numbers:
            batch = encode_batch(
                QUEUE, Columns([], [], [], [b"%d " % number * 2_000], []), born_first_ms=0,
                producer_id=7, first_sequence=number,
            )  # fmt: skip
            self.logs.store.append(batch, retention="forever")

    async def put(self, *keys: str, body: bytes = b"x" * 30_000) -> None:
        """Appends a message of each key to a compacted topic, each in a group of its own; all are indexed on return."""
        for key in keys:
            end = self.logs.ends()[COMPACT]
            columns = Columns([key], [], [], [body], [])
            self.logs.store.append(encode_batch(STATE, columns, born_first_ms=0), retention=COMPACT)
            await self.until(lambda end=end: self.logs.ends()[COMPACT] > end)
        await self.until(lambda: all(one.indexed for one in self.sealed()))

    def sealed(self) -> list[SegmentInfo]:
        """The segments of the compacted log that are committed, but for the newest one."""
        return [one for one in self.logs.store.segments(COMPACT) if one.sealed]

    async def compact(self, bounds: Bounds) -> bool:
        """Compacts the own log, even if little would be removed."""
        done = await self.logs.store.compaction.run({}, force=True, bounds=bounds)
        assert self.logs.store.compaction.figures.trouble == ""
        return done

    def state(self) -> list[tuple[int, str]]:
        """The offset and the key of each message of the compacted topic, as readers see it."""
        store, found = self.logs.store, []
        at, end = store.range(STATE)
        while at < end:
            for batch in store.read(STATE, at, 1 << 20):
                found += [(one.offset, one.key) for one in decode_records(batch)]
                at = max(at, read_header(batch).next_offset)
        return found

    async def until(self, holds: Callable[[], bool]) -> None:
        """Lets the loop run until something holds."""
        async with asyncio.timeout(120):
            while not holds():
                await asyncio.sleep(0)

    def ask(self, followers: Followers, *, wait_ms: int = 0, flags: int = 0) -> None:
        """Sends a question; the answer comes to the caller."""
        request = msgspec.structs.replace(self.replica.question(self.member), wait_ms=wait_ms)
        asked = Frame(RequestCode.FOLLOW, 1, flags, 1, memoryview(encode(request)))
        followers.follow(self.caller, asked)  # type: ignore[arg-type]  # only what is used of it

    async def step(self, followers: Followers) -> FollowAnswer:
        """Asks once and takes the answer over, onto the disk."""
        self.ask(followers)
        await followers.logs.repairs.settled()
        answer = decode(FollowAnswer, self.caller.answer_body)
        await self.replica.take(self.member, answer)
        await self.replica.until_synced()
        await self.logs.repairs.settled()
        return answer

    def end(self) -> int:
        """What readers of the queue see."""
        return self.logs.store.range(QUEUE)[1]


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[list[Place]]:
    made = [Place(tmp_path, name) for name in "ab"]
    yield made
    for place in made:
        await place.replica.aclose()


@pytest.fixture
async def record(places: list[Place]) -> MemoryRecord:
    made = MemoryRecord()
    await made.create(places[0].me, [places[0].me])
    return made
