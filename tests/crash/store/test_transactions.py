"""The power goes at any change of the disk while transactions are prepared, decided and given up."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.metadata import timeline_file, topics_file, transactions_file
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.broker.transactions import delivery as transaction_delivery
from headrace_mq.broker.transactions.coordinator import TransactionCoordinator
from headrace_mq.broker.transactions.delivery import DEAD_TRANSACTIONS_QUEUE
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_columns, encode_batch, read_header
from headrace_mq.protocol.bodies import CreateTopic, encode
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
ROUNDS, LIVES = 5, 2
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


class Said:
    """What was promised to producers, by body."""

    def __init__(self) -> None:
        self.prepared: set[bytes] = set()
        self.committed: set[bytes] = set()
        self.rolled_back: set[bytes] = set()


class Transactions:
    """A store with transactions, as a broker has them."""

    def __init__(self, directory: Path, files: Any, clock: Clock, epoch: int) -> None:
        stored = StoreSettings(directory=directory, segment_bytes=64 << 10)
        self.clock, self.files = clock, files
        self.store = MessageStore(stored, epoch=epoch, clock=clock, files=files)
        self.store.open()
        topics = Topics(topics_file(directory, files), default_queues=1, auto_create=True)
        topics.load((ref, log, self.store.range(ref)[1]) for ref, log in self.store.queues())
        topics.create(CreateTopic("t", 1))
        topics.create(CreateTopic("kept", 1, "forever"))
        self.coordinator: TransactionCoordinator[str] = TransactionCoordinator(
            self.store,
            topics,
            clock=SteadyClock(clock, timeline_file(directory, files), stored),
            file=transactions_file(directory, files),
            epoch=epoch,
            settings=BrokerSettings(store=stored),
            check_room=lambda: None,
        )
        self.coordinator.load()
        self.store.on_visible = lambda queues: (
            self.coordinator.journal_grew() if TRANSACTION_QUEUE in queues else None
        )

    async def prepare(self, *bodies: bytes) -> int:
        """Prepares one transaction for each body, which goes to both topics."""
        owners = list(range(len(bodies)))
        columns = Columns([], [], [], list(bodies), [])
        parts = [
            BundlePart(bytes(encode_batch(queue, columns, born_first_ms=1)), owners)
            for queue in (T, KEPT)
        ]
        bundle = encode(Bundle("g", "c", [body.decode() for body in bodies], parts))
        batch = encode_batch(TRANSACTION_QUEUE, Columns([], [], [], [bundle], []), born_first_ms=1)
        number = self.store.append(batch, retention="transient").base_offset
        await self.store.durable()
        return number

    async def end(self, number: int, commit: list[int], roll_back: list[int]) -> None:
        """Decides; raises where the disk ends that, however long a commit waits for room on it."""
        ends = EndTransactions("g", [BundleEnds(number, commit, roll_back)])
        answer = self.coordinator.end(ends)
        while not (await asyncio.wait([answer], timeout=PATIENCE_S))[0]:
            if self.files.dead:
                raise OSError("the producer gave up waiting for a disk without power")
        answer.result()

    def bodies(self, queue: QueueRef) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        offset, end = self.store.range(queue)
        while offset < end:
            for batch in self.store.read(queue, offset, 1 << 20):
                header = read_header(batch)
                found.update(decode_columns(batch, header).bodies)
                offset = header.next_offset
        return found

    async def aclose(self) -> None:
        await self.coordinator.aclose()
        await self.store.aclose()


async def live(held: Transactions, life: int, said: Said) -> None:
    """Prepares and decides; raises where the disk ends that."""
    held.coordinator.start()
    try:
        for number in range(ROUNDS):
            yes, no, never = (b"%d-%d-%d" % (life, number, n) for n in range(3))
            bundle = await held.prepare(yes, no, never)
            said.prepared |= {yes, no, never}
            await held.end(bundle, [0], [])
            said.committed.add(yes)
            await held.end(bundle, [], [1])
            said.rolled_back.add(no)
        # As before a segment is deleted: what is undecided is kept aside, and the state kept.
        segments = held.store.segments("transient")
        held.coordinator.spare(segments, segments[-1].end)
        for _ in range(30):
            await asyncio.sleep(0)
    finally:
        await held.aclose()


async def judged(directory: Path, files: Any, clock: Clock, said: Said) -> Counter[str]:
    """Starts after the cut; counts what is lost, twice, of one topic only, or seen without a commit."""
    held = Transactions(directory, files, clock, epoch=99)
    held.coordinator.start()
    bundle = await held.prepare(b"last")
    await held.end(bundle, [0], [])
    await held.aclose()
    found = Transactions(directory, files, clock, epoch=100)
    seen, other, aside = (found.bodies(queue) for queue in (T, KEPT, DEAD_TRANSACTIONS_QUEUE))
    waiting = {one.transaction_id.encode() for one in found.coordinator.describe().oldest}
    await found.store.aclose()
    # A rollback that nobody was told of may have been done: nothing of it is left then.
    undecided = {body for body in said.prepared - said.committed if not body.endswith(b"-1")}
    return +Counter(
        lost=len(said.committed - seen.keys()),
        forgotten=len(undecided - seen.keys() - aside.keys() - waiting),
        twice=sum(count - 1 for bodies in (seen, other) for count in bodies.values()),
        half=len(seen.keys() ^ other.keys()),
        undone=len(said.rolled_back & seen.keys()),
        unsaid=sum(1 for body in seen if body.endswith(b"-2")),
    )


async def cut(folder: Path, cut_at: int, disk: Any, after: Any) -> tuple[Counter[str], bool]:
    """Runs two lives up to a cut at a step; says whether the power went before their end."""
    (folder / "store").mkdir(parents=True)
    files, clock, said = disk(folder / "store"), Clock(), Said()
    files.cut_at = cut_at
    try:
        for life in range(LIVES):
            await live(Transactions(folder / "store", files, clock, life + 1), life, said)
    except (MessageQueueError, OSError):
        assert files.dead
    files.image(folder / "kept", random.Random(str(cut_at)))
    files.forget()
    return await judged(folder / "kept", after(), clock, said), files.dead


async def test_a_power_cut_at_any_change_leaves_every_transaction_done_once_or_not_at_all(
    tmp_path: Path,
    power_cut_files: Any,
    faulty_files: Any,
    rounds: Callable[[int], int],
    figures: Callable[..., None],
) -> None:
    faults: Counter[str] = Counter()
    step, cuts, happened = 0, 0, True
    # In steps of three every day, so that each part is cut somewhere: what a new segment takes is
    # three steps, and a commit waits for it. All of them when asked.
    stride = 3 if rounds(0) == 0 else 1
    while happened:
        step += stride
        found, happened = await cut(tmp_path / str(step), step, power_cut_files, faulty_files)
        faults += found
        cuts += happened
    assert cuts > 10
    figures("power cuts while transactions are decided", power_cuts=cuts, **faults)
    assert not faults


async def test_transactions_without_sequences_are_found_out_by_the_same_cuts(
    tmp_path: Path, power_cut_files: Any, faulty_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_delivery, "PRODUCER_ID", 0)
    faults: Counter[str] = Counter()
    for step in range(21, 300, 5):
        found, _ = await cut(tmp_path / str(step), step, power_cut_files, faulty_files)
        faults += found
        if faults["twice"]:
            break
    assert faults["twice"] > 0
