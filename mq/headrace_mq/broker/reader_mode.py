"""
A broker on a disk that takes no writes: it starts for readers, and again for all when there is room.

    start ──"no space left", "read-only"──▶ start once more over an `Overlay` ──▶ serves readers
                                                      ▲                                │ the disk takes
                                                      └── still no room ── start ◀─────┘ writes again

What the start would have written stays in memory, and new messages are refused, so nothing is promised
that a crash takes back. Once the disk takes writes the broker stops and starts as ever, at the same
address: what it does for good it does by the ordinary start.

Used by `server`; uses the files and the disk.
"""

import errno
from pathlib import Path
from typing import Final

from headrace_mq._runtime.files import Files, write_all
from headrace_mq._runtime.log import get_logger
from headrace_mq._runtime.overlay import Overlay
from headrace_mq.broker.metadata import METADATA_FOLDER, broker_file
from headrace_mq.broker.topics.disk import Disk
from headrace_mq.store.segment.segment import SyncFailed

__all__ = ["ROOM_BYTES", "ReaderMode", "refusal_of"]

# An ordinary start needs room for its metadata once more, and so much for what it adds to indexes.
ROOM_BYTES: Final = 1 << 20
_PROBE_NAME = "room.new"

# A user without rights on the directory made a mistake, and gets an error.
_REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

_log = get_logger(__name__)


def refusal_of(error: BaseException) -> OSError | None:
    """What a disk said that takes no writes, where that is why a start failed."""
    cause: BaseException | None = error
    refusal = None
    while cause is not None:
        if isinstance(cause, SyncFailed):
            # The kernel may have dropped what was to be synced: what the disk holds is unknown.
            return None
        if refusal is None and isinstance(cause, OSError) and cause.errno in _REFUSALS:
            refusal = cause
        cause = cause.__cause__ or cause.__context__
    return refusal


class ReaderMode:
    """What is different while a broker serves readers only.

    Args:
        directory: the broker's; a store that was started before.
        disk: tells whether the directory is the one that it was.
        files: the disk's own.
        refusal: what the disk said.
        look_ms: how often the broker looks whether there is room.

    Attributes:
        files: what the broker uses meanwhile.
        sentence: why new messages are refused.
    """

    def __init__(
        self, directory: Path, *, disk: Disk, files: Files, refusal: OSError, look_ms: int
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._files = files
        self.files = Overlay(files, refusal)
        cure = "mount it for writing" if refusal.errno == errno.EROFS else "make room on it"
        self.sentence = (
            f"the disk of {directory} took no writes when the broker started ({refusal.strerror}), so it"
            f" serves readers only, and new messages are refused; {cure}: the broker then starts again"
            f" by itself and takes them, within {look_ms} ms"
        )
        _log.error(
            "the broker serves only readers until the disk takes writes", reason=self.sentence
        )

    @staticmethod
    def is_for(directory: Path, files: Files) -> bool:
        """Whether a broker has started on a directory before: else there is nothing to read."""
        return files.exists(broker_file(directory, files).path)

    def has_room(self) -> bool:
        """Whether an ordinary start would find room now; waits for the disk."""
        try:
            # An empty place where the disk was mounted is not the broker's directory.
            self._disk.used_percent(self._directory)
            self._write(ROOM_BYTES + self._metadata_bytes())
        except OSError:
            return False
        return True

    def _metadata_bytes(self) -> int:
        folder, size = self._directory / METADATA_FOLDER, 0
        for name in self._files.names(folder):
            fd = self._files.open(folder / name)
            size += self._files.size(fd)
            self._files.close(fd)
        return size

    def _write(self, length: int) -> None:
        probe = self._directory / _PROBE_NAME
        fd = self._files.open(probe, create=True)
        try:
            self._files.allocate(fd, length)
            write_all(self._files, fd, 0, [b"room"])
            self._files.sync(fd)
        finally:
            self._files.close(fd)
            self._files.remove(probe)
