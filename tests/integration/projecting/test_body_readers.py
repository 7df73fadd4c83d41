"""All readers of a stream's body take the same values of it, and refuse the same bodies.

The serializer feeds live readers, `rebuild.decode` the rebuilds in Python, `spark.executor.decode` Spark.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, field_validator

from headrace import DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream
from headrace.domain.stream_body import aggregate_of
from headrace.errors import NoEventStream, ProjectionError, SerializationError, UnknownMessageType
from headrace.rebuild.decode import Decoder, Undecodable
from headrace.rebuild.event_topic import Portion
from headrace.serialization import JsonSerializer
from headrace.spark.executor.decode import StreamDecoder, fields_of, to_plain

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
QUEUE = ("shop.events", 0)


class Plain(DomainEvent):
    name: str
    count: int
    share: float = 0.0
    done: bool | None = None


class Bounded(DomainEvent):
    count: int = Field(gt=0, le=100)
    name: str = Field(min_length=1, max_length=5)
    price: Decimal = Field(ge=0)


class Moment(DomainEvent, name="moment", version=3):
    price: Decimal
    day: date
    at: datetime | None
    kind: Literal["a", "b"] = "a"


class Shouted(DomainEvent):
    word: str

    @field_validator("word")
    @classmethod
    def _shout(cls, value: str) -> str:
        assert len(value) < 9
        return value.upper()


EVENT_TYPES = (Plain, Bounded, Moment, Shouted)


def make_serializer() -> JsonSerializer:
    events: Registry[DomainEvent] = Registry("event")
    for event_type in EVENT_TYPES:
        events.add(event_type)
    events.upcast("moment", 1, lambda data: {**data, "day": "2026-01-31"})
    events.upcast("moment", 2, lambda data: {**data, "at": None})
    return JsonSerializer(Registry("command"), events)


SERIALIZER = make_serializer()
REBUILD = Decoder(SERIALIZER, lambda _: True)
SPARK = StreamDecoder(SERIALIZER, {each: fields_of(each) for each in EVENT_TYPES})

# What a stream comes to: its context, and the plain values of each event; or "undecodable", or "no
# stream", which every reader leaves out.
Outcome = Any
UNDECODABLE, NO_STREAM, NOTHING = "undecodable", "no stream", "nothing"
# It decodes; Spark has no column for a value.
NO_COLUMN = "no column"


def plain_values(event: DomainEvent) -> tuple[Any, ...]:
    return type(event), *(
        getattr(event, each.name)
        if each.kind is None
        else to_plain(each.kind, getattr(event, each.name))
        for each in fields_of(type(event))
    )


def by_value(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Decimals by their value: a number of JSON has none of its own form."""
    event_type, *rest = values
    kinds = (each.kind for each in fields_of(event_type))
    return event_type, *(
        Decimal(value) if kind is not None and kind.value == "decimal" else value
        for kind, value in zip(kinds, rest, strict=True)
    )


def read_live(body: bytes) -> Outcome:
    try:
        stream = SERIALIZER.decode_stream(body)
    except NoEventStream:
        return NO_STREAM
    except (SerializationError, UnknownMessageType):
        return UNDECODABLE
    return outcome_of(stream, stream.events)


def read_in_rebuild(body: bytes) -> Outcome:
    try:
        decoded = REBUILD.decode(QUEUE, Portion([0], [body]), 0)
    except Undecodable:
        return UNDECODABLE
    if not decoded.told:
        return NOTHING if aggregate_of(body) is not None else NO_STREAM
    ((aggregate_id, version, facts),) = decoded.told
    context = facts[0][1]
    assert (context.aggregate_id, context.version) == (aggregate_id, version)
    return outcome_of(context, [event for event, _ in facts])


def read_by_spark(body: bytes) -> Outcome:
    found, no_column = [], False
    try:
        stream = SPARK.decode(body)
        for event in stream.events:
            try:
                found.append(SPARK.read(event))
            except ProjectionError:
                # An event behind it may be undecodable, which the others find first.
                no_column = True
    except NoEventStream:
        return NO_STREAM
    except (SerializationError, UnknownMessageType):
        return UNDECODABLE
    if no_column:
        return NO_COLUMN
    return together(stream, [(each[0], *each[1]) for each in found if each is not None])


