"""Systems that lack a call of Linux: macOS and Windows, by modules that lack it too."""

import errno
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_mq._runtime import files as files_module
from headrace_mq._runtime.files import SystemFiles, write_all
from headrace_mq._runtime.system_calls import (
    SystemCalls,
    control_module,
    system_calls,
    take_lock,
)

LINUX_ONLY = {"posix_fallocate", "fdatasync"}
UNIX_ONLY = LINUX_ONLY | {"pread", "pwrite", "preadv", "pwritev"}
FULL_SYNC, PREALLOCATE = 51, 42


def without(names: set[str]) -> Any:
    return SimpleNamespace(**{name: value for name, value in vars(os).items() if name not in names})


class Control:
    """The module `fcntl` of macOS, of which the calls are noted."""

    F_FULLFSYNC = FULL_SYNC

    def __init__(self, failure: int | None = None) -> None:
        self.failure = failure
        self.asked: list[tuple[int, Any]] = []

    def fcntl(self, fd: int, command: int, argument: Any = 0) -> None:
        self.asked.append((command, argument))
        if self.failure is not None:
            raise OSError(self.failure, os.strerror(self.failure))


SYSTEMS = {
    "linux": lambda: system_calls(os, control_module()),
    "macos": lambda: system_calls(without(LINUX_ONLY), Control()),
    "old macos": lambda: system_calls(without(LINUX_ONLY | {"pwritev"}), Control()),
    "windows": lambda: system_calls(without(UNIX_ONLY), None),
}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_reads_writes_and_reserves_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: str
) -> None:
    monkeypatch.setattr(files_module, "_SYSTEM", SYSTEMS[system]())
    files = SystemFiles()
    fd = files.open(tmp_path / "file", create=True)
    files.allocate(fd, 100_000)
    write_all(files, fd, 500, [b"ab", memoryview(b"cd"), b""])
    files.sync(fd)
    assert files.size(fd) == 100_000
    assert files.read(fd, 499, 6) == b"\0abcd\0"
    assert files.read(fd, 99_999, 10) == b"\0"
    files.allocate(fd, 10)
    assert files.size(fd) == 100_000, "never shorter"
    files.sync_directory(tmp_path)
    files.close(fd)


def test_linux_syncs_data_and_macos_past_the_cache_of_the_disk(file: int) -> None:
    assert system_calls(os, control_module()).sync is os.fdatasync
    control = Control()
    calls = system_calls(without(LINUX_ONLY), control)
    calls.sync(file)
    calls.sync_names(file)
    assert control.asked == [(FULL_SYNC, 0)] * 2
    assert system_calls(without(UNIX_ONLY), None).sync is os.fsync


def test_a_disk_without_a_full_sync_gets_the_usual_one(file: int) -> None:
    synced: list[int] = []
    system = without(LINUX_ONLY)
    system.fsync = synced.append
    system_calls(system, Control(errno.ENOTSUP)).sync(file)
    assert synced == [file]
    with pytest.raises(OSError, match="Input/output"):
        system_calls(system, Control(errno.EIO)).sync(file)
    assert synced == [file]


def test_macos_reserves_what_is_missing(file: int) -> None:
    control = Control()
    calls = system_calls(without(LINUX_ONLY), control)
    os.ftruncate(file, 1_000)
    calls.allocate(file, 5_000)
    ((command, asked),) = control.asked
    assert command == PREALLOCATE
    # All of it, from the physical end of the file on.
    assert struct.unpack("=IiqqQ", asked) == (4, 3, 0, 4_000, 0)
    assert os.fstat(file).st_size == 5_000


def test_a_full_disk_is_an_error_and_a_disk_that_cannot_reserve_is_none(file: int) -> None:
    with pytest.raises(OSError, match="No space left"):
        system_calls(without(LINUX_ONLY), Control(errno.ENOSPC)).allocate(file, 5_000)
    assert os.fstat(file).st_size == 0
    system_calls(without(LINUX_ONLY), Control(errno.ENOTSUP)).allocate(file, 5_000)
    assert os.fstat(file).st_size == 5_000


def test_a_search_for_data_needs_no_call_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = SystemFiles()
    fd = files.open(tmp_path / "file", create=True)
    files.allocate(fd, 1_000)
    monkeypatch.delattr(os, "SEEK_DATA")
    assert (files.next_data(fd, 10), files.next_data(fd, 1_000)) == (10, None)
    monkeypatch.delattr(os, "O_DIRECTORY")
    files.sync_directory(tmp_path)
    files.close(fd)


def test_a_call_is_chosen_once_and_has_no_wrapper_on_linux() -> None:
    calls: SystemCalls = system_calls(os, control_module())
    assert (calls.read, calls.write, calls.sync_names) == (os.pread, os.pwritev, os.fsync)


@pytest.mark.parametrize("free", [True, False])
def test_a_lock_of_windows_is_its_own_call(
    monkeypatch: pytest.MonkeyPatch, file: int, *, free: bool
) -> None:
    def locking(fd: int, mode: int, count: int) -> None:
        assert (fd, mode, count) == (file, 2, 1)
        if not free:
            raise PermissionError

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    assert control_module() is None
    assert take_lock(file) is free
