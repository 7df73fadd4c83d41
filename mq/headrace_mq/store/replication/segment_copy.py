"""
Takes over a compacted segment of a leader as a file: collects its bytes, checks them, and puts the file in place.

    pieces ─▶ NAME.log.new ─▶ checked whole, sync ─▶ (the store is closed) rename to NAME.log, sync the directory

A crash before the rename leaves a `.new` file, which the next start removes; after it, the log ends behind the segment.
The log must end where the segment begins: so there is nothing that it replaces.

Used by the owner of a store with replicas, which closes the store before `install` and opens it after. It knows no network.
"""

from contextlib import suppress
from pathlib import Path

from headrace_mq._runtime.files import Files, write_all
from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.settings import StoreSettings
from headrace_mq.store.index.segment_index import INDEX_SUFFIX
from headrace_mq.store.keys.key_file import KEYS_SUFFIX
from headrace_mq.store.log.clean_end import LOCK_NAME
from headrace_mq.store.replication.compacted_log import SegmentPiece
from headrace_mq.store.segment.log_walk import Gap, LogWalk
from headrace_mq.store.segment.segment import UNFINISHED_SUFFIX, Segment, SyncFailed, segment_name

__all__ = ["SegmentCopy"]


class SegmentCopy:
    """The file of one compacted segment, as far as it came.

    Args:
        files: the file system.
        settings: of the store.
        log: the name of its log.
        first: the first piece.

    Raises:
        MessageQueueError: the file cannot be made.

    Attributes:
        base: log position at which the segment begins.
        covers: log position at which the next one begins.
        identity: of the leader's file.
        held: how many bytes of it are here.
    """

    def __init__(
        self, files: Files, settings: StoreSettings, log: str, first: SegmentPiece
    ) -> None:
        self._files = files
        self._settings = settings
        self._log = log
        self._folder = settings.directory / log
        self._path = self._folder / segment_name(first.base)
        self._unfinished = self._path.with_suffix(UNFINISHED_SUFFIX)
        self._size = first.size
        self.base, self.covers, self.identity = first.base, first.covers, first.identity
        self.held = 0

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are here."""
        return self.held == self._size

    def continues(self, piece: SegmentPiece) -> bool:
        """Whether a piece is of this file, and comes next."""
        return (piece.base, piece.identity, piece.at) == (self.base, self.identity, self.held)

    def take(self, piece: SegmentPiece) -> None:
        """Writes the next piece.

        Raises:
            MessageQueueError: the disk is full, or the like; begin again.
        """
        try:
            fd = self._files.open(self._unfinished, create=not self.held)
            try:
                write_all(self._files, fd, self.held, [piece.data])
            finally:
                self._files.close(fd)
        except OSError as error:
            raise MessageQueueError(
                f"{self._unfinished} cannot be written: {error}; make room on the disk"
            ) from error
        self.held += len(piece.data)

    def check(self) -> None:
        """Checks every byte of the whole file, and makes it durable.

        Raises:
            DataCorrupt: a byte is damaged; copy it again.
            FormatTooNew: a newer version wrote it.
            MessageQueueError: the disk fails.
        """
        try:
            segment = Segment.open(self._files, self._unfinished, log=self._log, file_bytes=0)
            try:
                self._check(segment)
                segment.sync()
            finally:
                segment.close()
        except (OSError, SyncFailed) as error:
            raise MessageQueueError(
                f"{self._unfinished} cannot be read: {error}; check the disk"
            ) from error

    def _check(self, segment: Segment) -> None:
        compacted = segment.compacted
        flaw = segment.header_damage
        if compacted is None or compacted.covers != self.covers:
            flaw = flaw or "it is another segment"
        elif compacted.end != segment.held_end:
            flaw = "its length is wrong"
        else:
            walk = LogWalk(segment, compacted.end)
            gap = next((entry for entry in walk.entries() if isinstance(entry, Gap)), None)
            if gap is not None:
                flaw = f"it is damaged at log position {gap.start}"
        if flaw is not None:
            raise DataCorrupt(f"the leader's segment {self._path.name} cannot be used: {flaw}")

    def install(self) -> None:
        """Puts the checked file in place; durable on return. The store must be closed, and end at `base`.

        Raises:
            MessageQueueError: a broker uses the directory, or the disk fails; begin again.
        """
        lock = self._files.open(self._settings.directory / LOCK_NAME, create=True)
        try:
            if not self._files.lock(lock):
                raise MessageQueueError(
                    f"a broker uses {self._settings.directory}; stop it before a segment is put there"
                )
            # An empty segment may be there, with files that are made from it.
            for suffix in (INDEX_SUFFIX, KEYS_SUFFIX):
                self._remove(self._path.with_suffix(suffix))
            self._files.rename(self._unfinished, self._path)
            self._files.sync_directory(self._folder)
        except OSError as error:
            raise MessageQueueError(
                f"{self._path} cannot be made: {error}; check the disk and try again"
            ) from error
        finally:
            self._files.close(lock)

    def drop(self) -> None:
        """Removes what came, as far as the disk lets it; the next start removes the rest."""
        with suppress(OSError):
            self._remove(self._unfinished)

    def _remove(self, path: Path) -> None:
        if self._files.exists(path):
            self._files.remove(path)
