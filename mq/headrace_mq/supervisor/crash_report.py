"""
Crash reports: one text file about each unwanted end of the broker.

Used by `supervisor`, which knows why the broker ended.
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace_mq._runtime.files import SystemFiles, write_all

__all__ = ["CrashReport", "how_it_ended", "keep"]

_NAMES = "crash-*.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """One end.

    Attributes:
        reason: why, in a sentence of the supervisor's.
        status: the exit status, or the negative number of the signal.
        ended_at_ms: since 1970 UTC.
        ran_ms: from start to end.
        command: what was run.
        versions: of what ran, by name.
        last_lines: the end of its standard error; after an abort that holds all stacks.
    """

    reason: str
    status: int
    ended_at_ms: int
    ran_ms: int
    command: tuple[str, ...]
    versions: Mapping[str, str]
    last_lines: str

    @property
    def name(self) -> str:
        """The file's name, by the time in UTC: the order of names is the order of time."""
        return f"crash-{_when(self.ended_at_ms):%Y%m%dT%H%M%S.%fZ}.txt"

    def text(self) -> str:
        """The report as people read it."""
        facts = {
            "reason": self.reason,
            "ended": how_it_ended(self.status),
            "when": _when(self.ended_at_ms).isoformat(timespec="milliseconds"),
            "ran for": str(timedelta(milliseconds=self.ran_ms)),
            "command": " ".join(self.command),
            **self.versions,
        }
        head = "".join(f"{name}: {value}\n" for name, value in facts.items())
        return f"{head}\nlast lines of its standard error:\n\n{self.last_lines}"


def how_it_ended(status: int) -> str:
    """`exit status 1`, or `signal SIGKILL`."""
    if status >= 0:
        return f"exit status {status}"
    known = {int(one): one.name for one in signal.Signals}
    return f"signal {known.get(-status, -status)}"


def keep(report: CrashReport, directory: Path, *, reports_max: int) -> Path:
    """Writes a report so that it is there whole or not at all, and removes the oldest ones.

    Args:
        report: what to write.
        directory: made if it is missing.
        reports_max: how many files stay, this one included.

    Raises:
        OSError: it could not be written.
    """
    files = SystemFiles()
    for folder in reversed([each for each in (directory, *directory.parents) if not each.exists()]):
        files.make_directory(folder)
    path = directory / report.name
    unfinished = path.with_suffix(".tmp")
    fd = files.open(unfinished, create=True)
    try:
        write_all(files, fd, 0, [report.text().encode()])
        files.sync(fd)
    finally:
        files.close(fd)
    unfinished.replace(path)
    for old in sorted(directory.glob(_NAMES))[:-reports_max]:
        old.unlink(missing_ok=True)
    return path


def _when(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)
