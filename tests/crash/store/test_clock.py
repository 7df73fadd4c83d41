"""The machine's clock jumps: order, offsets, reading and what is deleted do not depend on it."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.metadata import timeline_file
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.topics.deletion import Deletion
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.retention.timeline import Reading
from headrace_mq.testing.clock import ManualClock

HOUR_MS = 3_600_000
JUMPS = (-HOUR_MS, 48 * HOUR_MS, -72 * HOUR_MS, 0, 365 * 24 * HOUR_MS)


class JumpingClock:
    """A clock that somebody sets, again and again; its monotonic side goes on."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        self._monotonic_ms += 1
        return self._monotonic_ms


def store_in(directory: Path, files: Any, clock: Any) -> MessageStore:
    settings = StoreSettings(directory=directory, segment_bytes=64 * 1024)
    return MessageStore(settings, files=files, clock=clock)


@pytest.mark.parametrize("end", ["clean", "killed"])
async def test_a_clock_that_jumps_changes_neither_order_nor_offsets(
    tmp_path: Path, faulty_files: Any, ledger: Any, end: str
) -> None:
    clock, promised = JumpingClock(), ledger(3)
    times = []
    for jump in JUMPS:
        files = faulty_files()
        store = store_in(tmp_path, files, clock)
        store.open()
        assert promised.judge(store) == {}
        for _ in range(10):
            await promised.send(store)
            clock.ms += 1
        clock.ms += jump
        for _ in range(10):
            await promised.send(store)
        assert promised.judge(store) == {}
        times = append_times(store)
        if end == "clean":
            await store.aclose()
        else:
            files.abandon()
    again = store_in(tmp_path, faulty_files(), clock)
    again.open()
    assert promised.judge(again) == {}
    assert append_times(again) == times
    # The append time is what the clock said then, jumps and all: no order may be read from it.
    assert any(following < time for time, following in pairwise(times))
    await again.aclose()


def append_times(store: MessageStore) -> list[int]:
    queue = QueueRef("t", 1)
    batches = store.read(queue, store.range(queue)[0], 1 << 30)
    headers = [read_header(batch) for batch in batches]
    assert [h.base_offset for h in headers] == sorted(h.base_offset for h in headers)
    return [header.appended_at_ms for header in headers]


# --- what is deleted ------------------------------------------------------------------------------

QUEUE = QueueRef("t", 0)
AGE_MS, UNCONSUMED_MS = 2 * HOUR_MS, 6 * HOUR_MS
DAY_MS = 24 * HOUR_MS
# By what somebody sets the clock, or a machine boots wrongly.
LEAPS = (
    -8 * DAY_MS, 8 * DAY_MS, -HOUR_MS, HOUR_MS, 3 * HOUR_MS, -365 * DAY_MS, 365 * DAY_MS,
    -50 * 365 * DAY_MS, 90_000, -90_000, 700,
)  # fmt: skip
# A dozen of them fill a segment.
BODY = b"x" * 5_000


