"""The self-test on a sound disk, and on disks that lie or lose what they were given."""

from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.errors import MessageQueueError
from headrace_mq.store.check import selftest as subject
from headrace_mq.store.check.selftest import PLAUSIBLE_SYNC_US_MIN, SelfTest, selftest


class Disk(SystemFiles):
    """A disk that does not wait, so that tests do not either, and claims a time for a sync.

    Attributes:
        forgets: from this write on, only zeros arrive.
    """

    def __init__(self, sync_us: int = 300) -> None:
        self.sync_us = sync_us
        self.forgets: int | None = None
        self.writes = 0

    def sync(self, fd: int) -> int:
        return self.sync_us

    def sync_directory(self, path: Path) -> None:
        pass

    def write(self, fd: int, at: int, parts: Any) -> int:
        self.writes += 1
        if self.forgets is not None and self.writes == self.forgets:
            parts = [bytes(len(part)) for part in parts]
        return super().write(fd, at, parts)


def tried(directory: Path, disk: Disk) -> SelfTest:
    return selftest(directory, size_mib=2, files=disk)


def named(report: SelfTest, name: str) -> subject.Measure:
    (found,) = [measure for measure in report.measures if measure.name == name]
    return found


def test_a_sound_disk_passes_and_nothing_is_left(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(subject, "_filesystem", lambda _: "ext4")
    (tmp_path / "mine").write_bytes(b"mine")
    report = tried(tmp_path, Disk())
    assert report.status == "passed"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert [measure.name for measure in report.measures] == [
        "file system", "reserve", "append", "read back", "sync", "replace a file", "torn write",
    ]  # fmt: skip
    assert named(report, "torn write").figures["cuts"] >= 3
    assert named(report, "sync").figures["median_us"] == 300


def test_the_machines_own_disk_is_tested_too(tmp_path: Path) -> None:
    report = selftest(tmp_path, size_mib=1)
    assert report.status in {"passed", "doubtful"}
    assert named(report, "sync").figures["syncs"] >= 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sync_us", "warned"), [(PLAUSIBLE_SYNC_US_MIN - 1, True), (PLAUSIBLE_SYNC_US_MIN, False)]
)
def test_a_sync_faster_than_any_disk_is_not_believed(
    tmp_path: Path, monkeypatch: Any, sync_us: int, warned: bool
) -> None:
    monkeypatch.setattr(subject, "_filesystem", lambda _: "ext4")
    report = tried(tmp_path, Disk(sync_us))
    assert ("less than any disk needs" in named(report, "sync").warning) == warned
    assert report.status == ("doubtful" if warned else "passed")


@pytest.mark.parametrize(
    ("kind", "warning"),
    [("tmpfs", "is memory"), ("nfs4", "another machine"), ("ext4", ""), ("", "")],
)
def test_a_file_system_that_keeps_nothing_is_warned_of(
    tmp_path: Path, monkeypatch: Any, kind: str, warning: str
) -> None:
    monkeypatch.setattr(subject, "_filesystem", lambda _: kind)
    found = named(tried(tmp_path, Disk()), "file system").warning
    assert warning in found
    assert bool(warning) == bool(found)


def test_the_kind_of_a_real_file_system_is_reported(tmp_path: Path) -> None:
    assert subject._filesystem(Path("/proc")) == "proc"


def test_a_block_that_does_not_arrive_fails_the_test(tmp_path: Path) -> None:
    disk = Disk()
    disk.forgets = 2
    report = tried(tmp_path, disk)
    assert report.status == "failed"
    assert named(report, "read back").figures["wrong_blocks"] == 1


def test_a_store_that_does_not_recover_what_it_acknowledged_fails_the_test(
    tmp_path: Path, monkeypatch: Any
) -> None:
    class Forgetful(subject.MessageStore):
        def read(self, *arguments: Any) -> list[bytes | memoryview]:
            found = super().read(*arguments)
            return found[:-1] if self._directory.name == "copy" else found

    monkeypatch.setattr(subject, "MessageStore", Forgetful)
    report = tried(tmp_path, Disk())
    figures = named(report, "torn write").figures
    assert figures["wrong"] == figures["cuts"] > 0
    assert report.status == "failed"


def test_a_disk_that_fails_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    class Broken(Disk):
        def sync(self, fd: int) -> int:
            raise OSError(5, "Input/output error")

    with pytest.raises(MessageQueueError, match=r"cannot be tested.*Input/output error"):
        tried(tmp_path, Broken())
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_not_filled(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(subject, "_ROOM", 1 << 40)
    with pytest.raises(MessageQueueError, match="make room"):
        tried(tmp_path, Disk())
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_cannot_be_tried(tmp_path: Path) -> None:
    with pytest.raises(MessageQueueError, match="missing"):
        tried(tmp_path / "missing", Disk())


@pytest.mark.parametrize("size", [0, subject.SIZE_MIB_MAX + 1])
def test_a_size_out_of_range_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(ValueError, match="size must be"):
        selftest(tmp_path, size_mib=size)


def test_a_slow_disk_ends_the_small_writes_by_time(tmp_path: Path) -> None:
    class Clock:
        ms = 0

        def now_ms(self) -> int:
            return 0

        def monotonic_ms(self) -> int:
            self.ms += 100
            return self.ms

    report = selftest(tmp_path, size_mib=1, files=Disk(), clock=Clock())
    assert 1 < named(report, "sync").figures["syncs"] < 30
