"""
Events on their way to the rows that they touch: each decoded from its stream, and alone in the shuffle.

    a message ─▶ decode ─▶ its events that a rule reacts to ─▶ the gate ─▶ find ─▶ a key, and one event
    what travels ─▶ read ─▶ the event, its context and the rule

A stream may have thousands of events: what goes to a key is the one that touches it, as it is stored,
with its context. Several touches of one event repeat that alone. Old versions travel as old versions.

Used by `fold`, which moves records; reads what `domain.stream_body` declares. It must not know Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.stream import EventStream
from headrace.domain.stream_body import MALFORMED, body_reader, check_version, event_kinds
from headrace.domain.unchecked import make_unchecked, plain_fields
from headrace.errors import SerializationError, UnknownMessageType
from headrace.projections.definition.fold import Fact, raise_poisoned
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.rules import CompiledRule
from headrace.serialization import JsonSerializer
from headrace.spark.executor.decode import LightEvent
from headrace.spark.rows import RowCodec

__all__ = ["FoldedStream", "KeyRows", "Touches"]

# In the number of a touch: the event's place in its stream, then the rule's among those for it.
_RULE_BITS: Final = 16
_RULE_MASK: Final = (1 << _RULE_BITS) - 1

_CONTEXT: Final = ("aggregate_type", "command_id", "correlation_id", "recorded_at", "items")
_UNREADABLE: Final = (*MALFORMED, SerializationError, UnknownMessageType)

_values_of: Final = msgspec.structs.asdict
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_fields: Final = msgspec.json.Decoder(dict[str, Any]).decode
_decode_light: Final = body_reader(events=LightEvent)


class FoldedStream(NamedTuple):
    """A stream with those of its events that a rule reacts to.

    Attributes:
        aggregate_id: whose events they are.
        version: the aggregate's version after them; None: it has none.
        events: all of them, for the gate, which counts.
        facts: the events that a rule reacts to, with their contexts.
        stored: the same as they are stored, with name, version and data.
    """

    aggregate_id: str
    version: int | None
    events: Sequence[Any]
    facts: Sequence[Fact]
    stored: Sequence[Any]


class _Travelling(msgspec.Struct, array_like=True, gc=False):
    """An event and its context, in the order in which `Touches.find` writes them."""

    name: str
    schema: int
    data: bytes
    aggregate_type: str
    aggregate_id: str
    version: int
    command_id: str
    correlation_id: str
    recorded_at: datetime
    items: dict[str, str]


_decode_travelling: Final = msgspec.msgpack.Decoder(_Travelling).decode


class Touches:
    """Finds the rows that events touch, and reads the events again where the rows are folded.

    Args:
        serializer: knows the event types and the ways from old versions.
        projection: whose rules they are.
    """

    def __init__(self, serializer: JsonSerializer, projection: Projection[Any]) -> None:
        self._serializer = serializer
        self._projection = projection
        self._registry = serializer.events
        wanted = projection.reacts_to
        kinds, types = event_kinds(
            serializer.events, lambda each: msgspec.Raw if wanted(each) else None
        )
        self._wanted = frozenset(kind for kind, each in types.items() if wanted(each))
        self._decode = body_reader("aggregate_id", "version", *_CONTEXT, events=kinds)
        self._ways = {
            key: way
            for key, each in serializer.events.types.items()
            if wanted(each) and (way := _way_to(each)) is not None
        }

    def decode(self, body: bytes) -> FoldedStream:
        """Decodes a message of the event topic.

        Raises:
            SerializationError, UnknownMessageType: as `JsonSerializer.decode_stream`; but events that
                no rule reacts to are passed over unread.
        """
        try:
            wire = self._decode(body)
            if wire.version is None or not wire.events:
                check_version(wire)
                return FoldedStream(wire.aggregate_id, None, (), (), ())
            return self._folded(wire)
        except _UNREADABLE:
            # Which old versions and unknown events there are is for the serializer to say.
            return self._decode_slowly(body)

    def _folded(self, wire: Any) -> FoldedStream:
        recorded_at, wanted = wire.recorded_at, self._wanted
        if recorded_at.tzinfo is not UTC:
            recorded_at = recorded_at.astimezone(UTC)
        facts: list[Fact] = []
        stored: list[Any] = []
        for sequence, event in enumerate(wire.events, start=1):
            if type(event) not in wanted:
                continue
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
            facts.append((self._event(event.name, event.version, event.data), context))
            stored.append(event)
        return FoldedStream(wire.aggregate_id, wire.version, wire.events, facts, stored)

    def _decode_slowly(self, body: bytes) -> FoldedStream:
        stream: EventStream = self._serializer.decode_stream(body)
        reacts_to = self._projection.reacts_to
        pairs = [
            (fact, stored)
            for fact, stored in zip(stream.contexts(), _decode_light(body).events, strict=False)
            if reacts_to(type(fact[0]))
        ]
        facts, stored = [fact for fact, _ in pairs], [each for _, each in pairs]
        return FoldedStream(stream.aggregate_id, stream.version, stream.events, facts, stored)

    def find(self, stream: FoldedStream) -> Iterator[tuple[str, int, bytes]]:
        """Yields each key that an event touches, and the event for it as `read` takes it: two values.

        Raises:
            ProjectionError: a key function raised, or made an unusable key; names the event.
        """
        rules_for = self._projection.rules_for
        for (event, context), stored in zip(stream.facts, stream.stored, strict=True):
            data = b""
            for place, rule in enumerate(rules_for(type(event))):
                try:
                    keys = rule.keys(event, context)
                except Exception as error:  # noqa: BLE001 - raised as a ProjectionError
                    raise_poisoned(self._projection, event, context, error)
                if keys and not data:
                    data = _encode(
                        (
                            stored.name,
                            stored.version,
                            memoryview(stored.data),
                            context.aggregate_type,
                            context.aggregate_id,
                            context.version,
                            context.command_id,
                            context.correlation_id,
                            context.recorded_at,
                            context.items,
                        )
                    )
                number = context.sequence << _RULE_BITS | place
                for key in keys:
                    yield key, number, data

    def read(self, number: int, data: bytes) -> tuple[DomainEvent, EventContext, CompiledRule[Any]]:
        """Returns an event that touches a row, its context, and the rule by which it does."""
        stored = _decode_travelling(data)
        event = self._event(stored.name, stored.schema, stored.data)
        context = EventContext(
            aggregate_type=stored.aggregate_type,
            aggregate_id=stored.aggregate_id,
            version=stored.version,
            sequence=number >> _RULE_BITS,
            command_id=stored.command_id,
            correlation_id=stored.correlation_id,
            recorded_at=stored.recorded_at,
            items=stored.items,
        )
        return event, context, self._projection.rules_for(type(event))[number & _RULE_MASK]

    def _event(self, name: str, version: int, data: bytes | msgspec.Raw) -> DomainEvent:
        way = self._ways.get((name, version))
        if way is not None:
            try:
                return way(data)
            except MALFORMED:
                pass  # The model may take what msgspec does not.
        found, fields = self._registry.resolve(name, version, _decode_fields(data))
        made: DomainEvent = found.__pydantic_validator__.validate_python(fields)
        return made


class KeyRows:
    """The rows of keys that come one after the other: of each, one row and no event is in memory.

    Args:
        projection: whose rows.
        touches: reads what travels.
        codec: decodes rows from before.
    """

    def __init__(self, projection: Projection[Any], touches: Touches, codec: RowCodec[Any]) -> None:
        self._projection = projection
        self._read = touches.read
        self._codec = codec
        self._key = ""
        self._row: Any = None
        self._touched = False

    def take(self, records: Iterable[tuple[str, int, bytes]]) -> Iterator[tuple[str, Any]]:
        """Folds events in order, and yields the rows of keys that are done; None: it is deleted.

        Args:
            records: per key the row from before, if there is one, with the number 0; then what
                `Touches.find` has found for it.

        Raises:
            ProjectionError: a fold raised, or made an unusable row; names the event.
        """
        for key, number, data in records:
            if key != self._key:
                yield from self.finish()
                self._key, self._row = key, None
            if number == 0:
                self._row = self._codec.row(data)
                continue
            event, context, rule = self._read(number, data)
            try:
                self._row = rule.next_row(self._row, event, context, key)
            except Exception as error:  # noqa: BLE001 - raised as a ProjectionError
                raise_poisoned(self._projection, event, context, error)
            self._touched = True

    def finish(self) -> Iterator[tuple[str, Any]]:
        """Yields the row of the last key, if an event has touched it."""
        if self._touched:
            yield self._key, self._row
        self._touched = False


def _way_to(event_type: type[DomainEvent]) -> Callable[[bytes | msgspec.Raw], DomainEvent] | None:
    """Returns what makes an event of its data; None where its model has rules of its own."""
    fields = plain_fields(event_type)
    if fields is None:
        return None
    data = msgspec.defstruct("Data", list(fields.items()), gc=False, forbid_unknown_fields=True)
    decode, names = msgspec.json.Decoder(data).decode, set(fields)

    def way(data: bytes | msgspec.Raw) -> DomainEvent:
        return make_unchecked(event_type, _values_of(decode(data)), names)

    return way
