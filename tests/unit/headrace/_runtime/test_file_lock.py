"""Locks on files: one holder at a time, and what Windows has instead of `flock`."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace._runtime.file_lock import take_file_lock


def test_a_lock_has_one_holder_until_its_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as first:
        assert take_file_lock(first.fileno())
        with path.open("w") as second:
            assert not take_file_lock(second.fileno())
    with path.open("w") as third:
        assert take_file_lock(third.fileno())


@pytest.mark.parametrize("free", [True, False])
def test_windows_locks_with_its_own_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, free: bool
) -> None:
    asked = []

    def locking(fd: int, mode: int, count: int) -> None:
        asked.append((fd, mode, count))
        if not free:
            raise PermissionError

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_NBLCK=2, locking=locking))
    with (tmp_path / "lock").open("w") as file:
        assert take_file_lock(file.fileno()) is free
        assert asked == [(file.fileno(), 2, 1)]
