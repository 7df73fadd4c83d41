"""
How full the disk is, whether new messages are taken because of it, and how long there is room.

Above one share of the disk messages are refused, so that what is left serves those who read,
commit and restart; above a lower share consumed messages are deleted before their age. A directory
that was moved away, or whose disk takes no writes, refuses messages as a full one does.

A timer of the broker looks at the disk; `handlers.produce` asks before it appends. This module knows
nothing of messages.
"""

import errno
import math
import os
from collections import deque
from pathlib import Path
from typing import Protocol

from headrace_mq._runtime.log import get_logger

__all__ = ["FORECAST_MS_MIN", "Disk", "DiskForecast", "SystemDisk", "Watermarks"]

_log = get_logger(__name__)

_PERCENT = 100
# A full day, because traffic has its hours.
_WINDOW_MS = 24 * 3_600_000
# One note in this time is kept: some 300 of them.
_NOTE_EVERY_MS = 300_000
# What filled the disk during less than this may be a single large batch.
FORECAST_MS_MIN = 600_000
_DAY_MS = 86_400_000


class Disk(Protocol):
    """Tells how full a disk is; tests pass one that they fill."""

    def used_percent(self, directory: Path) -> float:
        """The share in use of the file system that holds `directory`.

        Raises:
            OSError: the directory is not there, or cannot be written to.
        """
        ...


class SystemDisk:
    """The machine's own disks; a directory is the one that stood there when it was first asked for."""

    def __init__(self) -> None:
        self._first: dict[Path, tuple[int, int]] = {}

    def used_percent(self, directory: Path) -> float:
        """The share in use as `df` shows it: of what this user may use, not of what is there.

        Raises:
            OSError: the directory is not there, or cannot be written to.
        """
        found = os.statvfs(directory)
        if found.f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(directory))
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
        there = directory.stat()
        identity = (there.st_dev, there.st_ino)
        if self._first.setdefault(directory, identity) != identity:
            raise FileNotFoundError(
                errno.ENOENT, "another directory took its place", str(directory)
            )
        used = found.f_blocks - found.f_bfree
        usable = used + found.f_bavail
        return _PERCENT * used / usable if usable else float(_PERCENT)


class Watermarks:
    """The two shares of one directory's disk, and on which side of them it is.

    Args:
        disk: tells how full it is.
        directory: whose disk.
        refuse_percent: above it new messages are refused; 100 never refuses.
        delete_percent: above it consumed messages go early; 100 never deletes early.
        look_ms: time between two looks, for the sentence that says when to expect a change.
        closed: why messages are refused however full the disk is, if they are.

    Attributes:
        refusal: why new messages are refused, or None.
        early: whether consumed messages are deleted before their age.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        refuse_percent: int,
        delete_percent: int,
        look_ms: int,
        closed: str | None = None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._refuse_percent = refuse_percent
        self._delete_percent = delete_percent
        self._look_ms = look_ms
        self._closed = closed
        self.refusal = closed
        self._unusable = False
        self.early = False

    @property
    def is_closed(self) -> bool:
        """Whether nothing at all may be written, because the disk took no writes at the start."""
        return self._closed is not None

    def look(self) -> None:
        """Looks at the disk; while its directory cannot be used, messages are refused."""
        if self._closed is not None:
            return
        try:
            used = self._disk.used_percent(self._directory)
        except OSError as error:
            if not self._unusable:
                _log.error(
                    "the data directory cannot be used; messages are refused until it can",
                    error=str(error),
                )
            self._unusable = True
            self.refusal = (
                f"the data directory {self._directory} cannot be used ({error}), and new messages are"
                " refused; bring it back with what it held: sending goes on by itself within"
                f" {self._look_ms} ms"
            )
            return
        self._unusable = False
        refused, self.early = self.refusal is not None, used > self._delete_percent
        if used <= self._refuse_percent:
            self.refusal = None
        else:
            self.refusal = (
                f"the disk of {self._directory} is {used:.1f} % full, and new messages are refused"
                f" above {self._refuse_percent} %; make room: sending goes on by itself within"
                f" {self._look_ms} ms"
            )
        if refused != (self.refusal is not None):
            self._tell(used)

    def _tell(self, used: float) -> None:
        fields = {"directory": str(self._directory), "used_percent": round(used, 1)}
        if self.refusal is None:
            _log.info("the disk has room again; messages are accepted", **fields)
        else:
            _log.error(
                "the disk is nearly full; messages are refused until you free some space",
                refuse_percent=self._refuse_percent,
                **fields,
            )


class DiskForecast:
    """The room on a disk, over a day."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, int]] = deque()

    def days_left(self, now_ms: int, room_bytes: int) -> float | None:
        """Notes the room of this moment; returns how many days it lasts.

        Infinity where the room does not shrink; None as long as too little is known.
        """
        while len(self._notes) > 1 and self._notes[1][0] <= now_ms - _WINDOW_MS:
            self._notes.popleft()
        if not self._notes or now_ms - self._notes[-1][0] >= _NOTE_EVERY_MS:
            self._notes.append((now_ms, room_bytes))
        since_ms, before = self._notes[0]
        passed_ms = now_ms - since_ms
        if room_bytes <= 0:
            return 0.0
        if passed_ms < FORECAST_MS_MIN:
            return None
        lost = before - room_bytes
        return math.inf if lost <= 0 else room_bytes * passed_ms / lost / _DAY_MS
