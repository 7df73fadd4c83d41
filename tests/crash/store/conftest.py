"""What crash tests of the store share: a disk that loses power, a child that appends."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.protocol.batch import decode_records
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SECTOR_BYTES = 512


class PowerCut(OSError):
    """The disk is gone."""


class PowerCutFiles(SystemFiles):
    """The machine's files, and beside them what a disk would hold after a power cut.

    A disk keeps what was synced. Of the rest it keeps any sectors and either length of a file,
    and a first part of the names that were made, replaced or removed since their directory was
    synced, as a journal does.

    Args:
        root: a directory whose present content is durable.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.syncs_left: int | None = None
        self.write_error: OSError | None = None
        self._durable: dict[int, bytes] = {}
        self._handles: dict[int, int] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._renamed: dict[Path, list[dict[str, int | None]]] = {}
        for directory, _, names in os.walk(root):
            self._names[Path(directory)] = {
                name: (Path(directory) / name).stat().st_ino for name in names
            }
            for name in names:
                os.close(self._hold(os.open(Path(directory) / name, os.O_RDWR), synced=True))

    def make_directory(self, path: Path) -> None:
        super().make_directory(path)
        self._names.setdefault(path, {})

    def open(self, path: Path, *, create: bool = False) -> int:
        known = path.exists()
        fd = self._hold(super().open(path, create=create), synced=False)
        if not known:
            self._rename(path.parent, {path.name: os.fstat(fd).st_ino})
        return fd

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        if self.write_error is not None:
            super().write(fd, at, [b"".join(parts)[:700]])
            raise self.write_error
        return super().write(fd, at, parts)

    def sync(self, fd: int) -> int:
        self._count_sync()
        inode = os.fstat(fd).st_ino
        self._durable[inode] = self._content(inode)
        return 0

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self._rename(new.parent, {old.name: None, new.name: new.stat().st_ino})

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._rename(path.parent, {path.name: None})

    def sync_directory(self, path: Path) -> None:
        self._count_sync()
        for change in self._renamed.pop(path, []):
            self._apply(path, change, self._names)

    def image(self, target: Path, chosen: random.Random) -> None:
        """Writes what the disk may hold now into a new directory."""
        names = {directory: dict(found) for directory, found in self._names.items()}
        for directory, changes in self._renamed.items():
            for change in changes[: chosen.randint(0, len(changes))]:
                self._apply(directory, change, names)
        for directory, found in names.items():
            if directory.is_relative_to(self.root):
                place = target / directory.relative_to(self.root)
                place.mkdir(parents=True)
                for name, inode in found.items():
                    (place / name).write_bytes(self._after_cut(inode, chosen))

    def forget(self) -> None:
        """Closes what this holds beside the program under test."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def _count_sync(self) -> None:
        if self.syncs_left is not None:
            self.syncs_left -= 1
            if self.syncs_left < 0:
                raise PowerCut("the power is gone")

    def _hold(self, fd: int, *, synced: bool) -> int:
        inode = os.fstat(fd).st_ino
        if inode not in self._handles:
            self._handles[inode] = os.dup(fd)
            self._durable[inode] = self._content(inode) if synced else b""
        return fd

    def _content(self, inode: int) -> bytes:
        handle = self._handles[inode]
        return os.pread(handle, os.fstat(handle).st_size, 0)

    def _rename(self, directory: Path, change: dict[str, int | None]) -> None:
        self._renamed.setdefault(directory, []).append(change)

    @staticmethod
    def _apply(
        directory: Path, change: dict[str, int | None], names: dict[Path, dict[str, int]]
    ) -> None:
        for name, inode in change.items():
            found = names.setdefault(directory, {})
            found.pop(name, None)
            if inode is not None:
                found[name] = inode

    def _after_cut(self, inode: int, chosen: random.Random) -> bytes:
        durable, visible = self._durable[inode], self._content(inode)
        length = len(chosen.choice([durable, visible]))
        merged = bytearray(durable[:length].ljust(length, b"\0"))
        newer = visible[:length].ljust(length, b"\0")
        share = chosen.choice([0.1, 0.5, 0.9])
        for at in range(0, length, SECTOR_BYTES):
            if chosen.random() < share:
                merged[at : at + SECTOR_BYTES] = newer[at : at + SECTOR_BYTES]
        return bytes(merged)


@pytest.fixture
def power_cut_files() -> Iterator[Callable[[Path], PowerCutFiles]]:
    made: list[PowerCutFiles] = []

    def make(root: Path) -> PowerCutFiles:
        made.append(PowerCutFiles(root))
        return made[-1]

    yield make
    for files in made:
        files.forget()


# Appends batches of random sizes for ever. Writes `queue offset length` to standard output after
# each acknowledgement, so that whoever reads knows what was promised. With a third argument n it
# stops for ever before the n-th sync, with a group written and not synced.
CHILD = """
import asyncio, random, sys
from pathlib import Path
import structlog
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

