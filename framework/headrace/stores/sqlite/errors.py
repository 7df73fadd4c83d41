"""
SQLite's constraint errors to outcomes; an unknown one stays an error.

Sits between: SQLite's words and `AppendOutcome`.
"""

from sqlalchemy.exc import IntegrityError

from headrace.stores.base import AppendOutcome

__all__ = ["outcome_of"]

# SQLite names the columns of the violated constraint, never the constraint.
_OUTCOMES = {
    "UNIQUE constraint failed: event_streams.aggregate_id, event_streams.version": (
        AppendOutcome.VERSION_CONFLICT
    ),
    "UNIQUE constraint failed: event_streams.aggregate_id, event_streams.command_id": (
        AppendOutcome.DUPLICATE_COMMAND
    ),
}


def outcome_of(error: IntegrityError) -> AppendOutcome | None:
    """Returns what the violated constraint means, or None where it is not one of ours."""
    return _OUTCOMES.get(str(error.orig))
