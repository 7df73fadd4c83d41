"""
The executor's side of typed events: read a slice, gate it, and yield chosen fields as columns.

One row per event, each version of an aggregate once and in order, whatever stood in the topic; and
records of what else came up, of the kinds of `fold`. `turn` counts a slice's events in the order in
which a fold meets them.

Sits between: Spark, which wants record batches, and `decoding`. Must never know what becomes of
the rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from headrace._domain.message import DomainEvent
from headrace._domain.stream import EventStream
from headrace._projecting.shape import ColumnKind
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.spark.decoding import EventField, LightStream, StreamDecoder, to_plain
from headrace.spark.fold import (
    MISSING,
    TALLY,
    VERSION,
    Batches,
    TopicMessage,
    find_in_store,
    read_messages,
    slices_of,
)
from headrace.spark.gating import FindStreams, StreamGate
from headrace.spark.plan import FoldPlan, load_application

__all__ = ["EVENT", "UNKNOWN", "ChosenType", "Reading", "column_of", "context_column", "read_typed"]

# Kinds of rows besides those of `fold`: an event, and how many events nobody has a class for.
EVENT = "event"
UNKNOWN = "unknown"

# Events gathered before they become Arrow batches, as for the data source.
_BATCH_EVENTS: Final = 32_000

_ARROW_TYPES: Final[Mapping[ColumnKind | None, pa.DataType]] = {
    ColumnKind.TEXT: pa.string(),
    ColumnKind.INTEGER: pa.int64(),
    ColumnKind.FLOAT: pa.float64(),
    ColumnKind.BOOLEAN: pa.bool_(),
    ColumnKind.DECIMAL: pa.string(),
    ColumnKind.DATE: pa.int32(),
    ColumnKind.TIMESTAMP: pa.int64(),
    None: pa.string(),
}
_SPARK_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.bool_(): "boolean",
}
# What every row has; `part` is its queue, and `type` the place of its type in the reading.
_FIXED: Final = (
    ("kind", pa.string()),
    ("key", pa.string()),
    ("part", pa.int32()),
    ("number", pa.int64()),
    ("type", pa.int32()),
    ("moment", pa.int64()),
    ("turn", pa.int64()),
)
_CONTEXT: Final[Mapping[str, pa.DataType]] = {
    "aggregate_type": pa.string(),
    "aggregate_id": pa.string(),
    "version": pa.int64(),
    "sequence": pa.int64(),
    "command_id": pa.string(),
    "correlation_id": pa.string(),
    "recorded_at": pa.int64(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenType:
    """An event type by its registered name and version, and which of its fields are wanted."""

    name: str
    version: int
    fields: tuple[EventField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What to read, as it travels to the executors.

    Attributes:
        types: the event types, each with the fields that are wanted.
        context: names of the wanted fields of their contexts.
        count_unknown: events that nobody has a class for are counted; otherwise they are an error.
    """

    types: tuple[ChosenType, ...]
    context: tuple[str, ...] = tuple(_CONTEXT)
    count_unknown: bool = False

    @property
    def columns(self) -> dict[str, tuple[str, ColumnKind | None]]:
        """The columns for fields: for each its field and kind; types share what is alike."""
        return {
            column_of(field): (field.name, field.kind)
            for field in chain.from_iterable(each.fields for each in self.types)
        }

    @property
    def arrow_schema(self) -> pa.Schema:
        """The form of every batch."""
        fields = [
            *_FIXED,
            *((context_column(name), _CONTEXT[name]) for name in self.context),
            *((name, _ARROW_TYPES[kind]) for name, (_, kind) in self.columns.items()),
        ]
        return pa.schema(fields)

    @property
    def schema(self) -> str:
        """The same in Spark's words."""
        return ", ".join(f"`{each.name}` {_SPARK_TYPES[each.type]}" for each in self.arrow_schema)


def column_of(field: EventField) -> str:
    """Returns the name of the column that holds a field."""
    return f"e_{field.name}_{field.kind.value if field.kind else 'json'}"


def context_column(name: str) -> str:
    """Returns the name of the column that holds a field of the context."""
    return f"c_{name}"


