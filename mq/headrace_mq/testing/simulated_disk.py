"""
A disk in memory that loses what was not synced when its machine loses power.

Of what was not synced it keeps any 512-byte sectors, either length of a file, and any of the names
that were made, replaced or removed: more disorder than a journal allows. A killed process loses
nothing, because the system's cache outlives it.

Used by a store, whose file system `MountedFiles` is, and by the simulation, which cuts the power. Does not
know what the bytes mean.
"""

import errno
import random
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

__all__ = ["MountedFiles", "SimulatedDisk"]

SECTOR_BYTES = 512


class _Content:
    """The bytes of one file: as a process sees them, and what a power cut may bring back."""

    def __init__(self) -> None:
        self.visible = bytearray()
        self.synced_length = 0
        # Sectors written since the last sync, with what the disk held before.
        self.before: dict[int, bytes] = {}
        # No byte from here on was ever written.
        self.written_end = 0
        self.removed = False

    def write(self, at: int, data: bytes) -> None:
        end = at + len(data)
        self._remember(at, end)
        if end > len(self.visible):
            self.visible.extend(bytes(end - len(self.visible)))
        self.visible[at:end] = data
        self.written_end = max(self.written_end, end)

    def resize(self, length: int) -> None:
        if length < len(self.visible):
            self._remember(length, len(self.visible))
            del self.visible[length:]
            self.written_end = min(self.written_end, length)
        else:
            self.visible.extend(bytes(length - len(self.visible)))

    def sync(self) -> None:
        self.before.clear()
        self.synced_length = len(self.visible)

    def cut_power(self, chosen: random.Random) -> None:
        """Keeps any of what was not synced."""
        length = chosen.choice((self.synced_length, len(self.visible)))
        share = chosen.choice((0.1, 0.5, 0.9, 1.0))
        for sector, old in sorted(self.before.items()):
            if chosen.random() < share:
                at = sector * SECTOR_BYTES
                if at < len(self.visible):
                    self.visible[at : at + SECTOR_BYTES] = old.ljust(
                        min(SECTOR_BYTES, len(self.visible) - at), b"\0"
                    )
                elif old:
                    self.visible.extend(bytes(at - len(self.visible)) + old)
        del self.visible[length:]
        self.visible.extend(bytes(length - len(self.visible)))
        self.written_end = len(self.visible)
        # A name that was taken away may be there again; what is found by no name is never opened.
        self.removed = False
        self.sync()

    def _remember(self, start: int, end: int) -> None:
        for sector in range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            if sector not in self.before:
                at = sector * SECTOR_BYTES
                # Beyond the synced length the disk holds nothing of this file.
                held = min(self.synced_length, at + SECTOR_BYTES)
                self.before[sector] = bytes(self.visible[at : max(at, held)])


class _Directory:
    """Names: as a process sees them, and as the disk has them."""

    def __init__(self) -> None:
        self.names: dict[str, _Content] = {}
        self.durable: dict[str, _Content] = {}
        self.changes: list[dict[str, _Content | None]] = []
        self.made_durable = False

    def change(self, change: dict[str, _Content | None]) -> None:
        _apply(change, self.names)
        self.changes.append(change)

    def sync(self) -> None:
        self.changes.clear()
        self.durable = dict(self.names)

    def cut_power(self, chosen: random.Random) -> None:
        for change in self.changes:
            if chosen.random() < 0.5:
                _apply(change, self.durable)
        self.changes.clear()
        self.names = dict(self.durable)


def _apply(change: dict[str, _Content | None], names: dict[str, _Content]) -> None:
    for name, content in change.items():
        if content is None:
            names.pop(name, None)
        else:
            names[name] = content


