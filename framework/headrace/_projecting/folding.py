"""
Events to row changes: the one fold that runs live and on Spark's executors.

    streams ──▶ [(event, context)] ──▶ fold_facts ──▶ {key: row, or None to delete}
    streams ──▶ find_touches ──▶ [Touch] ──▶ fold ──▶ the same, where keys must be known before rows

Sits between: `Projection`, whose rules it runs, and whoever keeps the rows. Pure; must never know
a database, so that an executor can import it for nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from headrace._domain.message import DomainEvent, EventContext
from headrace._domain.stream import EventStream
from headrace._projecting.projection import Projection
from headrace.errors import ProjectionError

__all__ = [
    "Fact",
    "Steps",
    "Touch",
    "find_touches",
    "fold",
    "fold_facts",
    "fold_streams",
    "keys_of",
    "poisoned",
]

R = TypeVar("R", bound=BaseModel)

# What happened, and what is known about it.
Fact = tuple[DomainEvent, EventContext]


class Steps(dict[type[DomainEvent], Sequence[Any]]):
    """The keys (None: the aggregate's id) and the function of each rule, by type of event."""

    def __init__(self, projection: Projection[Any]) -> None:
        self._rules_for = projection.rules_for

    def __missing__(self, event_type: type[DomainEvent]) -> Sequence[Any]:
        self[event_type] = steps = tuple(
            (None if rule.by_aggregate else rule.keys, rule.next_row)
            for rule in self._rules_for(event_type)
        )
        return steps


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
    rules_for = projection.rules_for
    facts: list[Fact] = []
    for stream in streams:
        if any(rules_for(type(event)) for event in stream.events):
            facts += stream.contexts()
    return fold_facts(projection, rows, facts)


def fold_facts(
    projection: Projection[R], rows: Mapping[str, R | None], facts: Iterable[Fact]
) -> dict[str, R | None]:
    """Returns what events make of the rows; see `fold_streams`.

    Raises:
        ProjectionError: as `fold_streams`.
    """
    steps_for = Steps(projection)
    changes: dict[str, R | None] = {}
    for event, context in facts:
        try:
            for keys, next_row in steps_for[type(event)]:
                for key in (context.aggregate_id,) if keys is None else keys(event, context):
                    before = changes[key] if key in changes else rows.get(key)
                    changes[key] = next_row(before, event, context, key)
        except Exception as error:
            raise poisoned(projection, event, context, error) from error
    return changes


def keys_of(projection: Projection[Any], facts: Iterable[Fact]) -> set[str]:
    """Returns the keys of the rows that events touch.

    Raises:
        ProjectionError: a key function raised, or made an unusable key; names the event.
    """
    steps_for = Steps(projection)
    found: set[str] = set()
    for event, context in facts:
        try:
            for keys, _ in steps_for[type(event)]:
                found.update((context.aggregate_id,) if keys is None else keys(event, context))
        except Exception as error:
            raise poisoned(projection, event, context, error) from error
    return found


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
    changes: dict[str, R | None] = {}
    for key, event, context, place in touches:
        before = changes[key] if key in changes else rows.get(key)
        try:
            rule = projection.rules_for(type(event))[place]
            changes[key] = rule.next_row(before, event, context, key)
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
