"""
What one command did: events of one aggregate with one version, messages, a rejection, or nothing.

Used by `commands`, which makes streams, and by the stores and topics that keep them. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final

from headrace.domain.message import (
    ApplicationMessage,
    DomainEvent,
    EventContext,
    MessageContext,
)

__all__ = ["EventStream", "Rejection", "stream_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a command was rejected.

    Attributes:
        error: the domain error's `code`, or else its class name: for a machine.
        sentence: for a person.
        command_name: registered name of the rejected command.
        command_version: registered version of the rejected command.
        command_data: the rejected command's own fields, as JSON values.
    """

    error: str
    sentence: str
    command_name: str
    command_version: int
    command_data: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStream:
    """The events that one command caused on one aggregate, to be stored whole or not at all.

    A command may publish application messages; a stream without events takes no version. A rejected
    command leaves a stream without events, whose `version` is None and whose `rejection` says why;
    a duplicate of the command finds it. A command that changed nothing leaves a stream
    with neither events nor a rejection, which is never published.

    Attributes:
        aggregate_type: registered name of the aggregate class.
        aggregate_id: whose events they are.
        version: the aggregate's version after them, from 1; None for a rejection.
        command_id: what caused them; unique per aggregate.
        correlation_id: first command of the chain.
        recorded_at: when they were decided, UTC.
        events: in order; those with a version have one or more, others none.
        messages: application messages, in order.
        result: what the handler handed to `set_result`, as JSON text; None if it did not.
        items: text values that came with the command.
        rejection: why the command was rejected, or None.
        seen_version: for a command that changed nothing, the version of the aggregate that its handler
            read; None: it read none.
    """

    aggregate_type: str
    aggregate_id: str
    version: int | None
    command_id: str
    correlation_id: str
    recorded_at: datetime
    events: tuple[DomainEvent, ...] = ()
    messages: tuple[ApplicationMessage, ...] = ()
    result: str | None = None
    items: Mapping[str, str] = field(default_factory=dict)
    rejection: Rejection | None = None
    seen_version: int | None = None

    def __post_init__(self) -> None:
        if (self.version is None) != (not self.events):
            raise ValueError("a stream has a version and events, or neither")
        if self.rejection is not None and (self.events or self.messages):
            raise ValueError("a stream has events or messages, or a rejection and neither")
        if self.seen_version is not None and not self.unchanged:
            raise ValueError(
                "only a stream that changed nothing has a version that it only looked at"
            )

    @property
    def unchanged(self) -> bool:
        """Whether the command changed nothing, published nothing and was not rejected."""
        return not (self.events or self.messages or self.rejection)

    def contexts(self) -> list[tuple[DomainEvent, EventContext]]:
        """Pairs each event with its context, in order."""
        if self.version is None:
            return []
        return [
            (
                event,
                EventContext(
                    aggregate_type=self.aggregate_type,
                    aggregate_id=self.aggregate_id,
                    version=self.version,
                    sequence=sequence,
                    command_id=self.command_id,
                    correlation_id=self.correlation_id,
                    recorded_at=self.recorded_at,
                    items=dict(self.items),
                ),
            )
            for sequence, event in enumerate(self.events, start=1)
        ]

    def message_contexts(self) -> list[tuple[ApplicationMessage, MessageContext]]:
        """Pairs each application message with its context, in order."""
        return [
            (
                message,
                MessageContext(
                    message_id=f"{self.aggregate_id}/{self.command_id}/{place}",
                    aggregate_id=self.aggregate_id,
                    command_id=self.command_id,
                    correlation_id=self.correlation_id,
                    recorded_at=self.recorded_at,
                    items=dict(self.items),
                ),
            )
            for place, message in enumerate(self.messages, start=1)
        ]


_new: Final = object.__new__
# What puts a value into each field of a frozen stream, in their order.
_PUT: Final = tuple(vars(EventStream)[each.name].__set__ for each in fields(EventStream))


def stream_of(*values: Any) -> EventStream:
    """Makes a stream of the values of all its fields, in their order: for decoders of many.

    `EventStream(…)` looks each field up by its name, which costs more than the rest of it.

    Raises:
        ValueError: a stream cannot be like that.
    """
    stream = _new(EventStream)
    for put, value in zip(_PUT, values, strict=True):
        put(stream, value)
    stream.__post_init__()
    return stream
