"""
The file system as the queue uses it: a small port, and the machine's own files behind it.

Tests pass an implementation that fails, writes short or loses power; see `tests/**/conftest.py`.
Used by `store`; uses the operating system. It knows nothing of messages or formats.
"""

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from headrace_mq._runtime.system_calls import OPEN_FLAGS, control_module, system_calls, take_lock

__all__ = ["FILE_MODE", "FOLDER_MODE", "Files", "SystemFiles", "write_all"]

# Messages are for the user whose process keeps them. Given when a file is made, so that there is no moment
# in which another user could open it; the umask of the process can only take away from it.
FILE_MODE = 0o600
FOLDER_MODE = 0o700

# Linux refuses more parts than this in one vectored write (IOV_MAX).
PARTS_MAX = 1_024
# How Linux ends the name behind a descriptor whose file was removed or replaced.
_REMOVED = " (deleted)"

_SYSTEM = system_calls(os, control_module())


class Files(Protocol):
    """What the store asks of a file system; every method may raise OSError.

    Used from the event loop and from one more thread, never on one descriptor's metadata
    from both at once.
    """

    def make_directory(self, path: Path) -> None:
        """Makes a directory if it is missing, for this user alone; durable after `sync_directory` of its parent."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory of that name."""
        ...

    def names(self, directory: Path) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def open(self, path: Path, *, create: bool = False) -> int:
        """Opens a file for reading and writing; with `create`, makes it or empties it.

        A new file is for this user alone. Where nothing can be written, a file that is there is opened for reading alone.
        """
        ...

    def close(self, fd: int) -> None:
        """Closes a descriptor."""
        ...

    def size(self, fd: int) -> int:
        """The file's length in bytes."""
        ...

    def is_removed(self, fd: int) -> bool:
        """Whether no name leads to the file any more: what it holds ends with the process."""
        ...

    def read(self, fd: int, at: int, length: int) -> bytes:
        """Up to `length` bytes from byte `at`; fewer at the end of the file."""
        ...

    def read_cached(self, fd: int, at: int, length: int) -> bytearray | None:
        """`length` bytes if memory holds them all; None if it does not, or the file is shorter.

        Raises EOPNOTSUPP, ENOSYS or EINVAL where the machine cannot tell.
        """
        ...

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        """Writes at most PARTS_MAX parts at byte `at`; may write less than it was given."""
        ...

    def allocate(self, fd: int, length: int) -> None:
        """Reserves disk blocks up to `length` bytes; new bytes read as zeros."""
        ...

    def truncate(self, fd: int, length: int) -> None:
        """Cuts or extends the file to `length` bytes."""
        ...

    def next_data(self, fd: int, at: int) -> int | None:
        """The first byte from `at` on that may be other than a never-written zero, or None."""
        ...

    def sync(self, fd: int) -> int:
        """Makes a file's bytes and length durable; returns the microseconds it took."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Renames in one step, replacing `new`; durable after `sync_directory`."""
        ...

    def remove(self, path: Path) -> None:
        """Removes a file."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Makes the names in a directory durable."""
        ...

    def lock(self, fd: int) -> bool:
        """Takes an exclusive lock that ends with the process; False if another one holds it."""
        ...


class SystemFiles:
    """The machine's own files."""

    def make_directory(self, path: Path) -> None:
        """Makes a directory if it is missing."""
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory of that name."""
        return path.exists()

    def names(self, directory: Path) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(directory))  # noqa: PTH208 - names are wanted, not paths

    def open(self, path: Path, *, create: bool = False) -> int:
        """Opens a file for reading and writing, on a read-only file system for reading alone."""
        flags = os.O_RDWR | OPEN_FLAGS | (os.O_CREAT | os.O_TRUNC if create else 0)
        try:
            return os.open(path, flags, FILE_MODE)
        except OSError as error:
            if create or error.errno != errno.EROFS:
                raise
            return os.open(path, os.O_RDONLY | OPEN_FLAGS)

    def close(self, fd: int) -> None:
        """Closes a descriptor."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """The file's length in bytes."""
        return os.fstat(fd).st_size

    def is_removed(self, fd: int) -> bool:
        """Whether no name leads to the file any more.

        Asks the link in /proc first. `fstat` asks for the file's times too, and Linux (6.13 on) then
        gives each write that follows a time of its own: the inode changes with every write, and the
        sync after it costs 40 us more (127 instead of 88; the link costs 3).
        """
        try:
            if not os.readlink(f"/proc/self/fd/{fd}").endswith(_REMOVED):  # noqa: PTH115 - `Path.readlink` makes two paths
                return False
        except OSError:
            pass  # No such folder here, as on macOS: only `fstat` can tell.
        return os.fstat(fd).st_nlink == 0

    def read(self, fd: int, at: int, length: int) -> bytes:
        """Up to `length` bytes from byte `at`."""
        return _SYSTEM.read(fd, length, at)

    def read_cached(self, fd: int, at: int, length: int) -> bytearray | None:
        """`length` bytes if memory holds them all, or None."""
        if not hasattr(os, "RWF_NOWAIT"):
            raise OSError(errno.EOPNOTSUPP, "reading without waiting needs Linux")
        buffer = bytearray(length)
        try:
            held = os.preadv(fd, [buffer], at, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        return buffer if held == length else None

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        """Writes parts at byte `at`; may write less than it was given."""
        return _SYSTEM.write(fd, parts, at)

    def allocate(self, fd: int, length: int) -> None:
        """Reserves disk blocks up to `length` bytes."""
        _SYSTEM.allocate(fd, length)

    def truncate(self, fd: int, length: int) -> None:
        """Cuts or extends the file to `length` bytes."""
        os.ftruncate(fd, length)

    def next_data(self, fd: int, at: int) -> int | None:
        """The first byte from `at` on that may be other than a never-written zero, or None."""
        if not hasattr(os, "SEEK_DATA"):
            return at if at < os.fstat(fd).st_size else None
        try:
            return os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise

    def sync(self, fd: int) -> int:
        """Makes a file's bytes and length durable; returns the microseconds it took."""
        # A duration, not a time: nothing is decided by it but inline or thread.
        started = time.perf_counter_ns()
        _SYSTEM.sync(fd)
        return (time.perf_counter_ns() - started) // 1_000

    def rename(self, old: Path, new: Path) -> None:
        """Renames in one step, replacing `new`."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Removes a file."""
        path.unlink()

    def sync_directory(self, path: Path) -> None:
        """Makes the names in a directory durable."""
        if not hasattr(os, "O_DIRECTORY"):
            return  # Windows opens no directory; its file systems keep names in a journal.
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | OPEN_FLAGS)
        try:
            _SYSTEM.sync_names(fd)
        finally:
            os.close(fd)

    def lock(self, fd: int) -> bool:
        """Takes an exclusive lock that ends with the process."""
        return take_lock(fd)


def write_all(files: Files, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> None:
    """Writes every byte of `parts` at byte `at`, however many calls that takes.

    Raises:
        OSError: a call failed; some bytes may be written.
    """
    for first in range(0, len(parts), PARTS_MAX):
        some = parts[first : first + PARTS_MAX]
        size = sum(map(len, some))
        written = files.write(fd, at, some)
        if written < size:
            rest = memoryview(b"".join(some))
            while written < size:
                step = files.write(fd, at + written, [rest[written:]])
                if step == 0:
                    raise OSError(errno.EIO, "a write made no progress")
                written += step
        at += size
