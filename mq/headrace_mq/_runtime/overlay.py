"""
A file system whose files are read from the disk, while what is written to them stays in memory.

    read ──▶ written since the start? ──yes──▶ memory
                     │ no
                     ▼
                the disk's own file, never written to

A start writes a little: it cuts a torn end, counts itself, completes indexes. On a disk that takes
nothing it does all of that here, by the very same code, and readers are served what it found. After the
start nothing is kept in memory any more: `pass_through` sends new files to the disk, which refuses them
or has room again.

Used by a broker that starts for readers; uses the `Files` of the machine. It knows nothing of messages or
formats.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from headrace_mq._runtime.files import Files

__all__ = ["MEMORY_BYTES_MAX", "Overlay"]

# What a start may write: offsets and topics at their limits are 30 MiB, and the index of 100 GB about 100.
MEMORY_BYTES_MAX: Final = 256 << 20


class _Content:
    """What one file holds: the first bytes of the disk's file, and over them what was written.

    Attributes:
        kept: so many bytes of the disk's file count.
        size: the file's length.
    """

    __slots__ = ("_parts", "kept", "size")

    def __init__(self, kept: int) -> None:
        self.kept = self.size = kept
        self._parts: list[tuple[int, bytearray]] = []

    def is_kept(self, at: int, length: int) -> bool:
        """Whether these bytes are as on the disk."""
        end = at + length
        return end <= self.kept and all(
            end <= start or start + len(part) <= at for start, part in self._parts
        )

    def read(self, at: int, length: int, read_disk: Callable[[int, int], bytes]) -> bytes:
        """Up to `length` bytes from byte `at`."""
        end = min(at + length, self.size)
        found = bytearray(max(0, end - at))
        if found and at < self.kept:
            kept = read_disk(at, min(end, self.kept) - at)
            found[: len(kept)] = kept
        for start, part in self._parts:
            first, behind = max(start, at), min(start + len(part), end)
            if first < behind:
                found[first - at : behind - at] = part[first - start : behind - start]
        return bytes(found)

    def write(self, at: int, written: bytes) -> None:
        """Writes at byte `at`."""
        last = self._parts[-1] if self._parts else None
        if last is not None and last[0] + len(last[1]) == at:
            last[1].extend(written)
        else:
            self._parts.append((at, bytearray(written)))
        self.size = max(self.size, at + len(written))

    def cut(self, length: int) -> None:
        """Cuts or extends to `length` bytes."""
        self.kept, self.size = min(self.kept, length), length
        self._parts = [
            (start, part[: length - start]) for start, part in self._parts if start < length
        ]

    def next_written(self, at: int) -> int | None:
        """The first byte from `at` on that was written here."""
        return min(
            (max(start, at) for start, part in self._parts if start + len(part) > at), default=None
        )


class Overlay:
    """The files of a disk that takes no writes.

    Args:
        files: the disk's.
        refusal: why it takes no writes, as the disk said it; raised where memory is not for it.
    """

    def __init__(self, files: Files, refusal: OSError) -> None:
        self._files = files
        self._refusal = refusal.errno, refusal.strerror
        self._passing = False
        self._bytes_left = MEMORY_BYTES_MAX
        # What differs from the disk, by name; None where a file was removed.
        self._changed: dict[Path, _Content | None] = {}
        self._made: set[Path] = set()
        # Open files: their names, what differs, and those that are the disk's alone.
        self._paths: dict[int, Path] = {}
        self._held: dict[int, _Content] = {}
        self._passed: set[int] = set()
        self._next_fd = -2

    def pass_through(self) -> None:
        """From now on what is written goes to the disk, in new files; those open stay as they are."""
        self._passing = True

    def make_directory(self, path: Path) -> None:
        """Makes a directory if it is missing."""
        if self._passing:
            self._files.make_directory(path)
        elif not self._files.exists(path):
            self._made.add(path)

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory of that name."""
        if path in self._changed:
            return self._changed[path] is not None
        return path in self._made or self._files.exists(path)

    def names(self, directory: Path) -> list[str]:
        """Names in a directory, sorted."""
        names = set() if directory in self._made else set(self._files.names(directory))
        for path, content in self._changed.items():
            if path.parent == directory:
                (names.discard if content is None else names.add)(path.name)
        return sorted(names)

    def open(self, path: Path, *, create: bool = False) -> int:
        """Opens a file; what is written to it stays in memory."""
        if self._passing and create:
            fd = self._files.open(path, create=True)
            self._passed.add(fd)
            self._paths[fd] = path
            return fd
        content = self._changed.get(path)
        if content is None and path in self._changed and not create:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        try:
            fd = self._files.open(path)
        except FileNotFoundError:
            if content is None and not create:
                raise
            fd, self._next_fd = self._next_fd, self._next_fd - 1
        if create:
            content = self._changed[path] = _Content(0)
        if content is not None:
            self._held[fd] = content
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        """Closes a descriptor."""
        del self._paths[fd]
        self._held.pop(fd, None)
        self._passed.discard(fd)
        if fd >= 0:
            self._files.close(fd)

    def size(self, fd: int) -> int:
        """The file's length in bytes."""
        held = self._held.get(fd)
        return self._files.size(fd) if held is None else held.size

    def is_removed(self, fd: int) -> bool:
        """Whether no name leads to the file any more."""
        return fd >= 0 and self._files.is_removed(fd)

    def read(self, fd: int, at: int, length: int) -> bytes:
        """Up to `length` bytes from byte `at`."""
        held = self._held.get(fd)
        if held is None:
            return self._files.read(fd, at, length)
        return held.read(at, length, lambda start, count: self._files.read(fd, start, count))

    def read_cached(self, fd: int, at: int, length: int) -> bytearray | None:
        """`length` bytes if memory holds them all, or None."""
        held = self._held.get(fd)
        if held is None or held.is_kept(at, length):
            return self._files.read_cached(fd, at, length)
        found = self.read(fd, at, length)
        return bytearray(found) if len(found) == length else None

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        """Writes parts at byte `at`."""
        if fd in self._passed:
            return self._files.write(fd, at, parts)
        written = b"".join(parts)
        content = self._content(fd)
        if len(written) > self._bytes_left:
            raise self._refused()
        self._bytes_left -= len(written)
        content.write(at, written)
        return len(written)

    def allocate(self, fd: int, length: int) -> None:
        """Lets a file be `length` bytes long at least; new bytes read as zeros."""
        if fd in self._passed:
            self._files.allocate(fd, length)
            return
        content = self._content(fd)
        content.size = max(content.size, length)

    def truncate(self, fd: int, length: int) -> None:
        """Cuts or extends the file to `length` bytes."""
        if fd in self._passed:
            self._files.truncate(fd, length)
        else:
            self._content(fd).cut(length)

    def next_data(self, fd: int, at: int) -> int | None:
        """The first byte from `at` on that may be other than a never-written zero, or None."""
        held = self._held.get(fd)
        if held is None:
            return self._files.next_data(fd, at)
        kept = self._files.next_data(fd, at) if at < held.kept else None
        written = held.next_written(at)
        found = [one for one in (kept, written) if one is not None]
        return min((one for one in found if one < held.kept or one == written), default=None)

    def sync(self, fd: int) -> int:
        """Makes durable what the disk holds of a file: a killed process may have left it unsynced."""
        return self._files.sync(fd) if fd >= 0 else 0

    def rename(self, old: Path, new: Path) -> None:
        """Renames in one step, replacing `new`."""
        if self._passing:
            self._files.rename(old, new)
            self._changed.pop(new, None)
            return
        content = self._changed.get(old)
        if content is None:
            raise self._refused()
        self._changed[new], self._changed[old] = content, None

    def remove(self, path: Path) -> None:
        """Removes a file."""
        if self._passing:
            self._files.remove(path)
        elif not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        else:
            self._changed[path] = None

    def sync_directory(self, path: Path) -> None:
        """Makes the names in a directory durable, of those that are on the disk."""
        if path not in self._made:
            self._files.sync_directory(path)

    def lock(self, fd: int) -> bool:
        """Takes an exclusive lock that ends with the process; False if another one holds it."""
        return fd < 0 or self._files.lock(fd)

    def _content(self, fd: int) -> _Content:
        """What is written to an open file goes here."""
        if self._passing:
            raise self._refused()
        held = self._held.get(fd)
        if held is None:
            path = self._paths[fd]
            held = self._changed.get(path) or _Content(self._files.size(fd))
            self._changed[path] = self._held[fd] = held
        return held

    def _refused(self) -> OSError:
        return OSError(*self._refusal)
