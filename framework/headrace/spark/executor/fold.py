"""
The executor's side of a rebuild: read, gate and fold in one Python process.

    from zero, keyed by aggregate    slices.fold_slices                 no shuffle: an aggregate's
                                                                        events are in one queue
    from zero, keyed otherwise       route_slices ─▶ fold_keys
    from offsets, keyed by aggregate read_slices ─▶ fold_aggregates     base rows and versions join
    from offsets, keyed otherwise    read_slices ─▶ route_aggregates ─▶ fold_keys

An arrow is a shuffle by key, sorted by key and place; `aggregates` has what follows one. Everything that travels has one form, the
records of `RECORD_SCHEMA`. Used by Spark, which moves records; uses the folds of the live runner.
It must not know a database of read models.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, compress, islice
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.left_out import LeftOut
from headrace.spark.archive import after_archive, read_archived
from headrace.spark.executor.doubts import Doubts, StoreGaps
from headrace.spark.executor.gate import MissingVersions, StreamGate
from headrace.spark.executor.meter import Meter
from headrace.spark.executor.plan import FoldPlan, load_application, projection_of
from headrace.spark.executor.positions import read_share
from headrace.spark.executor.touches import FoldedStream, KeyRows, Touches
from headrace.spark.rows import RowCodec
from headrace.spark.topic import read_columns
from headrace.subscriptions.foreign import stream_or_none
from headrace_mq.spark.offsets import QueueSlice

__all__ = [
    "BASE",
    "BATCH_BYTES_MAX",
    "DELETED",
    "FAILED",
    "FIRST",
    "MISSING",
    "QUEUE",
    "RECORD_ARROW_SCHEMA",
    "RECORD_SCHEMA",
    "ROW",
    "STREAM",
    "TALLY",
    "UNREAD",
    "VERSION",
    "EventPlace",
    "FoldWork",
    "Record",
    "TopicMessage",
    "batched",
    "fold_keys",
    "gate_out",
    "left_out_records",
    "passed_in_time",
    "read_messages",
    "read_portions",
    "read_slices",
    "records_in",
    "records_to_arrow",
    "route_slices",
    "rows_out",
    "slices_of",
    "touches_in_time",
    "touches_late",
]

# Kinds of records, and what their key, number and data are.
ROW = "row"  # key of the row, -, the row's values
DELETED = "deleted"  # key of the row, -, -
VERSION = "version"  # aggregate id, its last version, -
TALLY = "tally"  # what was counted, how many, -
FAILED = "failed"  # why a projection has no rows, while others have, -, -
MISSING = "missing"  # aggregate id, -, a sentence
UNREAD = "unread"  # aggregate id, from which offset on, a sentence
QUEUE = "queue"  # a queue and what of it was measured, how much, -
BASE = "base"  # key of the row before the tail, -, its values
STREAM = "stream"  # aggregate id, -, the stream's body
TOUCH = "touch"  # key of the row, and the event for it as `touches` takes it

RECORD_SCHEMA = (
    "kind string, key string, moment bigint, queue int, offset bigint, turn bigint,"
    " number bigint, data binary"
)
RECORD_ARROW_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("key", pa.string()),
        ("moment", pa.int64()),
        ("queue", pa.int32()),
        ("offset", pa.int64()),
        ("turn", pa.int64()),
        ("number", pa.int64()),
        ("data", pa.binary()),
    ]
)

# Records of one Arrow batch, as for the data source.
_BATCH_RECORDS = 32_000
# Bytes of an Arrow batch's keys and data, as for the data source: an Arrow array ends at 2 GiB, and each
# batch is in memory in Python, in the pipe and in Java. A larger record goes alone.
BATCH_BYTES_MAX: Final = 16 << 20
Batches = Iterator[pa.RecordBatch]
_new = tuple.__new__


class EventPlace(NamedTuple):
    """Where something stands in the order of things; the order in which a key's events are folded.

    `moment` is when the broker stored it (ms), never going back within a queue; `turn` tells apart
    what one message let pass.
    """

    moment: int = 0
    queue: int = 0
    offset: int = 0
    turn: int = 0


# Before every event: what was there before the tail.
FIRST = EventPlace(moment=-1)


class Record(NamedTuple):
    """One record of `RECORD_SCHEMA`."""

    kind: str
    key: str
    place: EventPlace
    number: int
    data: bytes

    @classmethod
    def known(cls, kind: str, key: str, *, number: int = 0, data: bytes = b"") -> "Record":
        """Makes a record without a place of its own: it comes before everything of its key."""
        return cls(kind, key, FIRST, number, data)


class TopicMessage(NamedTuple):
    """A message of the event topic with events in it; its key is the aggregate's id."""

    place: EventPlace
    key: str
    body: bytes


