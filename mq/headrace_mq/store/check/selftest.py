"""
Tests whether a disk keeps its promises: a bounded test in a new folder, which it removes afterwards.

It measures the operations that the store needs (reserve, write and sync, rename), reads back what it wrote,
tears writes on a copy of a real store, and warns if a sync is faster than any disk. It cannot prove that a
disk survives a power cut, but it can show that a disk does not sync.

Used by the command line, for a directory that is to hold a store.
"""

import asyncio
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import google_crc32c
import msgspec

from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.files import Files, SystemFiles, write_all
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import MIB, StoreSettings
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint
from headrace_mq.store.segment.log_walk import SECTOR_BYTES
from headrace_mq.store.segment.segment import MARK_BYTES, SEGMENT_SUFFIX

__all__ = ["PLAUSIBLE_SYNC_US_MIN", "SIZE_MIB_MAX", "Measure", "SelfTest", "selftest"]

# The fastest devices with a protected cache need about this long for one flushed write. Less means memory,
# or a layer in between that drops the flush.
PLAUSIBLE_SYNC_US_MIN = 15
# Enough to measure a rate; more would only wear the disk.
SIZE_MIB_MAX = 4_096
# Small synced writes, by number and by time: a slow disk makes 100 of them in this time.
_SYNCS_MAX = 500
_SYNCS_MS_MAX = 2_000
_RENAMES = 50
_BLOCK_BYTES = 4_096
# Required free space, as a multiple of the bytes written: the test never fills a disk.
_ROOM = 4
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"})
_SEGMENT_BYTES = 64 << 10
_BATCHES = 12
_QUEUE = QueueRef("selftest", 0)


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the test.

    Attributes:
        passed: the test read back what it had written.
        sentence: the test and its result.
        warning: why you should not trust the disk, or empty.
    """

    name: str
    passed: bool
    sentence: str
    figures: dict[str, float]
    warning: str = ""


class SelfTest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole test of one directory's disk."""

    directory: str
    filesystem: str
    measures: list[Measure]

    @property
    def status(self) -> Literal["passed", "doubtful", "failed"]:
        """The result in one word; `doubtful`: the disk works, but a measurement looks wrong."""
        if not all(measure.passed for measure in self.measures):
            return "failed"
        return "doubtful" if any(measure.warning for measure in self.measures) else "passed"


def selftest(
    directory: Path, *, size_mib: int, files: Files | None = None, clock: Clock | None = None
) -> SelfTest:
    """Tests the disk of a directory. Blocks for some seconds, and removes its files.

    Args:
        directory: must exist; the test does not touch a store in it.
        size_mib: MiB to write in large blocks.
        files: the file system.
        clock: the time.

    Raises:
        MessageQueueError: the directory cannot be tested; the message says why.
        ValueError: `size_mib` is out of its range.
    """
    if not 1 <= size_mib <= SIZE_MIB_MAX:
        raise ValueError(f"the size must be 1 to {SIZE_MIB_MAX} MiB, not {size_mib}")
    try:
        _check_room(directory, size_mib * MIB)
        folder = Path(tempfile.mkdtemp(prefix="headrace-selftest-", dir=directory))
        try:
            trial = _Trial(files or SystemFiles(), clock or SystemClock(), folder, size_mib)
            measures = [_filesystem_measure(folder), *trial.run()]
        finally:
            shutil.rmtree(folder)
    except OSError as error:
        raise MessageQueueError(
            f"{directory} cannot be tested: {error}; check the disk and the rights on it"
        ) from error
    return SelfTest(directory=str(directory), filesystem=_filesystem(directory), measures=measures)


def _check_room(directory: Path, size: int) -> None:
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    if free < size * _ROOM:
        raise MessageQueueError(
            f"{directory} has {free // MIB} MiB free and the test wants {size * _ROOM // MIB}; make"
            " room, or test with a smaller size"
        )


