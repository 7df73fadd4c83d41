"""
Streams to what Spark needs of them: the chosen fields of the chosen events, as plain values.

A stored event is read without making its model where that gives the same values: msgspec takes
the chosen fields from the JSON, which is several times as fast. Old versions, models with rules of
their own and whatever msgspec does not take go through the model, as everywhere else.

    text      str           decimal     its digits as str
    integer   int           date        days since 1970-01-01
    float     float         timestamp   microseconds since 1970-01-01 UTC
    boolean   bool          json        the stored JSON of whatever is none of these; text as it is

Sits between: bodies of the event topic and `event_reader`. Must never know Spark.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import annotated_types
import msgspec
from pydantic import ConfigDict
from pydantic.fields import FieldInfo

from headrace.domain.message import DomainEvent
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.projections.definition.shape import ColumnKind, kind_of
from headrace.serialization import JsonSerializer, not_decoded

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
_PLAIN_CONFIG: Final = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
_PYTHON_TYPES: Final[Mapping[ColumnKind | None, Any]] = {
    ColumnKind.TEXT: str,
    ColumnKind.INTEGER: int,
    ColumnKind.FLOAT: float,
    ColumnKind.BOOLEAN: bool,
    ColumnKind.DECIMAL: Decimal,
    ColumnKind.DATE: date,
    ColumnKind.TIMESTAMP: datetime,
    None: msgspec.Raw,
}

_STREAM_FIELDS: Final = frozenset({"aggregate_type", "command_id", "correlation_id", "recorded_at"})

Values = tuple[Any, ...]
ToValues = Callable[[Any], Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventField:
    """A field of an event; `kind` is None where it is handed on as JSON."""

    name: str
    kind: ColumnKind | None


# None of them refers back, or lives long enough to be of interest to the garbage collector.
class LightEvent(msgspec.Struct, gc=False):
    """An event as it is stored, its fields still in JSON."""

    name: str
    version: int
    data: msgspec.Raw


class LightStream(msgspec.Struct, gc=False):
    """A stream as it is stored; what a decoder was not asked for is empty."""

    aggregate_id: str
    version: int | None
    aggregate_type: str = ""
    command_id: str = ""
    correlation_id: str = ""
    recorded_at: datetime = _EPOCH
    events: list[LightEvent] = []


def fields_of(event_type: type[DomainEvent]) -> tuple[EventField, ...]:
    """Returns every field of an event type."""
    return tuple(
        EventField(name=name, kind=kind_of(info.annotation)[0])
        for name, info in event_type.model_fields.items()
    )


class StreamDecoder:
    """Decodes streams, and the chosen fields of their events.

    Args:
        serializer: knows the event types and the ways from old versions.
        chosen: the fields of each event type that are wanted; types that are left out are known,
            but not looked into.
        context: the fields of streams that are wanted beside aggregate, version and events.
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
        self._decode = _stream_decoder(frozenset(context))
        self._quick = {
            key: _quick(event_type, chosen[event_type])
            for key, event_type in self._registry.types.items()
            if event_type in chosen and _is_plain(event_type, chosen[event_type])
        }

    def decode(self, body: bytes) -> LightStream:
        """Decodes a stream, its events not yet.

        Raises:
            SerializationError: these bytes are no stream.
        """
        try:
            return self._decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise not_decoded(body, error) from error

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
        quick = self._quick.get((event.name, event.version))
        if quick is not None:
            event_type, to_values = quick
            try:
                return event_type, to_values(event.data)
            except msgspec.DecodeError:
                pass  # The model may take what msgspec does not.
        elif not self._is_chosen(event):
            if not self.knows(event):
                raise UnknownMessageType(
                    f"the application knows no event {event.name!r} version {event.version}"
                )
            return None
        return self._read_slowly(event)

    def _is_chosen(self, event: LightEvent) -> bool:
        """Whether the newest version of this event is chosen; old versions become it."""
        return any(
            each.message_name == event.name and each.message_version >= event.version
            for each in self._chosen
        )

    def _read_slowly(self, event: LightEvent) -> tuple[type[DomainEvent], Values] | None:
        data = msgspec.json.decode(event.data)
        found, data = self._registry.resolve(event.name, event.version, data)
        if found not in self._chosen:
            return None
        try:
            made = found.model_validate(data)
        except ValueError as error:
            raise SerializationError(
                f"{found.__name__} version {found.message_version}: {error}"
            ) from error
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


def _stream_decoder(context: frozenset[str]) -> Callable[[bytes], LightStream]:
    unwanted = _STREAM_FIELDS - context
    if not unwanted:
        return msgspec.json.Decoder(LightStream).decode
    # Under a name that no JSON of ours has, a field is passed over: a third of the time for them.
    fields = {each.name: each for each in msgspec.structs.fields(LightStream)}
    spared: Any = msgspec.defstruct(
        "SparedStream",
        [(name, fields[name].type, fields[name].default) for name in sorted(unwanted)],
        bases=(LightStream,),
        rename={name: f" {name}" for name in unwanted},
        gc=False,
    )
    decode: Callable[[bytes], LightStream] = msgspec.json.Decoder(spared).decode
    return decode


def _quick(
    event_type: type[DomainEvent], fields: Sequence[EventField]
) -> tuple[type[DomainEvent], ToValues]:
    decode = msgspec.json.Decoder(_struct(event_type, fields)).decode
    converted = [
        (place, _CONVERTERS.get(each.kind) if each.kind else _json_text)
        for place, each in enumerate(fields)
        if each.kind is None or each.kind in _CONVERTERS
    ]
    astuple = msgspec.structs.astuple
    if not converted:
        return event_type, lambda data: astuple(decode(data))

    def to_values(data: msgspec.Raw) -> Values:
        values = list(astuple(decode(data)))
        for place, convert in converted:
            if values[place] is not None and convert is not None:
                values[place] = convert(values[place])
        return tuple(values)

    return event_type, to_values


def _struct(event_type: type[DomainEvent], fields: Sequence[EventField]) -> type[msgspec.Struct]:
    members: list[tuple[str, Any, Any]] = []
    for place, each in enumerate(fields):
        info = event_type.model_fields[each.name]
        python = _PYTHON_TYPES[each.kind]
        if each.kind is not None and kind_of(info.annotation)[1]:
            python = python | None
        default = msgspec.NODEFAULT if info.is_required() else info.default
        members.append((f"f{place}", python, default))
    # Fields by place, because a name may be one that Python keeps for itself.
    renamed = {f"f{place}": each.name for place, each in enumerate(fields)}
    return msgspec.defstruct("Chosen", members, rename=renamed, kw_only=True)


def _is_plain(event_type: type[DomainEvent], fields: Sequence[EventField]) -> bool:
    """Whether msgspec and the model read the same values from the same JSON."""
    rules = event_type.__pydantic_decorators__
    if (
        rules.validators
        or rules.field_validators
        or rules.root_validators
        or rules.model_validators
        or event_type.model_config != _PLAIN_CONFIG
    ):
        return False
    return all(_is_plain_field(event_type.model_fields[each.name], each) for each in fields)


def _is_plain_field(info: FieldInfo, field: EventField) -> bool:
    if info.default_factory is not None or info.alias or info.validation_alias:
        return False
    if field.kind is None and not info.is_required():
        return False
    # Bounds were checked when the event was made; anything else might change the value.
    return all(isinstance(each, annotated_types.BaseMetadata) for each in info.metadata)


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
