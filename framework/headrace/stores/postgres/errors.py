"""
PostgreSQL's constraint errors to outcomes; an unknown one stays an error.

Sits between: the driver's error and `AppendOutcome`.
"""

from sqlalchemy.exc import IntegrityError

from headrace.stores.base import AppendOutcome
from headrace.stores.tables import COMMAND_CONSTRAINT, VERSION_CONSTRAINT

__all__ = ["outcome_of"]

_OUTCOMES = {
    VERSION_CONSTRAINT: AppendOutcome.VERSION_CONFLICT,
    COMMAND_CONSTRAINT: AppendOutcome.DUPLICATE_COMMAND,
}


def outcome_of(error: IntegrityError) -> AppendOutcome | None:
    """Returns what the violated constraint means, or None where it is not one of ours."""
    # SQLAlchemy wraps the driver's error once; only the driver's own knows the constraint.
    cause = error.orig.__cause__ if error.orig is not None else None
    return _OUTCOMES.get(getattr(cause, "constraint_name", None) or "")