class StoppingFiles(SystemFiles):
    left = int(sys.argv[3])

    def sync(self, fd):
        self.left -= 1
        if self.left == 0:
            print("stopped", flush=True)
            sys.stdin.read()
        return super().sync(fd)

async def main(directory, seed):
    chosen = random.Random(seed)
    store = MessageStore(
        StoreSettings(directory=Path(directory), segment_bytes=1 << 20), files=StoppingFiles()
    )
    store.open()
    while True:
        told = []
        for _ in range(chosen.randint(1, 8)):
            queue = chosen.randint(0, 3)
            body = bytes([queue + 1]) * chosen.randint(1, 6_000)
            batch = encode_batch(
                QueueRef("t", queue), Columns([], [], [], [body], []), born_first_ms=0
            )
            retention = "forever" if queue else "transient"
            offset = store.append(batch, retention=retention).base_offset
            told.append((queue, offset, len(body)))
        await store.durable()
        for line in told:
            print(*line)
        sys.stdout.flush()

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

Acks = list[tuple[int, int, int]]


class Appender:
    """A child process that appends until it is killed.

    Attributes:
        acks: queue, offset and body length of everything that it was told is durable.
        stopped: it is about to sync, and never will.
    """

    def __init__(self, directory: Path, *, seed: int, stop_at: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(directory), str(seed), str(stop_at)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.acks: Acks = []
        self.stopped = False

    def run(self, acks: int) -> None:
        """Returns when so many acknowledgements came, or when it stopped."""
        assert self._process.stdout is not None
        while len(self.acks) < acks and not self.stopped:
            self._take(self._process.stdout.readline())

    def kill(self) -> None:
        """Kills it without notice; counts what it had said before."""
        self._process.kill()
        said, _ = self._process.communicate()
        for line in said.splitlines(keepends=True):
            if line.endswith(b"\n"):
                self._take(line)

    def _take(self, line: bytes) -> None:
        assert line, "the child ended by itself"
        self.stopped = self.stopped or line == b"stopped\n"
        if not self.stopped:
            queue, offset, length = map(int, line.split())
            self.acks.append((queue, offset, length))


def read_back(directory: Path, acks: Acks) -> int:
    """Recovers a store and checks it against what was acknowledged; returns its messages.

    Every acknowledged message is there as it was, nothing is half there, offsets have no gaps.
    """
    store = MessageStore(StoreSettings(directory=directory, segment_bytes=1 << 20))
    store.open()
    try:
        assert store.damage == []
        found = {}
        for queue, _ in store.queues():
            first, end = store.range(queue)
            assert first == 0
            records = [
                record
                for batch in store.read(queue, 0, 1 << 30)
                for record in decode_records(batch)
            ]
            assert [record.offset for record in records] == list(range(end))
            for record in records:
                assert set(record.body) == {queue.queue_id + 1}
                found[queue.queue_id, record.offset] = len(record.body)
        assert [ack for ack in acks if found.get(ack[:2]) != ack[2]] == []
        return len(found)
    finally:
        # As if this process were killed: the next one recovers again.
        store._release()


@pytest.fixture
def start_appender() -> Iterator[Callable[..., Appender]]:
    started: list[Appender] = []

    def start(directory: Path, *, seed: int, stop_at: int = 0) -> Appender:
        started.append(Appender(directory, seed=seed, stop_at=stop_at))
        return started[-1]

    yield start
    for appender in started:
        appender.kill()


@pytest.fixture
def check_store() -> Callable[[Path, Acks], int]:
    return read_back