class FoldWork:
    """A plan with everything it names opened."""

    def __init__(self, plan: FoldPlan) -> None:
        app = load_application(plan.app, plan.folder)
        self.projection = projection_of(app, plan)
        self.serializer = app.serializer_at(plan.event_store)
        self.codec: RowCodec[Any] = RowCodec(self.projection)
        self._plan = plan
        self.touches = Touches(self.serializer, self.projection)
        self._store = StoreGaps(plan.event_store, self.serializer)
        self.left_out = LeftOut()

    def gate(self, versions: Mapping[str, int]) -> Any:
        """Makes a gate, for streams as `decode` makes them, that fills gaps from the event store."""
        # It looks at aggregate, version and the number of events, which these have.
        return StreamGate(versions, find=self.find)

    def find(self, wanted: Sequence[MissingVersions]) -> Sequence[Any]:
        """Returns what the event store has of what is missing, as `decode` makes it."""
        encode, decode = self.serializer.encode_stream, self.touches.decode
        return [decode(encode(each)) for each in self._store(wanted)]

    def close(self) -> None:
        """Closes what was opened."""
        self._store.close()

    def messages(
        self, piece: QueueSlice, meter: Meter | None = None, *, keyed: bool = False
    ) -> Iterator[list[TopicMessage]]:
        """Yields the messages of a slice that are believed, as `read_messages` does."""
        doubts = Doubts(self._plan, self.serializer, keyed=keyed)
        return read_messages(self._plan, piece, meter, doubts=doubts)

    def decode(self, message: TopicMessage) -> FoldedStream | None:
        """Decodes a message; None: it is left out.

        Raises:
            ProjectionError: it does not decode, and cannot be left out.
        """
        topic = self._plan.slices[0].queue.topic
        queue = (topic, message.place.queue)
        offset = message.place.offset
        try:
            stream = stream_or_none(self.touches.decode, message.body, queue, offset)
        except (SerializationError, UnknownMessageType) as error:
            sentence = (
                f"the event message at {topic}/{message.place.queue} offset {offset}"
                f" (aggregate {message.key}) does not decode: {error}"
            )
            if not self.left_out.note(message.key, queue, offset, sentence):
                raise ProjectionError(sentence) from error
            return None
        # As a live reader parks it: what comes after that is left out, too.
        if stream is not None and stream.aggregate_id in self.left_out.aggregates:
            return None
        return stream


def read_messages(
    plan: FoldPlan, piece: QueueSlice, meter: Meter | None = None, *, doubts: Doubts
) -> Iterator[list[TopicMessage]]:
    """Yields the messages of a slice, without rejections, some of one moment at a time.

    Those that are not believed are left out.
    """
    measured = meter or Meter(piece)
    moment, queue_id = 0, piece.queue.queue_id
    if plan.shares:
        for page in measured.reading(read_share(plan, piece)):
            # What several shares have of one key is folded in the order of positions.
            some = [
                TopicMessage(EventPlace(at, queue_id, at), key, body.encode())
                for at, key, body in page
            ]
            measured.count(some)
            doubts.find_keys(each.body for each in some)
            yield some
            measured.reached(plan.progress, page[-1][0] + 1)
        return

    def believed(found: list[TopicMessage]) -> list[TopicMessage]:
        measured.count(found)
        doubts.find_keys(each.body for each in found)
        offsets = [each.place.offset for each in found]
        keys, bodies = [each.key for each in found], [each.body for each in found]
        strangers = doubts.strangers(piece.queue, offsets, keys, bodies)
        measured.count_foreign(len(strangers))
        if not strangers:
            return found
        return [each for place, each in enumerate(found) if place not in strangers]

    # Named tuples made as tuples, which takes half the time.
    for stored_ms, found in measured.reading(read_archived(plan.archive, piece)):
        moment = max(moment, stored_ms)
        some = [
            _new(TopicMessage, (_new(EventPlace, (moment, queue_id, offset, 0)), key, body))
            for offset, key, body in found
        ]
        yield believed(some)
        measured.reached(plan.progress, found[-1][0] + 1)
    rest = after_archive(plan.archive, piece)
    parts = read_columns(plan.broker, rest) if rest else ()
    for header, columns, first, last in measured.reading(parts):
        moment = max(moment, header.appended_at_ms)
        headers: Sequence[Mapping[str, str]] = columns.headers or [{}] * header.count
        keys = columns.keys or [""] * header.count
        offsets = range(header.base_offset, header.base_offset + header.count)
        columns_of_one = zip(offsets, keys, headers, columns.bodies, strict=True)
        some = [
            _new(TopicMessage, (_new(EventPlace, (moment, queue_id, offset, 0)), key, body))
            for offset, key, head, body in islice(columns_of_one, first, last)
            if head.get("kind") != "rejection"
        ]
        yield believed(some)
        measured.reached(plan.progress, header.base_offset + last)


