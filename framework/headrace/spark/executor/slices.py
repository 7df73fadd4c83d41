"""
Slices of the topic folded whole, each in the Python process that reads it.

    read_portions ─▶ decode ─▶ the next version of its aggregate? ─▶ fold
                 │                      └─ no: through the gate, with all that follows until it holds
                 │                         nothing back
                 └─ more aggregates than memory holds: to the disk, and folded part by part

Right where a row's events are all of one aggregate, and so in one queue. Used by Spark, which hands
out slices; uses the readers of rebuilds without Spark. It must not know a database of read models.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

from headrace.projections.definition.projection import Projection
from headrace.rebuild.decode import Decoded, Decoder, Told, context_read, tell
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.left_out import LeftOut
from headrace.rebuild.local.memory import OwnRows
from headrace.spark.executor.doubts import Doubts, StoreGaps
from headrace.spark.executor.fold import (
    DELETED,
    FIRST,
    MISSING,
    QUEUE,
    ROW,
    TALLY,
    VERSION,
    Batches,
    Record,
    batched,
    left_out_records,
    read_portions,
    slices_of,
)
from headrace.spark.executor.gate import FindStreams, MissingVersions, StreamGate
from headrace.spark.executor.meter import Meter
from headrace.spark.executor.plan import FoldPlan, load_application, projection_of
from headrace.spark.executor.spill import State, StateSpill
from headrace.spark.rows import RowCodec
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["PIECE_MAX", "STATE_BYTES_MAX", "GatedRows", "SliceRows", "fold_slices"]

# Messages that are decoded and then folded: so few that what was decoded is still in the processor's
# cache when it is folded.
PIECE_MAX: Final = 100
# Bytes of rows and versions that a task holds, as far as they are estimated: with less than a million
# aggregates in a queue nothing goes to the disk, and with more a task has about 1.5 GiB.
STATE_BYTES_MAX: Final = 1 << 30
# Of an aggregate besides its encoded row, measured; how many rows are encoded to estimate their size;
# and after how many bytes of messages that is done.
_CELL_BYTES: Final = 900
_SAMPLE_ROWS: Final = 256
_CHECK_BYTES: Final = 64 << 20

_UNTOUCHED: Final = State("", 0, touched=False, row=None)

_new = tuple.__new__


def fold_slices(plan: FoldPlan, batches: Batches) -> Batches:
    """Reads slices and folds each whole; yields rows, versions and tallies."""
    application = load_application(plan.app, plan.folder)
    serializer = application.serializer_at(plan.event_store)
    projection = projection_of(application, plan)
    decoder = Decoder(serializer, projection.reacts_to, context=context_read([projection]))
    doubts = Doubts(plan, serializer, keyed=plan.only is not None)
    with closing(StoreGaps(plan.event_store, serializer)) as find:
        for piece in slices_of(plan, batches):
            meter, left_out = Meter(piece), LeftOut()
            decode = partial(_decode, left_out, decoder, piece)
            with closing(SliceRows(projection, find, decode)) as rows:
                for portion in _portions(plan, piece, meter, doubts):
                    rows.add(portion)
                yield from batched(
                    rows.finish(),
                    left_out_records(left_out),
                    (Record.known(QUEUE, name, number=number) for name, number in meter.told()),
                )


def _decode(left_out: LeftOut, decoder: Decoder, piece: QueueSlice, portion: Portion) -> Decoded:
    return left_out.decode(decoder, piece.queue, portion, piece.start)


class SliceRows:
    """The rows of one projection, of the messages of one slice.

    Beyond a number of bytes the states, and all messages that come, go to the disk, in parts that are
    folded in the same way, one after the other. Aggregates of which streams are held back stay.

    Args:
        projection: whose rows.
        find: where to look for missing streams.
        decode: decodes messages.
        bytes_max: of states in memory, as far as they are estimated; None: `STATE_BYTES_MAX`.
        begun: states from before.
        level: how many spills what comes has been through.
    """

    def __init__(
        self,
        projection: Projection[Any],
        find: FindStreams,
        decode: Callable[[Portion], Decoded],
        bytes_max: int | None = None,
        *,
        begun: Iterable[State] = (),
        level: int = 0,
    ) -> None:
        self._make = partial(SliceRows, projection, find, decode, bytes_max)
        self._decode = decode
        self._bytes_max = STATE_BYTES_MAX if bytes_max is None else bytes_max
        self._level = level
        self._rows = GatedRows(projection, find)
        self._states = _States(self._rows.memory, RowCodec(projection), begun)
        self._spill: StateSpill | None = None
        self._kept: Collection[str] = ()
        self._unchecked = 0

    @property
    def spilled(self) -> bool:
        """Whether messages go to the disk."""
        return self._spill is not None

    def add(self, portion: Portion) -> None:
        """Folds messages, in order."""
        mine = portion
        if self._spill is not None:
            mine = self._spill.add_messages(portion, but=self._kept)
        for some in mine.pieces(PIECE_MAX):
            self._rows.take(self._decode(some))
        self.weigh(portion)

    def take(self, decoded: Decoded) -> None:
        """Folds streams; give their messages to `weigh`."""
        self._rows.take(decoded)

    def weigh(self, portion: Portion) -> None:
        """Moves the states to the disk if they have become too many with these messages."""
        self._unchecked += sum(map(len, portion.bodies))
        if self._spill is None and self._unchecked >= _CHECK_BYTES:
            self._unchecked = 0
            if self._states.size() > self._bytes_max:
                self._spill = StateSpill(self._level)
                self._kept = self._rows.held
                self._states.move(self._spill, but=self._kept)

    def finish(self) -> Iterator[Record]:
        """Yields rows, versions and tallies."""
        self._rows.finish()
        yield from _states_out(self._states.take())
        yield from self._rows.told()
        if self._spill is None:
            return
        for before, messages in self._spill.parts():
            with closing(self._make(begun=before, level=self._level + 1)) as part:
                for portion in messages:
                    part.add(portion)
                yield from part.finish()

    def close(self) -> None:
        """Deletes what is on the disk."""
        if self._spill is not None:
            self._spill.close()


def _states_out(states: Iterable[State]) -> Iterator[Record]:
    for key, version, touched, row in states:
        if touched:
            kind = DELETED if row is None else ROW
            yield _new(Record, (kind, key, FIRST, 0, row or b""))
        yield _new(Record, (VERSION, key, FIRST, version, b""))


class _States:
    """What memory holds of aggregates, and what is known of those that nothing has changed.

    Args:
        memory: folds.
        codec: of its rows.
        begun: states from before.
    """

    def __init__(self, memory: OwnRows[Any], codec: RowCodec[Any], begun: Iterable[State]) -> None:
        self._memory = memory
        self._codec = codec
        self._begun: dict[str, State] = {}
        self._learn(begun)

    def size(self) -> int:
        """Returns about how many bytes they take."""
        some = self._memory.some_rows(_SAMPLE_ROWS)
        row_bytes = sum(len(self._codec.encode(row)) for row in some) // max(len(some), 1)
        return len(self._memory) * (_CELL_BYTES + row_bytes)

    def take(self) -> Iterator[State]:
        """Yields the state of every aggregate, and forgets which have changed."""
        versions, rows = self._memory.take_changes()
        begun, encode = self._begun, self._codec.encode
        for key, version in versions.items():
            _, _, touched, row = begun.pop(key, _UNTOUCHED)
            if key in rows:
                touched, row = True, None if rows[key] is None else encode(rows[key])
            yield _new(State, (key, version, touched, row))
        yield from self._begun.values()
        self._begun = {}

    def move(self, spill: StateSpill, *, but: Collection[str]) -> None:
        """Moves all states but those of some aggregates to the disk."""
        kept: list[State] = []
        for state in self.take():
            if state.aggregate_id in but:
                kept.append(state)
            else:
                spill.add_state(state)
        self._memory.clear()
        self._learn(kept)

    def _learn(self, states: Iterable[State]) -> None:
        self._begun = {state.aggregate_id: state for state in states}
        versions = {key: state.version for key, state in self._begun.items()}
        self._memory.learn_versions(versions, versions)
        decode = self._codec.row
        self._memory.learn_rows(
            {
                key: None if state.row is None else decode(state.row)
                for key, state in self._begun.items()
            }
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

    @property
    def held(self) -> Collection[str]:
        """The aggregates of which streams are held back."""
        held: Collection[str] = self._gate.held
        return held

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
