"""
Events to row changes: the one fold that runs live and on Spark's executors.

    streams ──▶ find_touches ──▶ [Touch] ──▶ fold ──▶ {key: row, or None to delete}

Sits between: `Projection`, whose rules it runs, and whoever keeps the rows. Pure; must never know
a database, so that an executor can import it for nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from headrace._domain.message import DomainEvent, EventContext
from headrace._domain.stream import EventStream
from headrace._projecting.projection import Projection
from headrace.errors import ProjectionError

__all__ = ["Touch", "find_touches", "fold", "fold_streams", "poisoned"]

R = TypeVar("R", bound=BaseModel)


class Touch(NamedTuple):
    """An event on its way to the row of one key.

    Attributes:
        key: of the row.
        event: what happened.
        context: what is known about it.
        rule: which of the projection's rules for this type of event.
    """

    key: str
    event: DomainEvent
    context: EventContext
    rule: int


def fold_streams(
    projection: Projection[R], rows: Mapping[str, R | None], streams: Iterable[EventStream]
) -> dict[str, R | None]:
    """Returns what the streams make of the rows: the new row of each key touched.

    Args:
        projection: whose rules run.
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
    """Returns each event that touches a row, once per row and rule, in order.

    Raises:
        ProjectionError: a key function raised, or made an unusable key; names the event.
    """
    rules_for = projection.rules_for
    touches: list[Touch] = []
    for stream in streams:
        if not any(rules_for(type(event)) for event in stream.events):
            continue
        for event, context in stream.contexts():
            for place, rule in enumerate(rules_for(type(event))):
                try:
                    keys = rule.keys(event, context)
                except Exception as error:
                    raise poisoned(projection, event, context, error) from error
                touches += [Touch(key, event, context, place) for key in keys]
    return touches


def fold(
    projection: Projection[R], rows: Mapping[str, R | None], touches: Sequence[Touch]
) -> dict[str, R | None]:
    """Folds what `find_touches` found; see `fold_streams`."""
    canonical = projection.shape.canonical
    changes: dict[str, R | None] = {}
    for key, event, context, place in touches:
        before = changes[key] if key in changes else rows.get(key)
        try:
            rule = projection.rules_for(type(event))[place]
            after = rule.next_row(before, event, context, key)
            changes[key] = None if after is None else canonical(after)
        except Exception as error:
            raise poisoned(projection, event, context, error) from error
    return changes


def poisoned(
    projection: Projection[R], event: DomainEvent, context: EventContext, error: Exception
) -> ProjectionError:
    """Returns an error that names the event which caused another."""
    return ProjectionError(
        f"projection {projection.name} cannot fold {event.message_name} {context.event_id}:"
        f" {type(error).__name__}: {error}"
    )
