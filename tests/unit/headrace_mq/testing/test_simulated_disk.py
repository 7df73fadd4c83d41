"""The disk in memory: a file system to its processes, and what a power cut leaves of it."""

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.testing.simulated_disk import SECTOR_BYTES, MountedFiles, SimulatedDisk

FILE = Path("/d/file")
SEEDS = range(50)


def made(seed: int = 0) -> tuple[SimulatedDisk, MountedFiles]:
    disk = SimulatedDisk(random.Random(seed))
    files = disk.mount()
    files.make_directory(FILE.parent)
    files.sync_directory(FILE.parent.parent)
    return disk, files


def saved(files: MountedFiles, content: bytes) -> int:
    fd = files.open(FILE, create=True)
    files.write(fd, 0, [content])
    files.sync(fd)
    files.sync_directory(FILE.parent)
    return fd


def content(disk: SimulatedDisk, path: Path = FILE) -> bytes:
    files = disk.mount()
    fd = files.open(path)
    return files.read(fd, 0, files.size(fd))


def test_written_bytes_are_read_by_every_process() -> None:
    disk, files = made()
    fd = files.open(FILE, create=True)
    assert files.write(fd, 3, [b"ab", memoryview(b"c")]) == 3
    assert content(disk) == b"\0\0\0abc"
    assert files.read(fd, 4, 1) == b"b"
    files.truncate(fd, 4)
    files.allocate(fd, 8)
    assert content(disk) == b"\0\0\0a" + bytes(4)
    files.allocate(fd, 2)
    assert files.size(fd) == 8


def test_a_read_that_must_not_wait_is_answered_now_and_then() -> None:
    disk, files = made()
    fd = saved(files, b"abc")
    assert {bytes(files.read_cached(fd, 1, 2) or b"") for _ in range(50)} == {b"", b"bc"}
    disk.cold = 0
    assert files.read_cached(fd, 1, 2) == b"bc"
    assert files.read_cached(fd, 1, 3) is None


def test_data_is_looked_for_up_to_the_last_byte_written() -> None:
    _, files = made()
    fd = files.open(FILE, create=True)
    files.allocate(fd, 100)
    assert files.next_data(fd, 0) is None
    files.write(fd, 10, [b"a"])
    assert files.next_data(fd, 10) == 10
    assert files.next_data(fd, 11) is None


def test_names_are_made_replaced_and_removed() -> None:
    disk, files = made()
    saved(files, b"old")
    files.open(FILE.with_name("new"), create=True)
    files.rename(FILE.with_name("new"), FILE)
    assert content(disk) == b""
    assert files.names(FILE.parent) == ["file"]
    assert files.names(Path("/")) == ["d"]
    files.remove(FILE)
    assert not files.exists(FILE)
    assert files.exists(FILE.parent)
    for missing in (files.open, files.remove, files.names):
        with pytest.raises(FileNotFoundError):
            missing(FILE)
    with pytest.raises(FileNotFoundError):
        files.rename(FILE, FILE)


def test_a_file_is_locked_by_one_process_until_it_closes_it_or_ends() -> None:
    disk, files = made()
    fd, other = saved(files, b""), disk.mount()
    assert files.lock(fd)
    assert not other.lock(other.open(FILE))
    files.close(fd)
    assert other.lock(other.open(FILE))
    other.abandon()
    assert files.lock(files.open(FILE))


def test_nothing_a_process_does_after_its_end_reaches_the_disk() -> None:
    disk, files = made()
    fd = saved(files, b"kept")
    files.abandon()
    for act in (
        lambda: files.write(fd, 0, [b"lost"]), lambda: files.open(FILE, create=True),
        lambda: files.remove(FILE), lambda: files.exists(FILE), lambda: files.read(fd, 0, 1),
    ):  # fmt: skip
        with pytest.raises(OSError, match="gone"):
            act()
    assert content(disk) == b"kept"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_leaves_what_was_synced(seed: int) -> None:
    disk, files = made(seed)
    fd = saved(files, b"a" * 2_000)
    files.write(fd, 2_048, [b"b" * 2_000])
    disk.cut_power()
    assert content(disk)[:2_000] == b"a" * 2_000
    assert len(content(disk)) in {2_000, 4_048}


@given(st.integers(0, 1 << 32))
def test_a_sector_survives_as_it_was_or_as_it_became(seed: int) -> None:
    disk, files = made(seed)
    fd = saved(files, b"a" * 4 * SECTOR_BYTES)
    files.write(fd, 100, [b"b" * 3 * SECTOR_BYTES])
    became = content(disk)
    disk.cut_power()
    left = content(disk)
    for at in range(0, len(left), SECTOR_BYTES):
        sector = slice(at, at + SECTOR_BYTES)
        assert left[sector] in {b"a" * SECTOR_BYTES, became[sector]}


def test_power_cuts_tear_writes_and_lose_names_and_bring_them_back() -> None:
    seen: set[tuple[bool, bool]] = set()
    for seed in SEEDS:
        disk, files = made(seed)
        fd = saved(files, b"a" * 2 * SECTOR_BYTES)
        files.write(fd, 0, [b"b" * 2 * SECTOR_BYTES])
        files.open(FILE.with_name("other"), create=True)
        disk.cut_power()
        torn = content(disk)[:1] != content(disk)[-1:]
        seen.add((torn, disk.mount().exists(FILE.with_name("other"))))
    assert seen == {(torn, there) for torn in (True, False) for there in (True, False)}


def test_a_directory_that_was_not_synced_may_vanish_with_all_in_it() -> None:
    there = set()
    for seed in SEEDS:
        disk = SimulatedDisk(random.Random(seed))
        files = disk.mount()
        files.make_directory(FILE.parent)
        saved(files, b"a")
        disk.cut_power()
        there.add(disk.mount().exists(FILE))
    assert there == {True, False}


def test_a_replaced_file_is_the_old_one_or_the_new_one_after_a_power_cut() -> None:
    found = set()
    for seed in SEEDS:
        disk, files = made(seed)
        saved(files, b"old")
        fd = files.open(FILE.with_name("new"), create=True)
        files.write(fd, 0, [b"new"])
        files.sync(fd)
        files.rename(FILE.with_name("new"), FILE)
        disk.cut_power()
        found.add(content(disk))
    assert found == {b"old", b"new"}


def test_a_fault_is_asked_before_every_change() -> None:
    disk, files = made()
    fd = saved(files, b"a")
    kinds: list[str] = []

    def fail(kind: str) -> None:
        kinds.append(kind)
        raise OSError(errno.EIO, "the disk failed")

    disk.fault = fail
    for act in (
        lambda: files.write(fd, 0, [b"b"]), lambda: files.sync(fd), lambda: files.remove(FILE),
        lambda: files.truncate(fd, 0), lambda: files.allocate(fd, 9),
        lambda: files.rename(FILE, FILE), lambda: files.sync_directory(FILE.parent),
        lambda: files.make_directory(FILE.parent / "sub"),
        lambda: files.open(FILE, create=True),
    ):  # fmt: skip
        with pytest.raises(OSError, match="the disk failed"):
            act()
    assert kinds == [
        "write", "sync", "remove", "truncate", "allocate", "rename", "sync_directory",
        "make_directory", "create",
    ]  # fmt: skip
    assert content(disk) == b"a"


def test_the_disk_says_how_long_a_sync_took() -> None:
    disk, files = made()
    disk.sync_us = (7, 7)
    assert files.sync(saved(files, b"a")) == 7
