"""
The executor's side of a fold that begins with known rows and versions: one aggregate after the other.

    records sorted by aggregate: its version, its row, its streams
      ─▶ gate ─▶ fold, or touches of keys
      └─ what the topic lacks is waited for, and looked up for many aggregates at once

Used by Spark, which moves records; uses the folds of the live runner. It must not know a database of
read models.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final

from headrace.projections.definition.fold import fold_facts
from headrace.spark.executor.fold import (
    BASE,
    FIRST,
    VERSION,
    Batches,
    EventPlace,
    FoldWork,
    Record,
    TopicMessage,
    batched,
    gate_out,
    left_out_records,
    passed_in_time,
    records_in,
    rows_out,
    touches_in_time,
    touches_late,
)
from headrace.spark.executor.gate import HELD_STREAMS_MAX, MissingVersions
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.executor.touches import FoldedStream

__all__ = ["fold_aggregates", "route_aggregates"]

# Aggregates that wait for what the topic lacks, until it is looked up for all of them: enough to make
# the cost of a statement small.
_WAITING_MAX: Final = 1_000


def fold_aggregates(plan: FoldPlan, batches: Batches) -> Batches:
    """Folds sorted streams onto base rows and base versions; yields the rows they change."""
    with closing(FoldWork(plan)) as work:

        def fold(own: _Own) -> Iterator[Record]:
            own.fold(work, own.late)
            yield from rows_out(work.codec, own.changes.items())
            yield from gate_out(own.gate)

        def folded() -> Iterator[Record]:
            waiting = _Waiting(work.find)
            for own, messages in _aggregates(work, batches):
                for _, streams in passed_in_time(work, own.gate, messages):
                    own.fold(work, streams)
                for finished in waiting.finished_with(own):
                    yield from fold(finished)
            for finished in waiting.finish():
                yield from fold(finished)
            yield from left_out_records(work.left_out)

        yield from batched(folded())


def route_aggregates(plan: FoldPlan, batches: Batches) -> Batches:
    """Lets sorted streams pass onto base versions; yields each event for the key it touches."""
    with closing(FoldWork(plan)) as work:

        def route(own: _Own) -> Iterator[Record]:
            yield from touches_late(work, own.late, own.last)
            yield from gate_out(own.gate)

        def routed() -> Iterator[Record]:
            waiting = _Waiting(work.find)
            for own, messages in _aggregates(work, batches):
                own.last = yield from touches_in_time(work, own.gate, messages)
                for finished in waiting.finished_with(own):
                    yield from route(finished)
            for finished in waiting.finish():
                yield from route(finished)
            yield from left_out_records(work.left_out)

        yield from batched(routed())


@dataclass(slots=True)
class _Own:
    """What there is of one aggregate.

    Attributes:
        aggregate_id: its id.
        gate: stands at its version.
        rows: its row before the tail, if it has one.
        changes: of its row, by streams that came in time.
        last: where the last of its streams stands.
        late: streams that passed after all messages.
    """

    aggregate_id: str
    gate: Any
    rows: Mapping[str, Any]
    changes: dict[str, Any] = field(default_factory=dict)
    last: EventPlace = FIRST
    late: Sequence[FoldedStream] = ()

    def fold(self, work: FoldWork, streams: Sequence[FoldedStream]) -> None:
        """Folds streams onto the row, so that no more of them are in memory."""
        for stream in streams:
            before = {**self.rows, **self.changes}
            self.changes |= fold_facts(work.projection, before, stream.facts)


class _Waiting:
    """Aggregates that hold streams back until what is missing was looked for.

    Args:
        find: looks for what is missing of all of them.
    """

    def __init__(self, find: Callable[[Sequence[MissingVersions]], Sequence[FoldedStream]]) -> None:
        self._find = find
        self._waiting: list[_Own] = []
        self._streams = 0

    def finished_with(self, own: _Own) -> Iterator[_Own]:
        """Takes the next aggregate; yields it if nothing is missing, and others when it is time."""
        if not own.gate.holds_back:
            yield own
            return
        self._waiting.append(own)
        self._streams += own.gate.holds_back
        if len(self._waiting) >= _WAITING_MAX or self._streams > HELD_STREAMS_MAX:
            yield from self.finish()

    def finish(self) -> Iterator[_Own]:
        """Looks for what is missing, and yields all that have waited."""
        waiting, self._waiting, self._streams = self._waiting, [], 0
        wanted = [hole for own in waiting for hole in own.gate.lacking()]
        found: dict[str, list[FoldedStream]] = {}
        for stream in self._find(wanted) if wanted else ():
            found.setdefault(stream.aggregate_id, []).append(stream)
        for own in waiting:
            own.late = own.gate.finish(found.get(own.aggregate_id, ()))
            yield own


def _aggregates(work: FoldWork, batches: Batches) -> Iterator[tuple[_Own, Iterator[TopicMessage]]]:
    """Yields what is known of each aggregate, and its messages, which have to be taken at once."""
    for aggregate_id, records in groupby(records_in(batches), attrgetter("key")):
        versions: dict[str, int] = {}
        rows: dict[str, Any] = {}
        following: list[Record] = []
        # Base records come first, because of their place.
        for record in records:
            if record.kind == VERSION:
                versions[aggregate_id] = record.number
            elif record.kind == BASE:
                rows[aggregate_id] = work.codec.row(record.data)
            else:
                following.append(record)
                break
        messages = (
            TopicMessage(place=record.place, key=record.key, body=record.data)
            for record in chain(following, records)
        )
        yield _Own(aggregate_id, work.gate(versions), rows), messages
