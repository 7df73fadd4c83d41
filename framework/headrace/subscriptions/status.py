"""
The state of a reader.

Used by readers, which report it, and by readiness checks, alarms and tests. Pure.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

__all__ = ["ReaderState", "ReaderStatus"]


class ReaderState(Enum):
    """What a reader does at the moment."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    PAUSED = "paused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderStatus:
    """A reader's state, since when it has it, and the last error if there is one."""

    state: ReaderState
    since: datetime
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the reader has stopped and needs a repair."""
        return self.state is ReaderState.FAILED
