"""The scheduler on a real store, with a clock moved by hand."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_mq.broker.journal import worker
from headrace_mq.broker.metadata import schedule_file
from headrace_mq.broker.schedule import scheduler as scheduler_module
from headrace_mq.errors import InvalidArgument, ScheduleFull, StoreFull
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header
from headrace_mq.protocol.scheduled import (
    SCHEDULE_QUEUE,
)
from headrace_mq.store.message_store import MessageStore

HOUR = 3_600_000
DAY = 24 * HOUR
T, KEPT = QueueRef("t", 0), QueueRef("kept", 0)


Open = Callable[..., Any]
Until = Callable[[Callable[[], object]], Awaitable[None]]


async def test_a_message_is_delivered_when_it_is_due_and_not_before(
    open_schedule: Open, move: Any, until: Until
) -> None:
    rig = open_schedule()
    rig.schedule.start()
    await rig.enter(b"at", at_ms=rig.clock.now + 10)
    await rig.enter(b"after", delay_ms=20)
    await rig.enter(b"past", at_ms=0)
    await until(lambda: rig.bodies() == [b"past"])
    move(rig, 10)
    await until(lambda: len(rig.bodies()) == 2)
    move(rig, 9)
    assert rig.schedule.describe().pending == 1
    move(rig, 1)
    await until(lambda: len(rig.bodies()) == 3)
    assert rig.bodies() == [b"past", b"at", b"after"]
    await until(lambda: rig.schedule.describe().pending == 0)
    assert rig.schedule.describe().next_due_at_ms == -1


async def test_a_delay_counts_from_the_append_also_after_a_restart(
    open_schedule: Open, move: Any, until: Until
) -> None:
    rig = open_schedule()
    await rig.enter(b"1", delay_ms=HOUR)
    due_ms = rig.clock.now + HOUR
    move(rig, HOUR // 2)
    again = open_schedule(rig.killed("b"), epoch=2)
    assert again.schedule.describe().next_due_at_ms == due_ms
    again.schedule.start()
    move(again, HOUR // 2)
    await until(lambda: again.bodies() == [b"1"])


async def test_a_clock_that_goes_back_delays_what_has_a_date_and_repeats_nothing(
    open_schedule: Open, move: Any, until: Until
) -> None:
    rig = open_schedule()
    rig.schedule.start()
    await rig.enter(b"1", b"2", at_ms=rig.clock.now + 10)
    move(rig, 10)
    await until(lambda: rig.bodies() == [b"1", b"2"])
    await rig.enter(b"3", at_ms=rig.clock.now + 10)
    rig.clock.now -= DAY
    await until(lambda: rig.schedule.describe().next_due_at_ms == rig.clock.now + DAY + 10)
    move(rig, DAY + 10)
    await until(lambda: rig.bodies() == [b"1", b"2", b"3"])


@pytest.mark.parametrize("leap", [2 * HOUR, -10 * HOUR, 400 * DAY, -400 * DAY])
async def test_a_delay_takes_its_time_however_the_clock_is_set(
    open_schedule: Open, move: Any, until: Until, leap: int
) -> None:
    rig = open_schedule()
    rig.schedule.start()
    await rig.enter(b"hour", delay_ms=HOUR)
    await rig.enter(b"4 s", delay_ms=4_000)
    rig.clock.now += leap
    await rig.enter(b"5 s", delay_ms=5_000)
    assert rig.schedule.describe().next_due_at_ms == rig.clock.now + 4_000
    move(rig, 3_999)
    await rig.enter(b"now", at_ms=0)
    await until(lambda: rig.bodies() == [b"now"])
    for ms, body in ((1, b"4 s"), (1_000, b"5 s"), (HOUR - 5_000, b"hour")):
        move(rig, ms - 1)
        assert rig.schedule.describe().late_ms == 0
        move(rig, 1)
        await until(lambda: rig.bodies()[-1] == body)  # noqa: B023 - awaited here
    assert rig.bodies() == [b"now", b"4 s", b"5 s", b"hour"]


async def test_a_date_is_the_clocks_as_it_stands(open_schedule: Open, until: Until) -> None:
    rig = open_schedule()
    rig.schedule.start()
    await rig.enter(b"tomorrow", at_ms=rig.clock.now + DAY)
    rig.clock.now += DAY
    rig.schedule.look()
    await until(lambda: rig.bodies() == [b"tomorrow"])


@pytest.mark.parametrize("kept", ["before", "after", "lost"])
@pytest.mark.parametrize("leap", [5 * HOUR, -5 * HOUR])
async def test_a_clock_that_was_set_before_or_at_a_restart_changes_no_delay(
    open_schedule: Open, move: Any, until: Until, leap: int, kept: str
) -> None:
    rig = open_schedule()
    await rig.enter(b"1", delay_ms=2 * HOUR)
    if kept == "before":
        await rig.steady.keep(always=True)
    rig.clock.now += leap
    if kept != "before":
        await rig.enter(b"2", delay_ms=2 * HOUR)
    if kept == "after":
        await rig.steady.keep(always=True)
    move(rig, HOUR)
    again = open_schedule(rig.killed("b"), epoch=2)
    again.schedule.start()
    described = again.schedule.describe()
    assert described.next_due_at_ms == again.clock.now + HOUR
    move(again, HOUR - 1)
    assert (again.schedule.describe().late_ms, again.bodies()) == (0, [])
    move(again, 1)
    await until(lambda: len(again.bodies()) == described.pending)


async def test_a_machine_that_was_off_delivers_what_is_overdue(
    open_schedule: Open, clock: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_schedule()
    await rig.enter(b"1", delay_ms=2 * HOUR)
    await rig.steady.keep(always=True)
    clock.now, clock.monotonic = clock.now + 3 * DAY, 0
    monkeypatch.setattr(type(clock), "boot_id", lambda _: "another boot")
    again = open_schedule(rig.killed("b"), epoch=2)
    again.schedule.start()
    await until(lambda: again.bodies() == [b"1"])


async def test_a_note_of_the_clock_that_found_no_room_is_made_again(
    open_schedule: Open, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_schedule()
    await rig.enter(b"1", delay_ms=HOUR)
    clock.now += 10 * HOUR
    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "append", _full)
        with pytest.raises(StoreFull):
            await rig.enter(b"2", delay_ms=HOUR)
    withdrawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "append", lambda batch, retention: None)
        patch.setattr(rig.store, "durable", lambda: withdrawn)
        rig.schedule._note_clock()
    withdrawn.set_exception(StoreFull("taken back"))
    with pytest.raises(StoreFull):
        await withdrawn
    await asyncio.sleep(0)
    await rig.enter(b"3", delay_ms=HOUR + 1)
    again = open_schedule(rig.killed("b"), epoch=2)
    due = again.schedule._schedule.take(clock.now + DAY, clock.now - 9 * HOUR + 1, 5)
    assert [entry.due_ms for entry in due] == [clock.now - 9 * HOUR, clock.now - 9 * HOUR + 1]


async def test_a_cancelled_message_is_never_delivered_and_cancelling_says_what_became_of_it(
    open_schedule: Open, move: Any, until: Until
) -> None:
    rig = open_schedule()
    rig.schedule.start()
    number = await rig.enter(b"1", b"2", at_ms=rig.clock.now + 10)
    cancelled = rig.schedule.cancel(number)
    assert cancelled is not None
    assert rig.schedule.cancel(number) is None
    await cancelled
    assert rig.schedule.cancel(99) is None
    # The cancellation's own record is no message.
    assert rig.schedule.cancel(number + 2) is None
    again = open_schedule(rig.killed("b"), epoch=2)
    assert again.schedule.describe().pending == 1
    move(rig, 10)
    await until(lambda: rig.bodies() == [b"2"])
    assert rig.schedule.cancel(number + 1) is None


async def test_a_cancellation_that_finds_no_room_leaves_the_message_pending(
    open_schedule: Open, move: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_schedule()
    number = await rig.enter(b"1", at_ms=rig.clock.now + 10)
    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "append", _full)
        with pytest.raises(StoreFull):
            rig.schedule.cancel(number)
    withdrawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with monkeypatch.context() as patch:
        patch.setattr(rig.store, "append", lambda batch, retention: None)
        patch.setattr(rig.store, "durable", lambda: withdrawn)
        assert rig.schedule.cancel(number) is withdrawn
    withdrawn.set_exception(StoreFull("taken back"))
    with pytest.raises(StoreFull):
        await withdrawn
    rig.schedule.start()
    move(rig, 10)
    await until(lambda: rig.bodies() == [b"1"])


def _full(_batch: Any, *, retention: str) -> None:
    raise StoreFull(f"no room for {retention}")


async def test_a_kill_before_or_between_any_two_steps_delivers_each_message_once(
    open_schedule: Open, move: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_schedule()
    # Both logs have their segment: making one is the store's own matter.
    first = encode_batch(KEPT, Columns([], [], [], [b"0"], []), born_first_ms=1)
    rig.store.append(first, retention="forever")
    for after_ms, topic in ((1, "t"), (2, "kept"), (3, "t"), (3, "kept")):
        await rig.enter(b"1", b"2", topic=topic, delay_ms=after_ms)
    killed = [rig.killed("killed-0")]

    def killing(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*given: Any, **named: Any) -> Any:
            killed.append(rig.killed(f"killed-{len(killed)}"))
            return step(*given, **named)

        return stepped

    for step in ("append", "durable"):
        monkeypatch.setattr(rig.store, step, killing(getattr(rig.store, step)))
    rig.store.on_visible = killing(rig.visible)
    rig.schedule.start()
    for left in (6, 4, 0):
        move(rig, 1)
        await until(lambda: rig.schedule.describe().pending == left)  # noqa: B023 - awaited here
    await until(lambda: rig.store.range(KEPT)[1] == 5)
    killed.append(rig.killed(f"killed-{len(killed)}"))
    assert len(killed) > 15
    found = set()
    for number, directory in enumerate(killed):
        again = open_schedule(directory, epoch=number + 2)
        found.add((again.stored() - 1, again.schedule.describe().pending))
        again.schedule.start()
        await until(lambda: again.stored() >= 9)  # noqa: B023 - awaited here
        await again.schedule.aclose()
        assert sorted(again.bodies()) == [b"1", b"1", b"2", b"2"], directory
        assert sorted(again.bodies(KEPT)) == [b"0", b"1", b"1", b"2", b"2"], directory
    # Before, within and after deliveries; also said and not done.
    assert found >= {(0, 8), (2, 6), (2, 4), (4, 4), (8, 0)}


async def test_an_interrupted_delivery_is_finished_first_at_any_time(
    open_schedule: Open, clock: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "PAUSE_MS", 60_000)
    rig = open_schedule()
    await rig.enter(b"1", at_ms=clock.now + 10)
    clock.now += 10
    append = rig.store.append

    def fail_on_delivery(batch: Any, *, retention: str) -> Any:
        if b"%schedule" in bytes(batch):
            return append(batch, retention=retention)
        raise RuntimeError("killed")

    monkeypatch.setattr(rig.store, "append", fail_on_delivery)
    rig.schedule.start()
    await until(lambda: rig.schedule.describe().pending == 0)
    assert rig.bodies() == []
    clock.now -= DAY
    again = open_schedule(rig.killed("b"), epoch=2)
    await again.enter(b"2", at_ms=clock.now - 1)
    again.schedule.start()
    await until(lambda: again.bodies() == [b"1", b"2"])
    monkeypatch.setattr(rig.store, "append", append)


async def test_a_start_reads_only_the_journal_behind_what_was_kept(
    open_schedule: Open, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_schedule()
    for _ in range(5):
        await rig.enter(b"x", at_ms=clock.now + DAY)
    rig.schedule.start()
    await rig.aclose()
    reads: list[int] = []
    read = MessageStore.read

    def counted(store: Any, queue: QueueRef, offset: int, bytes_max: int) -> Any:
        reads.append(offset)
        return read(store, queue, offset, bytes_max)

    monkeypatch.setattr(MessageStore, "read", counted)
    again = open_schedule(epoch=2)
    assert (again.schedule.describe().pending, reads) == (5, [])


@pytest.mark.parametrize("harm", [b"", b"no checkpoint"])
async def test_a_damaged_or_missing_file_costs_time_and_no_message(
    open_schedule: Open, clock: Any, harm: bytes
) -> None:
    rig = open_schedule()
    await rig.enter(b"x", b"y", at_ms=clock.now + DAY)
    rig.schedule.start()
    await rig.aclose()
    file = rig.directory / "metadata" / "schedule.json"
    if harm:
        file.write_bytes(harm)
    else:
        file.unlink()
    assert open_schedule(epoch=2).schedule.describe().pending == 2


async def test_the_state_is_kept_now_and_then(
    open_schedule: Open, clock: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "KEEP_EVERY", 3)
    rig = open_schedule()
    rig.schedule.start()
    file = schedule_file(rig.directory)
    await rig.enter(b"1", b"2", b"3", at_ms=clock.now + DAY)
    await until(file.read)
    kept = file.read()
    assert kept is not None
    assert kept.read_to == 3


async def test_segments_go_only_once_what_is_pending_in_them_was_written_again(
    open_schedule: Open, move: Any, until: Until
) -> None:
    rig = open_schedule()
    assert rig.schedule.spare(rig.store.segments("transient"), 5) == 5
    rig.schedule.start()
    number = await rig.enter(b"far", delay_ms=30 * DAY)
    cancelled = await rig.enter(b"never", delay_ms=30 * DAY)
    await rig.enter(b"near", at_ms=0)
    await until(lambda: rig.bodies() == [b"near"])
    for _ in range(5):
        await rig.enter(b"x" * 40_000, at_ms=rig.clock.now + 40 * DAY)
    segments = rig.store.segments("transient")
    before = segments[-1].base
    spared = rig.schedule.spare(segments, before)
    assert spared == segments[0].base

    def spare() -> int:
        return rig.schedule.spare(rig.store.segments("transient"), before)

    await until(lambda: spare() == before)
    rig.store.delete_segments("transient", before)
    first, _ = rig.store.range(SCHEDULE_QUEUE)
    assert number < first
    again = open_schedule(rig.killed("b"), epoch=2)
    for one in (rig, again):
        assert one.schedule.describe().pending == 7
        gone = one.schedule.cancel(cancelled)
        assert gone is not None
        await gone
    (rig.directory / "metadata" / "schedule.json").unlink(missing_ok=True)
    unkept = open_schedule(rig.killed("c"), epoch=3)
    assert unkept.schedule.describe().pending == 6
    for one in (again, unkept):
        one.schedule.start()
    move(again, 30 * DAY)
    unkept.schedule.look()
    for one in (again, unkept):
        await until(lambda: b"far" in one.bodies())  # noqa: B023 - awaited here
        assert one.bodies().count(b"far") == 1


async def test_more_than_may_wait_and_other_queues_are_refused(open_schedule: Open) -> None:
    rig = open_schedule(pending_max=2)
    await rig.enter(b"1", b"2", delay_ms=DAY)
    with pytest.raises(ScheduleFull, match="scheduled_max"):
        await rig.enter(b"3", delay_ms=DAY)
    other = encode_batch(
        QueueRef(SCHEDULE_QUEUE.topic, 1), Columns([], [], [], [b""], []), born_first_ms=1
    )
    with pytest.raises(InvalidArgument, match="one queue"):
        rig.schedule.check(read_header(other), memoryview(other))