def read_typed(plan: FoldPlan, reading: Reading, batches: Batches) -> Batches:
    """Reads slices; yields their events, versions and tallies.

    Raises:
        ProjectionError: a message does not decode, or an event is unknown and not to be counted.
    """
    application = load_application(plan.app, plan.folder)
    serializer = application.serializer
    known = {
        (each.message_name, each.message_version): each for each in serializer.events.types.values()
    }
    chosen = [(known[each.name, each.version], each.fields) for each in reading.types]
    decoder = StreamDecoder(serializer, dict(chosen))
    found = find_in_store(plan.event_store, serializer)

    def find(aggregate_id: str, after: int, to: int) -> Sequence[EventStream]:
        streams = found(aggregate_id, after, to) if found else ()
        return [decoder.decode(serializer.encode_stream(each)) for each in streams]  # type: ignore[misc]  # as the gate's streams, see `_Slice`

    places = {event_type: place for place, (event_type, _) in enumerate(chosen)}
    for piece in slices_of(plan, batches):
        sliced = _Slice(reading, decoder, places, piece.queue.queue_id, find)
        for messages in read_messages(plan, piece):
            for message in messages:
                sliced.take(piece.queue.topic, message)
            if sliced.waiting >= _BATCH_EVENTS:
                yield from sliced.flush()
        yield from sliced.finish()


class _Slice:
    """The events of one slice, gathered by type until they fill a batch."""

    def __init__(
        self,
        reading: Reading,
        decoder: StreamDecoder,
        places: Mapping[type[DomainEvent], int],
        queue_id: int,
        find: FindStreams,
    ) -> None:
        self._reading = reading
        self._schema = reading.arrow_schema
        self._decoder = decoder
        self._places = places
        self._queue_id = queue_id
        # The gate looks at aggregate, version and the number of events, which light streams have.
        self._gate: Any = StreamGate({}, find=find)
        self._rows: list[list[tuple[LightStream, int, int, int, tuple[Any, ...]]]] = [
            [] for _ in reading.types
        ]
        self._unknown: dict[str, int] = {}
        self._moment = self._turn = self.waiting = 0

    def take(self, topic: str, message: TopicMessage) -> None:
        """Takes a message in.

        Raises:
            ProjectionError: it does not decode; names its place.
        """
        self._moment = message.place.moment
        try:
            self._pass(self._gate.admit((self._decoder.decode(message.body),)))
        except (SerializationError, UnknownMessageType, ProjectionError) as error:
            raise ProjectionError(
                f"the event message at {topic}/{message.place.queue} offset {message.place.offset}"
                f" (aggregate {message.key}) does not decode: {error}"
            ) from error

    def _pass(self, streams: Sequence[LightStream]) -> None:
        for stream in streams:
            for sequence, event in enumerate(stream.events, start=1):
                self._turn += 1
                if self._reading.count_unknown and not self._decoder.knows(event):
                    name = f"{event.name} version {event.version}"
                    self._unknown[name] = self._unknown.get(name, 0) + 1
                    continue
                read = self._decoder.read(event)
                if read is not None:
                    event_type, values = read
                    self._rows[self._places[event_type]].append(
                        (stream, sequence, self._moment, self._turn, values)
                    )
                    self.waiting += 1

    def flush(self) -> Batches:
        """Yields what was gathered, a batch per type."""
        for place, rows in enumerate(self._rows):
            if rows:
                yield self._events_out(place, rows)
                rows.clear()
        self.waiting = 0

    def finish(self) -> Batches:
        """Yields the rest, and what the gate found."""
        self._pass(self._gate.finish())
        yield from self.flush()
        gate = self._gate
        told = [(VERSION, key, version) for key, version in gate.versions.items()]
        told += [
            (TALLY, name, getattr(gate, name))
            for name in ("events", "duplicates", "gaps", "filled")
            if getattr(gate, name)
        ]
        told += [(MISSING, str(each), 0) for each in gate.missing]
        told += [(UNKNOWN, name, count) for name, count in self._unknown.items()]
        if told:
            kinds, keys, numbers = zip(*told, strict=True)
            yield self._batch(len(told), {"kind": kinds, "key": keys, "number": numbers})

    def _events_out(self, place: int, rows: Sequence[Any]) -> pa.RecordBatch:
        streams, sequences, moments, turns, values = zip(*rows, strict=True)
        columns: dict[str, Sequence[Any]] = {
            "kind": [EVENT] * len(rows),
            "type": [place] * len(rows),
            "moment": moments,
            "turn": turns,
        }
        for name in self._reading.context:
            if name == "sequence":
                column: Sequence[Any] = sequences
            elif name == "recorded_at":
                column = [to_plain(ColumnKind.TIMESTAMP, each.recorded_at) for each in streams]
            else:
                column = [getattr(each, name) for each in streams]
            columns[context_column(name)] = column
        fields = self._reading.types[place].fields
        for field, column in zip(fields, zip(*values, strict=True), strict=bool(fields)):
            columns[column_of(field)] = column
        return self._batch(len(rows), columns)

    def _batch(self, length: int, columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
        filled = {"part": [self._queue_id] * length, **columns}
        try:
            arrays = [
                pa.array(filled[each.name], each.type)
                if each.name in filled
                else pa.nulls(length, each.type)
                for each in self._schema
            ]
        except (OverflowError, pa.ArrowException) as error:
            raise ProjectionError(f"a value does not fit its column: {error}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
