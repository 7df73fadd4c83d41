"""
Connects the parts of one broker's archive: checks that it belongs to this broker, starts it, describes it.

    open    schema fits -> the database holds this store's archive, or nothing yet -> firsts
            (a leader of a group: in the background, because it serves clients in any case)
    close   copying stops -> open queries are cancelled -> connections close

Used by the broker, which makes an archive if its settings name a database.
"""

from collections.abc import Callable

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.archive.archive_reader import ArchiveReader
from headrace_mq.archive.archived_store import ArchivedStore
from headrace_mq.archive.archiver import Archiver
from headrace_mq.archive.backlog import Backlog
from headrace_mq.archive.claim import Claim, KeptArchive
from headrace_mq.archive.database import Database
from headrace_mq.archive.term import Term
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.protocol.administration import ArchiveDescription
from headrace_mq.settings import ArchiveSettings, StoreSettings
from headrace_mq.store.log.commit_gate import CommitGate
from headrace_mq.store.retention.retention import beyond_window

__all__ = ["Archive"]

_log = get_logger(__name__)


class Archive:
    """The archive of one broker.

    Args:
        settings: of the archive.
        store_settings: of the log.
        clock: the broker's clock.
        keep: writes `archive.json`; the file is durable on return.
        term: in which the broker leads its group; None: it has no group.

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
        term: Term | None = None,
    ) -> None:
        self._settings = settings
        self._store_settings = store_settings
        self._clock = clock
        self._keep = keep
        self._term = term
        self._database = Database(
            settings.url,
            connect_ms=settings.connect_timeout_ms,
            statement_ms=settings.statement_timeout_ms,
        )
        self._past = ArchiveReader(self._database, settings)
        self._backlog = Backlog(settings)
        self._claim: Claim
        self.archiver: Archiver

    def store(
        self,
        *,
        epoch: Callable[[], int],
        clock: Clock,
        files: Files,
        gate: CommitGate | None = None,
    ) -> ArchivedStore:
        """Makes the store that readers of the archive use; see `MessageStore`. Call it once."""
        store = ArchivedStore(
            self._store_settings, past=self._past, epoch=epoch, clock=clock, files=files, gate=gate
        )
        self._store = store
        self._claim = Claim(
            self._database, store, keep=self._keep, term=self._term, tell=self._backlog.failed
        )
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
        the log until the database is back. A leader of a group does so with any database: its status says what
        is wrong with it.

        Args:
            kept: the content of `archive.json`, or None without that file.

        Raises:
            ArchiveMismatch: the database cannot be this broker's archive; the message says what to do.
            ArchiveUnavailable: the database does not answer and has never been this broker's archive.
        """
        self._claim.kept = kept
        if self._term is not None:
            self.archiver.start()
            return
        try:
            await self.archiver.connect()
        except ArchiveUnavailable as error:
            if kept is None or not kept.begun:
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
        return self._backlog.refusal(self.archiver.counted_bytes)

    def look(self) -> None:
        """Raises or ends the alarm about a late archive."""
        waiting, now_ms = self.archiver.waiting_bytes, self._clock.monotonic_ms()
        self._backlog.seen(waiting, now_ms)
        if not self._backlog.judge(waiting, now_ms, self.archiver.counted_bytes):
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
