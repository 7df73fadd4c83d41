"""
What operating systems do differently with files, in one place.

    Linux     fdatasync                  posix_fallocate
    macOS     fcntl F_FULLFSYNC          fcntl F_PREALLOCATE, ftruncate
    Windows   fsync                      ftruncate; for clients: a broker does not run there

Used by `files`. It knows descriptors and bytes alone.
"""

import errno
import importlib
import os
import struct
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

__all__ = ["OPEN_FLAGS", "SystemCalls", "control_module", "system_calls", "take_lock"]

Parts = Sequence[bytes | memoryview]

# No child process inherits a file; on Windows no byte is taken for the end of a line.
OPEN_FLAGS: int = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

# From macOS's fcntl.h; Python has no names for them. `fstore_t` is flags, mode, offset, length, allocated.
_F_PREALLOCATE = 42
_ALLOCATE_ALL = 4
_FROM_THE_END = 3
_STORE = struct.Struct("=IiqqQ")
# A file system that cannot do it says one of these.
_CANNOT = frozenset(
    {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENODEV, errno.ENOSYS}
)


class SystemCalls(NamedTuple):
    """How this system reads, writes, reserves and makes durable.

    Attributes:
        read: bytes of a descriptor: how many, from where.
        write: parts to a descriptor at a byte; returns how many bytes were written.
        allocate: reserves a file up to a length; never makes it shorter.
        sync: makes bytes and length durable: past the cache of the disk itself.
        sync_names: the same for the names of a directory.
    """

    read: Callable[[int, int, int], bytes]
    write: Callable[[int, Parts, int], int]
    allocate: Callable[[int, int], None]
    sync: Callable[[int], None]
    sync_names: Callable[[int], None]


def control_module() -> ModuleType | None:
    """Returns the module `fcntl`; None on Windows, which has none."""
    try:
        return importlib.import_module("fcntl")
    except ImportError:
        return None


def system_calls(system: Any, control: Any) -> SystemCalls:
    """Chooses what a system has.

    Args:
        system: the module `os`, or what a test has instead.
        control: the module `fcntl`; None: there is none.
    """
    full_sync = _full_sync(system, control) if hasattr(control, "F_FULLFSYNC") else None
    return SystemCalls(
        read=getattr(system, "pread", None) or _seek_and_read(system),
        write=getattr(system, "pwritev", None) or _joined_write(system),
        allocate=_allocate(system, control),
        sync=full_sync or getattr(system, "fdatasync", None) or system.fsync,
        sync_names=full_sync or system.fsync,
    )


def _full_sync(system: Any, control: Any) -> Callable[[int], None]:
    def sync(fd: int) -> None:
        # On macOS `fsync` ends when the disk has the bytes, in a cache that a power cut empties.
        try:
            control.fcntl(fd, control.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            system.fsync(fd)

    return sync


def _allocate(system: Any, control: Any) -> Callable[[int, int], None]:
    if hasattr(system, "posix_fallocate"):
        return lambda fd, length: system.posix_fallocate(fd, 0, length)

    def allocate(fd: int, length: int) -> None:
        missing = length - system.fstat(fd).st_size
        if missing <= 0:
            return
        if hasattr(control, "F_FULLFSYNC"):
            asked = _STORE.pack(_ALLOCATE_ALL, _FROM_THE_END, 0, missing, 0)
            try:
                control.fcntl(fd, _F_PREALLOCATE, asked)
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
        system.ftruncate(fd, length)

    return allocate


def _seek_and_read(system: Any) -> Callable[[int, int, int], bytes]:
    def read(fd: int, length: int, at: int) -> bytes:
        system.lseek(fd, at, os.SEEK_SET)
        return bytes(system.read(fd, length))

    return read


def _joined_write(system: Any) -> Callable[[int, Parts, int], int]:
    def write(fd: int, parts: Parts, at: int) -> int:
        data = b"".join(parts)
        if hasattr(system, "pwrite"):
            return int(system.pwrite(fd, data, at))
        system.lseek(fd, at, os.SEEK_SET)
        return int(system.write(fd, data))

    return write


def take_lock(fd: int) -> bool:
    """Takes an exclusive lock of a file that ends with the process; False: another one holds it."""
    control = control_module()
    if control is None:
        windows: Any = importlib.import_module("msvcrt")
        try:
            windows.locking(fd, windows.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
    try:
        control.flock(fd, control.LOCK_EX | control.LOCK_NB)
    except BlockingIOError:
        return False
    return True
