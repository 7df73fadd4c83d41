"""
What a command service did since it began: outcomes, conflicts, and how long its parts took.

Counted as the work is done, with an addition each; durations are measured only where `measure` was called. Used by
the parts of a processor, and by the metrics, which read it.
"""

from collections import Counter
from collections.abc import Callable
from typing import Protocol

__all__ = ["CommandWork", "Durations"]


class Durations(Protocol):
    """Takes durations; a histogram."""

    def add(self, seconds: float) -> None:
        """Counts a duration."""
        ...


class CommandWork:
    """The work of one command service.

    Attributes:
        outcomes: how many commands were answered, by the status of their result; a repeated command counts again.
        conflicts: how often a command ran again because its aggregate was changed by others.
        commits: how long appends to the event store took; None: they are not measured.
        handlers: how long handlers took, by the name of their command; None likewise.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.conflicts = 0
        self.commits: Durations | None = None
        self.handlers: dict[str, Durations] | None = None
        self._new: Callable[[], Durations] | None = None

    def measure(self, new: Callable[[], Durations]) -> None:
        """Measures durations from now on, in what `new` returns."""
        self._new = new
        self.commits = new()
        self.handlers = {}

    def handled(self, name: str, seconds: float) -> None:
        """Counts a run of a handler; there are as many names as commands are registered."""
        if self.handlers is None or self._new is None:
            return
        durations = self.handlers.get(name)
        if durations is None:
            durations = self.handlers[name] = self._new()
        durations.add(seconds)
