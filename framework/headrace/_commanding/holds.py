"""
Aggregates whose later commands are parked behind one that was: an order that is kept by refusing.

Held in memory on purpose: a hold ends when the service starts again, with repaired code, or when
another process takes the aggregate's queue over. Sits between: the lanes and a dictionary. Pure.
"""

__all__ = ["Holds"]

# Aggregates held at a time, at about 200 bytes each; more of them are a broken release, not a few
# broken commands. The oldest hold makes way.
HOLDS_MAX = 10_000


class Holds:
    """Remembers which aggregates are held.

    Attributes:
        enabled: whether anything is held at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        # Oldest first; by aggregate the parked command that the others stand behind.
        self._held: dict[str, str] = {}

    def hold(self, aggregate_id: str, command_id: str) -> None:
        """Begins a hold, unless the aggregate is held already."""
        if self.enabled:
            self._held.setdefault(aggregate_id, command_id)
            if len(self._held) > HOLDS_MAX:
                del self._held[next(iter(self._held))]

    def find(self, aggregate_id: str) -> str | None:
        """Returns the command that an aggregate is held by, or None."""
        return self._held.get(aggregate_id)

    def release_all(self) -> None:
        """Ends every hold: somebody else may have handled what was parked."""
        self._held.clear()
