"""
Aggregates whose later commands are held behind one that was parked.

A copy in memory of what the stored letters say; it must be as new as the queue that brings the
commands. Used by the workers, which ask for every command, and by `parked`. Pure.
"""

from dataclasses import dataclass

__all__ = ["Hold", "Holds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why an aggregate is held: the command that could not be handled, and what was wrong."""

    command_id: str
    error: str
    sentence: str


class Holds:
    """Remembers which aggregates are held; at most as many as there may be letters.

    Attributes:
        enabled: whether anything is held at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self._held: dict[str, Hold] = {}

    def hold(self, aggregate_id: str, hold: Hold) -> None:
        """Begins a hold; one that is there already gets its newest reason."""
        if self.enabled:
            self._held[aggregate_id] = hold

    def find(self, aggregate_id: str) -> Hold | None:
        """Returns what an aggregate is held by, or None."""
        return self._held.get(aggregate_id)

    def release(self, aggregate_id: str) -> None:
        """Ends a hold, if there is one."""
        self._held.pop(aggregate_id, None)

    def clear(self) -> None:
        """Forgets every hold, before all are read again."""
        self._held.clear()
