"""
Copies the log into the archive in the background, one database transaction after the other.

    position ─▶ rows of about 4 MiB of log ─▶ COPY ─▶ position and rows commit together ─▶ …

After each start and each failure, the archiver asks the database where to go on. It decodes batches on the
event loop in steps of about a millisecond, so a request waits no longer than that.

Used by `archive`; reads the store's log and writes to `database`. It must not know a connection of the
broker or a request.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.archive.archive_reader import ArchiveReader
from headrace_mq.archive.archived_store import ARCHIVED_LOGS, ArchivedStore, LogRange
from headrace_mq.archive.backlog import Backlog
from headrace_mq.archive.claim import Claim
from headrace_mq.archive.database import ArchiveMismatch, ArchivePositionMoved, Database, KeptLog
from headrace_mq.archive.rows import COPY_END, COPY_START, copy_rows
from headrace_mq.errors import ArchiveUnavailable, DataCorrupt, FormatTooNew
from headrace_mq.message import QueueRef
from headrace_mq.settings import ArchiveSettings

__all__ = ["Archiver", "LogRows"]

# Rows made before other tasks run: about a millisecond of work, and enough bytes for a packet.
_STEP_BYTES = 128 << 10
# Batches read before other tasks run, if they are small or are not archived.
_STEP_BATCHES = 64

_log = get_logger(__name__)


class Archiver:
    """Runs one task that copies the log as soon as it grows.

    Args:
        store: the source.
        database: the target.
        past: gets the first offsets of the messages that have been archived.
        backlog: gets how far the archive is behind.
        settings: the size of a transaction, and the pauses.
        clock: the broker's clock.
        claim: checks that the database is this store's archive; returns each log's position in it.
    """

    def __init__(
        self,
        store: ArchivedStore,
        database: Database,
        past: ArchiveReader,
        *,
        backlog: Backlog,
        settings: ArchiveSettings,
        clock: Clock,
        claim: Claim,
    ) -> None:
        self._store = store
        self._database = database
        self._past = past
        self._backlog = backlog
        self._settings = settings
        self._clock = clock
        self._claim = claim
        self._term = claim.term
        self._kept: dict[str, KeptLog] | None = None
        self._stopping = asyncio.Event()
        self._moved = asyncio.Condition()
        # Whether the archive was compared with where the log of a broker without a group ended at its start.
        self._is_compared = claim.term is not None
        self._task: asyncio.Task[None] | None = None
        self.messages = 0

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the log that are not archived yet."""
        return sum(
            max(0, end - max(start, self._past.position(log)))
            for log in ARCHIVED_LOGS
            for start, end in (self._store.archivable(log),)
        )

    @property
    def counted_bytes(self) -> int:
        """Those of the waiting bytes that count for refusals.

        Until the database has said what is archived, these are the bytes since the start. Bytes from before the archive was
        begun do not count: they are on the disk in any case.
        """
        return sum(
            max(0, self._store.archivable(log)[1] - self._counted_from(log))
            for log in ARCHIVED_LOGS
        )

    def _counted_from(self, log: str) -> int:
        if log not in self._past.positions:
            return self._store.opened_at[log]
        start = self._store.archivable(log)[0]
        return max(start, self._past.position(log), self._claim.begun_at.get(log, 0))

    async def connect(self) -> None:
        """Asks the database where to go on.

        Raises:
            ArchiveMismatch: the database is not this broker's archive.
            ArchiveUnavailable: the database did not answer.
        """
        kept = await self._claim()
        for log, found in kept.items():
            start, end = self._store.archivable(log)
            # While the database is away at a start, the log may grow past what the archive has: with other messages.
            end = end if self._is_compared else self._store.opened_at[log]
            if found.position > end:
                raise ArchiveMismatch(
                    f"the archive holds the log {log!r} up to {found.position}, but here it ended at"
                    f" {end}: its end is missing here; restore the broker's folder, or give it a new"
                    " archive"
                )
            if found.position < start:
                _log.error(
                    "messages were deleted before they were archived",
                    log=log, archived=found.position, log_begins=start,
                )  # fmt: skip
        self._past.know(await self._database.firsts([queue for queue, _ in self._store.queues()]))
        self._is_compared = True
        self._kept = dict(kept)
        self._past.positions = {log: found.position for log, found in kept.items()}
        self._past.away = False

    def start(self) -> None:
        """Starts the task that copies."""
        self._task = asyncio.create_task(self._run(), name="archive")

    async def aclose(self) -> None:
        """Cancels the transaction that is under way and ends; the next start repeats it."""
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def caught_up(self) -> None:
        """Returns when all messages that are durable now are archived."""
        wanted = {log: self._store.archivable(log)[1] for log in ARCHIVED_LOGS}
        async with self._moved:
            await self._moved.wait_for(
                lambda: all(self._past.position(log) >= end for log, end in wanted.items())
            )

    async def _run(self) -> None:
        settings = self._settings
        pause_ms = settings.retry_ms_min
        while not self._stopping.is_set():
            try:
                more = await self._turn()
            except (
                ArchivePositionMoved,
                ArchiveUnavailable,
                ArchiveMismatch,
                DataCorrupt,
                FormatTooNew,
                OSError,
            ) as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - the next turn may succeed; the alarm reports it
                _log.exception("archiving failed; the broker tries again")
                self._failed(error)
            else:
                pause_ms = settings.retry_ms_min
                if not more:
                    await self._stops_within(settings.interval_ms)
                continue
            await self._stops_within(pause_ms)
            pause_ms = min(2 * pause_ms, settings.retry_ms_max)

    async def _turn(self) -> bool:
        """Copies one transaction of each log; returns whether more waits."""
        if self._kept is None:
            await self.connect()
        assert self._kept is not None
        more, hindrance = False, ""
        self._backlog.seen(self.waiting_bytes, self._clock.monotonic_ms())
        for kept in list(self._kept.values()):
            start, end = self._store.archivable(kept.log)
            start, end = max(start, kept.position), min(end, self._store.kept_from(kept.log))
            until = None if self._term is None else self._term.sound_until(kept.log, start)
            if until is not None and until < end:
                end, hindrance = until, _damage_sentence(kept.log, until)
            if start < end:
                moved = await self._copy(kept, start, end)
                more = more or end - moved >= self._settings.transaction_bytes
        if hindrance:
            self._backlog.failed(hindrance)
        else:
            self._backlog.worked()
        return more

    async def _copy(self, kept: KeptLog, start: int, end: int) -> int:
        if self._store.is_cold(kept.log, start):
            await asyncio.to_thread(self._store.warm, kept.log, start)
        stretch = self._store.stretch(
            kept.log, start, end, self._settings.transaction_bytes, partial(self._damaged, kept.log)
        )
        rows = LogRows(stretch, partial(self._claim.epochs_below, kept.log))
        await self._database.add(kept, rows)
        assert self._kept is not None
        self._kept[kept.log] = kept._replace(position=rows.end, epochs=rows.epochs)
        self._past.positions[kept.log] = rows.end
        self._past.added(rows.firsts)
        self.messages += rows.messages
        # The messages that still wait were appended later than these.
        age_ms = max(0, self._clock.now_ms() - rows.last_ms)
        self._backlog.archived(self._clock.monotonic_ms() - age_ms)
        async with self._moved:
            self._moved.notify_all()
        return rows.end

    def _damaged(self, log: str, position: int, length: int) -> None:
        """Skips a damaged place, unless another broker may have its messages."""
        if self._term is not None:
            self._term.suspect(log, position, length)
            until = self._term.sound_until(log, position)
            if until is not None and until < position + length:
                raise DataCorrupt(_damage_sentence(log, until))

    def _failed(self, error: Exception) -> None:
        # The outcome is unknown: ask the database before the next transaction.
        self._kept = None
        if not self._backlog.failure:
            _log.warning("archiving is interrupted; the broker tries again", error=str(error))
        self._backlog.failed(str(error))

    async def _stops_within(self, milliseconds: int) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), milliseconds / 1_000)
        except TimeoutError:
            return


