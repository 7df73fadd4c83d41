"""How full the disk is, and what follows from it."""

import math
import os
import re
from pathlib import Path

import pytest

from headrace_mq.broker.topics.disk import (
    FORECAST_MS_MIN,
    DiskForecast,
    SystemDisk,
    Watermarks,
)


class HandDisk:
    """A disk that tests fill."""

    def __init__(self) -> None:
        self.percent = 10.0
        self.error: OSError | None = None

    def used_percent(self, directory: Path) -> float:
        if self.error is not None:
            raise self.error
        return self.percent


@pytest.fixture
def disk() -> HandDisk:
    return HandDisk()


def watermarks(disk: HandDisk, **changed: int) -> Watermarks:
    values = {"refuse_percent": 90, "delete_percent": 75, "look_ms": 1_000, **changed}
    return Watermarks(disk, Path("/data"), **values)


def refuses(marks: Watermarks) -> bool:
    return marks.refusal is not None


@pytest.mark.parametrize(
    ("percent", "refused", "early"),
    [(0, False, False), (75, False, False), (75.1, False, True), (90, False, True),
     (90.1, True, True), (100, True, True)],
)  # fmt: skip
def test_each_mark_counts_from_above_it(
    disk: HandDisk, percent: float, refused: bool, early: bool
) -> None:
    marks = watermarks(disk)
    disk.percent = percent
    marks.look()
    assert (refuses(marks), marks.early) == (refused, early)
    assert ("new messages are refused" in (marks.refusal or "")) is refused


def test_the_refusal_says_how_full_whose_disk_is_and_what_happens_next(disk: HandDisk) -> None:
    marks = watermarks(disk)
    disk.percent = 93.25
    marks.look()
    told = r"the disk of /data is 93\.2 % full.*above 90 %.*within 1000 ms"
    assert re.match(told, marks.refusal or "")


def test_with_room_again_messages_are_taken_again(disk: HandDisk) -> None:
    marks = watermarks(disk)
    for percent in (95, 50, 95, 89.9):
        disk.percent = percent
        marks.look()
        assert refuses(marks) == (percent > 90)


def test_marks_at_a_hundred_do_nothing(disk: HandDisk) -> None:
    marks = watermarks(disk, refuse_percent=100, delete_percent=100)
    disk.percent = 100
    marks.look()
    assert (refuses(marks), marks.early) == (False, False)


@pytest.mark.parametrize("percent", [10, 95])
def test_a_directory_that_cannot_be_used_refuses_messages_until_it_is_back(
    disk: HandDisk, percent: float
) -> None:
    marks = watermarks(disk)
    disk.percent = percent
    marks.look()
    disk.error = FileNotFoundError(2, "No such file or directory", "/data")
    marks.look()
    marks.look()
    told = r".*/data cannot be used \(.*No such file.*within 1000 ms"
    assert re.match(told, marks.refusal or "")
    disk.error, disk.percent = None, 50
    marks.look()
    assert not refuses(marks)


def test_the_machine_tells_the_share_of_a_real_disk(tmp_path: Path) -> None:
    assert 0 <= SystemDisk().used_percent(tmp_path) <= 100


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        SystemDisk().used_percent(tmp_path / "missing")


def test_another_directory_in_its_place_is_an_error(tmp_path: Path) -> None:
    disk, directory = SystemDisk(), tmp_path / "data"
    directory.mkdir()
    disk.used_percent(directory)
    directory.rename(tmp_path / "elsewhere")
    directory.mkdir()
    with pytest.raises(OSError, match="another directory took its place"):
        disk.used_percent(directory)


def test_a_disk_that_takes_no_writes_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs(tmp_path)
    read_only = os.statvfs_result((*found[:8], found.f_flag | os.ST_RDONLY, found.f_namemax))
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    with pytest.raises(OSError, match="Read-only file system"):
        SystemDisk().used_percent(tmp_path)


def test_a_directory_without_the_right_to_write_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError):
        SystemDisk().used_percent(tmp_path)


def test_a_broker_for_readers_refuses_however_empty_the_disk_is(disk: HandDisk) -> None:
    marks = Watermarks(
        disk,
        Path("/data"),
        refuse_percent=90,
        delete_percent=75,
        look_ms=1_000,
        closed="readers only",
    )
    marks.look()
    assert marks.refusal == "readers only"
    assert refuses(marks)
    assert not marks.early


HOUR_MS = 3_600_000


def test_a_forecast_follows_the_pace_of_the_last_day() -> None:
    forecast = DiskForecast()
    assert forecast.days_left(0, 1_000) is None
    assert forecast.days_left(FORECAST_MS_MIN - 1, 990) is None
    # 10 in an hour, so 240 in a day.
    assert forecast.days_left(HOUR_MS, 990) == pytest.approx(990 / 240)
    for hour in range(2, 60):
        days = forecast.days_left(hour * HOUR_MS, 990)
    assert days == math.inf


def test_a_full_disk_has_no_days_left_and_one_that_empties_has_all() -> None:
    forecast = DiskForecast()
    assert forecast.days_left(0, 0) == 0
    assert forecast.days_left(HOUR_MS, 500) == math.inf


def test_a_forecast_keeps_few_notes() -> None:
    forecast = DiskForecast()
    for second in range(0, 3 * 86_400, 15):
        forecast.days_left(second * 1_000, 1_000)
    assert len(forecast._notes) < 300
