"""
Slices of the topic folded whole, each in the Python process that reads it.

    read_portions ─▶ decode ─▶ the next version of its aggregate? ─▶ fold
                                        └─ no: through the gate, with all that follows until it holds
                                           nothing back

Right where a row's events are all of one aggregate, and so in one queue. Used by Spark, which hands
out slices; uses the readers of rebuilds without Spark. It must not know a database of read models.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

from headrace.projections.definition.projection import Projection
from headrace.rebuild.decode import Decoded, Decoder, Told, context_read, tell
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.left_out import LeftOut
from headrace.rebuild.local.memory import OwnRows
from headrace.spark.executor.doubts import Doubts, StoreGaps
from headrace.spark.executor.fold import (
    MISSING,
    QUEUE,
    TALLY,
    VERSION,
    Batches,
    Record,
    batched,
    left_out_records,
    read_portions,
    rows_out,
    slices_of,
)
from headrace.spark.executor.gate import FindStreams, MissingVersions, StreamGate
from headrace.spark.executor.meter import Meter
from headrace.spark.executor.plan import FoldPlan, load_application, projection_of
from headrace.spark.rows import RowCodec
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["GatedRows", "fold_slices"]

# Messages that are decoded and then folded: so few that what was decoded is still in the processor's
# cache when it is folded.
_PIECE_MAX: Final = 100

_new = tuple.__new__


def fold_slices(plan: FoldPlan, batches: Batches) -> Batches:
    """Reads slices and folds each whole; yields rows, versions and tallies."""
    application = load_application(plan.app, plan.folder)
    serializer = application.serializer
    projection = projection_of(application, plan)
    codec: RowCodec[Any] = RowCodec(projection)
    decoder = Decoder(serializer, projection.reacts_to, context=context_read([projection]))
    doubts = Doubts(plan, serializer, keyed=plan.only is not None)
    with closing(StoreGaps(plan.event_store, serializer)) as find:
        for piece in slices_of(plan, batches):
            meter, rows, left_out = Meter(piece), GatedRows(projection, find), LeftOut()
            for portion in _portions(plan, piece, meter, doubts):
                for some in portion.pieces(_PIECE_MAX):
                    rows.take(left_out.decode(decoder, piece.queue, some, piece.start))
            rows.finish()
            versions, changes = rows.memory.take_changes()
            yield from batched(
                rows_out(codec, changes),
                (Record.known(VERSION, key, number=version) for key, version in versions.items()),
                rows.told(),
                left_out_records(left_out),
                (Record.known(QUEUE, name, number=number) for name, number in meter.told()),
            )


def _portions(plan: FoldPlan, piece: QueueSlice, meter: Meter, doubts: Doubts) -> Iterator[Portion]:
    """Yields what `read_portions` does; of other aggregates than those whose rows are wanted, nothing."""
    for _, keys, portion in read_portions(plan, piece, meter, doubts=doubts):
        if plan.only is None:
            yield portion
            continue
        found = [place for place, key in enumerate(keys) if key in plan.only]
        if found:
            offsets = [portion.offsets[place] for place in found]
            bodies = [portion.bodies[place] for place in found]
            yield Portion(offsets, bodies)


class _Offered(NamedTuple):
    """A stream on its way through the gate: what the gate looks at, and what is folded."""

    aggregate_id: str
    version: int
    events: range
    told: Told


class GatedRows:
    """The rows of streams that go through a gate of their own, a row per aggregate.

    Args:
        projection: whose rows.
        find: where to look for missing streams.
    """

    def __init__(self, projection: Projection[Any], find: FindStreams) -> None:
        self.memory = OwnRows(projection)
        self._projection = projection
        self._find = find
        # It looks at aggregate, version and the number of events, which offered streams have.
        self._gate: Any = StreamGate({}, find=self._find_offered)
        self._events = 0

    def take(self, decoded: Decoded) -> None:
        """Folds streams, in order, or holds back what is too early."""
        told = decoded.told
        place = 0 if self._gate.holds_back else self.memory.take_next(told)
        self._events += sum(decoded.counts[:place])
        if place < len(told):
            # What went past the gate is news for it.
            self._gate.learn({key: self.memory.version(key) for key, _, _ in told[place:]})
            counted = zip(told[place:], decoded.counts[place:], strict=True)
            self._fold(self._gate.admit(_offer(each, count) for each, count in counted))

    def finish(self) -> None:
        """Folds what was held back, after looking for what is missing before it."""
        self._fold(self._gate.finish())

    def told(self) -> Iterator[Record]:
        """Yields what was counted, and what is nowhere to be found."""
        gate = self._gate
        counts = {"events": self._events + gate.events}
        counts |= {name: getattr(gate, name) for name in ("duplicates", "gaps", "filled")}
        for name, count in counts.items():
            if count:
                yield Record.known(TALLY, name, number=count)
        for missing in gate.missing:
            yield Record.known(MISSING, missing.aggregate_id, data=str(missing).encode())

    def _fold(self, passed: Sequence[_Offered]) -> None:
        taken = self.memory.take_next([each.told for each in passed])
        assert taken == len(passed), "the gate lets each version pass once and in order"

    def _find_offered(self, wanted: Sequence[MissingVersions]) -> Sequence[Any]:
        reacts_to = self._projection.reacts_to
        return [_offer(tell(each, reacts_to), len(each.events)) for each in self._find(wanted)]


def _offer(told: Told, events: int) -> _Offered:
    # Made as a tuple, which takes half the time.
    return _new(_Offered, (told[0], told[1], range(events), told))
