"""The power goes at any change of the disk while a journal is written and its orders are carried out.

Both journals of the broker: messages for later, and transactions.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from headrace_mq.broker.journal.worker import JournalWorker
from headrace_mq.broker.metadata import (
    schedule_file,
    timeline_file,
    topics_file,
    transactions_file,
)
from headrace_mq.broker.schedule import delivery as schedule_delivery
from headrace_mq.broker.schedule.scheduler import Scheduler
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.broker.transactions import delivery as transaction_delivery
from headrace_mq.broker.transactions.coordinator import TransactionCoordinator
from headrace_mq.broker.transactions.delivery import DEAD_TRANSACTIONS_QUEUE
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_columns, encode_batch, read_header
from headrace_mq.protocol.bodies import CreateTopic, encode
from headrace_mq.protocol.scheduled import AT_HEADER, SCHEDULE_QUEUE, TOPIC_HEADER
from headrace_mq.protocol.transactions import (
    TRANSACTION_QUEUE,
    Bundle,
    BundleEnds,
    BundlePart,
    EndTransactions,
)
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.store.message_store import MessageStore

T, KEPT = QueueRef("t", 0), QueueRef("kept", 0)
LIVES = 2
# Turns of the loop that a worker is given; bounded, because one whose disk is gone does nothing more.
TURNS = 30
# Between looks whether there is still a disk to wait for.
PATIENCE_S = 0.02


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def boot_id(self) -> str:
        return "boot"


class Promises:
    """What clients were promised, by body."""

    def __init__(self) -> None:
        self.taken: set[bytes] = set()
        self.committed: set[bytes] = set()
        self.rolled_back: set[bytes] = set()


class Journal(ABC):
    """A store with one journal, as a broker has them."""

    QUEUE: ClassVar[QueueRef]
    DELIVERY: ClassVar[ModuleType]
    # Steps from one cut to the next every day, so that each part is cut somewhere; all of them when
    # asked. What a new segment takes is three steps, and a commit waits for it.
    STRIDE: ClassVar[int]
    # Where cuts find out that batches have no sequences.
    DEFECT_STEPS: ClassVar[range]

    def __init__(self, directory: Path, files: Any, clock: Clock, epoch: int) -> None:
        self.settings = StoreSettings(directory=directory, segment_bytes=64 << 10)
        self.clock, self.files, self.epoch = clock, files, epoch
        self.store = MessageStore(self.settings, epoch=epoch, clock=clock, files=files)
        self.store.open()
        self.topics = Topics(topics_file(directory, files), default_queues=1, auto_create=True)
        held = self.store.queues()
        self.topics.load((ref, log, self.store.range(ref)[1]) for ref, log in held)
        self.topics.create(CreateTopic("t", 1))
        self.topics.create(CreateTopic("kept", 1, "forever"))
        self.steady = SteadyClock(clock, timeline_file(directory, files), self.settings)
        self.worker = self.make_worker(directory)
        self.worker.load()
        self.store.on_visible = lambda queues: (
            self.worker.journal_grew() if self.QUEUE in queues else None
        )

    @abstractmethod
    def make_worker(self, directory: Path) -> JournalWorker[Any]:
        """Makes the worker of the journal."""

    @abstractmethod
    async def work(self, life: int, said: Promises) -> None:
        """Takes messages and carries some of them out; raises where the disk ends that."""

    @abstractmethod
    async def settle(self) -> None:
        """Carries out everything that is to be carried out after the cut."""

    @abstractmethod
    def faults(self, said: Promises) -> dict[str, int]:
        """Counts what is not as it was promised."""

    async def live(self, life: int, said: Promises) -> None:
        """Works, and then has all segments of the journal deleted that are not needed."""
        self.worker.start()
        try:
            await self.work(life, said)
            segments = self.store.segments("transient")
            self.worker.spare(segments, segments[-1].end)
            await self.turns()
        finally:
            await self.aclose()

    async def turns(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def put(self, columns: Columns) -> int:
        """Appends to the journal; returns the first number when that is durable."""
        batch = encode_batch(self.QUEUE, columns, born_first_ms=1)
        number = self.store.append(batch, retention="transient").base_offset
        await self.store.durable()
        return number

    def bodies(self, *queues: QueueRef) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for queue in queues:
            offset, end = self.store.range(queue)
            while offset < end:
                for batch in self.store.read(queue, offset, 1 << 20):
                    header = read_header(batch)
                    found.update(decode_columns(batch, header).bodies)
                    offset = header.next_offset
        return found

    async def aclose(self) -> None:
        await self.worker.aclose()
        await self.store.aclose()


class Schedule(Journal):
    QUEUE, DELIVERY = SCHEDULE_QUEUE, schedule_delivery
    STRIDE, DEFECT_STEPS = 7, range(21, 180, 7)
    worker: Scheduler

    def make_worker(self, directory: Path) -> Scheduler:
        return Scheduler(
            self.store, self.topics, clock=self.steady, file=schedule_file(directory, self.files),
            epoch=self.epoch, pending_max=1_000, check_room=lambda: None,
        )  # fmt: skip

    async def enter(self, body: bytes, topic: str, in_ms: int) -> None:
        headers = [{TOPIC_HEADER: topic, AT_HEADER: str(self.clock.now + in_ms)}]
        await self.put(Columns([], [], headers, [body], []))

    async def work(self, life: int, said: Promises) -> None:
        for number in range(6):
            for topic in ("t", "kept"):
                body = b"%d-%d-%s" % (life, number, topic.encode())
                await self.enter(body, topic, number)
                said.taken.add(body)
            self.clock.now += 1
            self.worker.look()
            await self.turns()

    async def settle(self) -> None:
        self.clock.now += 3_600_000
        await self.enter(b"last", "t", 0)
        self.clock.now += 1
        while self.bodies(T)[b"last"] == 0 or self.worker.describe().pending:
            self.worker.look()
            await asyncio.sleep(0)

    def faults(self, said: Promises) -> dict[str, int]:
        bodies = self.bodies(T, KEPT)
        return {
            "lost": len(said.taken - bodies.keys()),
            "twice": sum(count - 1 for count in bodies.values()),
        }


class Transactions(Journal):
    QUEUE, DELIVERY = TRANSACTION_QUEUE, transaction_delivery
    STRIDE, DEFECT_STEPS = 3, range(21, 300, 5)
    worker: TransactionCoordinator[str]

    def make_worker(self, directory: Path) -> TransactionCoordinator[str]:
        return TransactionCoordinator(
            self.store, self.topics, clock=self.steady,
            file=transactions_file(directory, self.files), epoch=self.epoch,
            settings=BrokerSettings(store=self.settings), check_room=lambda: None,
        )  # fmt: skip

    async def prepare(self, *bodies: bytes) -> int:
        """Prepares one transaction for each body, which goes to both topics."""
        owners = list(range(len(bodies)))
        columns = Columns([], [], [], list(bodies), [])
        parts = [
            BundlePart(bytes(encode_batch(queue, columns, born_first_ms=1)), owners)
            for queue in (T, KEPT)
        ]
        bundle = encode(Bundle("g", "c", [body.decode() for body in bodies], parts))
        return await self.put(Columns([], [], [], [bundle], []))

    async def end(self, number: int, commit: list[int], roll_back: list[int]) -> None:
        """Decides; raises where the disk ends that, however long a commit waits for room on it."""
        ends = EndTransactions("g", [BundleEnds(number, commit, roll_back)])
        answer = self.worker.end(ends)
        while not (await asyncio.wait([answer], timeout=PATIENCE_S))[0]:
            if self.files.dead:
                raise OSError("the producer gave up waiting for a disk without power")
        answer.result()

    async def work(self, life: int, said: Promises) -> None:
        for number in range(5):
            yes, no, never = (b"%d-%d-%d" % (life, number, n) for n in range(3))
            bundle = await self.prepare(yes, no, never)
            said.taken |= {yes, no, never}
            await self.end(bundle, [0], [])
            said.committed.add(yes)
            await self.end(bundle, [], [1])
            said.rolled_back.add(no)

    async def settle(self) -> None:
        await self.end(await self.prepare(b"last"), [0], [])

    def faults(self, said: Promises) -> dict[str, int]:
        seen, other, aside = (self.bodies(q) for q in (T, KEPT, DEAD_TRANSACTIONS_QUEUE))
        waiting = {one.transaction_id.encode() for one in self.worker.describe().oldest}
        # A rollback that no producer heard of may have been done: nothing of it is left then.
        undecided = {body for body in said.taken - said.committed if not body.endswith(b"-1")}
        return {
            "lost": len(said.committed - seen.keys()),
            "forgotten": len(undecided - seen.keys() - aside.keys() - waiting),
            "twice": sum(count - 1 for bodies in (seen, other) for count in bodies.values()),
            "half": len(seen.keys() ^ other.keys()),
            "undone": len(said.rolled_back & seen.keys()),
            "unsaid": sum(1 for body in seen if body.endswith(b"-2")),
        }


async def judged(
    kind: type[Journal], directory: Path, files: Any, clock: Clock, said: Promises
) -> Counter[str]:
    """Starts after the cut and settles everything; counts what is not as it was promised."""
    settled = kind(directory, files, clock, epoch=99)
    settled.worker.start()
    await settled.settle()
    await settled.aclose()
    found = kind(directory, files, clock, epoch=100)
    faults = +Counter(found.faults(said))
    await found.store.aclose()
    return faults


async def cut(
    kind: type[Journal], folder: Path, cut_at: int, disk: Any, after: Any
) -> tuple[Counter[str], bool]:
    """Runs two lives up to a cut at a step; says whether the power went before their end."""
    (folder / "store").mkdir(parents=True)
    files, clock, said = disk(folder / "store"), Clock(), Promises()
    files.cut_at = cut_at
    try:
        for life in range(LIVES):
            await kind(folder / "store", files, clock, life + 1).live(life, said)
    except (MessageQueueError, OSError):
        assert files.dead
    files.image(folder / "kept", random.Random(str(cut_at)))
    files.forget()
    return await judged(kind, folder / "kept", after(), clock, said), files.dead


@pytest.mark.parametrize("kind", [Schedule, Transactions])
async def test_a_power_cut_at_any_change_leaves_every_order_of_a_journal_carried_out_once(
    tmp_path: Path,
    power_cut_files: Any,
    faulty_files: Any,
    rounds: Callable[[int], int],
    figures: Callable[..., None],
    kind: type[Journal],
) -> None:
    faults: Counter[str] = Counter()
    step, cuts, happened = 0, 0, True
    stride = kind.STRIDE if rounds(0) == 0 else 1
    while happened:
        step += stride
        folder = tmp_path / str(step)
        found, happened = await cut(kind, folder, step, power_cut_files, faulty_files)
        faults += found
        cuts += happened
    assert cuts > 10
    figures(f"power cuts, {kind.__name__.lower()}", power_cuts=cuts, **faults)
    assert not faults


@pytest.mark.parametrize("kind", [Schedule, Transactions])
async def test_a_journal_without_sequences_is_found_out_by_the_same_cuts(
    tmp_path: Path,
    power_cut_files: Any,
    faulty_files: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Journal],
) -> None:
    monkeypatch.setattr(kind.DELIVERY, "PRODUCER_ID", 0)
    faults: Counter[str] = Counter()
    for step in kind.DEFECT_STEPS:
        folder = tmp_path / str(step)
        found, _ = await cut(kind, folder, step, power_cut_files, faulty_files)
        faults += found
        if faults["twice"]:
            break
    assert faults["twice"] > 0