def _damage_sentence(log: str, position: int) -> str:
    return (
        f"the log {log!r} is damaged at {position}, and another broker of the group may repair it; the archive goes on then, or"
        " once each broker that is there has no sound copy: start the others, or a new one with an empty folder"
    )


class LogRows:
    """A range of the log as a file for COPY.

    Args:
        stretch: the range of the log.
        epochs_below: returns the log's epochs below a position, as the archive keeps them.

    Attributes:
        firsts: the first offset of each queue in it.
        messages: the number of messages.
        last_ms: when the last message was appended, in ms since 1970.
    """

    def __init__(self, stretch: LogRange, epochs_below: Callable[[int], str]) -> None:
        self._stretch = stretch
        self._epochs_below = epochs_below
        self.firsts: dict[QueueRef, int] = {}
        self.messages = 0
        self.last_ms = 0

    @property
    def end(self) -> int:
        """The log position after the last row; the start of the range until all rows were yielded."""
        return self._stretch.end

    @property
    def epochs(self) -> str:
        """The epochs of the log below `end`."""
        return self._epochs_below(self.end)

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yields the file in pieces; other tasks run in between."""
        parts, size = [COPY_START], 0
        for number, (header, batch) in enumerate(self._stretch.batches()):
            self.firsts.setdefault(header.queue, header.base_offset)
            self.messages += header.count
            self.last_ms = header.appended_at_ms
            for rows in copy_rows(batch, header):
                parts.append(rows)
                size += len(rows)
                if size >= _STEP_BYTES:
                    yield b"".join(parts)
                    parts, size = [], 0
                    await asyncio.sleep(0)
            if number % _STEP_BATCHES == _STEP_BATCHES - 1:
                await asyncio.sleep(0)
        parts.append(COPY_END)
        yield b"".join(parts)
