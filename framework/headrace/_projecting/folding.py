"""
Events to row changes: the one fold that runs live and on Spark's executors.

    streams ──▶ find_touches ──▶ [(key, event, context)] ──▶ fold ──▶ {key: row, or None to delete}

Sits between: `Projection`, whose folds it calls, and whoever keeps the rows. Pure; must never know
a database, so that an executor can import it for nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from pydantic import BaseModel

from headrace._domain.message import DomainEvent, EventContext
from headrace._domain.stream import EventStream
from headrace._projecting.projection import Projection
from headrace.errors import ProjectionError

__all__ = ["KEY_CHARACTERS_MAX", "Touch", "find_touches", "fold", "fold_streams"]

R = TypeVar("R", bound=BaseModel)

# What the key column holds; the same as an aggregate's id.
KEY_CHARACTERS_MAX: Final = 255


class Touch(NamedTuple):
    """An event on its way to the row of one key."""

    key: str
    event: DomainEvent
    context: EventContext


def fold_streams(
    projection: Projection[R], rows: Mapping[str, R | None], streams: Iterable[EventStream]
) -> dict[str, R | None]:
    """Returns what the streams make of the rows: the new row of each key touched.

    Args:
        projection: whose folds run.
        rows: the current rows by key; a key that is left out has no row. Not changed.
        streams: in the order in which they happened, each version of an aggregate once;
            rejections touch nothing.

    Returns:
        A row to write for each key touched, or None where the row is to be deleted.

    Raises:
        ProjectionError: a fold or key function raised, or made an unusable row; names the event.
    """
    return fold(projection, rows, find_touches(projection, streams))


def find_touches(projection: Projection[R], streams: Iterable[EventStream]) -> list[Touch]:
    """Returns each event that touches a row, with the row's key, in order."""
    folded = projection.event_types
    touches: list[Touch] = []
    for stream in streams:
        if folded.isdisjoint(map(type, stream.events)):
            continue
        for event, context in stream.contexts():
            if type(event) in folded:
                touches.append(Touch(_find_key(projection, event, context), event, context))
    return touches


def fold(
    projection: Projection[R], rows: Mapping[str, R | None], touches: Sequence[Touch]
) -> dict[str, R | None]:
    """Folds what `find_touches` found; see `fold_streams`."""
    canonical = projection.shape.canonical
    changes: dict[str, R | None] = {}
    for key, event, context in touches:
        before = changes[key] if key in changes else rows.get(key)
        try:
            after = projection.next_row(before, event, context)
            changes[key] = None if after is None else canonical(after)
        except Exception as error:
            raise _poisoned(projection, event, context, error) from error
    return changes


def _find_key(projection: Projection[R], event: DomainEvent, context: EventContext) -> str:
    try:
        key = projection.key_for(event, context)
    except Exception as error:
        raise _poisoned(projection, event, context, error) from error
    if not isinstance(key, str) or len(key) > KEY_CHARACTERS_MAX:
        unusable = ValueError(f"a key is a str of at most {KEY_CHARACTERS_MAX} characters: {key!r}")
        raise _poisoned(projection, event, context, unusable)
    return key


def _poisoned(
    projection: Projection[R], event: DomainEvent, context: EventContext, error: Exception
) -> ProjectionError:
    return ProjectionError(
        f"projection {projection.name} cannot fold {event.message_name} {context.event_id}:"
        f" {type(error).__name__}: {error}"
    )
