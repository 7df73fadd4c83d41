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
from itertools import chain, compress, groupby, islice
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.projections.definition.fold import Touch, find_touches, fold
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.left_out import LeftOut
from headrace.spark.archive import after_archive, read_archived
from headrace.spark.executor.doubts import Doubts, StoreGaps
from headrace.spark.executor.gate import StreamGate
from headrace.spark.executor.meter import Meter
from headrace.spark.executor.plan import FoldPlan, load_application, projection_of
from headrace.spark.executor.positions import read_share
from headrace.spark.rows import RowCodec
from headrace.subscriptions.foreign import stream_or_none
from headrace_mq.spark.offsets import QueueSlice
from headrace_mq.spark.reader import read_columns

__all__ = [
    "BASE",
    "DELETED",
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
MISSING = "missing"  # aggregate id, -, a sentence
UNREAD = "unread"  # aggregate id, from which offset on, a sentence
QUEUE = "queue"  # a queue and what of it was measured, how much, -
BASE = "base"  # key of the row before the tail, -, its values
STREAM = "stream"  # aggregate id, -, the stream's body
TOUCH = "touch"  # key of the row, which event of the stream and which rule, the stream's body

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
# Events of one key folded in one go, so that a busy key does not have to fit into memory.
_TOUCHES_AT_ONCE = 1_000

# In the number of a touch: the event's place in its stream, then the rule's among those for it.
_RULE_BITS = 16
_RULE_MASK = (1 << _RULE_BITS) - 1

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
        self.serializer = app.serializer
        self.codec: RowCodec[Any] = RowCodec(self.projection)
        self._plan = plan
        self.find = StoreGaps(plan.event_store, self.serializer)
        self.left_out = LeftOut()

    def gate(self, versions: Mapping[str, int]) -> StreamGate:
        """Makes a gate that fills gaps from the event store."""
        return StreamGate(versions, find=self.find)

    def close(self) -> None:
        """Closes what was opened."""
        self.find.close()

    def messages(
        self, piece: QueueSlice, meter: Meter | None = None, *, keyed: bool = False
    ) -> Iterator[list[TopicMessage]]:
        """Yields the messages of a slice that are believed, as `read_messages` does."""
        doubts = Doubts(self._plan, self.serializer, keyed=keyed)
        return read_messages(self._plan, piece, meter, doubts=doubts)

    def decode(self, message: TopicMessage) -> EventStream | None:
        """Decodes a message; None: it is left out.

        Raises:
            ProjectionError: it does not decode, and cannot be left out.
        """
        topic = self._plan.slices[0].queue.topic
        queue = (topic, message.place.queue)
        offset = message.place.offset
        try:
            stream = stream_or_none(self.serializer.decode_stream, message.body, queue, offset)
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
            yield some
        return

    def believed(found: list[TopicMessage]) -> list[TopicMessage]:
        measured.count(found)
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

    Versions and tallies that came along go on as they are.
    """
    work = FoldWork(plan)

    def folded() -> Iterator[Record]:
        for key, records in groupby(records_in(batches), attrgetter("key")):
            rows: dict[str, Any] = {}
            changes: dict[str, Any] = {}
            touches: list[Touch] = []
            for record in records:
                if record.kind == BASE:
                    rows[key] = work.codec.row(record.data)
                elif record.kind == TOUCH:
                    touches.append(_touch_in(work, record))
                else:
                    yield record
                if len(touches) >= _TOUCHES_AT_ONCE:
                    changes = fold(work.projection, rows | changes, touches)
                    touches = []
            changes |= fold(work.projection, rows | changes, touches)
            yield from rows_out(work.codec, changes)

    yield from batched(folded())


def slices_of(plan: FoldPlan, batches: Batches) -> Iterator[QueueSlice]:
    """Yields the slices of the tasks whose numbers come in."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for place in plan.tasks[number]:
                yield plan.slices[place]


def _touches_out(
    work: FoldWork, gate: StreamGate, messages: Iterable[TopicMessage]
) -> Iterator[Record]:
    last = yield from touches_in_time(work, gate, messages)
    yield from touches_late(work, gate.finish(), last)


def touches_in_time(
    work: FoldWork, gate: StreamGate, messages: Iterable[TopicMessage]
) -> Generator[Record, None, EventPlace]:
    """Yields what touches a key of streams that messages let pass; returns where the last one stands."""
    turn = 0
    last = FIRST
    for message in messages:
        last = message.place
        stream = work.decode(message)
        if stream is None:
            continue
        for passed in gate.admit([stream]):
            body = message.body if passed is stream else work.serializer.encode_stream(passed)
            for touch in find_touches(work.projection, [passed]):
                turn += 1
                yield _touch_out(touch, last, turn, body)
    return last._replace(turn=turn)


def touches_late(
    work: FoldWork, streams: Iterable[EventStream], last: EventPlace
) -> Iterator[Record]:
    """Yields what touches a key of streams that pass after all messages, the last of which stands there."""
    turn = last.turn
    for passed in streams:
        body = work.serializer.encode_stream(passed)
        for touch in find_touches(work.projection, [passed]):
            turn += 1
            yield _touch_out(touch, last, turn, body)


def _touch_out(touch: Touch, place: EventPlace, turn: int, body: bytes) -> Record:
    number = touch.context.sequence << _RULE_BITS | touch.rule
    return Record(TOUCH, touch.key, place._replace(turn=turn), number, body)


def _touch_in(work: FoldWork, record: Record) -> Touch:
    stream = work.serializer.decode_stream(record.data)
    sequence, rule = record.number >> _RULE_BITS, record.number & _RULE_MASK
    event, context = stream.contexts()[sequence - 1]
    return Touch(record.key, event, context, rule)


def rows_out(codec: RowCodec[Any], rows: Mapping[str, Any]) -> Iterator[Record]:
    """Yields records of rows, and of those that are no more."""
    for key, row in rows.items():
        if row is None:
            yield Record.known(DELETED, key)
        else:
            yield Record.known(ROW, key, data=codec.encode(row))


def gate_out(gate: StreamGate) -> Iterator[Record]:
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
    """Turns records into Arrow batches, from the first source to the last."""
    waiting = chain.from_iterable(records)
    while some := list(islice(waiting, _BATCH_RECORDS)):
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
