"""
Streams that are brought together by aggregate before they are gated and folded.

    read_streams ─▶ shuffle by aggregate, in the order of places ─▶ fold_together   a row per aggregate
                                                                 ─▶ route_together  rows of any key

So a queue can be read by several tasks, and an aggregate may stand in several queues: which task has
read a stream does not matter to what becomes of it. Used by `job` and `typed_streams`; uses the gate
and the folds of slices. It must not know a session.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import compress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.domain.stream_body import aggregate_of
from headrace.rebuild.decode import Decoded, Decoder, context_read
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.left_out import LeftOut
from headrace.spark.executor.aggregates import route_aggregates
from headrace.spark.executor.doubts import Doubts, StoreGaps
from headrace.spark.executor.fold import (
    QUEUE,
    RECORD_ARROW_SCHEMA,
    STREAM,
    VERSION,
    Batches,
    Record,
    batched,
    left_out_records,
    read_portions,
    rows_out,
    slices_of,
)
from headrace.spark.executor.meter import Meter
from headrace.spark.executor.plan import FoldPlan, load_application, projection_of
from headrace.spark.executor.slices import GatedRows
from headrace.spark.rows import RowCodec
from headrace_mq.message import QueueRef
from headrace_mq.protocol.keys import open_queues_for_keys

__all__ = [
    "find_moved",
    "fold_together",
    "read_streams",
    "route_together",
    "streams_beside",
    "whole_aggregates",
]

# Streams of one Arrow batch, and the bytes of their bodies, as for the data source.
_BATCH_STREAMS: Final = 32_000
_BATCH_BYTES: Final = 16 << 20
# Messages that are decoded and then folded, as in `slices`.
_PIECE_MAX: Final = 100

# Takes records that are not streams.
_Aside = Callable[[pa.RecordBatch], None]


def find_moved(queues: int, plan: FoldPlan, batches: Batches) -> Batches:
    """Reads slices until a message is met that stands in another queue than its key's.

    Where there is none, all messages of a key stand in one queue.

    Args:
        queues: how many the topic has now; keys are divided among them.
        plan: what to read.
        batches: places of slices.

    Yields:
        One record where there is such a message: its key, and what it stands in.
    """
    serializer = load_application(plan.app, plan.folder).serializer_at(plan.event_store)
    believed = Doubts(plan, serializer, judges=False)
    among = range(queues)
    for piece in slices_of(plan, batches):
        own = piece.queue.queue_id
        for _, keys, _ in read_portions(plan, piece, Meter(piece), doubts=believed):
            named = list(set(keys))
            for key, queue_id in zip(named, open_queues_for_keys(named, among), strict=True):
                if queue_id != own or not key:
                    yield from batched([Record.known(QUEUE, key, number=own)])
                    return


def read_streams(plan: FoldPlan, batches: Batches) -> Batches:
    """Reads slices and yields each stream for its aggregate, undecoded; and what reading took."""
    application = load_application(plan.app, plan.folder)
    doubts = Doubts(plan, application.serializer_at(plan.event_store), keyed=True)
    only = plan.only
    if only is not None and not application.projection(plan.projection).keyed_by_aggregate:
        only = None
    for piece in slices_of(plan, batches):
        meter, gathered, moment = Meter(piece), _Gathered(piece.queue), 0
        for stored_ms, keys, portion in read_portions(plan, piece, meter, doubts=doubts):
            # A broker's clock may have been set back; the order of a queue holds all the same.
            moment = max(moment, stored_ms)
            gathered.add(moment, keys, portion, only)
            if gathered.is_full:
                yield gathered.take()
        yield gathered.take()
        yield from batched(
            Record.known(QUEUE, name, number=number) for name, number in meter.told()
        )


class _Gathered:
    """The streams of one queue, as columns, until they fill a batch."""

    def __init__(self, queue: QueueRef) -> None:
        self._queue = queue
        self._begin()

    def _begin(self) -> None:
        self._keys: list[str] = []
        self._moments: list[int] = []
        self._offsets: list[int] = []
        self._bodies: list[bytes] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self._bodies) >= _BATCH_STREAMS or self._bytes >= _BATCH_BYTES

    def add(
        self, moment: int, keys: Sequence[str], portion: Portion, only: frozenset[str] | None
    ) -> None:
        offsets, bodies = portion
        if "" in keys:
            keys = [key or aggregate_of(body) or "" for key, body in zip(keys, bodies, strict=True)]
        if only is not None:
            wanted = [key in only for key in keys]
            keys, offsets = list(compress(keys, wanted)), list(compress(offsets, wanted))
            bodies = list(compress(bodies, wanted))
        self._keys += keys
        self._moments += [moment] * len(keys)
        self._offsets += offsets
        self._bodies += bodies
        self._bytes += sum(map(len, bodies))

    def take(self) -> pa.RecordBatch:
        """Returns what was gathered as records, and begins again."""
        count = len(self._keys)
        columns = {
            "kind": pa.repeat(pa.scalar(STREAM), count),
            "key": self._keys,
            "moment": self._moments,
            "queue": pa.repeat(pa.scalar(self._queue.queue_id, pa.int32()), count),
            "offset": self._offsets,
            "turn": pa.repeat(pa.scalar(0, pa.int64()), count),
            "number": pa.repeat(pa.scalar(0, pa.int64()), count),
            "data": self._bodies,
        }
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for field, column in zip(RECORD_ARROW_SCHEMA, columns.values(), strict=True)
        ]
        self._begin()
        return pa.RecordBatch.from_arrays(arrays, schema=RECORD_ARROW_SCHEMA)


def streams_beside(batches: Batches, aside: _Aside) -> Batches:
    """Yields the streams among records; the others go aside."""
    for batch in batches:
        of_streams = pc.equal(batch["kind"], STREAM)
        others = batch.filter(pc.invert(of_streams))
        if others.num_rows:
            aside(others)
        streams = batch.filter(of_streams) if others.num_rows else batch
        if streams.num_rows:
            yield streams


def whole_aggregates(batches: Batches) -> Iterator[pa.RecordBatch | None]:
    """Yields records that are sorted by key; None where all keys so far have come to their end."""
    under_way: str | None = None
    for batch in batches:
        keys = batch["key"]
        first, last = keys[0].as_py(), keys[-1].as_py()
        if under_way is not None and first != under_way:
            yield None
        start = 0 if first == last else pc.index(keys, last).as_py()
        if start:
            yield batch.slice(0, start)
            yield None
        yield batch.slice(start)
        under_way = last
    if under_way is not None:
        yield None


def fold_together(plan: FoldPlan, batches: Batches) -> Batches:
    """Folds sorted streams, a row per aggregate; yields rows, versions and tallies."""
    application = load_application(plan.app, plan.folder)
    projection = projection_of(application, plan)
    codec: RowCodec[Any] = RowCodec(projection)
    serializer = application.serializer_at(plan.event_store)
    decoder = _StreamDecoder(
        plan, Decoder(serializer, projection.reacts_to, context=context_read([projection]))
    )
    with closing(StoreGaps(plan.event_store, serializer)) as find:
        others: list[pa.RecordBatch] = []
        rows = GatedRows(projection, find)
        for some in whole_aggregates(streams_beside(batches, others.append)):
            if some is not None:
                for decoded in decoder.decode(some):
                    rows.take(decoded)
                continue
            # No more will come of these aggregates: so much and no more is in memory.
            rows.finish()
            versions, changes = rows.memory.take_changes()
            yield from batched(
                rows_out(codec, changes.items()),
                (Record.known(VERSION, key, number=version) for key, version in versions.items()),
                rows.told(),
            )
            rows = GatedRows(projection, find)
        yield from batched(left_out_records(decoder.left_out))
        yield from others


def route_together(plan: FoldPlan, batches: Batches) -> Batches:
    """Lets sorted streams pass; yields each event for the key it touches, versions and tallies."""
    others: list[pa.RecordBatch] = []
    yield from route_aggregates(plan, streams_beside(batches, others.append))
    yield from others


class _StreamDecoder:
    """Decodes streams that come sorted by aggregate, and leaves out those that do not decode.

    Args:
        plan: names the topic.
        decoder: decodes portions of a queue.
    """

    def __init__(self, plan: FoldPlan, decoder: Decoder) -> None:
        self.left_out = LeftOut()
        self._topic = plan.slices[0].queue.topic
        self._decoder = decoder
        # What comes later of these stands perhaps in another queue, at a lower offset.
        self._stopped: frozenset[str] = frozenset()

    def decode(self, records: pa.RecordBatch) -> Iterator[Decoded]:
        """Yields what is decoded, some of one queue at a time."""
        queues, offsets, bodies = (
            records[name].to_pylist() for name in ("queue", "offset", "data")
        )
        start, count = 0, len(queues)
        while start < count:
            end, queue_id = start + 1, queues[start]
            latest = min(count, start + _PIECE_MAX)
            while end < latest and queues[end] == queue_id:
                end += 1
            portion = Portion(offsets[start:end], bodies[start:end])
            yield self._decode((self._topic, queue_id), portion)
            start = end

    def _decode(self, queue: tuple[str, int], portion: Portion) -> Decoded:
        decoded = self.left_out.decode(self._decoder, queue, portion, 0)
        if self._stopped:
            wanted = [each[0] not in self._stopped for each in decoded.told]
            decoded = Decoded(
                decoded.end,
                list(compress(decoded.offsets, wanted)),
                list(compress(decoded.told, wanted)),
                list(compress(decoded.counts, wanted)),
            )
        if len(self.left_out.aggregates) > len(self._stopped):
            self._stopped = frozenset(self.left_out.aggregates)
        return decoded
