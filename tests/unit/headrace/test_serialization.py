"""Commands and streams to bytes and back; the format is what is stored for ever."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import serialization
from headrace.domain.message import AggregateId, ApplicationMessage, Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream, Rejection
from headrace.errors import SerializationError, UnknownMessageType
from headrace.serialization import (
    CommandEnvelope,
    JsonSerializer,
    decode_result,
    encode_result,
)


class Deposit(Command):
    account_id: AggregateId
    amount: int


class Deposited(DomainEvent, name="money.deposited", version=2):
    amount: int
    note: str = ""
    on: datetime | None = None


@pytest.fixture(scope="module")
def serializer() -> JsonSerializer:
    """Knows one command and one event."""
    commands: Registry[Command] = Registry("command")
    commands.add(Deposit)
    events: Registry[DomainEvent] = Registry("event")
    events.add(Deposited)
    return JsonSerializer(commands, events)


def stream(**changes: object) -> EventStream:
    fields: dict[str, object] = {
        "aggregate_type": "Account",
        "aggregate_id": "a-1",
        "version": 3,
        "command_id": "c-1",
        "correlation_id": "c-0",
        "recorded_at": datetime(2026, 1, 31, 12, 0, tzinfo=UTC),
        "events": (Deposited(amount=5),),
    }
    return EventStream(**(fields | changes))


REJECTION = Rejection(
    error="overdrawn",
    sentence="no money",
    command_name="Withdraw",
    command_version=1,
    command_data={"account_id": "a-1", "amount": 5},
)


def test_the_json_of_a_stream_is_as_it_is_drawn(serializer):
    assert json.loads(serializer.encode_stream(stream(result='{"balance":5}'))) == {
        "aggregate_type": "Account",
        "aggregate_id": "a-1",
        "version": 3,
        "command_id": "c-1",
        "correlation_id": "c-0",
        "recorded_at": "2026-01-31T12:00:00Z",
        "result": '{"balance":5}',
        "items": {},
        "events": [
            {
                "name": "money.deposited",
                "version": 2,
                "data": {"amount": 5, "note": "", "on": None},
            }
        ],
        "rejection": None,
    }


def test_the_json_of_a_command_is_as_it_is_drawn(serializer):
    envelope = CommandEnvelope(
        command=Deposit(account_id="a-1", amount=5), command_id="c-1", correlation_id="c-0"
    )
    assert json.loads(serializer.encode_command(envelope)) == {
        "name": "Deposit",
        "version": 1,
        "command_id": "c-1",
        "correlation_id": "c-0",
        "items": {},
        "data": {"account_id": "a-1", "amount": 5},
    }


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
items = st.dictionaries(texts, texts, max_size=3)
ids = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)
storable_ids = ids.filter(lambda text: "\0" not in text)
events = st.builds(
    Deposited,
    amount=st.integers(min_value=-(2**63), max_value=2**63 - 1),
    note=texts,
    on=st.none() | st.datetimes(timezones=st.just(UTC)),
)


@given(
    account_id=storable_ids,
    command_id=storable_ids,
    correlation_id=storable_ids,
    items=items,
    amount=st.integers(0, 2**62),
    delay=st.none() | st.integers(0, 366 * 86_400_000).map(lambda ms: timedelta(milliseconds=ms)),
)
def test_a_command_comes_back_as_it_was(
    serializer, account_id, command_id, correlation_id, items, amount, delay
):
    envelope = CommandEnvelope(
        command=Deposit(account_id=account_id, amount=amount),
        command_id=command_id,
        correlation_id=correlation_id,
        items=items,
        due=delay,
    )
    assert serializer.decode_command(serializer.encode_command(envelope)) == envelope


@pytest.mark.parametrize("delay_ms", ["-1", "1e3000", "31622400001", '"1"', "1.5"])
def test_a_delay_that_no_queue_has_is_refused(serializer, delay_ms):
    envelope = CommandEnvelope(
        command=Deposit(account_id="a-1", amount=5),
        command_id="c-1",
        correlation_id="c-0",
        due=timedelta(minutes=1),
    )
    body = serializer.encode_command(envelope)
    assert b'"delay_ms":60000' in body
    with pytest.raises(SerializationError, match="does not decode"):
        serializer.decode_command(body.replace(b"60000", delay_ms.encode()))


@given(
    aggregate_id=ids,
    version=st.integers(1, 2**40),
    events=st.lists(events, min_size=1, max_size=3),
    items=items,
    result=st.none() | texts,
    recorded_at=st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis wants it naive
)
def test_a_stream_comes_back_as_it_was(
    serializer, aggregate_id, version, events, items, result, recorded_at
):
    original = stream(
        aggregate_id=aggregate_id,
        version=version,
        events=tuple(events),
        items=items,
        result=result,
        recorded_at=recorded_at,
    )
    encoded = serializer.encode_stream(original)
    assert serializer.decode_stream(encoded) == original
    assert serializer.decode_stream(encoded.decode()) == original


def test_a_rejection_comes_back_as_it_was(serializer):
    original = stream(version=None, events=(), rejection=REJECTION)
    assert serializer.decode_stream(serializer.encode_stream(original)) == original


def test_a_time_of_another_zone_comes_back_as_the_same_moment_in_utc(serializer):
    elsewhere = datetime(2026, 1, 31, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    decoded = serializer.decode_stream(serializer.encode_stream(stream(recorded_at=elsewhere)))
    assert decoded.recorded_at == datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
    assert decoded.recorded_at.tzinfo is UTC


def test_fields_that_a_newer_version_added_around_a_message_are_ignored(serializer):
    encoded = json.loads(serializer.encode_stream(stream()))
    encoded["signature"] = "later"
    assert serializer.decode_stream(json.dumps(encoded)) == stream()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"name": 5}', b'{"events": {}}'])
def test_bytes_that_are_no_message_are_a_serialization_error(serializer, body):
    with pytest.raises(SerializationError, match="command message does not decode"):
        serializer.decode_command(body)
    with pytest.raises(SerializationError, match="event stream"):
        serializer.decode_stream(body)


@pytest.mark.parametrize(("name", "version"), [("Withdraw", 1), ("Deposit", 0)])
def test_an_unregistered_command_is_named_with_what_to_do(serializer, name, version):
    envelope = CommandEnvelope(
        command=Deposit(account_id="a", amount=1), command_id="c", correlation_id="c"
    )
    encoded = json.loads(serializer.encode_command(envelope)) | {"name": name, "version": version}
    with pytest.raises(
        UnknownMessageType, match=f"command '{name}' version {version} is not registered"
    ):
        serializer.decode_command(json.dumps(encoded).encode())


def test_an_unregistered_event_is_named_with_what_to_do(serializer):
    encoded = json.loads(serializer.encode_stream(stream()))
    encoded["events"][0]["version"] = 1
    with pytest.raises(UnknownMessageType, match=r"event 'money\.deposited' version 1"):
        serializer.decode_stream(json.dumps(encoded))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"account_id": "a"},
        {"account_id": "a", "amount": "x"},
        {"account_id": 1, "amount": 1},
        {"account_id": "a", "amount": 1, "more": 2},
    ],
)
def test_fields_that_do_not_fit_the_type_are_a_serialization_error_that_names_it(serializer, data):
    body = json.dumps(
        {"name": "Deposit", "version": 1, "command_id": "c", "correlation_id": "c", "data": data}
    )
    with pytest.raises(SerializationError, match="Deposit version 1"):
        serializer.decode_command(body.encode())


@pytest.mark.parametrize("value", [None, 5, "text", [1, {"a": None}], {"balance": 5}])
def test_a_result_is_json_and_comes_back(value):
    assert decode_result(encode_result(value)) == value


def test_no_result_stays_no_result_and_a_value_without_json_form_is_an_error():
    assert decode_result(None) is None
    with pytest.raises(SerializationError, match="must be a JSON value"):
        encode_result(object())


def test_a_published_stream_is_decoded_once_for_all_who_read_it_soon(serializer, monkeypatch):
    monkeypatch.setattr(serialization, "REMEMBERED_MAX", 2)
    bodies = [serializer.encode_stream(stream(command_id=f"c-{n}")) for n in range(3)]
    first = serializer.decode_published(bodies[0])
    assert first == serializer.decode_stream(bodies[0])
    assert serializer.decode_published(bytes(bytearray(bodies[0]))) is first
    assert serializer.decode_stream(bodies[0]) is not first
    for body in bodies[1:]:
        serializer.decode_published(body)
    assert serializer.decode_published(bodies[0]) is not first


def test_a_large_published_stream_is_not_kept(serializer, monkeypatch):
    body = serializer.encode_stream(stream())
    monkeypatch.setattr(serialization, "REMEMBERED_BYTES_MAX", len(body) - 1)
    assert serializer.decode_published(body) is not serializer.decode_published(body)


def test_a_published_stream_that_does_not_decode_fails_every_time(serializer):
    for _ in range(2):
        with pytest.raises(SerializationError):
            serializer.decode_published(b"{")


def test_a_stream_is_encoded_once_for_the_topic_and_the_store(serializer):
    decided = stream()
    body = serializer.encode_stream(decided)
    assert serializer.encode_stream(decided) is body
    # Equal is not the same: its parts may encode otherwise.
    assert serializer.encode_stream(stream()) == body
    assert serializer.encode_stream(stream()) is not body


def test_streams_encoded_and_not_asked_for_again_are_forgotten(serializer, monkeypatch):
    monkeypatch.setattr(serialization, "REMEMBERED_MAX", 2)
    streams = [stream(command_id=f"c-{n}") for n in range(3)]
    bodies = [serializer.encode_stream(each) for each in streams]
    again = [serializer.encode_stream(each) for each in streams]
    assert again == bodies
    assert again[0] is not bodies[0]


class Withdraw2(Command, name="Withdraw", version=2):
    account_id: AggregateId
    cents: int


def upcasting_serializer() -> JsonSerializer:
    commands: Registry[Command] = Registry("command")
    commands.add(Withdraw2)
    commands.upcast(
        "Withdraw",
        1,
        lambda data: {"account_id": data["account_id"], "cents": data["amount"] * 100},
    )
    events: Registry[DomainEvent] = Registry("event")
    events.add(Deposited)
    events.upcast("money.deposited", 1, lambda data: {**data, "note": "was version 1"})
    return JsonSerializer(commands, events)


def as_version_1(data: bytes) -> bytes:
    return data.replace(b'"version":2,"data"', b'"version":1,"data"')


@pytest.mark.parametrize("decode", ["decode_stream", "decode_published"])
def test_every_reader_of_a_stream_gets_old_events_in_the_newest_version(serializer, decode):
    old = as_version_1(serializer.encode_stream(stream()))
    with pytest.raises(UnknownMessageType):
        getattr(serializer, decode)(old)
    read = getattr(upcasting_serializer(), decode)(old)
    assert read == stream(events=(Deposited(amount=5, note="was version 1"),))


def test_what_was_upcast_is_written_again_in_the_newest_version(serializer):
    upcasting = upcasting_serializer()
    read = upcasting.decode_stream(as_version_1(serializer.encode_stream(stream())))
    assert serializer.decode_stream(upcasting.encode_stream(read)) == read


def test_a_queued_command_of_an_old_version_is_handled_in_the_newest():
    old = json.dumps(
        {
            "name": "Withdraw",
            "version": 1,
            "command_id": "c-1",
            "correlation_id": "c-1",
            "data": {"account_id": "a-1", "amount": 5},
        }
    )
    envelope = upcasting_serializer().decode_command(old.encode())
    assert envelope.command == Withdraw2(account_id="a-1", cents=500)


def test_whoever_reacts_to_a_rejection_gets_the_command_in_its_newest_version(serializer):
    rejected = stream(version=None, events=(), rejection=REJECTION)
    data = serializer.encode_stream(rejected)
    assert serializer.decode_stream(data) == rejected
    rejection = upcasting_serializer().decode_stream(data).rejection
    assert rejection is not None
    assert (rejection.command_name, rejection.command_version) == ("Withdraw", 2)
    assert rejection.command_data == {"account_id": "a-1", "cents": 500}


class Unheard(Command):
    account_id: AggregateId


class Unapplied(DomainEvent):
    pass


def test_what_nobody_could_decode_is_not_encoded(serializer):
    envelope = CommandEnvelope(command=Unheard(account_id="a"), command_id="c", correlation_id="c")
    with pytest.raises(UnknownMessageType, match=r"no handler is registered for Unheard"):
        serializer.encode_command(envelope)
    with pytest.raises(UnknownMessageType, match=r"no aggregate .* applies Unapplied"):
        serializer.encode_stream(stream(events=(Unapplied(),)))


class Told(ApplicationMessage, name="told", version=2):
    text: str


def telling_serializer() -> JsonSerializer:
    events: Registry[DomainEvent] = Registry("event")
    events.add(Deposited)
    messages: Registry[ApplicationMessage] = Registry("application message")
    messages.add(Told)
    messages.upcast("told", 1, lambda data: {"text": data["words"]})
    return JsonSerializer(Registry("command"), events, messages)


def test_a_stream_with_messages_is_read_back_whole_and_one_without_does_not_mention_them():
    serializer = telling_serializer()
    telling = stream(messages=(Told(text="one"), Told(text="two")))
    alone = stream(version=None, events=(), messages=(Told(text="one"),))
    for each in (telling, alone):
        assert serializer.decode_stream(serializer.encode_stream(each)) == each
    assert b"messages" not in serializer.encode_stream(stream())


def test_a_message_on_its_way_is_as_it_is_drawn_and_upcast():
    serializer = telling_serializer()
    ((message, context),) = stream(messages=(Told(text="one"),)).message_contexts()
    data = serializer.encode_message(message, context)
    assert json.loads(data) == {
        "name": "told",
        "version": 2,
        "message_id": "a-1/c-1/1",
        "aggregate_id": "a-1",
        "command_id": "c-1",
        "correlation_id": "c-0",
        "recorded_at": "2026-01-31T12:00:00Z",
        "data": {"text": "one"},
        "items": {},
    }
    assert serializer.decode_message(data) == (message, context)
    old = data.replace(b'"version":2', b'"version":1').replace(b'"text"', b'"words"')
    assert serializer.decode_message(old) == (message, context)


def test_a_message_that_nobody_could_decode_is_not_encoded(serializer):
    telling = stream(messages=(Told(text="one"),))
    ((message, context),) = telling.message_contexts()
    with pytest.raises(UnknownMessageType, match=r"Told is not part of the application"):
        serializer.encode_stream(telling)
    with pytest.raises(UnknownMessageType, match=r"Told is not part of the application"):
        serializer.encode_message(message, context)
    with pytest.raises(SerializationError, match="an application message does not decode"):
        serializer.decode_message(b"{")


@pytest.mark.parametrize("account_id", ["", "x" * 256, "a\0"])
def test_an_envelope_of_an_unusable_aggregate_id_is_not_made(account_id):
    with pytest.raises(ValueError, match=r"an aggregate id (has|must not contain)"):
        CommandEnvelope(
            command=Deposit(account_id=account_id, amount=1), command_id="c", correlation_id="c"
        )


def test_an_envelope_renders_the_aggregate_id_once_and_is_equal_without_it():
    command = Deposit(account_id="a", amount=1)
    envelope = CommandEnvelope(command=command, command_id="c", correlation_id="c")
    assert envelope.aggregate_id == "a"
    assert envelope == CommandEnvelope(command=command, command_id="c", correlation_id="c")


class Loose(DomainEvent):
    value: Any


class LooseCommand(Command):
    account_id: AggregateId
    value: Any


class LooseMessage(ApplicationMessage):
    value: Any


def test_what_would_come_back_as_something_else_is_not_encoded():
    commands, events, messages = Registry("command"), Registry("event"), Registry("message")
    commands.add(LooseCommand)
    events.add(Loose)
    messages.add(LooseMessage)
    serializer = JsonSerializer(commands, events, messages)
    odd = date(2026, 1, 1)
    refused = "Loose.*: field value holds a value of date, which comes back as one of str"
    with pytest.raises(SerializationError, match=refused):
        serializer.encode_stream(stream(events=(Loose(value=odd),)))
    with pytest.raises(SerializationError, match=refused):
        serializer.encode_stream(
            stream(version=None, events=(), messages=(LooseMessage(value=odd),))
        )
    with pytest.raises(SerializationError, match=refused):
        serializer.encode_command(
            CommandEnvelope(
                command=LooseCommand(account_id="a", value=odd), command_id="c", correlation_id="c"
            )
        )
    whole = stream(events=(Loose(value=[1, "a"]),))
    assert serializer.decode_stream(serializer.encode_stream(whole)) == whole


@pytest.mark.parametrize("odd", ["", "a\0", "x" * 256, "\ud800"])
def test_an_envelope_has_ids_that_the_event_store_can_keep(odd):
    command = Deposit(account_id="a", amount=1)
    with pytest.raises(ValueError, match="a command id"):
        CommandEnvelope(command=command, command_id=odd, correlation_id="c")
    with pytest.raises(ValueError, match="a correlation id"):
        CommandEnvelope(command=command, command_id="c", correlation_id=odd)
