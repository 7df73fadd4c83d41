"""
Messages of the event topic to what folds take: events with their contexts, and nothing else.

Each body is read once, straight into the fields of the events that a rule reacts to; those of other
types are passed over unread. An event whose model has no rules of its own is made of them as they
are; declared folds take the fields themselves, and the stream for their context. Old versions,
unknown types and fields that do not fit go the way that the live projection takes, which gives the
same values or says what is wrong.

Used by the parts of a rebuild; reads what `domain.stream_body` declares. It must not know a broker.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC
from typing import Any, Final, NamedTuple

import msgspec

from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.stream import EventStream
from headrace.domain.stream_body import (
    MALFORMED,
    aggregate_of,
    body_reader,
    check_version,
    event_kinds,
)
from headrace.domain.unchecked import make_unchecked, plain_fields
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.projections.definition.fold import EVENT_TYPE, Fact
from headrace.projections.definition.projection import Projection
from headrace.rebuild.event_topic import Portion
from headrace.serialization import JsonSerializer
from headrace.subscriptions.foreign import stream_or_none
from headrace.transports.base import QueueId

__all__ = ["Decoded", "Decoder", "Told", "Undecodable", "context_read", "tell"]

# A stream on its way through a rebuild: aggregate, version, and its facts that are wanted.
Told = tuple[str, int, Sequence[Fact]]
Wanted = Callable[[type[DomainEvent]], bool]
# What makes events of a kind: their class (None: they are passed over), and the names of its fields if
# it needs no more than their values.
_Way = tuple[type[DomainEvent] | None, set[str] | None]

_PASSED_OVER: Final[_Way] = (None, None)
_values_of: Final = msgspec.structs.asdict
# What every event has a context of.
_CONTEXT: Final = frozenset(
    {"aggregate_type", "command_id", "correlation_id", "recorded_at", "items"}
)


class Decoded(NamedTuple):
    """The next streams of a queue, up to an offset, exclusive.

    Attributes:
        end: that offset.
        offsets: where each stream stands.
        told: the streams.
        counts: how many events each has, wanted or not.
    """

    end: int
    offsets: Sequence[int]
    told: Sequence[Told]
    counts: Sequence[int]


class Undecodable(ProjectionError):
    """A message of the topic does not decode; those that have it behind them do not mind."""

    def __init__(
        self, queue: QueueId, offset: int, error: Exception, aggregate_id: str | None = None
    ) -> None:
        topic, number = queue
        whose = "" if aggregate_id is None else f" (aggregate {aggregate_id})"
        super().__init__(
            f"the event message at {topic}/{number} offset {offset}{whose} does not decode: {error}"
        )
        self.offset = offset


class Decoder:
    """Decodes portions of the topic.

    Args:
        serializer: knows the event types and the ways from old versions.
        wanted: whether any rule reacts to events of a type.
        context: what is read of contexts, where events and contexts may come as they are stored;
            None: they have to be models.
    """

    def __init__(
        self,
        serializer: JsonSerializer,
        wanted: Wanted,
        *,
        context: Collection[str] | None = None,
    ) -> None:
        self._serializer = serializer
        self._wanted = wanted
        self._make = self._facts if context is None else self._stored_facts
        events, types = event_kinds(
            serializer.events, lambda each: _fields_of(each) if wanted(each) else None
        )
        self._ways = {
            kind: _way_to(each) if wanted(each) else _PASSED_OVER for kind, each in types.items()
        }
        read = _CONTEXT if context is None else _CONTEXT.intersection(context)
        self._decode = body_reader("aggregate_id", "version", *read, events=events)

    def decode(self, queue: QueueId, portion: Portion, start: int) -> Decoded:
        """Decodes from an offset on, without rejections and without what took no version.

        Raises:
            Undecodable: the first message that does not decode.
        """
        cipher = self._serializer.cipher
        if cipher is not None:
            cipher.find_all(portion.bodies)
        offsets: list[int] = []
        told: list[Told] = []
        counts: list[int] = []
        facts: Sequence[Fact]
        decode, make = self._decode, self._make
        for offset, body in zip(portion.offsets, portion.bodies, strict=True):
            if offset < start:
                continue
            try:
                wire = decode(body)
                if wire.version is None or not wire.events:
                    check_version(wire)
                    continue
                facts = make(wire)
            except MALFORMED:
                found = self._decode_slowly(queue, offset, body)
                if found is None or found.version is None:
                    continue
                wire, facts = found, found.contexts()
            offsets.append(offset)
            told.append((wire.aggregate_id, wire.version, facts))
            counts.append(len(wire.events))
        return Decoded(portion.offsets[-1] + 1, offsets, told, counts)

    def _facts(self, wire: Any) -> list[Fact]:
        """Makes the wanted events of a stream that has a version."""
        ways, recorded_at = self._ways, wire.recorded_at
        if recorded_at.tzinfo is not UTC:
            recorded_at = recorded_at.astimezone(UTC)
        facts: list[Fact] = []
        for sequence, kind in enumerate(wire.events, start=1):
            event_type, names = ways[type(kind)]
            if event_type is None:
                continue
            if names is None:
                event = event_type.__pydantic_validator__.validate_python(kind.data)
            else:
                event = make_unchecked(event_type, _values_of(kind.data), names)
            context = EventContext(
                aggregate_type=wire.aggregate_type,
                aggregate_id=wire.aggregate_id,
                version=wire.version,
                sequence=sequence,
                command_id=wire.command_id,
                correlation_id=wire.correlation_id,
                recorded_at=recorded_at,
                items=wire.items if sequence == 1 else wire.items.copy(),
            )
            facts.append((event, context))
        return facts

    def _stored_facts(self, wire: Any) -> Sequence[Any]:
        """Takes the wanted events of a stream that has a version as they are."""
        ways = self._ways
        facts: list[Any] = []
        for kind in wire.events:
            event_type, names = ways[type(kind)]
            if event_type is None:
                continue
            if names is None:
                kind.data = event_type.__pydantic_validator__.validate_python(kind.data)
            facts.append((kind.data, wire))
        return facts

    def _decode_slowly(self, queue: QueueId, offset: int, body: bytes) -> EventStream | None:
        try:
            return stream_or_none(self._serializer.decode_stream, body, queue, offset)
        except (SerializationError, UnknownMessageType) as error:
            raise Undecodable(queue, offset, error, aggregate_of(body)) from error


def context_read(projections: Iterable[Projection[Any]]) -> frozenset[str] | None:
    """Returns what projections read of contexts; None where one of them needs whole ones."""
    found: set[str] = set()
    for projection in projections:
        read = projection.context_read
        # What is stored is the place of an event among those of its command, not the number.
        if read is None or "sequence" in read:
            return None
        found |= read
    return frozenset(found)


def tell(stream: EventStream, wanted: Wanted) -> Told:
    """Returns a stream, which is no rejection, as it goes through a rebuild."""
    assert stream.version is not None, "rejections tell nothing"
    facts = [fact for fact in stream.contexts() if wanted(type(fact[0]))]
    return stream.aggregate_id, stream.version, facts


def _way_to(event_type: type[DomainEvent]) -> _Way:
    fields = plain_fields(event_type)
    return event_type, None if fields is None else set(fields)


def _fields_of(event_type: type[DomainEvent]) -> Any:
    """Returns what the fields of an event are read into."""
    fields = plain_fields(event_type)
    if fields is None:
        return dict[str, Any]
    return msgspec.defstruct(
        "Data",
        list(fields.items()),
        namespace={EVENT_TYPE: event_type},
        gc=False,
        forbid_unknown_fields=True,
    )
