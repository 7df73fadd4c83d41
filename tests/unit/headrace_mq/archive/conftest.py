"""What tests of the archive share: a database in memory, rows as it returns them, and batches."""

import asyncio
import struct
from bisect import insort
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.stores.database.schema import ARCHIVE, upgrade
from headrace_mq.archive.archive_reader import ArchiveReader
from headrace_mq.archive.archived_store import ArchivedStore
from headrace_mq.archive.archiver import Archiver
from headrace_mq.archive.backlog import Backlog
from headrace_mq.archive.claim import Claim, KeptArchive
from headrace_mq.archive.database import ArchivePositionMoved, KeptLog, KeySearch, Lost, RowSource
from headrace_mq.archive.rebuilt import ArchivedRow
from headrace_mq.archive.rows import COLUMNS, COPY_END, COPY_START
from headrace_mq.archive.term import Term
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, assign, encode_batch
from headrace_mq.settings import ArchiveSettings, StoreSettings
from headrace_mq.store.log.commit_gate import CommitGate
from headrace_mq.store.message_store import RETENTIONS
from headrace_mq.testing.clock import ManualClock

NUMBERS = {2: ">h", 4: ">i", 8: ">q"}
TEXTS = {"topic", "key", "tag"}
BYTES = {"batch", "body"}


def fields_of(file: bytes) -> list[dict[str, Any]]:
    """Reads a file of COPY as the server does."""
    assert file.startswith(COPY_START)
    assert file.endswith(COPY_END)
    at, rows = len(COPY_START), []
    while at < len(file) - len(COPY_END):
        (count,) = struct.unpack_from(">h", file, at)
        at += 2
        row: dict[str, Any] = {}
        assert count == len(COLUMNS)
        for column in COLUMNS:
            (size,) = struct.unpack_from(">i", file, at)
            at += 4
            if size < 0:
                row[column] = None
                continue
            value = file[at : at + size]
            at += size
            if column in TEXTS:
                row[column] = value.decode()
            elif column in BYTES:
                row[column] = value
            elif column == "headers":
                assert value[0] == 1
                row[column] = value[1:].decode()
            else:
                (row[column],) = struct.unpack(NUMBERS[size], value)
        rows.append(row)
    return rows


@pytest.fixture(scope="session")
def copied() -> Callable[[bytes], list[tuple[QueueRef, ArchivedRow]]]:
    """Returns the rows of a file of COPY as they are read from the table."""
    return lambda file: [
        (
            QueueRef(fields["topic"], fields["queue_id"]),
            ArchivedRow(**{name: fields[name] for name in ArchivedRow._fields}),
        )
        for fields in fields_of(file)
    ]


class Shelf:
    """The archive's tables in memory; fails when told to.

    Attributes:
        failing: raised by everything, or None.
        lost_answers: commits that happen, and whose answer does not come.
        asked: what was read.
    """

    def __init__(self) -> None:
        self.rows: dict[QueueRef, list[ArchivedRow]] = {}
        self.kept = {log: KeptLog(log, "me", 0) for log in RETENTIONS}
        self.failing: Exception | None = None
        self.lost_answers = 0
        self.added = asyncio.Condition()
        self.asked: list[tuple[object, ...]] = []
        self.shown = "memory"
        self.lost: list[ArchivedRow] = []

    def look(self, *asked: object) -> None:
        self.asked.append(asked)
        if self.failing is not None:
            raise self.failing

    def put(self, queue: QueueRef, row: ArchivedRow) -> None:
        held = self.rows.setdefault(queue, [])
        assert row.queue_offset not in {one.queue_offset for one in held}, "inserted twice"
        insort(held, row)

    async def check(self) -> None:
        self.look("check")

    async def logs(self) -> list[KeptLog]:
        self.look("logs")
        return list(self.kept.values())

    async def begin(self, log: str, store_id: str, position: int) -> None:
        self.look("begin", log)
        self.kept.setdefault(log, KeptLog(log, store_id, position))

    async def claim(self, kept: KeptLog, claimed: KeptLog, lost: Lost | None = None) -> int:
        self.look("claim", claimed)
        self.require(kept)
        self.kept[kept.log] = claimed
        before = len(self.lost)
        for queue, rows in self.rows.items() if lost is not None else ():
            assert lost is not None
            own, other = queue.topic in lost.topics, queue.topic in lost.others
            for row in list(rows):
                late = row.epoch >= lost.epoch and not other
                if row.log_position >= claimed.position and (own or late):
                    rows.remove(row)
                    self.lost.append(row)
        return len(self.lost) - before

    def require(self, kept: KeptLog) -> None:
        if self.kept[kept.log][:4] != kept[:4]:
            raise ArchivePositionMoved("somebody else was here")

    async def add(self, kept: KeptLog, source: RowSource) -> None:
        self.look("add", kept.log)
        self.require(kept)
        file = b"".join([chunk async for chunk in source.chunks()])
        for fields in fields_of(file):
            queue = QueueRef(fields["topic"], fields["queue_id"])
            self.put(queue, ArchivedRow(**{name: fields[name] for name in ArchivedRow._fields}))
        self.kept[kept.log] = kept._replace(position=source.end, epochs=source.epochs)
        async with self.added:
            self.added.notify_all()
        if self.lost_answers:
            self.lost_answers -= 1
            raise ArchiveUnavailable("the connection broke")

    async def firsts(self, queues: Collection[QueueRef]) -> dict[QueueRef, int]:
        self.look("firsts")
        return {queue: self.rows[queue][0].queue_offset for queue in queues if self.rows.get(queue)}

    async def block(
        self, queue: QueueRef, offset: int, messages_max: int, bytes_max: int
    ) -> list[Sequence[Any]]:
        self.look("block", queue, offset)
        rows = self.rows.get(queue, [])
        before = [row for row in rows if row.queue_offset <= offset]
        start = before[-1].queue_offset if before else offset
        found: list[Sequence[Any]] = []
        size = 0
        for row in rows:
            if row.queue_offset >= start and len(found) < messages_max and size < bytes_max:
                found.append(row)
                size += len(row.body)
        return found

    async def stored_from(self, queue: QueueRef, offset: int) -> tuple[int, int] | None:
        self.look("stored_from", queue, offset)
        for row in self.rows.get(queue, []):
            if row.queue_offset >= offset:
                return row.queue_offset, row.stored_at_ms
        return None

    async def keyed(self, wanted: KeySearch) -> list[Sequence[Any]]:
        self.look("keyed", wanted)
        found = [
            (queue.queue_id, *row)
            for queue, rows in self.rows.items()
            for row in rows
            if queue.topic == wanted.topic
            and row.key == wanted.key
            and wanted.position <= row.log_position < wanted.before
            and wanted.from_ms <= row.stored_at_ms < wanted.to_ms
        ]
        return sorted(found, key=lambda row: row[2:0:-1])[: wanted.rows_max]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def batch() -> Callable[..., bytearray]:
    """Makes batches; with an offset they are as the log holds them."""

    def make(
        queue: QueueRef,
        bodies: Sequence[bytes],
        *,
        offset: int | None = None,
        position: int = 0,
        at_ms: int = 1_000,
        keys: Sequence[str] = (),
        **more: Any,
    ) -> bytearray:
        columns = Columns(list(keys), [], [], list(bodies), [])
        made = encode_batch(queue, columns, born_first_ms=7, **more)
        if offset is not None:
            assign(made, base_offset=offset, position=position, appended_at_ms=at_ms, epoch=3)
        return made

    return make


