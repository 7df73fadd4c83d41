"""
Decides from the archive's backlog when to raise an alarm and when to refuse messages. PURE.

Used by the archiver, which reports what it did, and by the broker, which asks before it takes a message.
This module must not know the database or the clock: callers pass in the time.
"""

from headrace_mq.settings import ArchiveSettings

__all__ = ["Backlog"]

_SECOND_MS = 1_000


class Backlog:
    """The messages that are not archived yet, and the alarm and the refusal that follow.

    Args:
        settings: the limits.

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
        """Returns how long the oldest message has waited at least, by the monotonic clock."""
        return 0 if self._behind_since_ms is None else max(0, now_ms - self._behind_since_ms)

    def seen(self, waiting_bytes: int, now_ms: int) -> None:
        """Notes how many bytes wait at `now_ms`."""
        if not waiting_bytes:
            self._behind_since_ms = None
        elif self._behind_since_ms is None:
            self._behind_since_ms = now_ms

    def worked(self) -> None:
        """Notes that the database answered."""
        self.failure = ""

    def archived(self, seen_at_ms: int) -> None:
        """Notes that all messages seen up to `seen_at_ms` are archived."""
        if self._behind_since_ms is not None:
            self._behind_since_ms = max(self._behind_since_ms, seen_at_ms)

    def failed(self, reason: str) -> None:
        """Notes a failed attempt, or why the archive waits; an empty reason: it goes on."""
        self.failure = reason

    def judge(self, waiting_bytes: int, now_ms: int, counted_bytes: int) -> bool:
        """Raises or ends the alarm; returns whether the alarm changed.

        Args:
            waiting_bytes: all that wait, as far as is known.
            now_ms: the time, by the monotonic clock.
            counted_bytes: those of them that count for the limit; see `Archiver.counted_bytes`.
        """
        before, settings = bool(self.alarm), self._settings
        age_ms = self.age_ms(now_ms)
        self.alarm = ""
        if counted_bytes > settings.alarm_bytes or age_ms > settings.alarm_age_ms:
            reason = self.failure or "the database is slower than the producers"
            self.alarm = (
                f"{waiting_bytes} bytes wait for the archive, the oldest for"
                f" {age_ms // _SECOND_MS} s: {reason}"
            )
        return before != bool(self.alarm)

    def refusal(self, counted_bytes: int) -> str:
        """Returns why the broker refuses messages, or an empty text; `counted_bytes` wait."""
        most = self._settings.backlog_bytes_max
        if counted_bytes <= most:
            return ""
        reason = self.failure or "the database is slower than the producers"
        return (
            f"{counted_bytes} bytes wait for the archive, and new messages are refused above {most}:"
            f" {reason}; the broker accepts messages again when fewer wait"
        )
