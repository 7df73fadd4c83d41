"""
What a replica does about a compacted log: it says how far its own is compacted, and collects segments that come as files.

    question: clean end, what is here of a segment ─▶ pieces ─▶ `SegmentCopy`: whole, checked ─▶ the owner puts it in place

Used by `replica`, which owns the store and closes it before a segment is put there.
"""

from headrace_mq._runtime.files import Files
from headrace_mq.broker.replicas.bodies import LogEnd, LogPart
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.frames import Follow
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.replication.compacted_log import SegmentPiece
from headrace_mq.store.replication.segment_copy import SegmentCopy

__all__ = ["CompactedCopy"]


class CompactedCopy:
    """The segment that is being copied, and which tombstones the copied ones have lost.

    Args:
        settings: of the store.
        logs: of the replica.
        files: the file system.
    """

    def __init__(self, settings: StoreSettings, logs: StoreLogs, files: Files) -> None:
        self._settings = settings
        self._logs = logs
        self._files = files
        self._coming: SegmentCopy | None = None
        # The leader's epoch, and the version of its segments that are here; (0, 0): none came in this start.
        self._version = (0, 0)

    def log_end(self, frame: Follow, counted: int) -> LogEnd:
        """Returns the question about one log."""
        if frame.log != COMPACT:
            return LogEnd(frame.log, frame.end, frame.last, counted)
        state = self._logs.store.raw.compacted(COMPACT)
        epoch, version = self._version
        coming = self._coming if epoch == frame.epoch else None
        return LogEnd(
            frame.log, frame.end, frame.last, counted,
            clean=state.clean, forgotten=state.forgotten,
            version=version if epoch == frame.epoch else 0,
            identity=coming.identity if coming else 0, copied=coming.held if coming else 0,
        )  # fmt: skip

    def take(self, part: LogPart, epoch: int) -> SegmentCopy | None:
        """Takes some bytes of a segment; returns the segment once it is whole, checked and durable.

        Raises:
            DataCorrupt: a byte of it is damaged; it is copied again.
            MessageQueueError: the disk is full, or the like; it is copied again.
        """
        self._version = (epoch, part.version)
        piece = SegmentPiece(
            part.base, part.covers, part.identity, part.file_bytes, part.at, part.piece
        )
        coming, self._coming = self._coming, None
        if coming is None or not coming.continues(piece):
            if piece.at:
                return None
            coming = SegmentCopy(self._files, self._settings, part.log, piece)
        coming.take(piece)
        if not coming.is_whole:
            self._coming = coming
            return None
        coming.check()
        return coming

    def forget(self) -> None:
        """Forgets what was copied, because the log begins again, or follows byte by byte."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.drop()
