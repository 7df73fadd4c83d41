"""What a rebuild decodes is what everybody else decodes, less what nobody asked for."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace import ApplicationMessage, DomainEvent, Projection
from headrace.domain.message import Command
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream, Rejection
from headrace.errors import ProjectionError
from headrace.folds import count, day, field, first, last, max_, min_, sum_
from headrace.projections.definition.fold import fold_streams
from headrace.rebuild.decode import Decoder, Undecodable, context_read, tell
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.local.memory import remember
from headrace.serialization import JsonSerializer

QUEUE = ("shop.events", 3)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Counted(DomainEvent):
    name: str
    count: int
    share: float = 0.0
    done: bool | None = None


class Priced(DomainEvent, name="priced", version=2):
    price: Decimal
    at: datetime


class Idle(DomainEvent):
    text: str


class Told(ApplicationMessage):
    text: str


def older(data: dict[str, Any]) -> dict[str, Any]:
    return {"price": data["cents"], "at": NOW.isoformat()}


def make_serializer() -> JsonSerializer:
    commands: Registry[Command] = Registry("command")
    events: Registry[DomainEvent] = Registry("event")
    messages: Registry[ApplicationMessage] = Registry("application message")
    for event_type in (Counted, Priced, Idle):
        events.add(event_type)
    events.upcast("priced", 1, older)
    messages.add(Told)
    return JsonSerializer(commands, events, messages)


SERIALIZER = make_serializer()


def wanted(event_type: type[DomainEvent]) -> bool:
    return event_type is not Idle


DECODER = Decoder(SERIALIZER, wanted)


def stream(*events: DomainEvent, **changes: Any) -> EventStream:
    parts: dict[str, Any] = {
        "aggregate_type": "Shop", "aggregate_id": "a", "version": 1 if events else None,
        "command_id": "c", "correlation_id": "d", "recorded_at": NOW, "items": {"who": "me"},
        "events": events,
    }  # fmt: skip
    return EventStream(**{**parts, **changes})


def decode(*bodies: bytes, start: int = 0) -> Any:
    return DECODER.decode(QUEUE, Portion(range(7, 7 + len(bodies)), bodies), start)


EVENTS = st.one_of(
    st.builds(
        Counted,
        name=st.text(),
        count=st.integers(),
        share=st.floats(allow_nan=False, allow_infinity=False),
        done=st.none() | st.booleans(),
    ),
    st.builds(
        Priced, price=st.decimals(allow_nan=False, allow_infinity=False, places=2), at=st.just(NOW)
    ),
    st.builds(Idle, text=st.text()),
)


@given(st.lists(EVENTS, min_size=1, max_size=4), st.dictionaries(st.text(), st.text(), max_size=2))
def test_the_wanted_events_and_their_contexts_are_those_of_the_stream(
    events: list[Any], items: dict[str, str]
) -> None:
    body = SERIALIZER.encode_stream(stream(*events, items=items))
    decoded = decode(body)
    assert decoded.told == [tell(SERIALIZER.decode_stream(body), wanted)]
    assert (decoded.end, decoded.offsets, decoded.counts) == (8, [7], [len(events)])
    for event, context in decoded.told[0][2]:
        assert repr(type(event).model_validate(event.model_dump())) == repr(event)
        assert context.recorded_at.tzinfo is UTC


def test_events_that_nobody_wants_are_not_looked_into() -> None:
    body = SERIALIZER.encode_stream(stream(Counted(name="n", count=1), Idle(text="x")))
    broken = body.replace(b'"text":"x"', b'"what":[1]')
    ((_, _, facts),) = decode(broken).told
    assert [event for event, _ in facts] == [Counted(name="n", count=1)]


def test_rejections_and_messages_without_events_are_left_out() -> None:
    refused = Rejection(
        error="No", sentence="no", command_name="X", command_version=1, command_data={}
    )
    bodies = [
        SERIALIZER.encode_stream(each)
        for each in (
            stream(rejection=refused),
            stream(messages=(Told(text="x"),)),
            stream(Counted(name="n", count=1), messages=(Told(text="x"),)),
        )
    ]
    decoded = decode(*bodies)
    assert (decoded.end, decoded.offsets, len(decoded.told)) == (10, [9], 1)


def test_an_old_version_becomes_the_newest() -> None:
    body = SERIALIZER.encode_stream(stream(Priced(price=Decimal(5), at=NOW)))
    wire = msgspec.json.decode(body)
    wire["events"][0] |= {"version": 1, "data": {"cents": 12}}
    ((_, _, ((event, _),)),) = decode(msgspec.json.encode(wire)).told
    assert event == Priced(price=Decimal(12), at=NOW)


def test_what_the_model_takes_though_it_is_stored_otherwise_is_taken() -> None:
    body = SERIALIZER.encode_stream(stream(Counted(name="n", count=1)))
    for stored in (b'"count":"1"', b'"count":1.0', b'"count":true'):
        odd = body.replace(b'"count":1', stored).replace(b'"share":0.0,', b"")
        ((_, _, ((event, _),)),) = decode(odd).told
        assert event == SERIALIZER.decode_stream(odd).events[0]
        assert event.model_fields_set == {"name", "count", "done"}


def test_moments_elsewhere_are_told_in_utc() -> None:
    east = NOW.astimezone(timezone(timedelta(hours=5)))
    body = SERIALIZER.encode_stream(stream(Counted(name="n", count=1), recorded_at=east))
    ((_, _, ((_, context),)),) = decode(body).told
    assert (context.recorded_at, context.recorded_at.tzinfo) == (NOW, UTC)


def test_each_context_has_items_of_its_own() -> None:
    body = SERIALIZER.encode_stream(stream(*[Counted(name="n", count=n) for n in range(2)]))
    ((_, _, ((_, one), (_, other))),) = decode(body).told
    assert one.items == other.items == {"who": "me"}
    assert one.items is not other.items


@pytest.mark.parametrize(
    ("replaced", "sentence"),
    [
        ((b"Counted", b"Unheard"), "'Unheard' version 1 is not registered"),
        ((b'"count":1', b'"count":"many"'), "Counted version 1: 1 validation error"),
        ((b'"count":1', b'"count":1,"more":2'), "Extra inputs are not permitted"),
        ((b'"version":1,"data"', b'"version":9,"data"'), "version 9 is newer than version 1"),
        ((b'"recorded_at"', b'"then"'), "an event stream does not decode"),
    ],
)
def test_what_does_not_decode_says_where_it_stands(
    replaced: tuple[bytes, bytes], sentence: str
) -> None:
    good = SERIALIZER.encode_stream(stream(Counted(name="n", count=1)))
    with pytest.raises(Undecodable, match=f"(?s)shop.events/3 offset 8 .*{sentence}") as caught:
        decode(good, good.replace(*replaced), good)
    assert caught.value.offset == 8
    assert decode(good, good.replace(*replaced), good, start=9).offsets == [9]


@pytest.mark.parametrize("junk", [b"", b"junk", b"{}", b"[" * 100_000])
def test_what_is_nobodys_events_is_left_out(junk: bytes) -> None:
    good = SERIALIZER.encode_stream(stream(Counted(name="n", count=1)))
    assert decode(good, junk, good).offsets == [7, 9]


def test_an_application_without_events_decodes_rejections() -> None:
    serializer = JsonSerializer(Registry("command"), Registry("event"))
    refused = Rejection(
        error="No", sentence="no", command_name="X", command_version=1, command_data={}
    )
    body = serializer.encode_stream(stream(rejection=refused))
    decoded = Decoder(serializer, wanted).decode(QUEUE, Portion([0], [body]), 0)
    assert (decoded.end, decoded.told) == (1, [])


class Row(BaseModel):
    key: str
    events: int = 0
    counted: int = 0
    share: float = 0.0
    spent: Decimal = Decimal("1E+1")
    cheapest: Decimal | None = None
    name: str | None = None
    finished: bool | None = None
    at: datetime | None = None
    recorded: datetime | None = None
    days: str | None = None


def declare(**how: Any) -> Projection[Row]:
    rows = Projection("rows", row=Row, key="key")
    rows.on(
        Counted,
        events=count(),
        counted=sum_(-field("count")),
        share=sum_("share"),
        name=last("name"),
        finished=first("done"),
        recorded=max_("context.recorded_at"),
        **how,
    )
    rows.on(Counted, where=(field("count") > 2) & ~field("done").is_none(), events=count(), **how)
    rows.on(
        Priced,
        events=count(),
        spent=sum_("price"),
        cheapest=min_("price"),
        at=last("at"),
        days=last(day("context.recorded_at")),
    )
    return rows


BY_AGGREGATE = declare()
BY_NAME = declare(key="name")
MOMENTS = [
    NOW.astimezone(timezone(timedelta(hours=hours))) + timedelta(hours=hours)
    for hours in (0, -9, 5)
]


@pytest.mark.parametrize("projection", [BY_AGGREGATE, BY_NAME])
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from(MOMENTS),
            st.lists(EVENTS, min_size=1, max_size=3),
        ),
        max_size=8,
    )
)
def test_declared_folds_make_the_same_rows_of_what_is_stored_as_of_models(
    projection: Projection[Row], history: list[tuple[str, datetime, list[Any]]]
) -> None:
    streams: list[EventStream] = []
    for key, moment, events in history:
        version = sum(each.aggregate_id == key for each in streams) + 1
        streams.append(stream(*events, aggregate_id=key, version=version, recorded_at=moment))
    bodies = [SERIALIZER.encode_stream(each) for each in streams]
    decoder = Decoder(SERIALIZER, projection.reacts_to, context=context_read([projection]))
    memory = remember(projection)
    for body in bodies:
        memory.take(decoder.decode(QUEUE, Portion([0], [body]), 0).told)
        memory.fold()
    _, rows = memory.take_changes()
    assert rows == fold_streams(projection, {}, map(SERIALIZER.decode_stream, bodies))
    for row in rows.values():
        assert repr(row) == repr(Row.model_validate(row.model_dump()))


def test_events_that_a_declared_fold_reads_are_no_models() -> None:
    decoder = Decoder(SERIALIZER, wanted, context=context_read([BY_AGGREGATE]))
    body = SERIALIZER.encode_stream(stream(Counted(name="n", count=1)))
    ((_, _, ((event, context),)),) = decoder.decode(QUEUE, Portion([0], [body]), 0).told
    assert (event.name, event.count) == ("n", 1)
    assert not isinstance(event, DomainEvent)
    assert not hasattr(context, "items")


def test_a_stored_event_that_cannot_be_folded_is_named_as_its_model_is() -> None:
    rows = Projection("rows", row=Row, key="key")
    rows.on(Priced, spent=sum_("price"))
    rows.on(Counted, key="name", events=count())
    decoder = Decoder(SERIALIZER, rows.reacts_to, context=context_read([rows]))

    def fold(body: bytes) -> None:
        memory = remember(rows)
        memory.take(decoder.decode(QUEUE, Portion([0], [body]), 0).told)
        memory.fold()

    long = Counted(name="n" * 256, count=1)
    for event, name in ((long, "Counted"), (Priced(price=Decimal("1E+99"), at=NOW), "priced")):
        body = SERIALIZER.encode_stream(stream(Counted(name="n", count=1), event))
        with pytest.raises(ProjectionError, match=f"rows cannot fold {name} a/1/2: "):
            fold(body)


def test_what_may_read_anything_of_a_context_gets_whole_ones() -> None:
    ordered = Projection("ordered", row=Row, key="key")
    ordered.on(Counted, counted=last("context.sequence"))
    called = Projection("called", row=Row, key="key")
    called.on(Counted, key=lambda event: event.name, events=count())
    folded = Projection("folded", row=Row, key="key")

    @folded.fold
    def counted(row: Row | None, event: Counted, context: Any) -> Row | None:
        raise AssertionError((row, event, context))

    assert [context_read([BY_AGGREGATE, each]) for each in (ordered, called, folded)] == [None] * 3
    assert context_read([BY_AGGREGATE, BY_NAME]) == {"aggregate_id", "recorded_at"}
