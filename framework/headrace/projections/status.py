"""
How a projection is doing, for whoever watches it.

Sits between: the runner, which says it, and readiness, tests and logs. Pure.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

__all__ = ["RunnerState", "RunnerStatus"]


class RunnerState(Enum):
    """How a projection is doing."""

    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"
    PAUSED = "paused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerStatus:
    """How a projection is doing, since when, and what went wrong if something did."""

    state: RunnerState
    since: datetime
    error: str | None = None

    @property
    def failed(self) -> bool:
        """Whether it stands still until somebody repairs it."""
        return self.state is RunnerState.FAILED
