"""The quick way to an event's fields and the way through its model give the same values."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from headrace.domain.message import Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream
from headrace.errors import NoEventStream, ProjectionError, SerializationError, UnknownMessageType
from headrace.projections.definition.shape import ColumnKind
from headrace.serialization import JsonSerializer
from headrace.spark.executor.decode import (
    EventField,
    LightEvent,
    StreamDecoder,
    fields_of,
    to_plain,
)


class Price(BaseModel):
    amount: int


class Paid(DomainEvent, version=2):
    word: str
    number: int = Field(ge=-(1 << 62))
    rate: float | None = 0.5
    cash: bool = True
    price: Decimal
    day: date
    at: datetime | None
    kind: Literal["a", "b"]
    parts: tuple[Price, ...]


class Shouted(DomainEvent):
    word: str

    @field_validator("word")
    @classmethod
    def _shout(cls, value: str) -> str:
        return value.upper()


class Ignored(DomainEvent):
    word: str


@pytest.fixture
def serializer() -> JsonSerializer:
    events: Registry[DomainEvent] = Registry("event")
    for event_type in (Paid, Shouted, Ignored):
        events.add(event_type)
    events.upcast("Paid", 1, lambda data: {**data, "price": "1.50"})
    commands: Registry[Command] = Registry("command")
    return JsonSerializer(commands, events)


@pytest.fixture
def decoder(serializer: JsonSerializer) -> StreamDecoder:
    return StreamDecoder(serializer, {each: fields_of(each) for each in (Paid, Shouted)})


def encode(data: dict[str, Any]) -> bytes:
    # As the serializer does.
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def light(event: DomainEvent, **changes: Any) -> LightEvent:
    data = encode({**event.model_dump(mode="json"), **changes})
    return LightEvent(name=event.message_name, version=event.message_version, data=data)


def paid(**changes: Any) -> Paid:
    given_fields: dict[str, Any] = {
        "word": "w",
        "number": 1,
        "price": Decimal("1.50"),
        "day": date(1970, 1, 2),
        "at": datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        "kind": "a",
        "parts": (Price(amount=7),),
    }
    return Paid(**(given_fields | changes))


def test_fields_come_in_their_plain_form(decoder: StreamDecoder) -> None:
    event_type, values = decoder.read(light(paid())) or (None, ())
    assert event_type is Paid
    assert values == ("w", 1, 0.5, True, "1.50", 1, 0, "a", '[{"amount":7}]')


@given(
    event=st.builds(
        Paid,
        word=st.text(),
        number=st.integers(-(1 << 62), (1 << 63) - 1),
        rate=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        cash=st.booleans(),
        price=st.decimals(-(10**9), 10**9, places=9),
        day=st.dates(),
        at=st.none() | st.datetimes(timezones=st.just(timezone(timedelta(hours=-3)))),
        kind=st.sampled_from("ab"),
        parts=st.lists(st.builds(Price, amount=st.integers(-9, 9)), max_size=2).map(tuple),
    )
)
def test_both_ways_give_the_same(event: Paid) -> None:
    events: Registry[DomainEvent] = Registry("event")
    events.add(Paid)
    decoder = StreamDecoder(JsonSerializer(Registry("command"), events), {Paid: fields_of(Paid)})
    stored = light(event)
    assert decoder._quick, "this event has a quick way"
    assert decoder.read(stored) == decoder._read_slowly(stored)


def test_what_only_the_model_takes_is_read_through_it(decoder: StreamDecoder) -> None:
    # As another writer may have stored it.
    read = decoder.read(light(paid(), number="12", cash="no"))
    assert read is not None
    assert read[1][1:4] == (12, 0.5, False)


def test_old_versions_and_models_with_rules_are_read_through_the_model(
    decoder: StreamDecoder,
) -> None:
    stored = json.loads(bytes(light(paid()).data))
    del stored["price"]
    old = LightEvent(name="Paid", version=1, data=encode(stored))
    read = decoder.read(old)
    assert read is not None
    assert (read[0], read[1][4], read[1][8]) == (Paid, "1.50", '[{"amount":7}]')
    assert decoder.read(light(Shouted(word="x"), word="now")) == (Shouted, ("NOW",))


def test_an_event_that_nobody_wants_is_known_and_not_looked_into(decoder: StreamDecoder) -> None:
    assert decoder.read(LightEvent(name="Ignored", version=1, data=b"{}")) is None


def test_what_does_not_fit_is_said(decoder: StreamDecoder) -> None:
    unknown = LightEvent(name="Nobody", version=1, data=b"{}")
    assert not decoder.knows(unknown)
    with pytest.raises(UnknownMessageType, match="no event 'Nobody' version 1"):
        decoder.read(unknown)
    with pytest.raises(SerializationError, match="Paid version 2"):
        decoder.read(light(paid(), number="many"))
    with pytest.raises(SerializationError, match="does not decode"):
        decoder.decode(b'{"aggregate_id": "a"}')
    with pytest.raises(NoEventStream, match="no event stream"):
        decoder.decode(b"{")


def test_a_stream_is_decoded_with_its_events_still_in_json(
    decoder: StreamDecoder, serializer: JsonSerializer
) -> None:
    stream = EventStream(
        aggregate_type="A",
        aggregate_id="a",
        version=3,
        command_id="c",
        correlation_id="d",
        recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
        events=(paid(), Ignored(word="x")),
    )
    found = decoder.decode(serializer.encode_stream(stream))
    assert (found.aggregate_id, found.version, found.recorded_at) == ("a", 3, stream.recorded_at)
    assert [(each.name, each.version) for each in found.events] == [("Paid", 2), ("Ignored", 1)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ColumnKind.DECIMAL, Decimal("1e-19")),
        (ColumnKind.DECIMAL, Decimal("1e20")),
        (ColumnKind.DECIMAL, Decimal("NaN")),
        (ColumnKind.TIMESTAMP, datetime.fromisoformat("2026-01-01")),
    ],
)
def test_a_value_that_spark_does_not_hold_is_refused(kind: ColumnKind, value: Any) -> None:
    with pytest.raises(ProjectionError):
        to_plain(kind, value)


def test_a_field_of_another_type_is_handed_on_as_json() -> None:
    kinds = {each.name: each.kind for each in fields_of(Paid)}
    assert kinds["parts"] is kinds["kind"] is None
    assert EventField(name="word", kind=ColumnKind.TEXT) in fields_of(Paid)


def test_what_is_not_asked_for_of_a_stream_is_passed_over(ledger: Any) -> None:
    serializer = ledger.serializer
    body = serializer.encode_stream(ledger.stream("a", 3, ledger.Ended()))
    whole: Any = StreamDecoder(serializer, {}).decode(body)
    spared: Any = StreamDecoder(serializer, {}, context=("sequence", "command_id")).decode(body)
    assert (spared.aggregate_id, spared.version, len(spared.events)) == ("a", 3, 1)
    assert spared.command_id == whole.command_id != ""
    assert not hasattr(spared, "aggregate_type")
    assert whole.aggregate_type != ""