def read_portions(
    plan: FoldPlan, piece: QueueSlice, meter: Meter, *, doubts: Doubts
) -> Iterator[tuple[int, Sequence[str], Portion]]:
    """Yields what `read_messages` yields as columns: when some were stored, their keys, and they."""
    if plan.shares:
        for page in meter.reading(read_share(plan, piece)):
            positions, aggregate_ids, texts = zip(*page, strict=True)
            stored = [text.encode() for text in texts]
            meter.count_bodies(stored)
            yield 0, aggregate_ids, Portion(positions, stored)
            meter.reached(plan.progress, positions[-1] + 1)
        return

    def believed(
        keys: Sequence[str], offsets: Sequence[int], bodies: Sequence[bytes]
    ) -> tuple[Sequence[str], Portion]:
        meter.count_bodies(bodies)
        strangers = doubts.strangers(piece.queue, offsets, keys, bodies)
        meter.count_foreign(len(strangers))
        if strangers:
            wanted = [place not in strangers for place in range(len(bodies))]
            keys, offsets = list(compress(keys, wanted)), list(compress(offsets, wanted))
            bodies = list(compress(bodies, wanted))
        return keys, Portion(offsets, bodies)

    for stored_ms, found in meter.reading(read_archived(plan.archive, piece)):
        keys, portion = believed(
            [key for _, key, _ in found],
            [place for place, _, _ in found],
            [body for _, _, body in found],
        )
        if portion.bodies:
            yield stored_ms, keys, portion
        meter.reached(plan.progress, found[-1][0] + 1)
    rest = after_archive(plan.archive, piece)
    parts = read_columns(plan.broker, rest) if rest else ()
    for header, columns, first, last in meter.reading(parts):
        offsets: Sequence[int] = range(header.base_offset + first, header.base_offset + last)
        keys = columns.keys[first:last] or [""] * len(offsets)
        bodies = columns.bodies[first:last]
        kinds = [head.get("kind") for head in columns.headers[first:last]]
        if "rejection" in kinds:
            wanted = [kind != "rejection" for kind in kinds]
            offsets = list(compress(offsets, wanted))
            keys, bodies = list(compress(keys, wanted)), list(compress(bodies, wanted))
        keys, portion = believed(keys, offsets, bodies)
        if portion.bodies:
            yield header.appended_at_ms, keys, portion
        meter.reached(plan.progress, header.base_offset + last)


def route_slices(plan: FoldPlan, batches: Batches) -> Batches:
    """Reads slices and yields each event for the key of the row it touches, and versions."""
    with closing(FoldWork(plan)) as work:
        for piece in slices_of(plan, batches):
            gate, meter = work.gate({}), Meter(piece)
            messages = (message for some in work.messages(piece, meter) for message in some)
            touches = _touches_out(work, gate, messages)
            yield from batched(touches, gate_out(gate), _meter_out(meter))
        yield from batched(left_out_records(work.left_out))


def read_slices(plan: FoldPlan, batches: Batches) -> Batches:
    """Reads slices and yields each stream for its aggregate, undecoded."""
    work = FoldWork(plan)
    for piece in slices_of(plan, batches):
        yield from batched(
            Record(STREAM, message.key, message.place, 0, message.body)
            for messages in work.messages(piece, keyed=True)
            for message in messages
        )


def fold_keys(plan: FoldPlan, batches: Batches) -> Batches:
    """Folds events sorted by key and place, onto base rows where there are; yields rows.

    Versions and tallies that came along go on as they are. Of each key there is one row in memory, and
    of its events those of one batch.
    """
    work = FoldWork(plan)
    rows = KeyRows(work.projection, work.touches, work.codec)
    mine = pa.array([BASE, TOUCH])
    for batch in batches:
        touching = pc.is_in(batch["kind"], mine)
        rest = batch.filter(pc.invert(touching))
        if rest.num_rows:
            yield rest
        own = batch.filter(touching)
        columns = (own[name].to_pylist() for name in ("key", "number", "data"))
        yield from batched(rows_out(work.codec, rows.take(zip(*columns, strict=True))))
    yield from batched(rows_out(work.codec, rows.finish()))


