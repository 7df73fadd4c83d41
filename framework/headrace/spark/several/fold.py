"""
Slices of the topic read once, and folded for several projections by the process that reads.

    read_portions ─▶ decode ─▶ rows of one projection, rows of another, …

Right where a row's events are all of one aggregate. Used by Spark, which hands out slices; uses the
folds of one projection. It must not know a session.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.rebuild.decode import Decoded, Decoder, context_read
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.left_out import LeftOut
from headrace.spark.executor.doubts import Doubts, StoreGaps
from headrace.spark.executor.fold import (
    FAILED,
    QUEUE,
    Batches,
    Record,
    batched,
    left_out_records,
    read_portions,
    slices_of,
)
from headrace.spark.executor.meter import Meter
from headrace.spark.executor.plan import FoldPlan, load_application, projection_of
from headrace.spark.executor.slices import PIECE_MAX, STATE_BYTES_MAX, SliceRows
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["fold_for_all"]

_Marked = Iterator[tuple[int, pa.RecordBatch]]


def fold_for_all(plans: Sequence[FoldPlan], batches: Batches) -> _Marked:
    """Reads slices once for several projections; yields records, each batch with the place of its plan.

    What a fold refuses ends that projection alone: a record of the kind `FAILED` says why.

    Args:
        plans: alike but for their projections, each of which has a row per aggregate.
        batches: numbers of tasks.

    Raises:
        ProjectionError: the slices cannot be read or decoded.
    """
    plan = plans[0]
    application = load_application(plan.app, plan.folder)
    serializer = application.serializer_at(plan.event_store)
    projections = [projection_of(application, each) for each in plans]
    decoder = Decoder(
        serializer,
        lambda event: any(each.reacts_to(event) for each in projections),
        context=context_read(projections),
    )
    doubts = Doubts(plan, serializer)
    # Together they hold in memory what one alone may hold.
    bytes_max = STATE_BYTES_MAX // len(plans)
    with closing(StoreGaps(plan.event_store, serializer)) as find:
        for piece in slices_of(plan, batches):
            meter, left_out = Meter(piece), LeftOut()
            decode = partial(_decode, left_out, decoder, piece)
            rows = [SliceRows(each, find, decode, bytes_max) for each in projections]
            with _RowsOfAll(rows, left_out, decode) as of_all:
                for _, _, portion in read_portions(plan, piece, meter, doubts=doubts):
                    of_all.add(portion)
                told = [Record.known(QUEUE, name, number=number) for name, number in meter.told()]
                for place, records in enumerate(of_all.finish()):
                    yield from ((place, batch) for batch in batched(records, told))


def _decode(left_out: LeftOut, decoder: Decoder, piece: QueueSlice, portion: Portion) -> Decoded:
    return left_out.decode(decoder, piece.queue, portion, piece.start)


class _RowsOfAll:
    """The rows of several projections, of the messages of one slice."""

    def __init__(
        self,
        rows: Sequence[SliceRows],
        left_out: LeftOut,
        decode: Callable[[Portion], Decoded],
    ) -> None:
        self._rows = rows
        self._left_out = left_out
        self._decode = decode
        # By place, of projections whose fold has refused an event.
        self._failures: dict[int, str] = {}

    def __enter__(self) -> "_RowsOfAll":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._rows:
            each.close()

    def add(self, portion: Portion) -> None:
        """Folds messages: decoded once for all that are in memory."""
        going_on = [place for place in range(len(self._rows)) if place not in self._failures]
        in_memory = [place for place in going_on if not self._rows[place].spilled]
        if in_memory:
            for some in portion.pieces(PIECE_MAX):
                decoded = self._decode(some)
                for place in in_memory:
                    self._attempt(place, partial(self._rows[place].take, decoded))
        for place in going_on:
            rows = self._rows[place]
            self._attempt(place, partial(rows.weigh if place in in_memory else rows.add, portion))

    def finish(self) -> Iterator[Iterator[Record]]:
        """Yields of each projection rows, versions and tallies, or why there are none."""
        return map(self._told, range(len(self._rows)))

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
