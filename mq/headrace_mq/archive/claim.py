"""
Decides whether a database is this broker's archive, and takes it: from then on no earlier leader adds anything.

    archive.json ─(in a group: all in sync have it)─▶ the database knows its name ─▶ archive.json: begun
    each connection ─▶ position, epochs ─▶ the log is the same up to there ─▶ epoch of this broker ─▶ position
                                       └─▶ it never was (messages were lost) ─▶ what is beyond goes to `archived_lost`

Used by `archiver` for each connection; uses `database` and the store's log.
"""

import uuid
from collections.abc import Callable, Mapping

import msgspec

from headrace_mq._runtime.log import get_logger
from headrace_mq.archive.archived_store import ARCHIVED_LOGS, ArchivedStore
from headrace_mq.archive.database import ArchiveMismatch, Database, KeptLog, Lost
from headrace_mq.archive.term import NO_EPOCHS, Term, agreed, decode_epochs, epochs_below
from headrace_mq.store.replication.epochs import EpochHistory

__all__ = ["Claim", "KeptArchive"]

_log = get_logger(__name__)


class KeptArchive(msgspec.Struct, frozen=True):
    """The content of `archive.json`: the name under which this store is archived; a group has one name.

    `begun`: the database knows that name. From then on, a database without it is an error.
    """

    store_id: str
    begun: bool


class Claim:
    """The right of one broker to add to an archive.

    Args:
        database: of the archive.
        store: whose log is archived.
        keep: writes `archive.json`; the file is durable on return.
        term: in which this broker leads its group; None: it has no group.
        tell: gets why the archive waits, or an empty text when it goes on.

    Attributes:
        term: in which this broker leads its group; None: it has no group.
        kept: the content of `archive.json`, or None without that file.
        begun_at: where each log ended when this process began its archive; empty if it was begun before.
    """

    def __init__(
        self,
        database: Database,
        store: ArchivedStore,
        *,
        keep: Callable[[KeptArchive], None],
        term: Term | None,
        tell: Callable[[str], None],
    ) -> None:
        self._database = database
        self._store = store
        self._keep = keep
        self.term = term
        self._tell = tell
        self.kept: KeptArchive | None = None
        self.begun_at: dict[str, int] = {}

    async def __call__(self) -> Mapping[str, KeptLog]:
        """Returns how far each log is archived; begins the archive where there is none.

        Raises:
            ArchiveMismatch: the database cannot be this broker's archive, or a later leader has it; the message says
                what to do.
            ArchivePositionMoved: another broker archived meanwhile; ask again.
            ArchiveUnavailable: the database did not answer.
        """
        await self._database.check()
        found = await self._found()
        mine, shown = self.kept, self._database.shown
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
            found = await self._begin(mine or KeptArchive(uuid.uuid4().hex, begun=False))
        return {log: await self._take(kept) for log, kept in found.items()}

    def epochs_below(self, log: str, position: int) -> str:
        """Returns the epochs of a log below a position, as the archive keeps them."""
        return epochs_below(self.term, log, position)

    async def _found(self) -> dict[str, KeptLog]:
        return {kept.log: kept for kept in await self._database.logs()}

    async def _begin(self, mine: KeptArchive) -> dict[str, KeptLog]:
        """Begins the archive, under a name that no later leader lacks."""
        await self._write(mine)
        for log in ARCHIVED_LOGS:
            start, end = self._store.archivable(log)
            self.begun_at.setdefault(log, end)
            await self._database.begin(log, mine.store_id, start)
        found = await self._found()
        _refuse_others(found, mine, self._database.shown)
        await self._write(KeptArchive(mine.store_id, begun=True))
        return found

    async def _write(self, kept: KeptArchive) -> None:
        self.kept = kept
        self._keep(kept)
        if self.term is not None:
            self._tell(
                "the archive waits until all brokers in sync have its name (metadata/archive.json); look with"
                " `headrace cluster status` for a broker that is away or does not keep up"
            )
            await self.term.confirmed()
            self._tell("")

    async def _take(self, found: KeptLog) -> KeptLog:
        """Gives a log this broker's epoch."""
        term, lost = self.term, None
        if term is None:
            claimed = found._replace(epoch=max(found.epoch, self._store.epoch), epochs=NO_EPOCHS)
        elif found.epoch > term.epoch:
            raise ArchiveMismatch(
                f"a later leader of this group writes to {self._database.shown} (epoch {found.epoch}, here {term.epoch}); this"
                " broker archives nothing more. If no later leader runs, because the group was founded again, give it an archive"
                " in a new database: remove metadata/archive.json from its brokers' folders while they are stopped"
            )
        else:
            position = self._agreed(found, term)
            epochs = self.epochs_below(found.log, position)
            claimed = found._replace(position=position, epoch=term.epoch, epochs=epochs)
            if position < found.position:
                lost = self._lost(found, position)
        if claimed == found:
            return found
        if lost is not None:
            self._tell(
                "messages that this group has lost move to the table archived_lost; that reads the whole archive once, and"
                " archiving goes on then"
            )
        moved = await self._database.claim(found, claimed, lost)
        if lost is not None:
            self._tell("")
            _log.error(
                "the archive had messages that this group has lost; they are in its table archived_lost now",
                log=found.log, from_position=claimed.position, to_position=found.position, rows=moved,
            )  # fmt: skip
        return claimed

    def _agreed(self, found: KeptLog, term: Term) -> int:
        """Returns the position below which the archive has this broker's log."""
        archived, own = self._epochs_of(found), EpochHistory(term.starts(found.log))
        if not found.epoch:
            # Begun where the log began, with nothing in it yet; or last written by a version that kept no epochs.
            return found.position
        if not archived.starts:
            # Written without a group. The broker that founded it gave all its messages one epoch. Where the log's first one is
            # that of this term, the log had no message before, and the archive has none of it.
            archived = EpochHistory(one for one in own.starts[:1] if one[0] < term.epoch)
        begin, end = self._store.archivable(found.log)
        position = agreed(archived, found.position, own, end)
        if position < min(begin, found.position):
            raise ArchiveMismatch(
                f"from log position {position} on {self._database.shown} holds other messages of the log {found.log!r} than this"
                f" broker ever had, and its own begin at {begin}; give the group an archive in a new database: remove"
                " metadata/archive.json from its brokers' folders while they are stopped"
            )
        return position

    def _lost(self, found: KeptLog, position: int) -> Lost:
        own = {queue.topic for queue, log in self._store.queues() if log == found.log}
        others = {queue.topic for queue, log in self._store.queues() if log != found.log}
        return Lost(own, others, self._epochs_of(found).last(position + 1))

    def _epochs_of(self, found: KeptLog) -> EpochHistory:
        try:
            return decode_epochs(found.epochs)
        except ValueError as error:
            raise ArchiveMismatch(
                f"the column `epochs` of {found.log!r} in the table archive_logs of {self._database.shown} is no list of epochs;"
                " restore that table"
            ) from error


def _refuse_others(found: Mapping[str, KeptLog], mine: KeptArchive, shown: str) -> None:
    if any(kept.store_id != mine.store_id for kept in found.values()):
        raise ArchiveMismatch(
            f"{shown} is the archive of another broker's folder; name the database that this one was"
            " archived to, or give it one of its own"
        )
