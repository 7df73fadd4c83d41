"""
The JSON of a stream, declared once: for the serializer, and for all that read some of it.

    {"aggregate_type": "Account", "aggregate_id": "a-1", "version": 3, "command_id": "…",
     "correlation_id": "…", "recorded_at": "2026-01-31T12:00:00.000000Z", "result": null,
     "items": {}, "events": [{"name": "Deposited", "version": 1, "data": {"amount": 5}}],
     "rejection": null}

with `"messages"`, of the form of events, only where there are application messages, and
`"seen_version"` only where the command changed nothing.

A reader names the fields that it uses and passes over the others without a look. An event that it
uses is read whole, straight into its fields, where msgspec takes the same values as the model. What
two readers use, both take or both refuse. Pure.
"""

from collections.abc import Callable
from datetime import datetime
from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, Final, Literal

import msgspec

from headrace.domain.message import DomainEvent
from headrace.domain.registry import Registry
from headrace.errors import NoEventStream, SerializationError

__all__ = [
    "MALFORMED",
    "MessageBody",
    "RejectionBody",
    "StreamBody",
    "aggregate_of",
    "body_error",
    "body_reader",
    "check_version",
    "event_kinds",
    "origin_of",
]

# What reading a body raises: text that is not UTF-8, or a moment out of bounds, is no error of msgspec.
MALFORMED: Final = (ValueError, OverflowError, RecursionError)
# A field of the kind that is there where an application has no events: no value fits it.
_NEVER: Final = ("version", Annotated[int, msgspec.Meta(ge=1, le=0)])


# None of them lives long enough, or refers back, to be of interest to the garbage collector, which
# would otherwise cost as much as decoding.
class MessageBody(msgspec.Struct, gc=False):
    """An event, or an application message, in a stream."""

    name: str
    version: int
    data: dict[str, Any]


class RejectionBody(msgspec.Struct, gc=False):
    """Why a command was rejected."""

    error: str
    sentence: str
    command_name: str
    command_version: int
    command_data: dict[str, Any]


class StreamBody(msgspec.Struct, gc=False):
    """All of a stream; see `EventStream` for what the fields mean."""

    aggregate_type: str
    aggregate_id: str
    version: Annotated[int, msgspec.Meta(ge=1)] | None
    command_id: str
    correlation_id: str
    # Of a moment without a time zone it is not known which one it is.
    recorded_at: Annotated[datetime, msgspec.Meta(tz=True)]
    result: str | None = None
    items: dict[str, str] = {}
    events: list[MessageBody] = []
    rejection: RejectionBody | None = None
    messages: list[MessageBody] | msgspec.UnsetType = msgspec.UNSET
    seen_version: int | msgspec.UnsetType = msgspec.UNSET


_FIELDS: Final = {each.name: each for each in msgspec.structs.fields(StreamBody)}


def body_reader(*names: str, events: Any = None) -> Callable[[bytes | str], Any]:
    """Returns what reads these fields of a body, and raises one of `MALFORMED`.

    Args:
        names: of the fields.
        events: the type of each event; None: they are not read.
    """
    fields: list[tuple[str, Any, Any]] = []
    for name, field in _FIELDS.items():
        factory = field.default_factory
        default: Any = field.default
        if factory is not msgspec.NODEFAULT:
            default = msgspec.field(default_factory=factory)
        if name == "events" and events is not None:
            fields.append((name, GenericAlias(list, (events,)), default))
        elif name in names:
            fields.append((name, field.type, default))
    body = msgspec.defstruct("Body", fields, kw_only=True, gc=False)
    return msgspec.json.Decoder(body).decode


def event_kinds(
    registry: Registry[DomainEvent], data_of: Callable[[type[DomainEvent]], Any]
) -> tuple[Any, dict[type, type[DomainEvent]]]:
    """Returns the type of an event for `body_reader`, and which class its instances are of.

    Each name has a kind, which takes the newest version alone; a body with another event, or with
    personal fields that are wanted, is refused, and is to be read in another way.

    Args:
        registry: the event types that may come in.
        data_of: of each the type that its fields are read into; `msgspec.Raw`: they stay in JSON, and
            the kind takes every version; None: they are passed over.
    """
    newest: dict[str, int] = {}
    for name, version in registry.types:
        newest[name] = max(version, newest.get(name, version))
    kinds = [msgspec.defstruct("Nameless", [_NEVER], tag_field="name", tag="", gc=False)]
    types: dict[type, type[DomainEvent]] = {}
    for name, version in newest.items():
        event_type = registry.find(name, version)
        data = data_of(event_type)
        if event_type.message_personal and data not in (None, msgspec.Raw):
            continue  # What is stored has to be opened first.
        fields: list[Any] = [("version", int if data is msgspec.Raw else Literal[version])]
        fields += [] if data is None else [("data", data)]
        kind = msgspec.defstruct(
            "Kind", fields, tag_field="name", tag=name, namespace={"name": name}, gc=False
        )
        types[kind] = event_type
        kinds.append(kind)
    return reduce(or_, kinds), types


def check_version(stream: Any) -> None:
    """Returns if a stream, or a body of one, has a version and events, or neither.

    Raises:
        ValueError: it has one without the other.
    """
    if (stream.version is None) != (not stream.events):
        raise ValueError("a stream has a version and events, or neither")


def body_error(data: bytes | str, error: Exception) -> SerializationError:
    """Returns the error for a body, which is another one where no aggregate waits for it."""
    if aggregate_of(data) is None:
        return NoEventStream(f"a message is no event stream: {error}")
    return SerializationError(f"an event stream does not decode: {error}")


_read_owner: Final = body_reader("aggregate_id")
_read_origin: Final = body_reader("aggregate_id", "command_id")


def aggregate_of(body: bytes | str) -> str | None:
    """Returns whose events a body holds; None where that does not stand in it."""
    try:
        owner: str = _read_owner(body).aggregate_id
    except MALFORMED:
        return None
    return owner


def origin_of(body: bytes) -> tuple[str, str] | None:
    """Returns the aggregate and the command a body's events are of; None where it does not say."""
    try:
        origin = _read_origin(body)
    except MALFORMED:
        return None
    return origin.aggregate_id, origin.command_id