def slices_of(plan: FoldPlan, batches: Batches) -> Iterator[QueueSlice]:
    """Yields the slices of the tasks whose numbers come in."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for place in plan.tasks[number]:
                yield plan.slices[place]


def _touches_out(work: FoldWork, gate: Any, messages: Iterable[TopicMessage]) -> Iterator[Record]:
    last = yield from touches_in_time(work, gate, messages)
    yield from touches_late(work, gate.finish(), last)


def passed_in_time(
    work: FoldWork, gate: Any, messages: Iterable[TopicMessage]
) -> Iterator[tuple[EventPlace, Sequence[FoldedStream]]]:
    """Yields the place of each message, and the streams that it lets pass."""
    for message in messages:
        stream = work.decode(message)
        yield message.place, () if stream is None else gate.admit((stream,))


def touches_in_time(
    work: FoldWork, gate: Any, messages: Iterable[TopicMessage]
) -> Generator[Record, None, EventPlace]:
    """Yields what touches a key of streams that messages let pass; returns where the last one stands."""
    turn, last, find = 0, FIRST, work.touches.find
    for last, streams in passed_in_time(work, gate, messages):
        moment, queue, offset, _ = last
        for stream in streams:
            for key, number, data in find(stream):
                turn += 1
                place = _new(EventPlace, (moment, queue, offset, turn))
                yield _new(Record, (TOUCH, key, place, number, data))
    return last._replace(turn=turn)


def touches_late(
    work: FoldWork, streams: Iterable[FoldedStream], last: EventPlace
) -> Iterator[Record]:
    """Yields what touches a key of streams that pass after all messages, the last of which stands there."""
    turn = last.turn
    for stream in streams:
        for key, number, data in work.touches.find(stream):
            turn += 1
            yield _new(Record, (TOUCH, key, last._replace(turn=turn), number, data))


def rows_out(codec: RowCodec[Any], rows: Iterable[tuple[str, Any]]) -> Iterator[Record]:
    """Yields records of rows by key, and of those that are no more."""
    for key, row in rows:
        kind, data = (DELETED, b"") if row is None else (ROW, codec.encode(row))
        yield _new(Record, (kind, key, FIRST, 0, data))


def gate_out(gate: Any) -> Iterator[Record]:
    """Yields the versions at which a gate stands, what it counted, and what is missing."""
    # A generator, so that the gate is asked after everything that went through it.
    for aggregate_id, version in gate.versions.items():
        yield Record.known(VERSION, aggregate_id, number=version)
    for name in ("events", "duplicates", "gaps", "filled"):
        count = getattr(gate, name)
        if count:
            yield Record.known(TALLY, name, number=count)
    for missing in gate.missing:
        yield Record.known(MISSING, missing.aggregate_id, data=str(missing).encode())


def left_out_records(left_out: LeftOut) -> Iterator[Record]:
    """Yields which aggregates were left out, from which offset on, and why."""
    sentences = zip(left_out.aggregates.items(), left_out.sentences, strict=True)
    for (aggregate_id, offset), sentence in sentences:
        yield Record.known(UNREAD, aggregate_id, number=offset, data=sentence.encode())


def _meter_out(meter: Meter) -> Iterator[Record]:
    for name, number in meter.told():
        yield Record.known(QUEUE, name, number=number)


def records_in(batches: Batches) -> Iterator[Record]:
    """Yields the records of batches."""
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for kind, key, *place, number, data in zip(*columns, strict=True):
            yield Record(kind, key, EventPlace(*place), number, data)


def batched(*records: Iterable[Record]) -> Batches:
    """Turns records into Arrow batches, from the first source to the last.

    A batch ends before it has more than `BATCH_BYTES_MAX` bytes; a larger record goes alone.
    """
    some: list[Record] = []
    size = 0
    for record in chain.from_iterable(records):
        more = len(record[1]) + len(record[4])
        if some and (size + more > BATCH_BYTES_MAX or len(some) >= _BATCH_RECORDS):
            yield records_to_arrow(some)
            some, size = [], 0
        some.append(record)
        size += more
    if some:
        yield records_to_arrow(some)


def records_to_arrow(records: Sequence[Record]) -> pa.RecordBatch:
    """Returns records as one Arrow batch; an empty one of the right form where there are none."""
    kinds, keys, places, numbers, data = zip(*records, strict=True) if records else [()] * 5
    columns = (kinds, keys, *(zip(*places, strict=True) if places else [()] * 4), numbers, data)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(column, field.type)
            for column, field in zip(columns, RECORD_ARROW_SCHEMA, strict=True)
        ],
        schema=RECORD_ARROW_SCHEMA,
    )
