"""
Streams to what Spark needs of them: the chosen fields of the chosen events, as plain values.

A stored event is read together with its stream, and without making its model where that gives the
same values, which is several times as fast. Old versions, models with rules of their own and values
that msgspec does not take go through the model, as everywhere else.

    text      str           decimal     its digits as str
    integer   int           date        days since 1970-01-01
    float     float         timestamp   microseconds since 1970-01-01 UTC
    boolean   bool          json        the stored JSON of other types, unread; text as it is

Used by `event_reader`; reads what `domain.stream_body` declares. It must not know Spark.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any, Final, Protocol

import msgspec
from pydantic import TypeAdapter, ValidationError

from headrace.domain.message import DomainEvent
from headrace.domain.stream_body import (
    MALFORMED,
    body_error,
    body_reader,
    check_version,
    event_kinds,
)
from headrace.domain.unchecked import plain_fields
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.projections.definition.shape import ColumnKind, kind_of
from headrace.serialization import JsonSerializer

__all__ = [
    "DECIMAL_PLACES_MAX",
    "EventField",
    "LightEvent",
    "LightStream",
    "StreamDecoder",
    "fields_of",
    "to_plain",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
# Spark's decimals have 38 digits; this many of them after the point.
DECIMAL_PLACES_MAX: Final = 18
_DECIMAL_WHOLE_MAX: Final = 20
# Of fields that have a column, besides those that are plain everywhere. The bounds of a decimal are
# checked by the field's own rules.
_MORE: Final[Mapping[str, tuple[Any, frozenset[str]]]] = {
    "decimal": (Decimal, frozenset({"ge", "gt", "le", "lt", "max_digits", "decimal_places"})),
    "date": (date, frozenset()),
    "datetime": (datetime, frozenset({"microseconds_precision"})),
}

_STREAM_FIELDS: Final = ("aggregate_type", "command_id", "correlation_id", "recorded_at")

_decode_fields: Final = msgspec.json.Decoder(dict[str, Any]).decode

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventField:
    """A field of an event; `kind` is None where it is handed on as JSON."""

    name: str
    kind: ColumnKind | None


# Neither refers back, or lives long enough to be of interest to the garbage collector.
class LightEvent(msgspec.Struct, gc=False):
    """An event as it is stored, its fields still in JSON."""

    name: str
    version: int
    data: msgspec.Raw


class LightStream(Protocol):
    """A stream as it is stored, with those fields of its context that are wanted.

    Attributes:
        aggregate_id: whose events they are.
        version: the aggregate's version after them; None: it has no events.
        events: for `StreamDecoder.read`.
        recorded_at: when they were decided, where that is wanted.
    """

    aggregate_id: str
    version: int | None
    events: Sequence[LightEvent]
    recorded_at: datetime


def fields_of(event_type: type[DomainEvent]) -> tuple[EventField, ...]:
    """Returns every field of an event type but the personal ones, which no table and file shall hold."""
    return tuple(
        EventField(name=name, kind=kind_of(info.annotation)[0])
        for name, info in event_type.model_fields.items()
        if name not in event_type.message_personal
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quick:
    """A way to the values of an event that passes its model by.

    Attributes:
        event_type: the event's class.
        data: the struct that its fields are read into, all of them.
        decode: reads one.
        to_values: takes the chosen values of one.
    """

    event_type: type[DomainEvent]
    data: type[msgspec.Struct]
    decode: Callable[[msgspec.Raw], Any]
    to_values: Callable[[Any], Values]


class StreamDecoder:
    """Decodes streams, and the chosen fields of their events.

    Args:
        serializer: knows the event types and the ways from old versions.
        chosen: the fields of each event type that are wanted; types that are left out are known,
            but not looked into.
        context: the fields of streams that are wanted besides aggregate, version and events.
    """

    def __init__(
        self,
        serializer: JsonSerializer,
        chosen: Mapping[type[DomainEvent], Sequence[EventField]],
        *,
        context: Collection[str] = _STREAM_FIELDS,
    ) -> None:
        self._registry = serializer.events
        self._chosen = chosen
        self._quick = {
            key: quick
            for key, event_type in self._registry.types.items()
            if event_type in chosen and (quick := _quick_way(event_type, chosen[event_type]))
        }
        kinds, types = event_kinds(self._registry, self._data_of)
        self._ways = {
            kind: self._quick.get((each.message_name, each.message_version))
            for kind, each in types.items()
            if self._data_of(each) is not msgspec.Raw
        }
        names = ("aggregate_id", "version", *context)
        self._dates = "recorded_at" in context
        self._decode = body_reader(*names, events=kinds)
        self._decode_light = body_reader(*names, events=LightEvent)

    def _data_of(self, event_type: type[DomainEvent]) -> Any:
        """Returns what the fields of an event are read into, together with its stream."""
        name, newest = event_type.message_name, event_type.message_version
        versions = (
            version for version in range(1, newest) if self._registry.can_read(name, version)
        )
        if next(versions, None) is not None:
            return msgspec.Raw
        if event_type not in self._chosen:
            return None
        quick = self._quick.get((name, newest))
        return msgspec.Raw if quick is None else quick.data

    def decode(self, body: bytes) -> LightStream:
        """Decodes a stream, and of its events what needs no model.

        Raises:
            SerializationError: these bytes are no stream.
        """
        try:
            try:
                stream: LightStream = self._decode(body)
            except MALFORMED:
                # An event that is unknown, or that only its model takes, is no fault of the stream.
                stream = self._decode_light(body)
            if stream.version is None or not stream.events:
                check_version(stream)
            if self._dates and stream.recorded_at.tzinfo is not UTC:
                # As live readers do: not every moment of another zone is one of UTC.
                stream.recorded_at = stream.recorded_at.astimezone(UTC)
        except MALFORMED as error:
            raise body_error(body, error) from error
        return stream

    def knows(self, event: LightEvent) -> bool:
        """Whether the application has a class for it, or a way to one."""
        return self._registry.can_read(event.name, event.version)

    def read(self, event: LightEvent) -> tuple[type[DomainEvent], Values] | None:
        """Returns an event's type and the values of its chosen fields; None if nothing is chosen.

        Raises:
            UnknownMessageType: the application does not know it.
            SerializationError: its fields do not fit.
            ProjectionError: a value has no place in a column.
        """
        kind = type(event)
        if kind in self._ways:
            way = self._ways[kind]
            return None if way is None else (way.event_type, way.to_values(event.data))
        quick = self._quick.get((event.name, event.version))
        if quick is not None:
            try:
                data = quick.decode(event.data)
            except MALFORMED:
                return self._read_slowly(event)  # The model may take what msgspec does not.
            return quick.event_type, quick.to_values(data)
        if self._is_chosen(event):
            return self._read_slowly(event)
        if not self.knows(event):
            raise UnknownMessageType(
                f"the application knows no event {event.name!r} version {event.version}"
            )
        return None

    def _is_chosen(self, event: LightEvent) -> bool:
        """Whether the newest version of this event is chosen; old versions become it."""
        return any(
            each.message_name == event.name and each.message_version >= event.version
            for each in self._chosen
        )

    def _read_slowly(self, event: LightEvent) -> tuple[type[DomainEvent], Values] | None:
        try:
            data = _decode_fields(event.data)
        except MALFORMED as error:
            raise SerializationError(f"{event.name} version {event.version}: {error}") from error
        found, data = self._registry.resolve(event.name, event.version, data)
        if found not in self._chosen:
            return None
        try:
            made = found.model_validate(data)
        except ValueError as error:
            why = "does not fit" if found.message_personal else error  # which tells the values
            raise SerializationError(
                f"{found.__name__} version {found.message_version}: {why}"
            ) from (None if found.message_personal else error)
        dumped = made.model_dump(mode="json")
        return found, tuple(
            _json_text(msgspec.json.encode(dumped[each.name]))
            if each.kind is None
            else to_plain(each.kind, made.__dict__[each.name])
            for each in self._chosen[found]
        )


def to_plain(kind: ColumnKind, value: Any) -> Any:
    """Returns a value in the form in which it goes through Spark.

    Raises:
        ProjectionError: it has no such form; the sentence says why.
    """
    convert = _CONVERTERS.get(kind)
    return value if value is None or convert is None else convert(value)


def _quick_way(event_type: type[DomainEvent], chosen: Sequence[EventField]) -> _Quick | None:
    """Returns how an event is read without its model; None: it has to be made."""
    fields = plain_fields(event_type, more=_MORE, other=msgspec.Raw)
    kinds = {each.name: each.kind for each in chosen}
    if fields is None or any(fields[name] is msgspec.Raw for name, kind in kinds.items() if kind):
        return None
    members: list[tuple[str, Any, Any]] = []
    for place, (name, found) in enumerate(fields.items()):
        info = event_type.model_fields[name]
        default = msgspec.NODEFAULT if info.is_required() else info.default
        if found is msgspec.Raw and not info.is_required():
            # Not read where it is not chosen; where it is, the model knows its default.
            default = msgspec.NODEFAULT if name in kinds else None
        members.append((f"f{place}", found, default))
    # Fields by place, because a name may be one that Python keeps for itself.
    renamed = {f"f{place}": name for place, name in enumerate(fields)}
    data = msgspec.defstruct(
        "Chosen", members, rename=renamed, kw_only=True, gc=False, forbid_unknown_fields=True
    )
    places = [list(fields).index(each.name) for each in chosen]
    return _Quick(
        event_type=event_type,
        data=data,
        decode=msgspec.json.Decoder(data).decode,
        to_values=_values_at(places, [_converter(event_type, each) for each in chosen]),
    )


def _values_at(
    places: Sequence[int], converters: Sequence[Callable[[Any], Any] | None]
) -> Callable[[Any], Values]:
    """Returns what takes the values at places of a struct, in the form for Spark."""
    if not places:
        return lambda _: ()
    names = [f"f{place}" for place in places]
    take: Callable[[Any], Values] = attrgetter(*names)
    if len(names) == 1:
        take = _take_one(names[0])
    converted = [(at, convert) for at, convert in enumerate(converters) if convert is not None]
    if not converted:
        return take

    def to_values(data: Any) -> Values:
        values = list(take(data))
        for at, convert in converted:
            if values[at] is not None:
                values[at] = convert(values[at])
        return tuple(values)

    return to_values


def _take_one(name: str) -> Callable[[Any], Values]:
    value_of = attrgetter(name)
    return lambda data: (value_of(data),)


def _converter(event_type: type[DomainEvent], field: EventField) -> Callable[[Any], Any] | None:
    """Returns what turns a field's value into its form for Spark; None: it is in it."""
    if field.kind is None:
        return _json_text
    info = event_type.model_fields[field.name]
    if field.kind is not ColumnKind.DECIMAL or (
        not info.metadata and info.annotation in (Decimal, Decimal | None)
    ):
        return _CONVERTERS.get(field.kind)
    annotation: Any = info.annotation
    if info.metadata:
        annotation = Annotated[annotation, *info.metadata]
    validate = TypeAdapter(annotation).validator.validate_python

    def check_and_convert(value: Decimal) -> str:
        try:
            return _decimal_text(validate(value))
        except ValidationError as error:
            raise SerializationError(
                f"{event_type.__name__} version {event_type.message_version}, {field.name}: {error}"
            ) from error

    return check_and_convert


