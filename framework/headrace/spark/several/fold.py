"""
Slices of the topic read once, and folded for several projections by the process that reads.

    read_portions ─▶ decode ─▶ rows of one projection, rows of another, …   a row per aggregate
                 └────────────▶ events for the keys they touch              rows of any key

Where streams are brought together by aggregate first, they are read once too, and each projection
folds them by itself. Used by Spark, which hands out slices; uses the folds of one projection. It must
not know a session.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, Final

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.rebuild.decode import Decoded, Decoder, context_read
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.left_out import LeftOut
from headrace.spark.executor.doubts import Doubts, StoreGaps
from headrace.spark.executor.fold import (
    FAILED,
    FIRST,
    QUEUE,
    Batches,
    EventPlace,
    FoldWork,
    Record,
    TopicMessage,
    batched,
    gate_out,
    left_out_records,
    read_portions,
    slices_of,
    touches_in_time,
    touches_late,
)
from headrace.spark.executor.meter import Meter
from headrace.spark.executor.plan import FoldPlan, load_application, projection_of
from headrace.spark.executor.slices import PIECE_MAX, STATE_BYTES_MAX, SliceRows
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["fold_for_all"]

# Records that wait until they are worth a batch of their own; `batched` bounds its bytes.
_WAITING_MAX: Final = 8_000

_Marked = Iterator[tuple[int, pa.RecordBatch]]


def fold_for_all(plans: Sequence[FoldPlan], batches: Batches) -> _Marked:
    """Reads slices once for several projections; yields records, each batch with the place of its plan.

    What a fold refuses ends that projection alone: a record of the kind `FAILED` says why.

    Args:
        plans: alike but for their projections.
        batches: numbers of tasks.

    Raises:
        ProjectionError: the slices cannot be read or decoded.
    """
    plan = plans[0]
    application = load_application(plan.app, plan.folder)
    doubts = Doubts(plan, application.serializer)
    with ExitStack() as opened:
        find = opened.enter_context(closing(StoreGaps(plan.event_store, application.serializer)))
        routes = [
            _Route(place, opened.enter_context(closing(FoldWork(each))))
            for place, each in enumerate(plans)
            if not projection_of(application, each).keyed_by_aggregate
        ]
        kept = _Kept(application, plans, find)
        for piece in slices_of(plan, batches):
            yield from _fold_slice(plan, piece, doubts, kept, routes)
        for route in routes:
            for batch in batched(left_out_records(route.work.left_out)):
                yield route.place, batch


def _fold_slice(
    plan: FoldPlan, piece: QueueSlice, doubts: Doubts, kept: "_Kept", routes: "Sequence[_Route]"
) -> _Marked:
    meter, moment = Meter(piece), 0
    for route in routes:
        route.begin(piece)
    with kept.of(piece) as rows:
        for stored_ms, keys, portion in read_portions(plan, piece, meter, doubts=doubts):
            moment = max(moment, stored_ms)
            rows.add(portion)
            for route in routes:
                yield from route.add(moment, keys, portion)
        told = [Record.known(QUEUE, name, number=number) for name, number in meter.told()]
        for place, records in rows.finish():
            yield from ((place, batch) for batch in batched(records, told))
        for route in routes:
            yield from route.finish(told)


class _Kept:
    """What folds slices for the projections with a row per aggregate."""

    def __init__(self, application: Any, plans: Sequence[FoldPlan], find: StoreGaps) -> None:
        projections = {place: projection_of(application, each) for place, each in enumerate(plans)}
        self.projections = {
            place: each for place, each in projections.items() if each.keyed_by_aggregate
        }
        self.find = find
        self._decoder = Decoder(
            application.serializer,
            lambda event: any(each.reacts_to(event) for each in self.projections.values()),
            context=context_read(self.projections.values()),
        )
        # Together they hold in memory what one alone may hold.
        self.bytes_max = STATE_BYTES_MAX // max(1, len(self.projections))

    def of(self, piece: QueueSlice) -> "_RowsOfAll":
        """Returns what folds a slice."""
        left_out = LeftOut()
        return _RowsOfAll(self, left_out, partial(self._decode, left_out, piece))

    def _decode(self, left_out: LeftOut, piece: QueueSlice, portion: Portion) -> Decoded:
        return left_out.decode(self._decoder, piece.queue, portion, piece.start)


class _RowsOfAll:
    """The rows of several projections, of the messages of one slice."""

    def __init__(
        self, kept: _Kept, left_out: LeftOut, decode: Callable[[Portion], Decoded]
    ) -> None:
        self._left_out = left_out
        self._decode = decode
        self._rows = {
            place: SliceRows(each, kept.find, decode, kept.bytes_max)
            for place, each in kept.projections.items()
        }
        self._failures: dict[int, str] = {}

    def __enter__(self) -> "_RowsOfAll":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._rows.values():
            each.close()

    def add(self, portion: Portion) -> None:
        """Folds messages: decoded once for all that are in memory."""
        going_on = [place for place in self._rows if place not in self._failures]
        in_memory = [place for place in going_on if not self._rows[place].spilled]
        if in_memory:
            for some in portion.pieces(PIECE_MAX):
                decoded = self._decode(some)
                for place in in_memory:
                    self._attempt(place, partial(self._rows[place].take, decoded))
        for place in going_on:
            rows = self._rows[place]
            self._attempt(place, partial(rows.weigh if place in in_memory else rows.add, portion))

    def finish(self) -> Iterator[tuple[int, Iterator[Record]]]:
        """Yields the place of each projection, and its rows, versions and tallies, or why there are none."""
        for place in self._rows:
            yield place, self._told(place)

    def _told(self, place: int) -> Iterator[Record]:
        if place not in self._failures:
            try:
                yield from self._rows[place].finish()
                yield from left_out_records(self._left_out)
            except HeadraceError as error:
                self._failures[place] = str(error)
        if place in self._failures:
            yield Record.known(FAILED, self._failures[place])

    def _attempt(self, place: int, action: Callable[[], None]) -> None:
        if place in self._failures:
            return
        try:
            action()
        except HeadraceError as error:
            self._failures[place] = str(error)


class _Route:
    """The events of slices, for the keys of one projection that they touch.

    Args:
        place: of its plan.
        work: its plan, opened.
    """

    def __init__(self, place: int, work: FoldWork) -> None:
        self.place = place
        self.work = work
        self._failure = ""

    def begin(self, piece: QueueSlice) -> None:
        """Begins a slice."""
        self._queue_id = piece.queue.queue_id
        self._gate = self.work.gate({})
        self._last = FIRST
        self._waiting: list[Record] = []

    def add(self, moment: int, keys: Sequence[str], portion: Portion) -> _Marked:
        """Lets messages pass; yields what touches a key, once it is worth a batch."""
        if self._failure:
            return
        messages = [
            TopicMessage(EventPlace(moment, self._queue_id, offset), key, body)
            for offset, key, body in zip(portion.offsets, keys, portion.bodies, strict=True)
        ]
        touches = touches_in_time(self.work, self._gate, messages)
        try:
            while True:
                self._waiting.append(next(touches))
        except StopIteration as ended:
            self._last = ended.value
        except HeadraceError as error:
            self._failure = str(error)
        if len(self._waiting) >= _WAITING_MAX:
            yield from self._marked(self._waiting)
            self._waiting = []

    def finish(self, told: Sequence[Record]) -> _Marked:
        """Yields the rest of a slice, and what was counted; or why there is no more."""
        if not self._failure:
            try:
                self._waiting += touches_late(self.work, self._gate.finish(), self._last)
            except HeadraceError as error:
                self._failure = str(error)
        if self._failure:
            yield from self._marked([Record.known(FAILED, self._failure)])
            return
        yield from self._marked(self._waiting, gate_out(self._gate), told)

    def _marked(self, *records: Any) -> _Marked:
        return ((self.place, batch) for batch in batched(*records))