class SimulatedDisk:
    """The disk of one machine; what `mount` returns reads and writes it.

    Args:
        chosen: decides what survives, and how long syncs take.

    Attributes:
        fault: asked before every change with its kind ("write", "sync", "rename", ...); raises
            what the disk shall answer.
        cold: the share of reads that memory cannot answer.
        used: how full it says it is, in percent.
        sync_us: shortest and longest time a sync says it took, in microseconds.
    """

    def __init__(self, chosen: random.Random) -> None:
        self._chosen = chosen
        self._directories: dict[Path, _Directory] = {Path("/"): _Directory()}
        self._directories[Path("/")].made_durable = True
        self._locked: dict[_Content, MountedFiles] = {}
        self.fault: Callable[[str], None] = lambda _kind: None
        self.cold = 0.25
        self.used = 0.0
        self.sync_us = (20, 2_000)

    def used_percent(self, directory: Path) -> float:  # noqa: ARG002 - it is one disk
        """How full it says it is: the port `Disk`."""
        return self.used

    def mount(self) -> "MountedFiles":
        """The disk as one process sees it."""
        return MountedFiles(self)

    def cut_power(self) -> None:
        """Loses what was not synced, or some of it."""
        for path in sorted(self._directories):
            directory = self._directories.get(path)
            if directory is None:
                continue
            if not directory.made_durable and self._chosen.random() < 0.5:
                for below in [
                    known for known in self._directories if path in {known, *known.parents}
                ]:
                    del self._directories[below]
                continue
            directory.made_durable = True
            directory.cut_power(self._chosen)
        contents = {id(c): c for d in self._directories.values() for c in d.names.values()}
        for content in contents.values():
            content.cut_power(self._chosen)
        self._locked.clear()

    # --- for mounted files ----------------------------------------------------------------------

    def directory(self, path: Path) -> _Directory:
        """A directory. Raises FileNotFoundError."""
        found = self._directories.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        return found

    def make_directory(self, path: Path) -> None:
        """Makes a directory if it is missing."""
        self.directory(path.parent)
        self._directories.setdefault(path, _Directory())

    def sync_directory(self, path: Path) -> None:
        """Makes the names in a directory durable."""
        self.directory(path).sync()
        for below, directory in list(self._directories.items()):
            if below.parent == path:
                directory.made_durable = True

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory of that name."""
        parent = self._directories.get(path.parent)
        return path in self._directories or (parent is not None and path.name in parent.names)

    def names(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""
        below = [known.name for known in list(self._directories) if known.parent == path != known]
        return sorted([*self.directory(path).names, *below])

    def is_cold(self) -> bool:
        """Draws whether memory does not hold what is to be read."""
        return self._chosen.random() < self.cold

    def sync_time_us(self) -> int:
        """Draws how long a sync takes."""
        return self._chosen.randint(*self.sync_us)

    def lock(self, content: _Content, holder: "MountedFiles") -> bool:
        """Gives the lock of a file to one process."""
        return self._locked.setdefault(content, holder) is holder

    def unlock(self, holder: "MountedFiles", content: _Content | None = None) -> None:
        """Takes back the lock of a file, or all locks of a process."""
        for key, held in list(self._locked.items()):
            if held is holder and content in {None, key}:
                del self._locked[key]


class MountedFiles:
    """A disk as one process sees it: the port `Files`.

    Args:
        disk: the disk.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._open: dict[int, _Content] = {}
        # Several threads may open files: counting is one step.
        self._next_fd = count(3)
        self._gone = False

    def abandon(self) -> None:
        """The process is gone: its locks are free, and nothing it does reaches the disk."""
        self._gone = True
        self._disk.unlock(self)

    def make_directory(self, path: Path) -> None:
        """Makes a directory if it is missing."""
        self._change("make_directory")
        self._disk.make_directory(path)

    def exists(self, path: Path) -> bool:
        """Whether there is a file or a directory of that name."""
        self._look()
        return self._disk.exists(path)

    def names(self, directory: Path) -> list[str]:
        """Names in a directory, sorted."""
        self._look()
        return self._disk.names(directory)

    def open(self, path: Path, *, create: bool = False) -> int:
        """Opens a file for reading and writing; with `create`, makes it or empties it."""
        self._change("create") if create else self._look()
        directory = self._disk.directory(path.parent)
        content = directory.names.get(path.name)
        if content is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            content = _Content()
            directory.change({path.name: content})
        elif create:
            content.resize(0)
        fd = next(self._next_fd)
        self._open[fd] = content
        return fd

    def close(self, fd: int) -> None:
        """Closes a descriptor, and gives up its lock."""
        content = self._open.pop(fd, None)
        if content is not None:
            self._disk.unlock(self, content)

    def size(self, fd: int) -> int:
        """The file's length in bytes."""
        return len(self._at(fd).visible)

    def is_removed(self, fd: int) -> bool:
        """Whether no name leads to the file any more."""
        return self._at(fd).removed

    def read(self, fd: int, at: int, length: int) -> bytes:
        """Up to `length` bytes from byte `at`; fewer at the end of the file."""
        return bytes(memoryview(self._at(fd).visible)[at : at + length])

    def read_cached(self, fd: int, at: int, length: int) -> bytearray | None:
        """`length` bytes if memory holds them all; None if it does not, or the file is shorter."""
        content = self._at(fd).visible
        if self._disk.is_cold() or at + length > len(content):
            return None
        return content[at : at + length]

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        """Writes at byte `at`; everything."""
        content, data = self._at(fd), b"".join(parts)
        self._change("write")
        content.write(at, data)
        return len(data)

    def allocate(self, fd: int, length: int) -> None:
        """Makes the file at least `length` bytes long; new bytes read as zeros."""
        content = self._at(fd)
        self._change("allocate")
        content.resize(max(length, len(content.visible)))

    def truncate(self, fd: int, length: int) -> None:
        """Cuts or extends the file to `length` bytes."""
        content = self._at(fd)
        self._change("truncate")
        content.resize(length)

    def next_data(self, fd: int, at: int) -> int | None:
        """The first byte from `at` on that may be other than a never-written zero, or None."""
        return at if at < self._at(fd).written_end else None

    def sync(self, fd: int) -> int:
        """Makes a file's bytes and length durable; returns the microseconds it took."""
        content = self._at(fd)
        self._change("sync")
        content.sync()
        return self._disk.sync_time_us()

    def rename(self, old: Path, new: Path) -> None:
        """Renames in one step, replacing `new`; durable after `sync_directory`."""
        self._change("rename")
        directory = self._disk.directory(old.parent)
        if old.name not in directory.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(old))
        if new.parent != old.parent:
            raise OSError(errno.EXDEV, "files move within their directory only")
        if new.name in directory.names:
            directory.names[new.name].removed = True
        directory.change({old.name: None, new.name: directory.names[old.name]})

    def remove(self, path: Path) -> None:
        """Removes a file."""
        self._change("remove")
        directory = self._disk.directory(path.parent)
        if path.name not in directory.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        directory.names[path.name].removed = True
        directory.change({path.name: None})

    def sync_directory(self, path: Path) -> None:
        """Makes the names in a directory durable."""
        self._change("sync_directory")
        self._disk.sync_directory(path)

    def lock(self, fd: int) -> bool:
        """Takes an exclusive lock that ends with the process; False if another one holds it."""
        return self._disk.lock(self._at(fd), self)

    def _at(self, fd: int) -> _Content:
        self._look()
        if fd not in self._open:
            raise OSError(errno.EBADF, "not an open file")
        return self._open[fd]

    def _look(self) -> None:
        if self._gone:
            raise OSError(errno.EIO, "the process is gone")

    def _change(self, kind: str) -> None:
        self._look()
        self._disk.fault(kind)
        # The fault may have been the end of this process.
        self._look()
