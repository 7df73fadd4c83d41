"""
Says how far the archive is behind, when that is an alarm, and when the broker refuses messages. PURE.

Used by the archiver, which reports what it did, and by the broker, which asks before it takes a message.
This module must never know the database or the clock: callers pass in the time.
"""

from headrace_mq.settings import ArchiveSettings

__all__ = ["Backlog"]

_SECOND_MS = 1_000


class Backlog:
    """What is not archived yet, and what follows from it.

    Args:
        settings: the bounds.

    Attributes:
        failure: why the last attempt failed, or empty.
        alarm: why an operator should look, or empty.
    """

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        self._behind_since_ms: int | None = None
        self.failure = ""
        self.alarm = ""

    def age_ms(self, now_ms: int) -> int:
        """For how long, at least, the oldest message has waited, on a clock that cannot be set."""
        return 0 if self._behind_since_ms is None else max(0, now_ms - self._behind_since_ms)

    def seen(self, waiting_bytes: int, now_ms: int) -> None:
        """Takes note of how much waits; `now_ms` is when that was looked at."""
        if not waiting_bytes:
            self._behind_since_ms = None
        elif self._behind_since_ms is None:
            self._behind_since_ms = now_ms

    def worked(self) -> None:
        """Takes note that the database answered."""
        self.failure = ""

    def archived(self, seen_at_ms: int) -> None:
        """Takes note that all was archived that had been there at a time."""
        if self._behind_since_ms is not None:
            self._behind_since_ms = max(self._behind_since_ms, seen_at_ms)

    def failed(self, reason: str) -> None:
        """Takes note of a failed attempt."""
        self.failure = reason

    def judge(self, waiting_bytes: int, now_ms: int) -> bool:
        """Raises or ends the alarm; returns whether that changed."""
        before, settings = bool(self.alarm), self._settings
        age_ms = self.age_ms(now_ms)
        self.alarm = ""
        if waiting_bytes > settings.alarm_bytes or age_ms > settings.alarm_age_ms:
            reason = self.failure or "the database is slower than the producers"
            self.alarm = (
                f"{waiting_bytes} bytes wait for the archive, the oldest for"
                f" {age_ms // _SECOND_MS} s: {reason}"
            )
        return before != bool(self.alarm)

    def refusal(self, waiting_bytes: int) -> str:
        """Why no more messages are taken, or an empty text."""
        most = self._settings.backlog_bytes_max
        if waiting_bytes <= most:
            return ""
        reason = self.failure or "the database is slower than the producers"
        return (
            f"{waiting_bytes} bytes wait for the archive, and new messages are refused above {most}:"
            f" {reason}; sending goes on by itself when less waits"
        )
