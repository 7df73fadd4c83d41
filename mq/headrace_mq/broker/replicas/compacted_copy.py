"""
What a replica does about a compacted log: it says how far its own is compacted, and collects segments that come as files.

    question: clean end, what is here of a segment ─▶ pieces ─▶ `SegmentCopy`: whole, checked ─▶ the owner puts it in place

Used by `replica`, which owns the store and closes it before a segment is put there.
"""

from typing import NamedTuple

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files
from headrace_mq.broker.replicas.bodies import LogEnd, LogPart
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.frames import Follow
from headrace_mq.errors import DataCorrupt
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.replication.compacted_log import SegmentPiece
from headrace_mq.store.replication.segment_copy import SegmentCopy

__all__ = ["REFUSED_MS_MAX", "REFUSED_MS_MIN", "CompactedCopy"]

# A segment that came damaged is copied again after this, twice as late each time: mostly it is damaged at the leader, and
# its bytes would only fill the network.
REFUSED_MS_MIN = 10_000
REFUSED_MS_MAX = 300_000


class _Refused(NamedTuple):
    """A leader's file that came damaged: as long as it stands there, it is asked for as if all of it were here."""

    epoch: int
    base: int
    identity: int
    size: int
    wait_ms: int
    until_ms: int


class CompactedCopy:
    """The segment that is being copied, and which tombstones the copied ones have lost.

    Args:
        settings: of the store.
        logs: of the replica.
        files: the file system.
        clock: the time.
    """

    def __init__(
        self, settings: StoreSettings, logs: StoreLogs, files: Files, clock: Clock
    ) -> None:
        self._settings = settings
        self._logs = logs
        self._files = files
        self._clock = clock
        self._coming: SegmentCopy | None = None
        self._refused: _Refused | None = None
        # The leader's epoch, and the version of its segments that are here; (0, 0): none came in this start.
        self._version = (0, 0)

    def log_end(self, frame: Follow, counted: int) -> LogEnd:
        """Returns the question about one log."""
        if frame.log != COMPACT:
            return LogEnd(frame.log, frame.end, frame.last, counted)
        state = self._logs.store.raw.compacted(COMPACT)
        epoch, version = self._version
        coming = self._coming if epoch == frame.epoch else None
        identity, copied = (coming.identity, coming.held) if coming else (0, 0)
        refused = self._refused
        is_there = refused is not None and refused[:2] == (frame.epoch, frame.end)
        if coming is None and refused is not None and is_there and self.is_held_off:
            identity, copied = refused.identity, refused.size
        return LogEnd(
            frame.log, frame.end, frame.last, counted,
            clean=state.clean, forgotten=state.forgotten,
            version=version if epoch == frame.epoch else 0,
            identity=identity, copied=copied,
        )  # fmt: skip

    @property
    def is_held_off(self) -> bool:
        """Whether a segment that came damaged is not copied again yet."""
        return self._refused is not None and self._clock.monotonic_ms() < self._refused.until_ms

    def take(self, part: LogPart, epoch: int) -> SegmentCopy | None:
        """Takes some bytes of a segment; returns the segment once it is whole, checked and durable.

        Raises:
            DataCorrupt: a byte of it is damaged; it is copied again later.
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
        try:
            coming.check()
        except DataCorrupt:
            coming.drop()
            self._refuse(coming, epoch)
            raise
        self._refused = None
        return coming

    def _refuse(self, came: SegmentCopy, epoch: int) -> None:
        wait_ms, last = REFUSED_MS_MIN, self._refused
        if last is not None and last[:3] == (epoch, came.base, came.identity):
            wait_ms = min(2 * last.wait_ms, REFUSED_MS_MAX)
        until_ms = self._clock.monotonic_ms() + wait_ms
        self._refused = _Refused(epoch, came.base, came.identity, came.held, wait_ms, until_ms)

    def forget(self) -> None:
        """Forgets what was copied, because the log begins again, or follows byte by byte."""
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.drop()
