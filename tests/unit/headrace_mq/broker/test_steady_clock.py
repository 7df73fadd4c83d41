"""The broker's clock, what it keeps, and when it raises an alarm."""

import errno
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.metadata import timeline_file
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.errors import FormatTooNew
from headrace_mq.settings import StoreSettings

HOUR = 3_600_000


@pytest.fixture
def steady(tmp_path: Path, clock: Any) -> Any:
    def make(**changed: int) -> SteadyClock:
        settings = StoreSettings(directory=tmp_path, **changed)
        return SteadyClock(clock, timeline_file(tmp_path), settings)

    return make


def move(clock: Any, ms: int) -> None:
    clock.now += ms
    clock.monotonic += ms


async def test_the_clock_gives_the_machines_time_and_a_steady_time(steady: Any, clock: Any) -> None:
    ours = steady()
    move(clock, HOUR)
    clock.now += 2 * HOUR
    assert (ours.now_ms(), ours.monotonic_ms(), ours.boot_id()) == (
        clock.now, clock.monotonic, "boot",
    )  # fmt: skip
    assert ours.steady_ms() == clock.now - 2 * HOUR
    clock.now -= 12 * HOUR
    assert ours.steady_ms() == clock.now + 10 * HOUR


async def test_the_timeline_is_written_in_intervals_and_at_once_after_a_jump(
    steady: Any, clock: Any, tmp_path: Path
) -> None:
    ours, file = steady(timeline_keep_ms=60_000), timeline_file(tmp_path)
    aged = []
    for ms, leap in ((1_000, 0), (59_999, 0), (1, 0), (1_000, HOUR), (1_000, 0)):
        move(clock, ms)
        clock.now += leap
        await ours.keep()
        kept = file.read()
        assert kept is not None
        aged.append(kept.aged_ms)
    assert aged == [1_000, 1_000, 61_000, 62_000, 62_000]
    await ours.keep(always=True)
    kept = file.read()
    assert kept is not None
    assert (kept.aged_ms, kept.ahead_ms) == (63_000, HOUR)


async def test_a_start_goes_on_where_the_last_one_ended(steady: Any, clock: Any) -> None:
    first = steady()
    assert first.is_new
    move(clock, HOUR)
    await first.keep(always=True)
    move(clock, HOUR)
    clock.now += 8 * HOUR
    second = steady()
    assert not second.is_new
    assert second.timeline.aged_ms == 2 * HOUR
    assert second.steady_ms() == clock.now - 8 * HOUR
    assert "set forth, or the machine slept, by 28,800 s" in second.alarm


@pytest.mark.parametrize("harm", [b"", b"no checkpoint"])
async def test_a_damaged_file_counts_as_none(
    steady: Any, clock: Any, tmp_path: Path, harm: bytes
) -> None:
    first = steady()
    move(clock, HOUR)
    await first.keep(always=True)
    timeline_file(tmp_path).path.write_bytes(harm)
    second = steady()
    assert (second.is_new, second.timeline.aged_ms, second.steady_ms()) == (True, 0, clock.now)
    await second.keep(always=True)
    assert not steady().is_new


async def test_a_file_of_a_newer_version_refuses_the_start(
    steady: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("headrace_mq.store.segment.checkpoint.CHECKPOINT_FORMAT", 99)
        await steady().keep(always=True)
    with pytest.raises(FormatTooNew):
        steady()


async def test_a_full_disk_only_costs_age(
    steady: Any, clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = steady()

    def full(_content: bytes) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(ours._file, "write_encoded", full)
        await ours.keep(always=True)
    assert timeline_file(tmp_path).read() is None
    move(clock, 60_000)
    await ours.keep()
    assert not steady().is_new


async def test_a_jump_is_an_alarm_for_a_day(steady: Any, clock: Any) -> None:
    ours = steady(clock_jump_ms_min=60_000)
    clock.now -= 59_999
    ours.look()
    assert ours.alarm == ""
    clock.now -= 7_200_000
    ours.look()
    move(clock, 90_000)
    ours.look()
    assert "set back by 7,200 s, 90 s ago" in ours.alarm
    move(clock, 24 * HOUR)
    ours.look()
    assert ours.alarm == ""


async def test_a_process_that_stood_still_between_two_clocks_saw_no_jump(
    steady: Any, clock: Any
) -> None:
    ours = steady()
    pauses = [HOUR]

    def paused() -> int:
        move(clock, pauses.pop() if pauses else 0)
        return int(clock.now_ms())

    ours.now_ms = paused
    ours.look()
    assert (ours.timeline.ahead_ms, ours.timeline.aged_ms) == (0, HOUR)
