"""
Events of the event topic into Parquet: messages as they are, and events as typed tables.

    broker ─▶ messages/*.parquet ─▶ gate, decode ─▶ events/TYPE/*.parquet ─▶ one rename

Runs in this process, without a Spark session; the files are for Spark and any other reader of
Parquet. Used by the command line and notebooks; uses `archive`, which keeps the parts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace._runtime.clock import Clock, SystemClock
from headrace.app import load_app
from headrace.errors import DefinitionError, ProjectionError
from headrace.events.publisher import event_topic
from headrace.projections.definition.shape import ColumnKind
from headrace.serialization import JsonSerializer
from headrace.spark.archive import (
    ArchiveFile,
    ExportedPart,
    digests_of,
    ends_of,
    exported_parts,
    finish_part,
    identity_of,
    known_epochs,
    parquet_at,
    queue_file,
    writing_part,
)
from headrace.spark.executor.decode import DECIMAL_PLACES_MAX, StreamDecoder, fields_of
from headrace.spark.executor.doubts import Doubts, StoreGaps, seal_of
from headrace.spark.executor.event_reader import (
    EVENT,
    UNKNOWN,
    ChosenType,
    Reading,
    TypedSlice,
    column_of,
    context_column,
    find_streams,
)
from headrace.spark.executor.fold import MISSING, TALLY, UNREAD, VERSION, read_messages
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.held_offsets import check_same_topic
from headrace.spark.topic import fetch_identity, fetch_ranges, read_record_batches
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.columns import ARROW_SCHEMA
from headrace_mq.spark.offsets import QueueSlice, plan_slices
from headrace_mq.spark.reader import rarely_collecting

__all__ = ["ORDER", "PLACES", "export_events"]

# Enough of the aggregates with holes to see what they have in common.
_NAMED_MAX: Final = 5
_FINAL_TYPES: Final[Mapping[ColumnKind | None, pa.DataType]] = {
    ColumnKind.DECIMAL: pa.decimal128(38, DECIMAL_PLACES_MAX),
    ColumnKind.DATE: pa.date32(),
    ColumnKind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}
# Besides the event's own fields and `context`, of names that no field can have: in which order the topic
# has the events, and of each decimal how many places it had, for rebuilds that want it to the letter.
ORDER: Final = "_order"
PLACES: Final = "_places"
_VERSIONS: Final = pa.schema([("aggregate_id", pa.string()), ("version", pa.int64())])


def export_events(
    app: str,
    folder: str | Path,
    *,
    broker: str,
    event_store_url: str | None = None,
    held_only: bool = False,
    clock: Clock | None = None,
) -> ExportedPart:
    """Writes the messages of an event topic since the last export into a folder, as one part.

    A part is there as a whole or not at all, and holds each message once, even if the export is killed.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        folder: where the parts are; it is made if it does not exist.
        broker: `host:port`.
        event_store_url: fills gaps of the event topic, and recognises foreign messages, which do not become
            typed events; without it every message of the topic is trusted.
        held_only: the first part begins with the oldest message left, even if the topic was trimmed.
        clock: measures.

    Returns:
        The new part; with number 0 if there was nothing new.

    Raises:
        ProjectionError: the broker is away, messages were deleted before they were exported, the topic
            was deleted and made again since the last export, versions are missing, too many events do not
            decode, or another export is writing.
    """
    place, clock = Path(folder), clock or SystemClock()
    began = clock.monotonic_ms()
    application = load_app(app)
    topic = event_topic(application.name)
    with writing_part(place) as written, rarely_collecting():
        parts = exported_parts(place)
        if parts and parts[0].topic != topic:
            raise ProjectionError(f"{place} holds events of {parts[0].topic}, not of {topic}")
        try:
            held = fetch_ranges(broker, [topic], known=known_epochs(parts))
            identity = fetch_identity(broker, topic)
            check_same_topic(topic, identity_of(parts), identity)
            if not (parts or held_only):
                _check_begin(held)
            begin = ends_of(parts, held)
            slices = plan_slices(held, starting=begin)
            messages = sum(_write_messages(broker, piece, written) for piece in slices)
        except (MessageQueueError, ValueError) as error:
            raise ProjectionError(f"the events of {app}: {error}") from error
        start = {queue.queue_id: offset for queue, offset in begin.items()}
        end = start | {piece.queue.queue_id: piece.end for piece in slices}
        part = ExportedPart(number=0, app=app, topic=topic, start=start, end=end, identity=identity)
        if not slices:
            return part
        serializer = application.serializer_at(event_store_url)
        with closing(_Typed(serializer, event_store_url, written)) as typed:
            typed.learn(place, parts)
            for piece in slices:
                typed.write(piece)
        part = ExportedPart(
            number=len(parts) + 1,
            app=app,
            topic=topic,
            start=start,
            end=end,
            messages=messages,
            events=dict(typed.events),
            unknown=dict(typed.unknown),
            left_out=typed.left_out,
            duplicates=typed.tally["duplicates"],
            gaps=typed.tally["gaps"],
            filled=typed.tally["filled"],
            bytes=sum(file.stat().st_size for file in written.rglob("*.parquet")),
            vouched=event_store_url is not None,
            files=digests_of(written),
            identity=identity,
            epochs={one.queue_id: one.epoch for one in held if one.epoch},
            seconds=(clock.monotonic_ms() - began) / 1_000,
        )
        finish_part(written, part)
        return part


def _check_begin(held: Sequence[QueueRange]) -> None:
    for one in held:
        if one.has_lost(0):
            raise ProjectionError(
                f"{one.topic}/{one.queue_id} begins at offset {one.first}, because earlier messages were"
                " trimmed: export into the folder that has these, or say that a new one shall begin"
                " there (`headrace events export --held-only`)"
            )


def _write_messages(broker: str, piece: QueueSlice, part: Path) -> int:
    count = 0
    path = queue_file(part, "messages", piece.queue.queue_id)
    with parquet_at(path, ARROW_SCHEMA) as writer:
        for batch in read_record_batches(broker, piece):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


class _Typed:
    """The typed events of a part, made from the messages that were written for it."""

    def __init__(self, serializer: JsonSerializer, event_store: str | None, part: Path) -> None:
        self._part = part
        self._types = list(serializer.events.types.values())
        for each in self._types:
            if "context" in each.model_fields:
                raise DefinitionError(
                    f"{each.__name__} has a field called context, which is the name of a column of"
                    " every event; rename the field"
                )
        self._reading = Reading(
            types=tuple(
                ChosenType(
                    name=each.message_name,
                    version=each.message_version,
                    fields=fields_of(each),
                )
                for each in self._types
            ),
            go_around=True,
        )
        chosen = zip(self._types, self._reading.types, strict=True)
        self._decoder = StreamDecoder(serializer, {kind: one.fields for kind, one in chosen})
        self._doubts = Doubts(
            FoldPlan(
                app="", folder="", projection="", broker="", event_store=event_store, slices=(),
                seal=seal_of(event_store, serializer),
            ),
            serializer,
        )  # fmt: skip
        self._store = StoreGaps(event_store, serializer)
        self._find = find_streams(self._store, serializer, self._decoder)
        self._versions: dict[str, int] = {}
        self._left_out: dict[str, str] = {}
        self._left_out_before: frozenset[str] = frozenset()
        self.events: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.tally: Counter[str] = Counter()

    def learn(self, folder: Path, parts: list[ExportedPart]) -> None:
        """Takes in the versions at which earlier parts end, and which aggregates they leave out."""
        for part in parts:
            self._left_out.update(part.left_out)
            for file in (folder / f"export-{part.number:06}" / "versions").glob("*.parquet"):
                ids, versions = pq.read_table(file).columns
                self._versions.update(zip(ids.to_pylist(), versions.to_pylist(), strict=True))

        self._left_out_before = frozenset(self._left_out)

    @property
    def left_out(self) -> dict[str, str]:
        """The aggregates that are left out from this part on, and why."""
        found, before = self._left_out.items(), self._left_out_before
        return {key: sentence for key, sentence in found if key not in before}

    def close(self) -> None:
        """Closes the event store."""
        self._store.close()

    def write(self, piece: QueueSlice) -> None:
        """Writes the events of a slice, a file for each type."""
        queue_id = piece.queue.queue_id
        path = queue_file(self._part, "messages", queue_id)
        file = ArchiveFile(path=str(path), queue_id=queue_id, start=piece.start, end=piece.end)
        plan = FoldPlan(
            app="", folder="", projection="", broker="", event_store=None, slices=(piece,),
            archive=(file,),
        )  # fmt: skip
        places = {each: place for place, each in enumerate(self._types)}
        typed = TypedSlice(
            self._reading, self._decoder, places, queue_id, self._find,
            versions=self._versions, left_out=self._left_out,
        )  # fmt: skip
        with ExitStack() as files:
            writers: dict[int, pq.ParquetWriter] = {}

            def keep(batch: pa.RecordBatch) -> None:
                if batch["kind"][0].as_py() != EVENT:
                    self._tell(batch, queue_id)
                    return
                place = batch["type"][0].as_py()
                table = self._table(batch, place)
                if place not in writers:
                    # Two versions of a type may both have a class.
                    kind = self._types[place]
                    path = queue_file(self._part, f"events/{kind.message_name}", queue_id)
                    path = path.with_stem(f"{path.stem}-v{kind.message_version}")
                    writers[place] = files.enter_context(parquet_at(path, table.schema))
                writers[place].write_table(table)
                self.events[self._types[place].message_name] += batch.num_rows

            for messages in read_messages(plan, piece, doubts=self._doubts):
                typed.take(piece.queue.topic, messages)
                if typed.full:
                    for batch in typed.flush():
                        keep(batch)
            for batch in typed.finish():
                keep(batch)

    def _tell(self, batch: pa.RecordBatch, queue_id: int) -> None:
        kinds = (VERSION, TALLY, MISSING, UNKNOWN, UNREAD)
        found: dict[str, list[tuple[str, int]]] = {kind: [] for kind in kinds}
        columns = (batch[name].to_pylist() for name in ("kind", "key", "number"))
        for kind, key, number in zip(*columns, strict=True):
            found[kind].append((key, number))
        if found[MISSING]:
            named = "; ".join(sorted(key for key, _ in found[MISSING])[:_NAMED_MAX])
            raise ProjectionError(
                f"{len(found[MISSING])} aggregates lack events that neither the topic nor an event"
                f" store has: {named}; nothing was exported"
            )
        self.tally.update(dict(found[TALLY]))
        self.unknown.update(dict(found[UNKNOWN]))
        versions = dict(found[VERSION])
        self._versions.update(versions)
        with parquet_at(queue_file(self._part, "versions", queue_id), _VERSIONS) as writer:
            arrays = [list(versions), list(versions.values())]
            writer.write_table(pa.table(arrays, schema=_VERSIONS))

    def _table(self, batch: pa.RecordBatch, place: int) -> pa.Table:
        """Returns events as columns of their own types next to the struct `context`."""
        context: dict[str, Any] = {
            name: batch[context_column(name)] for name in self._reading.context
        }
        context["recorded_at"] = context["recorded_at"].cast(_FINAL_TYPES[ColumnKind.TIMESTAMP])
        columns: dict[str, Any] = {"context": _struct(context)}
        for field in self._reading.types[place].fields:
            column = batch[column_of(field)]
            final = _FINAL_TYPES.get(field.kind)
            columns[field.name] = column if final is None else column.cast(final)
        columns[ORDER] = _struct({"moment": batch["moment"], "turn": batch["turn"]})
        decimals = {
            field.name: _places(batch[column_of(field)])
            for field in self._reading.types[place].fields
            if field.kind is ColumnKind.DECIMAL
        }
        if decimals:
            columns[PLACES] = _struct(decimals)
        return pa.table(columns)


def _struct(columns: Mapping[str, pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def _places(digits: pa.Array) -> pa.Array:
    """Returns how many digits stand behind the point of each decimal."""
    point = pc.find_substring(digits, ".")
    behind = pc.subtract(pc.subtract(pc.binary_length(digits), point), 1)
    return pc.if_else(pc.less(point, 0), 0, behind).cast(pa.int8())