def _filesystem(directory: Path) -> str:
    """Returns the kernel's name of the file system, or an empty text."""
    device = directory.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    for line in lines:
        place, _, kind = line.partition(" - ")
        if place.split()[2] == wanted:
            return kind.split()[0]
    return ""


def _filesystem_measure(directory: Path) -> Measure:
    kind, warning = _filesystem(directory), ""
    if kind in _IN_MEMORY:
        warning = f"{kind} is memory: a power cut or a restart takes everything"
    elif kind in _REMOTE:
        warning = f"{kind} is another machine's disk: what a sync means there is decided there"
    return Measure(
        name="file system", passed=True, sentence=kind or "not told by the system",
        figures={}, warning=warning,
    )  # fmt: skip


class _Trial:
    """One run in an empty folder."""

    def __init__(self, files: Files, clock: Clock, folder: Path, size_mib: int) -> None:
        self._files = files
        self._clock = clock
        self._folder = folder
        self._size_mib = size_mib

    def run(self) -> list[Measure]:
        """Runs every part of the test in order."""
        path = self._folder / "blocks"
        fd = self._files.open(path, create=True)
        try:
            reserved = self._reserve(fd)
            checksums, written = self._write(fd)
            read = self._read_back(fd, checksums)
            synced = self._sync(fd)
        finally:
            self._files.close(fd)
        return [reserved, written, read, synced, self._rename(), asyncio.run(self._tear())]

    def _reserve(self, fd: int) -> Measure:
        size = self._size_mib * MIB
        taken = self._timed(lambda: self._files.allocate(fd, size))
        passed = self._files.size(fd) == size and not any(
            self._files.read(fd, size - _BLOCK_BYTES, _BLOCK_BYTES)
        )
        return Measure(
            name="reserve", passed=passed, figures={"mib": self._size_mib, "ms": taken},
            sentence=f"{self._size_mib} MiB reserved in {taken} ms, zeros at their end",
        )  # fmt: skip

    def _write(self, fd: int) -> tuple[list[int], Measure]:
        checksums: list[int] = []
        # Random bytes, so that no layer compresses them; each block is different.
        random = os.urandom(MIB - 8)

        def write() -> None:
            for number in range(self._size_mib):
                block = number.to_bytes(8, "little") + random
                checksums.append(google_crc32c.value(block))
                write_all(self._files, fd, number * MIB, [block])
                self._files.sync(fd)

        rate = self._size_mib * 1_000 / max(1, self._timed(write))
        return checksums, Measure(
            name="append", passed=True, figures={"mib_per_s": round(rate, 1)},
            sentence=f"{rate:,.0f} MiB/s in blocks of 1 MiB, each made durable",
        )  # fmt: skip

    def _read_back(self, fd: int, checksums: list[int]) -> Measure:
        # Drop the page cache, so that the read reaches the disk.
        if hasattr(os, "posix_fadvise"):  # not on macOS, where memory may answer instead
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        wrong: list[int] = []

        def read() -> None:
            for number, checksum in enumerate(checksums):
                if google_crc32c.value(self._files.read(fd, number * MIB, MIB)) != checksum:
                    wrong.append(number)

        rate = self._size_mib * 1_000 / max(1, self._timed(read))
        return Measure(
            name="read back", passed=not wrong,
            figures={"mib_per_s": round(rate, 1), "wrong_blocks": len(wrong)},
            sentence=(
                f"{rate:,.0f} MiB/s, {len(wrong)} of {len(checksums)} blocks differ from what was"
                " written"
            ),
        )  # fmt: skip

    def _sync(self, fd: int) -> Measure:
        block, taken = os.urandom(_BLOCK_BYTES), list[int]()
        until = self._clock.monotonic_ms() + _SYNCS_MS_MAX
        blocks = self._size_mib * MIB // _BLOCK_BYTES
        while len(taken) < _SYNCS_MAX and (not taken or self._clock.monotonic_ms() < until):
            at = len(taken) % blocks * _BLOCK_BYTES
            write_all(self._files, fd, at, [block])
            taken.append(self._files.sync(fd))
        taken.sort()
        median = statistics.median(taken)
        slow = taken[len(taken) * 99 // 100]
        warning = ""
        if median < PLAUSIBLE_SYNC_US_MIN:
            warning = (
                f"a sync takes {median:g} us, less than any disk needs: something between here and"
                " the disk does not wait for it, and a power cut may take acknowledged messages"
            )
        return Measure(
            name="sync", passed=True, warning=warning,
            figures={"syncs": len(taken), "median_us": median, "p99_us": slow, "max_us": taken[-1]},
            sentence=(
                f"{len(taken)} writes of 4 KiB, each made durable: {median:,.0f} us in the middle,"
                f" {slow:,.0f} us for the slowest hundredth"
            ),
        )  # fmt: skip

    def _rename(self) -> Measure:
        path, wrong = self._folder / "checkpoint", 0

        def replace() -> None:
            nonlocal wrong
            for number in range(_RENAMES):
                content = b"%d" % number
                write_checkpoint(self._files, path, content)
                wrong += read_checkpoint(self._files, path) != content

        each = self._timed(replace) / _RENAMES
        return Measure(
            name="replace a file", passed=not wrong,
            figures={"files": _RENAMES, "ms_each": round(each, 2), "wrong": wrong},
            sentence=(
                f"{_RENAMES} times written, renamed and made durable with its folder: {each:.1f} ms"
                f" each, {wrong} read wrong"
            ),
        )  # fmt: skip

    async def _tear(self) -> Measure:
        """Loses each sector of the last write of a store, and recovers a copy of it each time."""
        original = self._folder / "store"
        store = self._open(original)
        try:
            for number in range(_BATCHES):
                body = b"%d" % number * 900
                batch = encode_batch(
                    _QUEUE, Columns([], [], [], [body], []), born_first_ms=self._clock.now_ms()
                )
                store.append(batch, retention="forever")
                await store.durable()
            kept = [bytes(one) for one in store.read(_QUEUE, 0, MIB)]
            copy = self._folder / "copy"
            shutil.copytree(original, copy, ignore=shutil.ignore_patterns("lock"))
        finally:
            await store.aclose()
        (segment,) = (copy / "forever").glob(f"*{SEGMENT_SUFFIX}")
        content = segment.read_bytes()
        start = content.index(kept[-1])
        cuts = wrong = 0
        for at in range(start - start % SECTOR_BYTES, start + len(kept[-1]), SECTOR_BYTES):
            torn = bytearray(content)
            torn[at : at + SECTOR_BYTES] = bytes(SECTOR_BYTES)
            # Earlier bytes of the same sector were durable: only the new bytes are lost.
            torn[: start - MARK_BYTES] = content[: start - MARK_BYTES]
            segment.write_bytes(torn)
            cuts, wrong = cuts + 1, wrong + (await self._recovered(copy) != kept[:-1])
        return Measure(
            name="torn write", passed=not wrong, figures={"cuts": cuts, "wrong": wrong},
            sentence=(
                f"{cuts} copies of a store, each without a sector of its last write: {wrong} did"
                " not recover exactly what was written before"
            ),
        )  # fmt: skip

    async def _recovered(self, directory: Path) -> list[bytes]:
        store = self._open(directory)
        try:
            return [bytes(one) for one in store.read(_QUEUE, 0, MIB)]
        finally:
            await store.aclose()
            # With a checkpoint the next start would know the log's length and refuse the torn one.
            (directory / "store.checkpoint").unlink()

    def _open(self, directory: Path) -> MessageStore:
        settings = StoreSettings(directory=directory, segment_bytes=_SEGMENT_BYTES)
        store = MessageStore(settings, clock=self._clock, files=self._files)
        store.open()
        return store

    def _timed(self, work: Callable[[], object]) -> int:
        started = self._clock.monotonic_ms()
        work()
        return self._clock.monotonic_ms() - started
