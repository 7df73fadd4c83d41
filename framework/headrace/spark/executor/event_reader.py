"""
The executor's side of typed events: read a slice, gate it, and yield chosen fields as columns.

One row per event, each version of an aggregate once and in order, even if the topic has it twice; and
records of what else came up, of the kinds of `fold`. `turn` counts a slice's events in the order in
which a fold meets them.

Used by Spark, which wants record batches; uses `decode`. It must not know what becomes of the rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headrace._runtime.log import get_logger
from headrace.domain.message import DomainEvent
from headrace.domain.stream import EventStream
from headrace.domain.stream_body import aggregate_of
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.projections.definition.shape import ColumnKind
from headrace.rebuild.left_out import LEFT_OUT_MAX
from headrace.serialization import JsonSerializer
from headrace.spark.executor.decode import EventField, LightStream, StreamDecoder, to_plain
from headrace.spark.executor.doubts import Doubts, StoreGaps
from headrace.spark.executor.fold import (
    BATCH_BYTES_MAX,
    MISSING,
    QUEUE,
    TALLY,
    UNREAD,
    VERSION,
    Batches,
    TopicMessage,
    read_messages,
    slices_of,
)
from headrace.spark.executor.gate import FindStreams, MissingVersions, StreamGate
from headrace.spark.executor.meter import Meter
from headrace.spark.executor.plan import FoldPlan, load_application
from headrace.subscriptions.foreign import stream_or_none

__all__ = [
    "EVENT",
    "UNDECODABLE",
    "UNKNOWN",
    "ChosenType",
    "OpenReading",
    "Reading",
    "TypedSlice",
    "column_of",
    "context_column",
    "find_streams",
    "open_reading",
    "read_typed",
]

_log = get_logger(__name__)

_UNREADABLE: Final = (SerializationError, UnknownMessageType)
# What is said of a message whose events cannot be read.
UNDECODABLE = "does not decode"
# Kinds of rows besides those of `fold`: an event, and how many events have no class.
EVENT = "event"
UNKNOWN = "unknown"

# Events gathered before they become Arrow batches, as for the data source; or `BATCH_BYTES_MAX` of the
# messages that they came in.
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
        go_around: events without a class are counted, and aggregates with a stream that
            does not decode are left out from there on and named; otherwise both are an error.
        rows: events are yielded; otherwise they are read, and only what was met is reported.
    """

    types: tuple[ChosenType, ...]
    context: tuple[str, ...] = tuple(_CONTEXT)
    go_around: bool = False
    rows: bool = True

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
    def spark_types(self) -> list[tuple[str, str]]:
        """Each column, and its type in Spark's words."""
        return [(each.name, _SPARK_TYPES[each.type]) for each in self.arrow_schema]

    @property
    def schema(self) -> str:
        """The form of every batch in Spark's words."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.spark_types)


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
    with closing(open_reading(plan, reading)) as typing:
        doubts = Doubts(plan, typing.serializer)
        for piece in slices_of(plan, batches):
            typed = TypedSlice(
                reading, typing.decoder, typing.places, piece.queue.queue_id, typing.find
            )
            meter = Meter(piece)
            for messages in read_messages(plan, piece, meter, doubts=doubts):
                typed.take(piece.queue.topic, messages)
                if typed.full:
                    yield from typed.flush()
            yield from typed.finish(meter.told())


class OpenReading(NamedTuple):
    """What a reading needs in a task.

    Attributes:
        serializer: of the application.
        decoder: decodes streams and the chosen events.
        places: of each type in the reading.
        find: finds streams that the topic lacks.
        close: closes the event store.
    """

    serializer: JsonSerializer
    decoder: StreamDecoder
    places: Mapping[type[DomainEvent], int]
    find: FindStreams
    close: Callable[[], None]


def open_reading(plan: FoldPlan, reading: Reading) -> OpenReading:
    """Opens what a plan and a reading name."""
    serializer = load_application(plan.app, plan.folder).serializer_at(plan.event_store)
    known = {
        (each.message_name, each.message_version): each for each in serializer.events.types.values()
    }
    chosen = [(known[each.name, each.version], each.fields) for each in reading.types]
    decoder = StreamDecoder(serializer, dict(chosen), context=reading.context)
    places = {event_type: place for place, (event_type, _) in enumerate(chosen)}
    store = StoreGaps(plan.event_store, serializer)
    find = find_streams(store, serializer, decoder)
    return OpenReading(serializer, decoder, places, find, store.close)


def find_streams(
    found: FindStreams, serializer: JsonSerializer, decoder: StreamDecoder
) -> FindStreams:
    """Returns what finds streams as a decoder makes them."""

    def find(wanted: Sequence[MissingVersions]) -> Sequence[EventStream]:
        streams = found(wanted)
        return [decoder.decode(serializer.encode_stream(each)) for each in streams]  # type: ignore[misc]  # as the gate's streams, see `TypedSlice`

    return find


class _Gathered:
    """The events of one type, as columns, until they fill a batch."""

    __slots__ = ("moments", "parts", "sequences", "streams", "turns", "values")

    def __init__(self) -> None:
        self.streams: list[LightStream] = []
        self.sequences: list[int] = []
        self.moments: list[int] = []
        self.turns: list[int] = []
        # The queue of each, where they are of several.
        self.parts: list[int] = []
        self.values: list[tuple[Any, ...]] = []

    def drop(self, stream: LightStream) -> int:
        """Forgets the events of the stream that came last; returns how many they were."""
        before = len(self.streams)
        while self.streams and self.streams[-1] is stream:
            for column in (self.streams, self.sequences, self.moments, self.turns, self.values):
                column.pop()
        return before - len(self.streams)


class _Taken(NamedTuple):
    """Messages that were taken in together, and the stream of each as far as they are decoded."""

    topic: str
    messages: Sequence[TopicMessage]
    streams: list[LightStream | None]

    def sentence(self, place: int, error: Exception) -> str:
        """Says that the message at a place cannot be read; there is none for what was held back."""
        if not self.messages:
            return f"an event {UNDECODABLE}: {error}"
        message = self.messages[place]
        where = f"{self.topic}/{message.place.queue} offset {message.place.offset}"
        return f"the event message at {where} (aggregate {message.key}) {UNDECODABLE}: {error}"


class TypedSlice:
    """The events of one slice, gathered by type until they fill a batch.

    Args:
        reading: what is wanted.
        decoder: decodes streams and events.
        places: of each type in the reading.
        queue_id: of the slice.
        find: where to look for missing streams.
        versions: the last version of each aggregate before the slice.
        left_out: aggregates that are left out, and why; those that are met are added.
    """

    def __init__(
        self,
        reading: Reading,
        decoder: StreamDecoder,
        places: Mapping[type[DomainEvent], int],
        queue_id: int,
        find: FindStreams,
        *,
        versions: Mapping[str, int] | None = None,
        left_out: dict[str, str] | None = None,
    ) -> None:
        self._reading = reading
        self._left_out = {} if left_out is None else left_out
        self._known = frozenset(self._left_out)
        # Of them those with an event that does not decode: what is behind it may have passed the gate.
        self._stopped: set[str] = set()
        self._schema = reading.arrow_schema
        self._decoder = decoder
        self._places = places
        self._queue_id = queue_id
        # The gate looks at aggregate, version and the number of events, which light streams have.
        self._gate: Any = StreamGate(versions or {}, find=self._finding(find))
        self._gathered = [_Gathered() for _ in reading.types]
        self._unknown: dict[str, int] = {}
        self._moment = self._turn = self._waiting = self._waiting_bytes = 0

    @property
    def full(self) -> bool:
        """Whether it is time to flush what was gathered."""
        return self._waiting >= _BATCH_EVENTS or self._waiting_bytes >= BATCH_BYTES_MAX

    def take(self, topic: str, messages: Sequence[TopicMessage]) -> None:
        """Takes messages in that the broker stored at one moment.

        Raises:
            ProjectionError: one does not decode; names its place.
        """
        if not messages:
            return
        # A clock that was set back does not change the order in a queue.
        self._moment = max(self._moment, messages[0].place.moment)
        self._waiting_bytes += sum(len(message.body) for message in messages)
        taken = _Taken(topic, messages, [])
        self._pass(self._gate.admit(self._decoded(taken)), taken)

    def _decoded(self, taken: _Taken) -> Iterator[LightStream]:
        decode, left_out = self._decoder.decode, self._left_out
        for place, message in enumerate(taken.messages):
            queue = (taken.topic, message.place.queue)
            stream = None
            try:
                stream = stream_or_none(decode, message.body, queue, message.place.offset)
            except _UNREADABLE as error:
                self._leave_out(aggregate_of(message.body), taken.sentence(place, error), error)
            if stream is not None and stream.aggregate_id in left_out:
                stream = None
            taken.streams.append(stream)
            if stream is not None:
                yield stream

    def _leave_out(self, aggregate_id: str | None, sentence: str, error: Exception) -> None:
        """Leaves an aggregate out, where streams that do not decode are gone around.

        Raises:
            ProjectionError: they are not, or there are too many of them.
        """
        left_out = self._left_out
        if not self._reading.go_around or aggregate_id is None or len(left_out) >= LEFT_OUT_MAX:
            raise ProjectionError(sentence) from error
        _log.error(
            "an aggregate is left out, from a stream on that does not decode", error=sentence
        )
        left_out.setdefault(aggregate_id, sentence)

    def _finding(self, find: FindStreams) -> FindStreams:
        def found(wanted: Sequence[MissingVersions]) -> Sequence[EventStream]:
            try:
                return find(wanted)
            except _UNREADABLE as error:
                if len(wanted) > 1:
                    # Of one aggregate; the others are sound.
                    half = len(wanted) // 2
                    return [*found(wanted[:half]), *found(wanted[half:])]
                [(aggregate_id, after, to)] = wanted
                versions = f"versions {after + 1} to {to} of aggregate {aggregate_id}"
                sentence = f"{versions} in the event store: one {UNDECODABLE}: {error}"
                self._leave_out(aggregate_id, sentence, error)
                return ()

        return found

    def _pass(self, streams: Sequence[LightStream], taken: _Taken) -> None:
        moment = self._moment
        for stream in streams:
            if stream.aggregate_id in self._stopped:
                continue
            try:
                self._gather(stream, moment)
            except (*_UNREADABLE, ProjectionError) as error:
                # What let it pass may be another message than its own.
                place = next((at for at, one in enumerate(taken.streams) if one is stream), -1)
                self._leave_out(stream.aggregate_id, taken.sentence(place, error), error)
                self._stopped.add(stream.aggregate_id)
                for gathered in self._gathered:
                    self._waiting -= gathered.drop(stream)

    def _pass_rest(self) -> None:
        self._pass(self._gate.finish(), _Taken("", (), []))

    def _gather(self, stream: LightStream, moment: int) -> None:
        read, knows, places = self._decoder.read, self._decoder.knows, self._places
        go_around, turn = self._reading.go_around, self._turn
        for sequence, event in enumerate(stream.events, start=1):
            turn += 1
            if go_around and not knows(event):
                name = f"{event.name} version {event.version}"
                self._unknown[name] = self._unknown.get(name, 0) + 1
                continue
            found = read(event)
            if found is not None:
                event_type, values = found
                gathered = self._gathered[places[event_type]]
                gathered.streams.append(stream)
                gathered.sequences.append(sequence)
                gathered.moments.append(moment)
                gathered.turns.append(turn)
                gathered.values.append(values)
                self._waiting += 1
        self._turn = turn

    def flush(self) -> Batches:
        """Yields what was gathered, a batch per type."""
        for place, gathered in enumerate(self._gathered):
            if gathered.streams and self._reading.rows:
                yield self._events_out(place, gathered)
            self._gathered[place] = _Gathered()
        self._waiting = self._waiting_bytes = 0

    def finish(self, measured: Iterable[tuple[str, int]] = ()) -> Batches:
        """Yields the rest, what the gate found, and what was measured of the queue."""
        self._pass_rest()
        yield from self.flush()
        gate = self._gate
        told = [(VERSION, key, version) for key, version in gate.versions.items()]
        told += [
            (TALLY, name, getattr(gate, name))
            for name in ("events", "duplicates", "gaps", "filled")
            if getattr(gate, name)
        ]
        told += [
            (MISSING, str(each), 0)
            for each in gate.missing
            if each.aggregate_id not in self._left_out
        ]
        told += [
            (UNREAD, sentence, 0)
            for aggregate_id, sentence in self._left_out.items()
            if aggregate_id not in self._known
        ]
        told += [(UNKNOWN, name, count) for name, count in self._unknown.items()]
        told += [(QUEUE, name, number) for name, number in measured]
        if told:
            kinds, keys, numbers = zip(*told, strict=True)
            yield self._batch(len(told), {"kind": kinds, "key": keys, "number": numbers})

    def _events_out(self, place: int, gathered: _Gathered) -> pa.RecordBatch:
        streams = gathered.streams
        columns: dict[str, Sequence[Any] | pa.Scalar] = {
            "kind": pa.scalar(EVENT, pa.string()),
            "type": pa.scalar(place, pa.int32()),
            "moment": gathered.moments,
            "turn": gathered.turns,
        }
        if gathered.parts:
            columns["part"] = gathered.parts
        for name in self._reading.context:
            if name == "sequence":
                column: Sequence[Any] = gathered.sequences
            elif name == "recorded_at":
                column = [to_plain(ColumnKind.TIMESTAMP, each.recorded_at) for each in streams]
            else:
                column = list(map(attrgetter(name), streams))
            columns[context_column(name)] = column
        fields = self._reading.types[place].fields
        by_field = zip(*gathered.values, strict=True)
        for field, column in zip(fields, by_field, strict=bool(fields)):
            columns[column_of(field)] = column
        return self._batch(len(streams), columns)

    def _batch(
        self, length: int, columns: Mapping[str, Sequence[Any] | pa.Scalar]
    ) -> pa.RecordBatch:
        filled = {"part": pa.scalar(self._queue_id, pa.int32()), **columns}
        try:
            arrays = [_array(filled.get(each.name), each.type, length) for each in self._schema]
        except (OverflowError, pa.ArrowException) as error:
            raise ProjectionError(f"a value does not fit its column: {error}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _array(column: Sequence[Any] | pa.Scalar | None, kind: pa.DataType, length: int) -> pa.Array:
    if column is None:
        return pa.nulls(length, kind)
    if isinstance(column, pa.Scalar):
        return pa.repeat(column, length)
    return pa.array(column, kind)