def outcome_of(stream: Any, events: Sequence[DomainEvent]) -> Outcome:
    try:
        return together(stream, [plain_values(each) for each in events])
    except ProjectionError:
        return NO_COLUMN


def together(stream: Any, events: list[tuple[Any, ...]]) -> Outcome:
    if stream.version is None:
        return NOTHING
    names = ("aggregate_type", "aggregate_id", "version", "command_id", "correlation_id")
    context = [getattr(stream, name) for name in names]
    return (*context, stream.recorded_at.astimezone(UTC)), [by_value(each) for each in events]


READERS: list[Callable[[bytes], Outcome]] = [read_in_rebuild, read_by_spark]
MOMENTS = st.builds(
    lambda days, hours: (NOW + timedelta(days=days)).astimezone(timezone(timedelta(hours=hours))),
    st.floats(-9_999, 9_999),
    st.sampled_from([0, -9]),
)
PRICES = st.decimals(0, 10**9, places=4)
EVENTS = st.one_of(
    st.builds(
        Plain,
        name=st.text(max_size=8),
        count=st.integers(-(1 << 62), 1 << 62),
        share=st.floats(allow_nan=False, allow_infinity=False),
        done=st.none() | st.booleans(),
    ),
    st.builds(Bounded, count=st.integers(1, 100), name=st.text("äb", min_size=1, max_size=5), price=PRICES),
    st.builds(Moment, price=PRICES, day=st.dates(), at=st.none() | MOMENTS, kind=st.sampled_from("ab")),
    st.builds(Shouted, word=st.text("ab", max_size=8)),
)  # fmt: skip
STREAMS = st.builds(
    EventStream,
    aggregate_type=st.just("Shop"),
    aggregate_id=st.text("ab\x00ü", min_size=1, max_size=4),
    version=st.integers(1, 1 << 40),
    command_id=st.text(max_size=4),
    correlation_id=st.text(max_size=4),
    recorded_at=MOMENTS,
    items=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    events=st.lists(EVENTS, min_size=1, max_size=3).map(tuple),
)


def body_of(*events: DomainEvent) -> bytes:
    return SERIALIZER.encode_stream(
        EventStream(
            aggregate_type="Shop", aggregate_id="a", version=1, command_id="c",
            correlation_id="d", recorded_at=NOW, events=events,
        )
    )  # fmt: skip


@given(STREAMS)
def test_all_readers_take_the_same_of_what_the_serializer_wrote(stream: EventStream) -> None:
    body = SERIALIZER.encode_stream(stream)
    live = read_live(body)
    assert live not in (UNDECODABLE, NO_STREAM, NOTHING)
    assert [read(body) for read in READERS] == [live] * len(READERS)