class Archived:
    """A store in a folder, its archive on a shelf, and what copies."""

    def __init__(
        self,
        folder: Path,
        shelf: Shelf,
        *,
        term: Term | None = None,
        gate: CommitGate | None = None,
        **changed: Any,
    ) -> None:
        values = {"interval_ms": 1, "retry_ms_min": 1, "retry_ms_max": 2}
        self.settings = ArchiveSettings(url="postgresql://memory", **(values | changed))
        self.clock = ManualClock()
        self.past = ArchiveReader(shelf, self.settings)  # type: ignore[arg-type]  # as much as is used of one
        self.backlog = Backlog(self.settings)
        self.store = ArchivedStore(
            StoreSettings(directory=folder, segment_bytes=64 << 10),
            past=self.past,
            epoch=1 if term is None else term.epoch,
            clock=self.clock,
            gate=gate,
        )
        self.kept: list[KeptArchive] = []
        claim = self.claim = Claim(
            shelf,  # type: ignore[arg-type]  # as much as is used of one
            self.store,
            keep=self.kept.append,
            term=term,
            tell=self.backlog.failed,
        )
        claim.kept = KeptArchive("me", begun=True)
        self.archiver = Archiver(
            self.store,
            shelf,  # type: ignore[arg-type]  # as much as is used of one
            self.past,
            backlog=self.backlog,
            settings=self.settings,
            clock=self.clock,
            claim=claim,
        )

    async def append(self, *batches: bytearray, retention: str = "transient") -> None:
        for one in batches:
            self.store.append(one, retention=retention)
        await self.store.durable()

    def delete_archived(self, log: str = "transient") -> int:
        return self.store.delete_segments(log, self.past.position(log))

    async def aclose(self) -> None:
        await self.archiver.aclose()
        await self.past.aclose()
        await self.store.aclose()


class Leading:
    """A term of a leader, whose log has these epochs."""

    def __init__(self, *starts: tuple[int, int]) -> None:
        self.epoch = starts[-1][0]
        self.all = list(starts)
        self.holds_at: dict[str, int] = {}
        self.suspected: list[tuple[str, int, int]] = []
        self.on_confirmed: Callable[[], None] | None = None

    def starts(self, log: str) -> list[tuple[int, int]]:
        return self.all if log == "transient" else self.all[:1]

    async def confirmed(self) -> None:
        if self.on_confirmed is not None:
            self.on_confirmed()

    def suspect(self, log: str, position: int, length: int) -> None:
        self.suspected.append((log, position, length))

    def sound_until(self, log: str, start: int) -> int | None:
        return self.holds_at.get(log)


@pytest.fixture
def leading() -> Callable[..., Leading]:
    """Makes terms; each epoch comes with the position of its first byte, the last one is the leader's own."""
    return Leading


@pytest.fixture
async def archived(tmp_path: Path, shelf: Shelf) -> AsyncIterator[Callable[..., Archived]]:
    """Opens stores with an archive; all are closed at the end."""
    made: list[Archived] = []

    def make(folder: str = "store", *, database: Any = None, **changed: Any) -> Archived:
        one = Archived(tmp_path / folder, database or shelf, **changed)
        made.append(one)
        one.store.open()
        return one

    yield make
    for one in made:
        await one.aclose()


@pytest.fixture
async def archive_url(postgres_database: str) -> str:
    """A real database with the archive's tables."""
    await upgrade(postgres_database, tree=ARCHIVE)
    return postgres_database
