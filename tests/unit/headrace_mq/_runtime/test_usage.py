"""What a process takes of its machine."""

import mmap
import os
import time
from pathlib import Path

import pytest

from headrace_mq._runtime import usage as subject
from headrace_mq._runtime.usage import UNKNOWN, usage


def test_processor_time_grows_with_work(tmp_path: Path) -> None:
    before, until = usage(tmp_path).cpu_ms, time.process_time() + 0.02
    while time.process_time() < until:
        pass
    assert usage(tmp_path).cpu_ms >= before + 20


def grown_bytes(directory: Path) -> int:
    """By how much the figure grows with 64 MiB more, of the system: earlier tests may have left as much of the heap."""
    before = usage(directory).memory_bytes
    with mmap.mmap(-1, 64 << 20) as held:
        held.write(os.urandom(64 << 20))
        return usage(directory).memory_bytes - before


def test_memory_is_what_is_in_memory_now(tmp_path: Path) -> None:
    # A system that is short of memory may take other pages of this process meanwhile.
    assert max(grown_bytes(tmp_path) for _ in range(5)) >= 32 << 20


def test_memory_is_the_peak_where_the_system_tells_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(subject, "_STATM", tmp_path / "missing")
    assert usage(tmp_path).memory_bytes > 1 << 20


def test_the_room_of_a_disk_is_what_this_user_may_use(tmp_path: Path) -> None:
    found = usage(tmp_path)
    assert 0 < found.disk_free_bytes <= found.disk_bytes


def test_the_room_of_a_missing_directory_is_unknown(tmp_path: Path) -> None:
    assert usage(tmp_path / "missing")[2:] == (UNKNOWN, UNKNOWN)
