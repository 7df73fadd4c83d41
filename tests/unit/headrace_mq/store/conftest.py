"""What tests of the store share: batches, a clock moved by hand, and files that fail on demand."""

import errno
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SEGMENT_BYTES = 64 * 1024


class FaultyFiles(SystemFiles):
    """The machine's files, with faults that a test switches on and off.

    Attributes:
        sync_error: raised by every sync while it is set.
        directory_sync_error: raised by every sync of a directory while it is set.
        write_error: raised by every write while it is set, after `write_some` bytes were written.
        allocate_error: raised by every allocation while it is set.
        write_bytes_max: more than this is not written in one call.
        sync_us: what every sync claims to have taken.
        gate: while it is not set, a sync or a read in a thread waits.
        cold: what of a file, from this byte on, no memory holds; None: it holds all.
        bad_byte: a byte that fails every read it is part of.
        cannot_tell: raised by every question what memory holds, while it is set.
    """

    def __init__(self) -> None:
        self.sync_error: OSError | None = None
        self.directory_sync_error: OSError | None = None
        self.write_error: OSError | None = None
        self.write_some = 0
        self.read_error: OSError | None = None
        self.allocate_error: OSError | None = None
        self.write_bytes_max: int | None = None
        self.sync_us = 0
        self.syncs = 0
        self.reads = 0
        self.cold: int | None = None
        self.bad_byte: int | None = None
        self.cannot_tell: OSError | None = None
        self.threads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        if self.write_error is not None:
            super().write(fd, at, [b"".join(parts)[: self.write_some]])
            raise self.write_error
        if self.write_bytes_max is not None:
            parts = [b"".join(parts)[: self.write_bytes_max]]
        return super().write(fd, at, parts)

    def read(self, fd: int, at: int, length: int) -> bytes:
        self.reads += 1
        if threading.current_thread() is not threading.main_thread():
            self.waiting.set()
            assert self.gate.wait(20)
        if self.read_error is not None:
            raise self.read_error
        if self.bad_byte is not None and at <= self.bad_byte < at + length:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(fd, at, length)

    def read_cached(self, fd: int, at: int, length: int) -> bytearray | None:
        if self.cannot_tell is not None:
            raise self.cannot_tell
        if self.cold is not None and at + length > self.cold:
            return None
        return super().read_cached(fd, at, length) or bytearray(super().read(fd, at, length))

    def allocate(self, fd: int, length: int) -> None:
        if self.allocate_error is not None:
            raise self.allocate_error
        super().allocate(fd, length)

    def sync(self, fd: int) -> int:
        self.syncs += 1
        self.threads.append(threading.current_thread().name)
        if threading.current_thread() is not threading.main_thread():
            self.waiting.set()
            assert self.gate.wait(20)
        if self.sync_error is not None:
            raise self.sync_error
        super().sync(fd)
        return self.sync_us

    def sync_directory(self, path: Path) -> None:
        if self.directory_sync_error is not None:
            raise self.directory_sync_error
        super().sync_directory(path)


class HandClock:
    """A clock that tests move by hand."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def make_batch() -> Callable[..., bytearray]:
    def make(
        *bodies: bytes,
        topic: str = "orders",
        queue: int = 0,
        producer: int = 0,
        sequence: int = 0,
        producer_epoch: int = 0,
    ) -> bytearray:
        return encode_batch(
            QueueRef(topic, queue),
            Columns([], [], [], list(bodies or (b"body",)), []),
            born_first_ms=1_600_000_000_000,
            producer_id=producer,
            producer_epoch=producer_epoch,
            first_sequence=sequence,
        )

    return make


@pytest.fixture
async def open_store(
    tmp_path: Path, files: FaultyFiles, clock: HandClock
) -> AsyncIterator[Callable[..., MessageStore]]:
    """Opens stores of small segments in one directory; closes what a test left open."""
    opened: list[MessageStore] = []

    def open_one(**settings: Any) -> MessageStore:
        values: dict[str, Any] = {
            "directory": tmp_path / "store",
            "segment_bytes": SEGMENT_BYTES,
            **settings,
        }
        store = MessageStore(StoreSettings(**values), clock=clock, files=files)
        store.open()
        opened.append(store)
        return store

    yield open_one
    files.gate.set()
    for store in opened:
        await store.aclose()
