"""What travels to a row is one event, and comes out as the serializer would have decoded it."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from headrace.app import App
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.projections.definition.fold import find_touches, fold
from headrace.projections.definition.projection import Projection
from headrace.spark.executor.touches import KeyRows, Touches
from headrace.spark.rows import RowCodec


class Moved(DomainEvent, name="Moved", version=2):
    """Read without its model; its first version named the two in another way."""

    source: str
    target: str
    amount: int = Field(ge=-50)


class Rated(DomainEvent):
    """Has rules of its own, so that its model makes it."""

    rate: Decimal
    names: tuple[str, ...] = ()

    @field_validator("rate")
    @classmethod
    def _rounded(cls, rate: Decimal) -> Decimal:
        return round(rate, 2)


class Passed(DomainEvent):
    """No rule reacts to it."""

    text: str


class Thing(Aggregate):
    @applies
    def _moved(self, event: Moved) -> None: ...

    @applies
    def _rated(self, event: Rated) -> None: ...

    @applies
    def _passed(self, event: Passed) -> None: ...


class Row(BaseModel):
    key: str
    told: str = ""


rows = Projection("rows", row=Row, key="key")


@rows.fold(key=lambda event: [event.source, event.target])
def moved(row: Row | None, event: Moved, context: EventContext, key: str) -> Row:
    return Row(key=key, told=f"{row.told if row else ''} {event!r} {context!r}")


@rows.fold(key=lambda event: "all")
def counted(row: Row | None, event: Moved | Rated, context: EventContext) -> Row | None:
    if isinstance(event, Rated) and event.rate < 0:
        return None
    return Row(key="all", told=f"{row.told if row else ''} {event!r} {context!r}")


app = App("things")
app.add(Thing, rows)


@app.upcasts(Moved, version=1)
def _named(data: dict[str, Any]) -> dict[str, Any]:
    return {"source": data["from"], "target": data["to"], "amount": data["amount"]}


EVENTS = st.one_of(
    st.builds(Moved, source=st.text(max_size=3), target=st.text(max_size=3), amount=st.integers(-50, 99)),
    st.builds(Rated, rate=st.decimals(-5, 5, places=2), names=st.tuples(st.text(max_size=4))),
    st.builds(Passed, text=st.text(max_size=4)),
)  # fmt: skip


def stream_of(events: list[DomainEvent], **named: Any) -> EventStream:
    return EventStream(
        **{
            "aggregate_type": "Thing",
            "aggregate_id": "a",
            "version": 1 if events else None,
            "command_id": "c",
            "correlation_id": "r",
            "recorded_at": datetime(2026, 1, 31, tzinfo=UTC),
            "events": tuple(events),
            **named,
        }
    )


def travelled(touches: Touches, body: bytes) -> list[tuple[Any, ...]]:
    found = list(touches.find(touches.decode(body)))
    read = [touches.read(number, data) for _, number, data in found]
    return [
        (key, event, context, rule)
        for (key, _, _), (event, context, rule) in zip(found, read, strict=True)
    ]


def wanted(body: bytes) -> list[tuple[Any, ...]]:
    found = find_touches(rows, [app.serializer.decode_stream(body)])
    return [
        (key, event, context, rows.rules_for(type(event))[rule])
        for key, event, context, rule in found
    ]


@given(
    events=st.lists(EVENTS, max_size=5),
    second=st.integers(-62_135_500_000, 253_402_200_000),
    micro=st.integers(0, 999_999),
    items=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    hours=st.integers(-12, 14),
    old=st.booleans(),
)
def test_an_event_arrives_as_it_was_decoded_where_it_stood(
    events: list[DomainEvent],
    second: int,
    micro: int,
    items: dict[str, str],
    hours: int,
    *,
    old: bool,
) -> None:
    zone = timezone(timedelta(hours=hours))
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second, microseconds=micro)
    stream = stream_of(events, recorded_at=at.astimezone(zone), items=items)
    body = app.serializer.encode_stream(stream)
    if old:
        body = body.replace(b'"name":"Moved","version":2', b'"name":"Moved","version":1')
        body = body.replace(b'"source":', b'"from":').replace(b'"target":', b'"to":')
    touches = Touches(app.serializer, rows)
    assert travelled(touches, body) == wanted(body)
    found = list(touches.find(touches.decode(body)))
    folding = KeyRows(rows, touches, RowCodec(rows))
    folded = dict([*folding.take(sorted(found, key=itemgetter(0))), *folding.finish()])
    assert folded == fold(rows, {}, find_touches(rows, [app.serializer.decode_stream(body)]))


def test_what_goes_to_several_rows_is_one_event_and_not_its_stream() -> None:
    events = [Moved(source=f"s{n}", target=f"t{n}", amount=n) for n in range(500)]
    touches = Touches(app.serializer, rows)
    found = list(touches.find(touches.decode(app.serializer.encode_stream(stream_of([*events])))))
    assert len(found) == 3 * 500
    assert max(len(data) for _, _, data in found) < 150
    assert len({id(data) for _, _, data in found}) == 500


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        (b'"amount":1', b'"amount":-51', SerializationError),
        (b'"amount":1', b'"amount":1,"more":2', SerializationError),
        (b'"amount":1', b'"amount":"many"', SerializationError),
        (b'"name":"Moved"', b'"name":"Lost"', UnknownMessageType),
        (b'"version":2,"data"', b'"version":9,"data"', UnknownMessageType),
        (b'"name":"Passed"', b'"name":"Lost"', UnknownMessageType),
    ],
)
def test_what_does_not_decode_is_what_the_serializer_refuses(
    before: bytes, after: bytes, error: type[Exception]
) -> None:
    body = app.serializer.encode_stream(
        stream_of([Moved(source="s", target="t", amount=1), Passed(text="x")])
    )
    spoiled = body.replace(before, after)
    assert spoiled != body
    with pytest.raises(error) as refused:
        Touches(app.serializer, rows).decode(spoiled)
    with pytest.raises(error) as said:
        app.serializer.decode_stream(spoiled)
    assert str(refused.value) == str(said.value)


def test_a_value_that_the_model_takes_and_msgspec_does_not_is_taken() -> None:
    body = app.serializer.encode_stream(stream_of([Moved(source="s", target="t", amount=1)]))
    body = body.replace(b'"amount":1', b'"amount":"1"')
    ((_, event, _, _), *_) = travelled(Touches(app.serializer, rows), body)
    assert event == Moved(source="s", target="t", amount=1)


def test_events_that_no_rule_reacts_to_are_passed_over_unread() -> None:
    body = app.serializer.encode_stream(stream_of([Passed(text="x")]))
    stream = Touches(app.serializer, rows).decode(body.replace(b'"text":"x"', b'"text":1'))
    assert (stream.version, len(stream.events), stream.facts) == (1, 1, [])


def test_a_key_function_that_fails_names_its_event() -> None:
    odd = Projection("odd", row=Row, key="key", key_of=lambda event: event.nothing)

    @odd.fold
    def folded(row: Row | None, event: Moved, context: EventContext) -> Row | None:
        return row

    touches = Touches(app.serializer, odd)
    body = app.serializer.encode_stream(stream_of([Moved(source="s", target="t", amount=1)]))
    with pytest.raises(ProjectionError, match="odd cannot fold Moved a/1/1: AttributeError"):
        list(touches.find(touches.decode(body)))