def _decimal_text(value: Decimal) -> str:
    text = format(value, "f")
    whole, _, places = text.lstrip("-").partition(".")
    if not value.is_finite() or len(whole) > _DECIMAL_WHOLE_MAX or len(places) > DECIMAL_PLACES_MAX:
        raise ProjectionError(
            f"{value} has more than {_DECIMAL_WHOLE_MAX} digits before or {DECIMAL_PLACES_MAX} after"
            " the point, which Spark's decimals do not hold; use a fold in Python for it"
        )
    return text


def _microseconds(value: datetime) -> int:
    if value.tzinfo is None:
        raise ProjectionError(f"{value!r} has no time zone; Spark keeps moments only")
    return (value - _EPOCH) // _MICROSECOND


def _days(value: date) -> int:
    return value.toordinal() - _EPOCH_DAY


def _json_text(data: bytes | msgspec.Raw) -> str | None:
    """Returns JSON as text; of a JSON string what it says, of null None."""
    raw = bytes(data)
    if raw[:1] == b'"':
        said: str = msgspec.json.decode(raw)
        return said
    return None if raw == b"null" else raw.decode()


_CONVERTERS: Final[Mapping[ColumnKind, Callable[[Any], Any]]] = {
    ColumnKind.DECIMAL: _decimal_text,
    ColumnKind.DATE: _days,
    ColumnKind.TIMESTAMP: _microseconds,
}
