"""Group commit: what is written together, who waits for it, and what a failing disk does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.errors import StoreFull, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.log.flusher import (
    READERS_FIRST_BATCHES_MAX,
    SYNC_INLINE_AGAIN_US,
    SYNC_INLINE_US_MAX,
    Flusher,
)
from headrace_mq.store.log.write_group import Group, Staged
from headrace_mq.store.segment.segment import MARK_BYTES, SEGMENT_HEADER_BYTES, Place

SEGMENT_BYTES = 64 * 1024
ROOM = SEGMENT_BYTES - SEGMENT_HEADER_BYTES - MARK_BYTES
QUEUE = QueueRef("orders", 0)
FULL = OSError(28, "No space left on device")
BROKEN = OSError(5, "Input/output error")


class Desk:
    """A flusher with two logs, and lists of what it told its owner."""

    def __init__(self, directory: Path, files: Any, **options: Any) -> None:
        self.files = files
        self.logs = {
            name: CommitLog(files, directory / name, segment_bytes=SEGMENT_BYTES, epoch=1)
            for name in ("forever", "transient")
        }
        for log in self.logs.values():
            log.open()
        self.staged: dict[tuple[str, int], bytes] = {}
        self.committed: list[list[bytes]] = []
        self.withdrawn: list[bytes] = []
        self.flusher = Flusher(
            **{"flush": "always", "interval_ms": 60_000, **options},
            committed=self._commit,
            withdrawn=self._withdraw,
        )

    def _commit(self, groups: Sequence[Group]) -> None:
        self.committed.append([batch for group in groups for batch in self._batches(group)])
        for group in groups:
            assert b"".join(group.blocks) == b"".join(self._batches(group))

    def _withdraw(self, groups: Sequence[Group]) -> None:
        self.withdrawn += [b for group in groups for b in reversed(self._batches(group))]

    def _batches(self, group: Group) -> list[bytes]:
        return [self.staged[group.log.name, one.entry.position] for one in group.staged]

    def stage(self, data: bytes, log: str = "forever") -> Place:
        group = self.flusher.group_for(self.logs[log], len(data), 0)
        place = Place(group.end, len(data))
        self.staged[log, place.position] = data
        self.flusher.stage(group, Staged(QUEUE, IndexEntry(*place, 0, 1, 0), None), data)
        return place

    def read(self, place: Place, log: str = "forever") -> bytes:
        (run,) = self.logs[log].runs([place])
        return run.segment.read(run.position, run.length)


@pytest.fixture
async def new_desk(tmp_path: Path, files: Any) -> AsyncIterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(**options: Any) -> Desk:
        desks.append(Desk(tmp_path, files, **options))
        return desks[-1]

    yield make
    files.gate.set()
    for desk in desks:
        await desk.flusher.aclose()
        for log in desk.logs.values():
            log.close()


@pytest.fixture
async def desk(new_desk: Callable[..., Desk]) -> Desk:
    """A flusher whose log has its first segment, so that writes may stay on the loop."""
    made = new_desk()
    made.stage(b"first")
    await made.flusher.durable()
    made.committed.clear()
    made.files.syncs = 0
    made.files.threads.clear()
    return made


async def in_thread(desk: Desk) -> None:
    """Returns when the thread is inside a sync that waits for the gate."""
    assert await asyncio.get_running_loop().run_in_executor(None, desk.files.waiting.wait, 20)
    desk.files.waiting.clear()


async def test_batches_staged_in_one_turn_are_one_group_with_one_sync(desk: Desk) -> None:
    places = [desk.stage(data) for data in (b"a" * 100, b"b" * 50, b"c")]
    future = desk.flusher.durable()
    assert desk.flusher.durable() is future
    assert not future.done()
    await future
    assert desk.committed == [[b"a" * 100, b"b" * 50, b"c"]]
    assert desk.files.syncs == 1
    assert [desk.read(place) for place in places] == [b"a" * 100, b"b" * 50, b"c"]
    assert places[1].position == places[0].position + 100
    assert desk.flusher.staged_bytes == 0


async def test_each_group_has_a_mark_before_its_batches(desk: Desk) -> None:
    first = desk.stage(b"a" * 10)
    await desk.flusher.durable()
    second = desk.stage(b"b" * 10)
    await desk.flusher.durable()
    assert second.position == first.position + 10 + MARK_BYTES


async def test_durable_is_done_at_once_when_nothing_waits(desk: Desk) -> None:
    assert desk.flusher.durable().done()
    await desk.flusher.durable()


async def test_both_logs_are_written_in_one_cycle(desk: Desk) -> None:
    desk.stage(b"a")
    place = desk.stage(b"b", "transient")
    await desk.flusher.durable()
    assert desk.committed == [[b"a", b"b"]]
    assert desk.read(place, "transient") == b"b"


async def test_a_quick_sync_stays_on_the_loop_and_a_slow_one_goes_to_the_thread(
    desk: Desk,
) -> None:
    async def once(sync_us: int) -> str:
        desk.files.sync_us = sync_us
        desk.stage(b"x")
        await desk.flusher.durable()
        return desk.files.threads[-1]

    assert await once(SYNC_INLINE_US_MAX) == "MainThread"
    # One outlier does not count for much, a slow disk does.
    assert await once(SYNC_INLINE_US_MAX * 8) == "MainThread"
    assert await once(0) != "MainThread"
    while (where := await once(SYNC_INLINE_AGAIN_US // 2)) != "MainThread":
        assert where.startswith("headrace-sync")
    assert desk.flusher._sync_us < SYNC_INLINE_AGAIN_US


async def test_one_log_that_is_full_takes_nothing_of_the_other_one_back(desk: Desk) -> None:
    desk.stage(b"first", "transient")
    await desk.flusher.durable()
    ends = {name: log.end for name, log in desk.logs.items()}
    desk.files.allocate_error = FULL
    desk.stage(b"a")
    desk.stage(b"b" * ROOM)
    desk.stage(b"c", "transient")
    with pytest.raises(StoreFull, match="no new segment can be made"):
        await desk.flusher.durable()
    assert desk.committed[-1] == [b"a", b"c"]
    assert desk.withdrawn == [b"b" * ROOM]
    for name, log in desk.logs.items():
        assert log.end == log.tail == ends[name] + MARK_BYTES + 1


async def test_while_a_sync_runs_the_next_group_collects(desk: Desk) -> None:
    desk.flusher._inline = False
    desk.files.gate.clear()
    told: list[list[bytes]] = []
    desk.stage(b"a")
    first = desk.flusher.durable()
    first.add_done_callback(lambda _: told.extend(desk.committed))
    await in_thread(desk)
    desk.stage(b"b")
    desk.stage(b"c")
    second = desk.flusher.durable()
    assert second is not first
    assert desk.committed == []
    desk.files.gate.set()
    await second
    # Who waited for the first group was told before the second one was written.
    assert told == [[b"a"]]
    assert desk.committed == [[b"a"], [b"b", b"c"]]
    assert desk.files.syncs == 2


@pytest.mark.parametrize(
    ("batches", "readers_first"),
    [(READERS_FIRST_BATCHES_MAX, True), (READERS_FIRST_BATCHES_MAX + 1, False)],
)
async def test_readers_see_a_few_batches_before_senders_hear_of_them_and_many_behind(
    desk: Desk, batches: int, readers_first: bool
) -> None:
    sent = [b"%d" % number for number in range(batches)]
    list(map(desk.stage, sent))
    future = desk.flusher.durable()
    seen: list[list[list[bytes]]] = []
    future.call_first(lambda _: seen.append([*desk.committed]))
    await future
    assert seen == [[sent] if readers_first else []]
    assert desk.committed == [sent]


async def test_senders_hear_of_it_though_readers_could_not_be_told(desk: Desk) -> None:
    def fail(_: Sequence[Group]) -> None:
        raise RuntimeError("an owner's defect")

    reported: list[str] = []
    report = asyncio.get_running_loop().set_exception_handler
    report(lambda _, context: reported.append(str(context["exception"])))
    desk.flusher._committed = fail
    desk.stage(b"a")
    await desk.flusher.durable()
    assert reported == ["an owner's defect"]


async def test_a_failing_receiver_does_not_stop_the_other_waiters(desk: Desk) -> None:
    def receive(_: asyncio.Future[None]) -> None:
        raise RuntimeError("a receiver's defect")

    desk.stage(b"a")
    future = desk.flusher.durable()
    future.call_first(receive)
    with capture_logs() as logs:
        await future
    assert desk.committed == [[b"a"]]
    assert [line["event"] for line in logs] == ["a callback after a flush failed"]
    with pytest.raises(RuntimeError, match="defect"):
        future.call_first(receive)


async def test_a_waiter_during_a_write_waits_for_that_group(desk: Desk) -> None:
    desk.flusher._inline = False
    desk.files.gate.clear()
    desk.stage(b"a")
    await in_thread(desk)
    future = desk.flusher.durable()
    assert not future.done()
    desk.files.gate.set()
    await future
    assert desk.committed == [[b"a"]]


async def test_one_waiter_that_is_cancelled_does_not_take_the_others_with_it(desk: Desk) -> None:
    async def wait() -> None:
        await desk.flusher.durable()

    desk.flusher._inline = False
    desk.files.gate.clear()
    desk.stage(b"a")
    impatient, patient = asyncio.ensure_future(wait()), asyncio.ensure_future(wait())
    await in_thread(desk)
    impatient.cancel()
    desk.files.gate.set()
    await patient
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_a_full_segment_is_followed_by_a_new_one_in_the_same_turn(desk: Desk) -> None:
    data = [bytes([n]) * 30_000 for n in range(1, 6)]
    places = [desk.stage(piece) for piece in data]
    await desk.flusher.durable()
    assert len(desk.logs["forever"].segments) > 2
    assert [desk.read(place) for place in places] == data
    assert desk.committed == [data]


async def test_short_writes_are_completed(desk: Desk) -> None:
    desk.files.write_bytes_max = 7
    place = desk.stage(b"0123456789" * 20)
    await desk.flusher.durable()
    assert desk.read(place) == b"0123456789" * 20


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("written", [0, 60, 10_000])
async def test_a_full_disk_takes_a_group_back_and_space_lets_the_next_one_in(
    desk: Desk, inline: bool, written: int
) -> None:
    desk.flusher._inline = inline
    end = desk.logs["forever"].end
    desk.files.write_error, desk.files.write_some = FULL, written
    place = desk.stage(b"a" * 100)
    desk.stage(b"b" * 100)
    with pytest.raises(StoreFull, match="No space left"):
        await desk.flusher.durable()
    assert desk.withdrawn == [b"b" * 100, b"a" * 100]
    assert desk.committed == []
    assert desk.flusher.read_only is None
    assert desk.flusher.staged_bytes == 0
    assert desk.logs["forever"].end == desk.logs["forever"].tail == end
    assert desk.logs["forever"].active.held_end == end  # type: ignore[union-attr]  # it has a segment
    desk.files.write_error = None
    assert desk.stage(b"c" * 5) == (place.position, 5)
    await desk.flusher.durable()
    assert desk.committed == [[b"c" * 5]]


async def test_a_full_disk_is_logged_once_until_there_is_room_again(desk: Desk) -> None:
    with capture_logs() as logged:
        for _ in range(2):
            desk.files.write_error = FULL
            for _ in range(3):
                desk.stage(b"a")
                with pytest.raises(StoreFull):
                    await desk.flusher.durable()
            desk.files.write_error = None
            desk.stage(b"b")
            await desk.flusher.durable()
    assert [line["log_level"] for line in logged] == ["error", "info"] * 2


async def test_a_full_disk_also_takes_back_what_was_collected_behind(desk: Desk) -> None:
    desk.flusher._inline = False
    desk.stage(b"t", "transient")
    await desk.flusher.durable()
    desk.committed.clear()
    desk.files.gate.clear()
    desk.stage(b"ok")
    first = desk.flusher.durable()
    await in_thread(desk)
    desk.files.write_error = FULL
    desk.stage(b"a")
    second = desk.flusher.durable()
    desk.files.gate.set()
    await first
    await asyncio.wait([second])
    assert isinstance(second.exception(), StoreFull)
    assert desk.committed == [[b"ok"]]
    assert desk.withdrawn == [b"a"]


@pytest.mark.parametrize("fault", ["allocate_error", "write_error"])
async def test_no_space_for_a_new_segment_is_a_full_disk(desk: Desk, fault: str) -> None:
    setattr(desk.files, fault, FULL)
    desk.stage(b"a" * ROOM)
    future = desk.flusher.durable()
    with pytest.raises(StoreFull):
        await future
    assert len(desk.logs["forever"].segments) == 1
    assert desk.withdrawn == [b"a" * ROOM]
    setattr(desk.files, fault, None)
    # What fits in the old segment goes there, and a large batch gets its own again.
    small, large = desk.stage(b"b"), desk.stage(b"c" * ROOM)
    await desk.flusher.durable()
    assert [desk.read(small), desk.read(large)] == [b"b", b"c" * ROOM]


@pytest.mark.parametrize("fault", ["sync_error", "write_error"])
@pytest.mark.parametrize("inline", [True, False])
async def test_after_a_broken_write_or_sync_nothing_is_acknowledged_ever_again(
    desk: Desk, fault: str, inline: bool
) -> None:
    desk.flusher._inline = inline
    setattr(desk.files, fault, BROKEN)
    desk.stage(b"a")
    desk.stage(b"b", "transient")
    with pytest.raises(StoreReadOnly, match=r"Input/output error.*restart the broker"):
        await desk.flusher.durable()
    setattr(desk.files, fault, None)
    assert desk.flusher.read_only is not None
    assert desk.committed == []
    assert desk.withdrawn == [b"b", b"a"]
    with pytest.raises(StoreReadOnly):
        await desk.flusher.durable()


@pytest.mark.parametrize("inline", [True, False])
async def test_a_defect_while_writing_ends_every_waiter(desk: Desk, inline: bool) -> None:
    desk.flusher._inline = inline
    desk.files.write_error = ZeroDivisionError("a defect")
    desk.stage(b"a")
    with pytest.raises(StoreReadOnly, match="a defect"):
        async with asyncio.timeout(40):
            await desk.flusher.durable()
    assert desk.withdrawn == [b"a"]


async def test_a_broken_sync_takes_back_what_was_collected_behind_in_every_log(desk: Desk) -> None:
    desk.flusher._inline = False
    desk.files.gate.clear()
    desk.stage(b"a")
    first = desk.flusher.durable()
    await in_thread(desk)
    desk.files.sync_error = BROKEN
    desk.stage(b"b")
    desk.stage(b"c", "transient")
    second = desk.flusher.durable()
    desk.files.gate.set()
    await asyncio.wait([first, second])
    assert isinstance(first.exception(), StoreReadOnly)
    assert isinstance(second.exception(), StoreReadOnly)
    assert sorted(desk.withdrawn) == [b"a", b"b", b"c"]
    assert desk.committed == []


async def test_a_full_disk_reported_by_a_sync_is_a_broken_disk(desk: Desk) -> None:
    desk.files.sync_error = FULL
    desk.stage(b"a")
    with pytest.raises(StoreReadOnly):
        await desk.flusher.durable()


@pytest.mark.parametrize("fault", ["sync_error", "directory_sync_error"])
async def test_a_new_segment_that_cannot_be_synced_is_a_broken_disk(desk: Desk, fault: str) -> None:
    setattr(desk.files, fault, BROKEN)
    desk.stage(b"a" * ROOM)
    with pytest.raises(StoreReadOnly):
        await desk.flusher.durable()


async def test_a_failure_without_a_waiter_is_no_warning(desk: Desk) -> None:
    desk.files.sync_error = BROKEN
    desk.stage(b"a")
    desk.flusher.durable()
    await desk.flusher.aclose()
    assert desk.flusher.read_only is not None


async def test_closing_writes_what_is_staged(desk: Desk) -> None:
    desk.flusher._inline = False
    desk.stage(b"a")
    await desk.flusher.aclose()
    assert desk.committed == [[b"a"]]


@pytest.fixture
async def timed(new_desk: Callable[..., Desk]) -> Desk:
    """A flusher that syncs on a timer of one millisecond, with its first segment."""
    made = new_desk(flush="interval", interval_ms=1)
    made.stage(b"first")
    await made.flusher.durable()
    await made.flusher.aclose()
    reopened = new_desk(flush="interval", interval_ms=1)
    log = reopened.logs["forever"]
    log.end_at(MARK_BYTES + 5)
    reopened.files.syncs = 0
    reopened.files.waiting.clear()
    return reopened


async def test_on_a_timer_groups_are_visible_before_their_sync(timed: Desk) -> None:
    timed.files.gate.clear()
    place = timed.stage(b"a")
    await timed.flusher.durable()
    assert timed.committed == [[b"a"]]
    assert timed.read(place) == b"a"
    await in_thread(timed)
    assert timed.logs["forever"].synced < timed.logs["forever"].end
    # Writing goes on while the timed sync runs.
    timed.stage(b"b")
    await timed.flusher.durable()
    assert timed.committed == [[b"a"], [b"b"]]
    timed.files.gate.set()
    await timed.flusher.aclose()
    assert timed.logs["forever"].synced == timed.logs["forever"].end


async def test_on_a_timer_a_failed_sync_ends_all_acknowledgements(timed: Desk) -> None:
    timed.files.gate.clear()
    timed.stage(b"a")
    await timed.flusher.durable()
    await in_thread(timed)
    timed.files.sync_error = BROKEN
    timed.stage(b"b" * ROOM)  # needs a new segment, so it waits behind the sync
    future = timed.flusher.durable()
    timed.files.gate.set()
    with pytest.raises(StoreReadOnly):
        await future
    assert timed.flusher.read_only is not None
    assert timed.committed == [[b"a"]]


async def test_on_a_timer_a_new_segment_waits_until_the_old_one_is_synced(timed: Desk) -> None:
    timed.stage(b"a")
    await timed.flusher.durable()
    end = timed.logs["forever"].end
    timed.stage(b"b" * ROOM)
    await timed.flusher.durable()
    assert timed.logs["forever"].synced >= end


async def test_on_a_timer_closing_syncs_the_rest(new_desk: Callable[..., Desk]) -> None:
    lazy = new_desk(flush="interval", interval_ms=3_600_000)
    lazy.stage(b"a")
    await lazy.flusher.durable()
    assert lazy.logs["forever"].synced < lazy.logs["forever"].end
    await lazy.flusher.aclose()
    assert lazy.logs["forever"].synced == lazy.logs["forever"].end