class Machine:
    """A machine with a clock that anybody sets, and a broker's store on it; true time stands here.

    Attributes:
        stored_ms: of each acknowledged message the true time when it was.
        consumed: the offset that the only group has reached.
        first: the first message that is still there.
        counted: what happened.
    """

    def __init__(self, folder: Path, seed: int, disk: Any) -> None:
        self.chosen = random.Random(seed)
        self.clock = ManualClock()
        self.true_ms = self.wrong_ms = 0
        self.stored_ms: list[int] = []
        self.first = self.consumed = 0
        self.counted: Counter[str] = Counter()
        self._folder, self._disk, self._copies = folder, disk, 0
        (folder / "0").mkdir(parents=True)

    def start(self, *, cut: bool = True) -> None:
        """Starts a broker's parts on what the disk holds."""
        directory = self._folder / str(self._copies)
        settings = StoreSettings(
            directory=directory, segment_bytes=64 << 10,
            transient_age_ms=AGE_MS, unconsumed_ms_max=UNCONSUMED_MS,
        )  # fmt: skip
        self.files = self._disk(directory)
        if cut and self.chosen.random() < 0.5:
            # The power goes during this change of the disk, whichever it is.
            self.files.cut_at = self.chosen.randint(1, 150)
        file = timeline_file(directory, self.files)
        self.steady = SteadyClock(self.clock, file, settings)
        self.store = MessageStore(settings, clock=self.steady, files=self.files)
        self.store.open()
        self._deletion = Deletion(
            self.store, settings, timeline=self.steady.timeline,
            consumed=lambda _queue: self.consumed, early=lambda: False,
            spare=lambda _segments, before: before,
        )  # fmt: skip
        self.look()

    def look(self) -> None:
        """A retention pass; counts what went too early."""
        self.steady.look()
        while self._deletion.run():
            pass
        first, end = self.store.range(QUEUE)
        assert end >= len(self.stored_ms), "an acknowledged message is lost"
        gone = range(self.first, min(first, len(self.stored_ms)))
        self.first = max(self.first, gone.stop)
        for offset in gone:
            limit_ms = AGE_MS if offset < self.consumed else UNCONSUMED_MS
            age_ms = self.true_ms - self.stored_ms[offset]
            self.counted["deleted_too_early" if age_ms < limit_ms else "deleted"] += 1

    async def step(self) -> None:
        """Something happens to a broker that runs."""
        what = self.chosen.choice(["send", "send", "consume", "pass", "leap", "right", "look"])
        match what:
            case "send":
                for _ in range(self.chosen.randint(1, 12)):
                    await self._send()
            case "consume":
                self.consumed = self.chosen.randint(self.consumed, len(self.stored_ms))
            case "pass":
                self._pass(self.chosen.choice([1_000, HOUR_MS // 2, HOUR_MS, 3 * HOUR_MS]))
            case "leap":
                self._set(self.wrong_ms + self.chosen.choice(LEAPS))
            case "right":
                self._set(0)
        if self.chosen.random() < 0.3:
            await self.steady.keep(always=self.chosen.random() < 0.5)
        self.look()
        self.counted[what] += 1

    async def end(self) -> None:
        """The broker stops, is killed, or loses its power; time passes, and the clock is set."""
        how = "power" if self.files.dead else self.chosen.choice(["stop", "kill", "power"])
        if how == "stop":
            await self.steady.keep(always=True)
            with suppress(MessageQueueError, OSError):
                await self.store.aclose()
            how = "power" if self.files.dead else how
        if how != "stop":
            self.files.abandon()
        if how == "power":
            self._copies += 1
            self.files.image(self._folder / str(self._copies), self.chosen)
        self.files.forget()
        self._pass(self.chosen.choice([0, 1_000, HOUR_MS, 10 * DAY_MS]))
        self._set(self.chosen.choice([0, self.wrong_ms, self.wrong_ms + self.chosen.choice(LEAPS)]))
        if how == "power" or self.chosen.random() < 0.2:
            self.clock.reboot(self.clock.now_ms())
            self.counted["boots"] += 1
        self.counted[how] += 1

    async def _send(self) -> None:
        batch = encode_batch(QUEUE, Columns([], [], [], [BODY], []), born_first_ms=0)
        appended = self.store.append(batch, retention="transient")
        await self.store.durable()
        # What a cut left of a message that was not acknowledged is there all the same.
        missed = appended.base_offset - len(self.stored_ms)
        self.stored_ms += [self.true_ms] * (missed + 1)

    def _pass(self, ms: int) -> None:
        self.true_ms += ms
        self.clock.advance(ms)

    def _set(self, wrong_ms: int) -> None:
        self.clock.set(self.clock.now_ms() + wrong_ms - self.wrong_ms)
        self.wrong_ms = wrong_ms


async def lived(folder: Path, seed: int, disk: Any) -> Counter[str]:
    """Runs a machine through some lives of its broker; returns what happened."""
    machine = Machine(folder, seed, disk)
    for _ in range(machine.chosen.randint(2, 5)):
        try:
            machine.start()
            for _ in range(machine.chosen.randint(0, 12)):
                await machine.step()
        except (MessageQueueError, OSError):
            assert machine.files.dead
            machine.counted["power_cuts"] += 1
        await machine.end()
    machine.start(cut=False)
    await machine.store.aclose()
    machine.files.forget()
    machine.counted["messages"] = len(machine.stored_ms)
    return machine.counted


async def test_random_clocks_over_restarts_delete_no_message_before_its_time(
    tmp_path: Path,
    power_cut_files: Any,
    rounds: Callable[[int], int],
    figures: Callable[..., None],
) -> None:
    happened: Counter[str] = Counter()
    cases = rounds(60)
    for seed in range(cases):
        happened += await lived(tmp_path / str(seed), seed, power_cut_files)
    figures("clocks that are set, over restarts", cases=cases, **happened)
    # A few cases may not live long enough for anything to be old.
    assert cases < 20 or happened["deleted"] > 0
    assert happened["deleted_too_early"] == 0


async def test_ages_by_the_wall_clock_are_found_out_by_the_same_cases(
    tmp_path: Path, power_cut_files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_the_wall(steady: SteadyClock) -> Reading:
        now_ms = steady.now_ms()
        return Reading(now_ms, now_ms, "one boot")

    monkeypatch.setattr(SteadyClock, "_reading", by_the_wall)
    happened: Counter[str] = Counter()
    for seed in range(30):
        happened += await lived(tmp_path / str(seed), seed, power_cut_files)
    assert happened["deleted_too_early"] > 0
