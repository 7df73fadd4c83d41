"""
PostgreSQL's constraint errors to outcomes; an unknown one stays an error.

Sits between: the driver's error and `AppendOutcome`.
"""

import re
from typing import Final

from sqlalchemy.exc import IntegrityError

from headrace.stores.base import AppendOutcome
from headrace.stores.database.tables import COMMAND_CONSTRAINT, VERSION_CONSTRAINT

__all__ = ["outcome_of"]

_OUTCOMES = {
    VERSION_CONSTRAINT: AppendOutcome.VERSION_CONFLICT,
    COMMAND_CONSTRAINT: AppendOutcome.DUPLICATE_COMMAND,
}

# PostgreSQL names the constraints of a shard itself: after the shard and the columns.
_OF_SHARD: Final = re.compile(r"event_streams_\d+_\d+_aggregate_id_(version|command_id)_key")
_OF_COLUMN: Final = {"version": VERSION_CONSTRAINT, "command_id": COMMAND_CONSTRAINT}


def outcome_of(error: IntegrityError) -> AppendOutcome | None:
    """Returns what the violated constraint means, or None where it is not one of ours."""
    # SQLAlchemy wraps the driver's error once; only the driver's own knows the constraint.
    cause = error.orig.__cause__ if error.orig is not None else None
    name = getattr(cause, "constraint_name", None) or ""
    shard = _OF_SHARD.fullmatch(name)
    return _OUTCOMES.get(_OF_COLUMN[shard[1]] if shard else name)
