"""
Locks on files that end with their process, on every system.

Used by rebuilds and exports; uses `flock`, on Windows `msvcrt`.
"""

import importlib
from typing import Any

__all__ = ["take_file_lock"]


def take_file_lock(fd: int) -> bool:
    """Takes the exclusive lock of an open file at once.

    Returns:
        False if another process, or another opening of the file, holds it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        control: Any = importlib.import_module("fcntl")
    except ImportError:
        return _take_on_windows(fd)
    try:
        control.flock(fd, control.LOCK_EX | control.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_on_windows(fd: int) -> bool:
    windows: Any = importlib.import_module("msvcrt")
    try:
        windows.locking(fd, windows.LK_NBLCK, 1)
    except PermissionError:
        return False
    return True
