"""
How a reader is doing, for those who watch it.

Sits between: the reader, which says it, and readiness, tests and logs. Pure.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

__all__ = ["ReaderState", "ReaderStatus"]


class ReaderState(Enum):
    """How a reader is doing."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    PAUSED = "paused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderStatus:
    """How a reader is doing, since when, and what went wrong if something did."""

    state: ReaderState
    since: datetime
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether it stands still until somebody repairs it."""
        return self.state is ReaderState.FAILED
