"""Personal fields of all kinds of messages, through the serializer."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest

from headrace.domain.message import AggregateId, ApplicationMessage, Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream, Rejection
from headrace.errors import DefinitionError, SerializationError
from headrace.serialization import CommandEnvelope, JsonSerializer
from headrace.subjects.keys import MemoryKeys
from headrace.subjects.personal import Personal


def stream(**fields: Any) -> EventStream:
    return EventStream(
        aggregate_type="Customer", aggregate_id="c-1", command_id="1", correlation_id="1",
        recorded_at=datetime(2026, 1, 31, tzinfo=UTC), **fields,
    )  # fmt: skip


Email = Annotated[str, Personal(subject="customer_id")]
ANN = "ann@example.org"


class Register(Command):
    customer_id: AggregateId
    email: Email


class Registered(DomainEvent, version=2):
    customer_id: str
    email: Email
    year: Annotated[int, Personal(subject="customer_id", placeholder=0)] = 1971


class Welcomed(ApplicationMessage):
    customer_id: str
    email: Email


def of_persons(keys: MemoryKeys | None) -> JsonSerializer:
    commands: Registry[Command] = Registry("command")
    commands.add(Register)
    events: Registry[DomainEvent] = Registry("event")
    events.add(Registered)
    events.upcast("Registered", 1, lambda data: {"customer_id": data["id"], "email": data["mail"]})
    messages: Registry[ApplicationMessage] = Registry("application message")
    messages.add(Welcomed)
    return JsonSerializer(commands, events, messages, keys)


def test_personal_fields_need_keys():
    with pytest.raises(DefinitionError, match="nothing keeps their keys: give keys"):
        of_persons(None)


def test_personal_fields_are_sealed_in_all_that_is_encoded_and_read_as_placeholders_once_forgotten():
    keys = MemoryKeys()
    refused = Rejection(
        error="taken", sentence="", command_name="Register", command_version=1,
        command_data={"customer_id": "c-1", "email": ANN},
    )  # fmt: skip
    fields: Any = {"customer_id": "c-1", "email": ANN}
    command = CommandEnvelope(command=Register(**fields), command_id="1", correlation_id="1")
    decided = stream(version=1, events=(Registered(**fields),), messages=(Welcomed(**fields),))
    rejected = stream(version=None, events=(), rejection=refused)
    made = of_persons(keys)
    bodies = [made.encode_stream(decided), made.encode_stream(rejected)]
    sent = made.encode_command(command)
    assert not [body for body in (*bodies, sent) if ANN.encode() in body or b"1971" in body]
    assert [of_persons(keys).decode_stream(body) for body in bodies] == [decided, rejected]
    assert of_persons(keys).decode_command(sent) == command
    keys.forget("c-1")
    forgotten, still_rejected = (of_persons(keys).decode_stream(body) for body in bodies)
    gone: Any = {"customer_id": "c-1", "email": "[forgotten]"}
    assert forgotten.events == (Registered(**gone, year=0),)
    assert forgotten.messages == (Welcomed(**gone),)
    assert still_rejected.rejection is not None
    assert still_rejected.rejection.command_data == gone
    assert of_persons(keys).decode_command(sent).command == Register(**gone)


def test_a_personal_field_is_opened_before_its_upcaster_sees_it():
    serializer = of_persons(MemoryKeys())
    cipher: Any = serializer.events.cipher
    data = {"id": "c-1", "mail": ANN}
    old = cipher.seal("Registered", {"mail": Personal(subject="id")}, data)
    found, fields = serializer.events.resolve("Registered", 1, old)
    assert (found, fields) == (Registered, {"customer_id": "c-1", "email": ANN})


def test_the_error_of_a_personal_message_tells_no_value():
    serializer = of_persons(MemoryKeys())
    command = CommandEnvelope(
        command=Register(customer_id="c-1", email=ANN), command_id="1", correlation_id="1"
    )
    wrong = json.loads(serializer.encode_command(command))
    wrong["data"]["extra"] = "secret"
    with pytest.raises(SerializationError, match="extra_forbidden") as raised:
        serializer.decode_command(json.dumps(wrong).encode())
    assert "secret" not in str(raised.value)