# What may stand in the place of another value. Numbers with many digits are left out, of which a
# decimal has more than a float.
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 200), st.just(1 << 70), st.just(0.5), st.just(2.0),
    st.sampled_from(["", "x", "1", "1.5", "true", "2026-01-31", "2026-01-31T12:00:00",
                     "2026-01-31T12:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
                     "Plain", "moment",
                     "\ud7ff", "long enough"]),
    st.sampled_from([[], {}, [1], {"name": "x"}]).map(deepcopy),  # they are damaged in turn
)  # fmt: skip
# Fields of streams that live readers alone use, and one of an event that Spark hands on as its JSON.
UNUSED = {"result", "rejection", "messages", "seen_version", "items", "kind"}


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key in value:
            if key not in UNUSED:
                found += places_in(value[key], (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            found += places_in(each, (*path, at))
    return found


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    wire = msgspec.json.decode(SERIALIZER.encode_stream(draw(STREAMS)))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(places_in(wire)))
        holder = wire
        for step in path[:-1]:
            holder = holder[step]
        how = draw(st.sampled_from(["replace", "remove", "add"]))
        if how == "replace":
            holder[path[-1]] = draw(JUNK)
        elif how == "remove":
            del holder[path[-1]]
        elif isinstance(holder, dict):
            holder["more"] = draw(JUNK)
    return msgspec.json.encode(wire)


@given(damaged())
def test_all_readers_refuse_the_same_and_take_the_same_of_what_is_damaged(body: bytes) -> None:
    live = read_live(body)
    assert [read(body) for read in READERS] == [live] * len(READERS)


@given(STREAMS, st.data())
def test_a_body_refused_after_a_flipped_bit_is_refused_by_the_live_reader_too(
    stream: EventStream, data: st.DataObject
) -> None:
    body = bytearray(SERIALIZER.encode_stream(stream))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    live = read_live(bytes(body))
    for read in READERS:
        found = read(bytes(body))
        # Damage in what a reader passes over is none for it.
        assert found == live or (
            live in (UNDECODABLE, NO_STREAM) and found not in (NO_STREAM, UNDECODABLE)
        )


def change(old: bytes, new: bytes, event: DomainEvent | None = None) -> bytes:
    body = body_of(event or Plain(name="n", count=1))
    assert old in body
    return body.replace(old, new)


BAD_BODIES = {
    "text that is not UTF-8 in an event": change(b'"name":"n"', b'"name":"\xff"'),
    "text that is not UTF-8 in the stream": change(b'"Shop"', b'"\xff"'),
    "a version without events": change(b'"events":[', b'"events":[],"other":['),
    "events without a version": change(b'"version":1,"command_id"', b'"version":null,"command_id"'),
    "version 0": change(b'"version":1,"command_id"', b'"version":0,"command_id"'),
    "a moment without a time zone": change(b"12:00:00Z", b"12:00:00"),
    "an event without a name": change(b'"name":"Plain"', b'"name":""'),
    "an unknown event": change(b'"name":"Plain"', b'"name":"Gone"'),
    "an unknown version": change(b'"version":1,"data"', b'"version":2,"data"'),
    "an unknown field": change(b'"count":1', b'"count":1,"more":1'),
    "a number out of bounds": change(b'"count":1', b'"count":0', Bounded(count=1, name="n", price=1)),
    "a price out of bounds": change(b'"price":"1"', b'"price":"-1"', Bounded(count=1, name="n", price=1)),
    "a text out of bounds": change(b'"name":"n"', b'"name":"longer"', Bounded(count=1, name="n", price=1)),
    "a moment before the first year of UTC": change(b"2026-01-31T12:00:00Z", b"0001-01-01T00:00:00+14:00"),
    "a moment after the last year of UTC": change(b"2026-01-31T12:00:00Z", b"9999-12-31T23:59:59-14:00"),
    "fields that are no object": change(b'"data":{', b'"data":[],"other":{'),
}  # fmt: skip


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_no_reader_takes_a_damaged_body(body: bytes) -> None:
    assert [read(body) for read in (read_live, *READERS)] == [UNDECODABLE] * 3


@pytest.mark.parametrize(
    "body", [b"", b"junk", b"{}", b"\xff", b'{"aggregate_id":"\xff"}', b"[" * 9_999]
)
def test_all_readers_leave_out_what_is_no_stream(body: bytes) -> None:
    assert [read(body) for read in (read_live, *READERS)] == [NO_STREAM] * 3


@given(st.sampled_from(["command_id", "aggregate_type", "recorded_at"]), JUNK)
def test_damage_in_what_a_reader_does_not_ask_for_is_passed_over(name: str, value: Any) -> None:
    wire = msgspec.json.decode(body_of(Plain(name="n", count=1)))
    wire[name] = value
    sparing = Decoder(SERIALIZER, lambda _: True, context=())
    decoded = sparing.decode(QUEUE, Portion([0], [msgspec.json.encode(wire)]), 0)
    assert [(key, version) for key, version, _ in decoded.told] == [("a", 1)]
