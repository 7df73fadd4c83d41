"""
Folds events into changes of rows; the same fold runs live and on Spark's executors.

    streams ──▶ [(event, context)] ──▶ fold_facts ──▶ {key: row, or None to delete}
    streams ──▶ find_touches ──▶ [Touch] ──▶ fold ──▶ the same, where keys must be known before rows

Runs the rules of a `Projection` for every module that keeps rows. Pure, and without a database driver,
so that an executor imports it quickly.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel

from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.subjects.hidden import hide_personal

__all__ = [
    "EVENT_TYPE",
    "Fact",
    "Steps",
    "Touch",
    "find_touches",
    "fold",
    "fold_facts",
    "fold_streams",
    "keys_of",
    "raise_poisoned",
]

R = TypeVar("R", bound=BaseModel)

# What happened, and what is known about it. For declared folds both may be msgspec structs of what is
# stored: the event's fields, of a class that names its type, and the stream with the events.
Fact = tuple[DomainEvent, EventContext]

# The class of an event's stored fields has under this name the event type.
EVENT_TYPE: Final = "__event_type__"


class Steps(dict[type[Any], Sequence[Any]]):
    """The keys (None: the aggregate's id) and the function of each rule, by type of event.

    Args:
        projection: whose rules these are.
        in_place: rows are changed where they are, and events may come as they are stored; for
            projections of nothing but declared folds.
    """

    def __init__(self, projection: Projection[Any], *, in_place: bool = False) -> None:
        self._projection = projection
        self._in_place = in_place

    def __missing__(self, kind: type[Any]) -> Sequence[Any]:
        event_type = _event_type_of(kind)
        rules = (
            self._projection.rules_in_place(event_type, stored=event_type is not kind)
            if self._in_place
            else self._projection.rules_for(event_type)
        )
        self[kind] = steps = tuple(
            (None if rule.by_aggregate else rule.keys, rule.next_row) for rule in rules
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
    """Folds streams into rows, and returns the new row of each touched key.

    Args:
        projection: whose rules run.
        rows: the current rows by key; a key that is left out has no row. Not changed.
        streams: in the order in which they happened, each version of an aggregate once;
            rejections touch nothing.

    Returns:
        The row to write for each touched key; None: delete the row.

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
    projection: Projection[R],
    rows: Mapping[str, R | None],
    facts: Iterable[Fact],
    steps: Steps | None = None,
) -> dict[str, R | None]:
    """Folds events into rows; see `fold_streams`.

    Raises:
        ProjectionError: as `fold_streams`.
    """
    steps_for = Steps(projection) if steps is None else steps
    changes: dict[str, R | None] = {}
    for event, context in facts:
        try:
            for keys, next_row in steps_for[type(event)]:
                for key in (context.aggregate_id,) if keys is None else keys(event, context):
                    before = changes[key] if key in changes else rows.get(key)
                    changes[key] = next_row(before, event, context, key)
        except Exception as error:  # noqa: BLE001 - raised as a ProjectionError
            raise_poisoned(projection, event, context, error)
    return changes


def keys_of(
    projection: Projection[Any], facts: Iterable[Fact], steps: Steps | None = None
) -> set[str]:
    """Returns the keys of the rows that events touch.

    Raises:
        ProjectionError: a key function raised, or made an unusable key; names the event.
    """
    steps_for = Steps(projection) if steps is None else steps
    found: set[str] = set()
    for event, context in facts:
        try:
            for keys, _ in steps_for[type(event)]:
                found.update((context.aggregate_id,) if keys is None else keys(event, context))
        except Exception as error:  # noqa: BLE001 - raised as a ProjectionError
            raise_poisoned(projection, event, context, error)
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
                except Exception as error:  # noqa: BLE001 - raised as a ProjectionError
                    raise_poisoned(projection, event, context, error)
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
        except Exception as error:  # noqa: BLE001 - raised as a ProjectionError
            raise_poisoned(projection, event, context, error)
    return changes


def raise_poisoned(
    projection: Projection[R], event: DomainEvent, context: EventContext, error: Exception
) -> NoReturn:
    """Raises an error that names the event which caused another; neither tells personal values of it.

    Raises:
        ProjectionError: always.
    """
    # Not from the error itself: where its text cannot be changed, another one stands for it.
    told = hide_personal(error, (event,))
    raise ProjectionError(
        f"projection {projection.name} cannot fold {_event_type_of(type(event)).message_name}"
        f" {_event_id(event, context)}: {type(told).__name__}: {told}"
    ) from told


def _event_type_of(kind: type[Any]) -> type[DomainEvent]:
    found: type[DomainEvent] = getattr(kind, EVENT_TYPE, kind)
    return found


def _event_id(event: Any, context: Any) -> str:
    if isinstance(context, EventContext):
        return context.event_id
    numbered = enumerate(context.events, start=1)
    sequence = next(number for number, each in numbered if each.data is event)
    return f"{context.aggregate_id}/{context.version}/{sequence}"
