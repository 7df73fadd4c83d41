"""
Connects the parts of one broker's archive: checks that it belongs to this broker, starts it, describes it.

    open    schema fits -> the database holds this store's archive, or nothing yet -> firsts
    close   copying stops -> open queries are cancelled -> connections close

Used by the broker, which makes an archive if its settings name a database.
"""

import uuid
from collections.abc import Callable, Mapping

import msgspec

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.archive.archive_reader import ArchiveReader
from headrace_mq.archive.archived_store import ARCHIVED_LOGS, ArchivedStore
from headrace_mq.archive.archiver import Archiver
from headrace_mq.archive.backlog import Backlog
from headrace_mq.archive.database import ArchiveMismatch, Database, KeptLog
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.protocol.administration import ArchiveDescription
from headrace_mq.settings import ArchiveSettings, StoreSettings
from headrace_mq.store.retention.retention import beyond_window

__all__ = ["Archive", "KeptArchive"]

_log = get_logger(__name__)


class KeptArchive(msgspec.Struct, frozen=True):
    """The content of `archive.json`: the name under which this store is archived.

    `begun`: the database knows that name. From then on, a database without it is an error.
    """

    store_id: str
    begun: bool


class Archive:
    """The archive of one broker.

    Args:
        settings: of the archive.
        store_settings: of the log.
        clock: the broker's clock.
        keep: writes `archive.json`; the file is durable on return.

    Attributes:
        archiver: copies the log into the database.
    """

    def __init__(
        self,
        settings: ArchiveSettings,
        store_settings: StoreSettings,
        *,
        clock: Clock,
        keep: Callable[[KeptArchive], None],
    ) -> None:
        self._settings = settings
        self._store_settings = store_settings
        self._clock = clock
        self._kept: KeptArchive | None = None
        self._keep = keep
        self._database = Database(
            settings.url,
            connect_ms=settings.connect_timeout_ms,
            statement_ms=settings.statement_timeout_ms,
        )
        self._past = ArchiveReader(self._database, settings)
        self._backlog = Backlog(settings)
        self.archiver: Archiver

    def store(self, *, epoch: Callable[[], int], clock: Clock, files: Files) -> ArchivedStore:
        """Makes the store that readers of the archive use. Call it once."""
        store = ArchivedStore(
            self._store_settings, past=self._past, epoch=epoch, clock=clock, files=files
        )
        self._store = store
        self.archiver = Archiver(
            store,
            self._database,
            self._past,
            backlog=self._backlog,
            settings=self._settings,
            clock=self._clock,
            claim=self._claim,
        )
        return store

    async def open(self, kept: KeptArchive | None) -> None:
        """Checks the database and starts to copy. Call it when the store is open.

        If a known database does not answer, the broker starts all the same: it keeps its messages in
        the log until the database is back.

        Args:
            kept: the content of `archive.json`, or None without that file.

        Raises:
            ArchiveMismatch: the database cannot be this broker's archive; the message says what to do.
            ArchiveUnavailable: the database does not answer and has never been this broker's archive.
        """
        self._kept = kept
        try:
            await self.archiver.connect()
        except ArchiveUnavailable as error:
            if self._kept is None or not self._kept.begun:
                raise
            _log.warning(
                "the archive's database does not answer; messages stay in the log until it does",
                error=str(error),
            )
            self._backlog.failed(str(error))
        self.archiver.start()

    async def aclose(self) -> None:
        """Stops copying and closes every connection; messages not archived yet stay in the log."""
        await self.archiver.aclose()
        await self._past.aclose()
        await self._database.aclose()

    @property
    def refusal(self) -> str:
        """Why the broker refuses messages, or an empty text."""
        return self._backlog.refusal(self.archiver.waiting_bytes)

    def look(self) -> None:
        """Raises or ends the alarm about a late archive."""
        waiting, now_ms = self.archiver.waiting_bytes, self._clock.monotonic_ms()
        self._backlog.seen(waiting, now_ms)
        if not self._backlog.judge(waiting, now_ms):
            return
        if self._backlog.alarm:
            _log.error("the archive is far behind", reason=self._backlog.alarm)
        else:
            _log.info("the archive has caught up", waiting_bytes=waiting)

    def position(self, log: str) -> int:
        """The position below which a log is archived; everything above it must stay in the log."""
        return self._past.position(log)

    def beyond_window(self, log: str) -> int:
        """The position below which segments of a log may be deleted, because they are archived."""
        return beyond_window(
            self._store.segments(log),
            self.position(log),
            window_bytes=self._settings.window_bytes,
            segments_max=self._store_settings.segments_deleted_max,
        )

    def describe(self) -> ArchiveDescription:
        """Returns the state that an administrator sees."""
        now_ms, waiting = self._clock.monotonic_ms(), self.archiver.waiting_bytes
        return ArchiveDescription(
            database=self._database.shown,
            messages=self.archiver.messages,
            waiting_bytes=waiting,
            waiting_ms=self._backlog.age_ms(now_ms),
            alarm=self._backlog.alarm,
            failure=self._backlog.failure,
            blocks_read=self._past.blocks.blocks_read,
        )

    async def _claim(self) -> Mapping[str, KeptLog]:
        """Returns how far each log is archived; begins the archive where there is none."""
        await self._database.check()
        found = {kept.log: kept for kept in await self._database.logs()}
        mine, shown = self._kept, self._database.shown
        if mine is None and found:
            raise ArchiveMismatch(
                f"{shown} is the archive of another broker's folder; give this one a database of its"
                " own (or, if its file metadata/archive.json was lost, put that back)"
            )
        if mine is not None:
            _refuse_others(found, mine, shown)
        if mine is not None and mine.begun and not found:
            raise ArchiveMismatch(
                f"{shown} holds no archive, but this broker's messages were archived before; name"
                " that database or restore it (or remove metadata/archive.json to begin a new archive"
                " with what the log still holds)"
            )
        if mine is None or not mine.begun:
            mine = self._kept = mine or KeptArchive(uuid.uuid4().hex, begun=False)
            self._keep(mine)
            for log in ARCHIVED_LOGS:
                await self._database.begin(log, mine.store_id, self._store.archivable(log)[0])
            found = {kept.log: kept for kept in await self._database.logs()}
            _refuse_others(found, mine, shown)
            mine = self._kept = KeptArchive(mine.store_id, begun=True)
            self._keep(mine)
        return found


def _refuse_others(found: Mapping[str, KeptLog], mine: KeptArchive, shown: str) -> None:
    if any(kept.store_id != mine.store_id for kept in found.values()):
        raise ArchiveMismatch(
            f"{shown} is the archive of another broker's folder; name the database that this one was"
            " archived to, or give it one of its own"
        )
