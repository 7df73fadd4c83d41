"""The power goes at any change of the disk while scheduled messages are taken, moved and delivered."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.metadata import schedule_file, timeline_file, topics_file
from headrace_mq.broker.schedule import delivery as schedule_delivery
from headrace_mq.broker.schedule.scheduler import Scheduler
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_columns, encode_batch, read_header
from headrace_mq.protocol.bodies import CreateTopic
from headrace_mq.protocol.scheduled import AT_HEADER, SCHEDULE_QUEUE, TOPIC_HEADER
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

T, KEPT = QueueRef("t", 0), QueueRef("kept", 0)
ROUNDS, LIVES = 6, 2


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


class Schedule:
    """A store with a schedule, as a broker has them."""

    def __init__(self, directory: Path, files: Any, clock: Clock, epoch: int) -> None:
        settings = StoreSettings(directory=directory, segment_bytes=64 << 10)
        self.clock = clock
        self.store = MessageStore(settings, epoch=epoch, clock=clock, files=files)
        self.store.open()
        topics = Topics(topics_file(directory, files), default_queues=1, auto_create=True)
        topics.load((ref, log, self.store.range(ref)[1]) for ref, log in self.store.queues())
        topics.create(CreateTopic("t", 1))
        topics.create(CreateTopic("kept", 1, "forever"))
        self.scheduler = Scheduler(
            self.store,
            topics,
            clock=SteadyClock(clock, timeline_file(directory, files), settings),
            file=schedule_file(directory, files),
            epoch=epoch,
            pending_max=1_000,
            check_room=lambda: None,
        )
        self.scheduler.load()
        self.store.on_visible = lambda queues: (
            self.scheduler.journal_grew() if SCHEDULE_QUEUE in queues else None
        )

    async def enter(self, body: bytes, topic: str, in_ms: int) -> None:
        """Returns when the message is durable."""
        headers = [{TOPIC_HEADER: topic, AT_HEADER: str(self.clock.now + in_ms)}]
        batch = encode_batch(SCHEDULE_QUEUE, Columns([], [], headers, [body], []), born_first_ms=1)
        self.store.append(batch, retention="transient")
        await self.store.durable()

    def bodies(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for queue in (T, KEPT):
            offset, end = self.store.range(queue)
            while offset < end:
                for batch in self.store.read(queue, offset, 1 << 20):
                    header = read_header(batch)
                    found.update(decode_columns(batch, header).bodies)
                    offset = header.next_offset
        return found

    async def aclose(self) -> None:
        await self.scheduler.aclose()
        await self.store.aclose()


async def live(schedule: Schedule, life: int, acked: set[bytes]) -> None:
    """Takes messages and delivers some of them, cancels one; raises where the disk ends that."""
    schedule.scheduler.start()
    try:
        for number in range(ROUNDS):
            for topic in ("t", "kept"):
                body = b"%d-%d-%s" % (life, number, topic.encode())
                await schedule.enter(body, topic, number)
                acked.add(body)
            schedule.clock.now += 1
            schedule.scheduler.look()
            # Bounded: a scheduler whose disk is gone has nothing more to do.
            for _ in range(30):
                await asyncio.sleep(0)
        # As before a segment is deleted: what is pending is written again, and the state kept.
        segments = schedule.store.segments("transient")
        schedule.scheduler.spare(segments, segments[-1].end)
        for _ in range(30):
            await asyncio.sleep(0)
    finally:
        await schedule.aclose()


async def judged(directory: Path, files: Any, clock: Clock, acked: set[bytes]) -> Counter[str]:
    """Delivers everything after the cut; counts what is lost, and what came twice."""
    schedule = Schedule(directory, files, clock, epoch=99)
    clock.now += 3_600_000
    schedule.scheduler.start()
    await schedule.enter(b"last", "t", 0)
    clock.now += 1
    while schedule.bodies()[b"last"] == 0 or schedule.scheduler.describe().pending:
        schedule.scheduler.look()
        await asyncio.sleep(0)
    await schedule.aclose()
    found = Schedule(directory, files, clock, epoch=100)
    bodies = found.bodies()
    await found.store.aclose()
    twice = sum(count - 1 for count in bodies.values())
    return +Counter(lost=len(acked - bodies.keys()), twice=twice)


async def cut(folder: Path, cut_at: int, disk: Any, after: Any) -> tuple[Counter[str], bool]:
    """Runs two lives up to a cut at a step; says whether the power went before their end."""
    (folder / "store").mkdir(parents=True)
    files, clock, acked = disk(folder / "store"), Clock(), set[bytes]()
    files.cut_at = cut_at
    try:
        for life in range(LIVES):
            await live(Schedule(folder / "store", files, clock, life + 1), life, acked)
    except (MessageQueueError, OSError):
        assert files.dead
    files.image(folder / "kept", random.Random(str(cut_at)))
    files.forget()
    return await judged(folder / "kept", after(), clock, acked), files.dead


async def test_a_power_cut_at_any_change_loses_no_message_and_delivers_none_twice(
    tmp_path: Path,
    power_cut_files: Any,
    faulty_files: Any,
    rounds: Callable[[int], int],
    figures: Callable[..., None],
) -> None:
    faults: Counter[str] = Counter()
    step, cuts, happened = 0, 0, True
    # In steps of seven every day, so that each part is cut somewhere; all of them when asked.
    stride = 7 if rounds(0) == 0 else 1
    while happened:
        step += stride
        found, happened = await cut(tmp_path / str(step), step, power_cut_files, faulty_files)
        faults += found
        cuts += happened
    assert cuts > 10
    figures("power cuts while messages are scheduled", power_cuts=cuts, **faults)
    assert not faults


async def test_a_schedule_without_sequences_is_found_out_by_the_same_cuts(
    tmp_path: Path, power_cut_files: Any, faulty_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_delivery, "PRODUCER_ID", 0)
    faults: Counter[str] = Counter()
    for step in range(21, 180, 7):
        found, _ = await cut(tmp_path / str(step), step, power_cut_files, faulty_files)
        faults += found
        if faults["twice"]:
            break
    assert faults["twice"] > 0
