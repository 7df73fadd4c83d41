"""
Rebuilds some rows of a projection, from the first event on, among live rows that stay as they are.

    begin a shadow ─▶ copy the live rows, versions and offsets ─▶ which keys? ─▶ an engine folds their
    events up to those offsets ─▶ their rows in place of the copied ones ─▶ catch up ─▶ compare: may
    only those keys differ? ─▶ switch

The rows are exchanged in a copy and go live by the switch of every rebuild: the live runner cannot be
in between, what it holds in memory is forgotten with the generation, and the way back is a rollback.

Used by the rebuilds of both engines; uses the generations of a projection. It must not know Spark.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final

from headrace._runtime.clock import SystemClock
from headrace.errors import ProjectionError
from headrace.projections.batch_transaction import decode_batch, fill_gap
from headrace.projections.definition.fold import fold_streams, keys_of
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.row_subset import narrowed
from headrace.projections.tables.contents import Target, find_versions, store_rows
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.event_topic import EventTopic
from headrace.rebuild.phases import Phases
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.shadow import Building
from headrace.rebuild.switch import Means, RebuildOutcome, Shadow, bring_live
from headrace.subscriptions.gate import Gap
from headrace.transports.base import QueueId

__all__ = ["KEYS_MAX", "Mending", "Refold", "Refolded", "Wanted"]

# Rows that are rebuilt in one go: they are in memory, and travel to every executor. Beyond that a
# rebuild of everything is the shorter way.
KEYS_MAX: Final = 1_000_000
# Keys and versions per statement.
_CHUNK: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows: those of some keys, or those that events have touched since a time.

    Attributes:
        keys: of the rows.
        since_ms: milliseconds since 1970 UTC, by the broker's clock when it stored an event.
    """

    keys: frozenset[str] | None = None
    since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refolded:
    """What an engine made of the events of some keys.

    Attributes:
        rows: by key; a key without one has none.
        versions: the last version of each aggregate that it met.
        counts: `events`, `duplicates`, `gaps` and `filled`, as in `RebuildReport`.
        queues: what was measured of each queue, likewise.
        left_out: aggregates with a stream that does not decode, and what is the matter with each.
    """

    rows: Mapping[str, Any]
    versions: Mapping[str, int]
    counts: Mapping[str, int]
    queues: dict[str, dict[str, int]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


# Folds the events of keys from the first one to these offsets, exclusive.
Refold = Callable[[frozenset[str], Mapping[QueueId, int]], Awaitable[Refolded]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """A rebuild of some rows with everything it names opened.

    Attributes:
        projection: whose rows.
        read_models: where they are.
        topic: tells which keys were touched since a time.
        means: of catching up, and of filling gaps.
        refold: an engine.
        phases: what it is doing.
        outside: phases that are left out of the report's total, such as starting Spark.
    """

    projection: Projection[Any]
    read_models: ReadModels
    topic: EventTopic
    means: Means
    refold: Refold
    phases: Phases = field(default_factory=lambda: Phases(SystemClock(), None))
    outside: Sequence[str] = ()

    async def run(
        self,
        wanted: Wanted,
        *,
        verify: bool,
        switch: bool,
        take_over: bool,
        accept: int = False,
    ) -> RebuildReport:
        """Rebuilds the rows and puts them in place.

        Args:
            wanted: which rows.
            verify: compare with the live rows, at equal offsets; no others may differ.
            switch: make the result live if nothing speaks against it.
            take_over: begin even if another rebuild seems to be running; its result is lost.
            accept: how many others may differ; True: any number.

        Raises:
            RebuildRunning: another rebuild of the projection is under way.
            ProjectionError: the events cannot be read or folded; nothing that anybody reads was
                changed.
        """
        building = Building(self.read_models, self.projection)
        self.phases.begin("begin")
        shadow = await building.begin("copy", take_over=take_over, epochs=self.means.epochs)
        async with building.given_up_on_failure(shadow):
            self.phases.begin("base")
            offsets = await building.copy_live(shadow)
            self.phases.begin("capture")
            keys = await self._keys(wanted, offsets)
            self.phases.begin("fold", sum(offsets.values()) if keys else 0)
            refolded = (
                await self.refold(keys, offsets)
                if keys
                else Refolded(rows={}, versions={}, counts={})
            )
            keys = self._sound(keys, refolded.left_out)
            rows = await self._level(shadow, keys, refolded)
            self.phases.begin("load", len(keys))
            await self._exchange(shadow, keys, rows)
            self.phases.begin("switch")
            outcome = await bring_live(
                self.read_models,
                shadow,
                self.means,
                verify=verify,
                switch=switch,
                accept=accept,
                mended=keys,
            )
            await building.finish(shadow, outcome)
            self.phases.end()
        return self._report(shadow, wanted, keys, offsets, refolded, outcome)

    async def _keys(self, wanted: Wanted, ends: Mapping[QueueId, int]) -> frozenset[str]:
        if wanted.since_ms is None:
            try:
                found = {self.projection.key_form.parse(key) for key in wanted.keys or ()}
            except ValueError as error:
                raise ProjectionError(f"projection {self.projection.name}: {error}") from error
        else:
            found = await self._touched_since(wanted.since_ms, ends)
            if not found:
                raise ProjectionError(
                    f"projection {self.projection.name}: none of the events in its live rows was"
                    " stored since then, so there is no row to rebuild"
                )
        if len(found) > KEYS_MAX:
            raise ProjectionError(
                f"projection {self.projection.name}: more than {KEYS_MAX:,} rows to rebuild one"
                " by one; rebuild all of them with --from zero"
            )
        return frozenset(found)

    async def _touched_since(self, since_ms: int, ends: Mapping[QueueId, int]) -> set[str]:
        """Returns the keys that events touch which were stored since, as far as live has come."""
        found: set[str] = set()
        begins = await self.topic.offsets_at(since_ms)
        for queue, end in ends.items():
            begin = begins.get(queue, end)
            if begin >= end:
                continue
            async for messages in self.topic.read(queue, begin, end):
                kept = [each for each in messages if each.headers.get("kind") != "rejection"]
                if self.projection.keyed_by_aggregate:
                    found.update(each.key for each in kept)
                else:
                    try:
                        streams = decode_batch(kept, {}, self.means.serializer).streams
                    except ProjectionError as error:
                        raise self._unknown_rows(str(error)) from error
                    facts = [fact for stream in streams for fact in stream.contexts()]
                    found |= keys_of(self.projection, facts)
                if len(found) > KEYS_MAX:
                    return found
        return found

    def _sound(self, keys: frozenset[str], left_out: Mapping[str, str]) -> frozenset[str]:
        """Returns the keys whose rows can be exchanged; others keep the rows that they have.

        Nothing is parked, so live has gone beyond the stream: it was skipped, or damaged later. What
        is folded without it has less in it than the live row, and no comparison would show that.

        Raises:
            ProjectionError: nothing tells which rows a stream that does not decode has touched.
        """
        if left_out and not self.projection.keyed_by_aggregate:
            raise self._unknown_rows(next(iter(left_out.values())))
        return keys - left_out.keys()

    def _unknown_rows(self, sentence: str) -> ProjectionError:
        return ProjectionError(
            f"projection {self.projection.name}: rows cannot be rebuilt one by one, because nothing"
            " tells which of them were touched by a stream that does not decode; restore it, or"
            f" rebuild all rows: {sentence}"
        )

    async def _level(
        self, shadow: Shadow, keys: frozenset[str], refolded: Refolded
    ) -> dict[str, Any]:
        """Returns the rows at the versions of the copy, which lie beyond the topic after a retry."""
        rows = {key: row for key, row in refolded.rows.items() if key in keys}
        target = self.read_models.target(self.projection, shadow.generation)
        own = keys if self.projection.keyed_by_aggregate else frozenset[str]()
        only = narrowed(self.projection, keys)
        for some in _chunks((own | refolded.versions.keys()) - refolded.left_out.keys()):
            stored, _ = await self.read_models.transact(
                partial(find_versions, target=target, aggregate_ids=some)
            )
            for aggregate_id in some:
                ours, theirs = refolded.versions.get(aggregate_id, 0), stored.get(aggregate_id, 0)
                if ours > theirs:
                    raise ProjectionError(
                        f"projection {self.projection.name}: the live rows stand at version"
                        f" {theirs} of aggregate {aggregate_id}, and the topic before their offsets"
                        f" at {ours}; rebuild all of them from zero"
                    )
                if ours < theirs:
                    gap = Gap(after_version=ours, to_version=theirs)
                    late = await fill_gap(target, aggregate_id, gap, self.means.missing)
                    rows |= fold_streams(only, rows, late)
        return rows

    async def _exchange(
        self, shadow: Shadow, keys: frozenset[str], rows: Mapping[str, Any]
    ) -> None:
        target: Target[Any] = self.read_models.target(self.projection, shadow.generation)
        async with self.read_models.begin() as connection:
            await Building.check_owner(connection, shadow)
            for some in _chunks(keys):
                changes = {key: rows.get(key) for key in some}
                await connection.run_sync(store_rows, target, changes)

    def _report(
        self,
        shadow: Shadow,
        wanted: Wanted,
        keys: frozenset[str],
        ends: Mapping[QueueId, int],
        refolded: Refolded,
        outcome: RebuildOutcome,
    ) -> RebuildReport:
        seconds, counts = self.phases.seconds, refolded.counts
        total = sum(took for name, took in seconds.items() if name not in self.outside)
        events = counts.get("events", 0)
        return RebuildReport(
            projection=self.projection.name,
            generation=shadow.generation,
            table=str(self.read_models.table_for(self.projection, shadow.generation).name),
            start="keys" if wanted.since_ms is None else "time",
            start_offsets=dict.fromkeys(_named(ends), 0),
            end_offsets=_named(ends),
            caught_up_offsets=_named(outcome.offsets),
            queues=refolded.queues,
            events=events,
            caught_up=outcome.caught_up,
            rows=sum(row is not None for row in refolded.rows.values()),
            keys=len(keys),
            mended=outcome.mended,
            duplicates=counts.get("duplicates", 0),
            gaps=counts.get("gaps", 0),
            filled=counts.get("filled", 0),
            foreign=counts.get("foreign", 0) + self.means.foreign,
            left_out=(*refolded.left_out.values(), *self.means.left_out.sentences),
            compared=outcome.compared,
            mismatches=outcome.mismatches,
            differences=outcome.differences,
            columns=dict(outcome.columns),
            samples=dict(outcome.samples),
            switched=outcome.switched,
            reason=outcome.reason,
            seconds=seconds | {"total": round(total, 3)},
            events_per_second=round(events / max(seconds["fold"], 0.001), 1),
        )


def _named(offsets: Mapping[QueueId, int]) -> dict[str, int]:
    return {f"{topic}/{number}": offset for (topic, number), offset in offsets.items()}


def _chunks(keys: frozenset[str] | set[str]) -> Iterator[list[str]]:
    remaining = iter(keys)
    while some := list(islice(remaining, _CHUNK)):
        yield some
