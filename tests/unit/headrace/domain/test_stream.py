"""A stream is events with a version, or a rejection without."""

import dataclasses
from datetime import UTC, datetime

import pytest

from headrace.domain.message import ApplicationMessage, DomainEvent
from headrace.domain.stream import EventStream, Rejection, stream_of


class Counted(DomainEvent):
    by: int = 1


class Told(ApplicationMessage):
    pass


REJECTION = Rejection(
    error="no", sentence="no", command_name="Count", command_version=1, command_data={}
)


def stream(**changes: object) -> EventStream:
    fields: dict[str, object] = {
        "aggregate_type": "Counter",
        "aggregate_id": "n-1",
        "version": 3,
        "command_id": "c-1",
        "correlation_id": "c-0",
        "recorded_at": datetime(2026, 1, 31, tzinfo=UTC),
        "events": (Counted(by=1), Counted(by=2)),
        "items": {"trace": "t"},
    }
    return EventStream(**(fields | changes))


def test_each_event_has_a_context_with_its_place():
    (first, one), (second, two) = stream().contexts()
    assert (first, second) == (Counted(by=1), Counted(by=2))
    assert (one.sequence, two.sequence) == (1, 2)
    assert one.event_id == "n-1/3/1"
    assert (two.aggregate_type, two.version, two.command_id) == ("Counter", 3, "c-1")
    assert (two.correlation_id, two.items) == ("c-0", {"trace": "t"})
    assert two.recorded_at == stream().recorded_at


def test_a_rejection_has_no_events_and_no_contexts():
    assert stream(version=None, events=(), rejection=REJECTION).contexts() == []


def test_a_stream_may_say_that_nothing_changed():
    nothing = stream(version=None, events=(), seen_version=3)
    assert (nothing.unchanged, nothing.contexts(), nothing.message_contexts()) == (True, [], [])
    assert not stream().unchanged
    with pytest.raises(ValueError, match="only looked at"):
        stream(seen_version=3)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": None},
        {"events": ()},
        {"rejection": REJECTION},
        {"version": None, "rejection": REJECTION},
        {"events": (), "rejection": REJECTION},
        {"version": None, "events": (), "messages": (Told(),), "rejection": REJECTION},
    ],
)
def test_anything_between_events_and_a_rejection_is_refused(changes):
    with pytest.raises(
        ValueError, match=r"a version and events, or neither|a rejection and neither"
    ):
        stream(**changes)


def test_messages_stand_beside_events_or_alone_each_with_an_id_of_its_own():
    both = stream(messages=(Told(), Told()))
    alone = stream(version=None, events=(), messages=(Told(),))
    ids = [context.message_id for _, context in both.message_contexts()]
    assert ids == ["n-1/c-1/1", "n-1/c-1/2"]
    assert alone.contexts() == []
    ((message, context),) = alone.message_contexts()
    assert (message, context.correlation_id, context.items) == (Told(), "c-0", {"trace": "t"})


def values_of(made: EventStream) -> list[object]:
    return [getattr(made, field.name) for field in dataclasses.fields(EventStream)]


def test_a_stream_of_values_is_the_stream_with_these_fields():
    for made in (stream(), stream(version=None, events=(), rejection=REJECTION)):
        again = stream_of(*values_of(made))
        assert (again, type(again)) == (made, EventStream)
        assert again.contexts() == made.contexts()


def test_values_that_are_no_stream_are_refused():
    with pytest.raises(ValueError, match="a version and events, or neither"):
        stream_of(*values_of(stream())[:2], None, *values_of(stream())[3:])
    with pytest.raises(ValueError, match="shorter"):
        stream_of(*values_of(stream())[:-1])
