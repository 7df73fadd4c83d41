"""
From a shadow that was filled from the event store to the live generation, at equal versions.

    fold what was stored meanwhile ─▶ wait until live has as much of each aggregate, or stands still
      ─▶ compare all rows ─▶ lock the projection ─▶ fold the rest up to the versions that live has
      ─▶ compare what changed since
      ─▶ offsets of the topic in place of the position ─▶ switch, one transaction

The versions of its aggregates, not offsets, show what each side has: those of the live
generation may be of a topic that is no more. The topic's ends were asked before the last position
that the shadow has, and an event is in the store before it is in the topic; so what lies before those
ends is folded, and what comes behind them and is folded too the version gate passes over.

Used by a rebuild from the event store; uses the generations of a projection. It must not know
Spark.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._runtime.clock import Clock, SystemClock
from headrace.errors import ProjectionError
from headrace.projections.batch_transaction import Applied, Batch, apply_batch
from headrace.projections.definition.fold import keys_of
from headrace.projections.tables import generations
from headrace.projections.tables.comparison import compare_on
from headrace.projections.tables.contents import Target, find_versions, read_offsets, write_offsets
from headrace.projections.tables.index.live import make_indexes
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.succession import count_further, further
from headrace.projections.tables.survey import Survey, open_survey
from headrace.rebuild.stored_events import STORE, StoredEvents
from headrace.rebuild.switch import (
    OTHER_FIELDS,
    Means,
    RebuildOutcome,
    Shadow,
    accepted,
    accepts,
    advance,
    bring_live,
    decode_around,
    keep,
    note_applied,
    tell_comparison,
)
from headrace.stores.database.tables import (
    projection_offsets,
)
from headrace.transports.base import QueueId

__all__ = ["Origin", "bring_level", "bring_shadow"]

# Positions that may be folded while the projection is locked: a second's work, which readers do not
# notice and the live runner makes up for.
_LOCKED_MAX: Final = 5_000
# Rounds before the lock; each has to fold what was stored during the one before, a fraction of it.
_ROUNDS_MAX: Final = 50
# Aggregates that live lacks events of and that are waited for at a time, and how often is looked.
_WAITED_MAX: Final = 1_000
_LOOK_MS: Final = 100
# The longest pause between two looks. It is ten times as long as the quickest look: looking may be much work for the
# database, but one slow moment of it must not stop a rebuild for half a minute.
_PAUSE_MS_MAX: Final = 5_000
# Aggregates that live lacks events of and whose rows are left out of a comparison: they are in memory;
# and where the events tell which rows these are, they are read one aggregate after the other.
_BEHIND_MAX: Final = 100_000
_BEHIND_SHARED_MAX: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a shadow is filled from, and what it goes live with.

    Attributes:
        store: the event store.
        ends: asks where the event topic ends; without offsets the live runner reads all of it.
    """

    store: StoredEvents
    ends: Callable[[], Awaitable[Mapping[QueueId, int]]]


async def bring_shadow(
    read_models: ReadModels, shadow: Shadow, means: Means, origin: Origin | None, **wishes: Any
) -> RebuildOutcome:
    """Brings a shadow level with the live generation, by what it was filled from.

    Args:
        read_models: where both are.
        shadow: filled, and this owner's.
        means: of catching up.
        origin: the event store; None: the shadow was filled from the topic.
        wishes: `verify`, `switch` and `accept`, as for `bring_live`.

    Raises:
        ProjectionError: as `bring_live`.
    """
    if origin is None:
        return await bring_live(read_models, shadow, means, **wishes)
    return await bring_level(read_models, shadow, means, origin=origin, **wishes)


async def bring_level(
    read_models: ReadModels,
    shadow: Shadow,
    means: Means,
    *,
    origin: Origin,
    verify: bool,
    switch: bool,
    accept: int = False,
) -> RebuildOutcome:
    """Brings a shadow level with the live generation, compares them, and switches if all is well.

    Args:
        read_models: where both are.
        shadow: filled from the store, and this owner's.
        means: of catching up; its feed is the store's, and `live_wait_ms` bounds how long the live
            generation may stand still while it lacks events.
        origin: the store, and the topic.
        verify: compare before switching.
        switch: make the shadow live if nothing speaks against it; rows that differ because live
            lacks events do not.
        accept: how many others may differ; True: any number, False: none, unless the live rows are of
            another version.

    Raises:
        ProjectionError: the shadow is no longer this owner's, or cannot catch up.
    """
    async with AsyncExitStack() as stack:
        survey = partial(_survey, read_models, shadow, means, stack)
        return await _bring_level(
            read_models, shadow, means, survey, origin, verify=verify, switch=switch, accept=accept
        )


async def _bring_level(
    read_models: ReadModels,
    shadow: Shadow,
    means: Means,
    begin_survey: Callable[[], Awaitable["_Surveyed"]],
    origin: Origin,
    *,
    accept: int,
    **wishes: bool,
) -> RebuildOutcome:
    verify, switch = wishes["verify"], wishes["switch"]
    name = shadow.projection.name
    if switch:
        await make_indexes(read_models, shadow.projection, shadow.generation)
    state = await read_models.state(name)
    comparable = verify and shadow.projection.has_columns_of(state.fingerprint)
    accept = accepted(accept, state.version, shadow)
    caught_up, surveyed = 0, None
    for _ in range(_ROUNDS_MAX):
        note = None if surveyed is None else surveyed.note
        if switch and means.epochs is not None:
            await means.epochs.settle(read_models, (name, shadow.generation))
        ends = await origin.ends() if switch else {}
        end = await origin.store.end()
        caught_up += (await advance(read_models, shadow, means, {STORE: end}, note)).messages
        if comparable:
            await _wait_for_live(read_models, shadow, means.live_wait_ms)
            # All rows before the lock, and what changed meanwhile under it.
            surveyed = surveyed or await begin_survey()
        async with read_models.begin() as connection:
            state = await generations.lock_state(connection, name)
            now = await origin.store.end()
            if now - end > _LOCKED_MAX:
                continue
            level = _Level(read_models, shadow, means, connection, state.generation, surveyed)
            caught_up += await level.fold_rest((end, now), origin.store, as_live=comparable)
            outcome = RebuildOutcome(caught_up=caught_up, offsets=ends)
            if comparable:
                outcome = await level.compare(outcome, leaving_out=switch)
            elif verify:
                outcome = replace(outcome, reason=OTHER_FIELDS)
            if switch and accepts(outcome, accept):
                await _put_in_place(connection, level.ours, ends)
                await generations.switch(
                    connection, shadow.projection, shadow.generation, shadow.owner
                )
                return replace(outcome, switched=True)
            return keep(read_models, shadow, outcome, accept)
    raise ProjectionError(
        f"projection {name}: more was stored in each of {_ROUNDS_MAX} rounds of catching up than can"
        " be folded while the live rows wait; run the rebuild when fewer events come in"
    )


@dataclass(frozen=True, slots=True)
class _Level:
    """A shadow and the live generation while nothing but this transaction changes either."""

    read_models: ReadModels
    shadow: Shadow
    means: Means
    connection: AsyncConnection
    live_generation: int
    surveyed: "_Surveyed | None" = None

    @property
    def ours(self) -> Target[Any]:
        return self.read_models.target(self.shadow.projection, self.shadow.generation)

    @property
    def live(self) -> Target[Any]:
        return self.read_models.target(self.shadow.projection, self.live_generation)

    async def fold_rest(
        self, positions: tuple[int, int], store: StoredEvents, *, as_live: bool
    ) -> int:
        """Folds what is stored from one position to another into the shadow; returns how much.

        Args:
            positions: the first one, and the one behind the last.
            store: where they are.
            as_live: of each aggregate no more than live has; the shadow's position stays, since
                something before the end may be left out.
        """
        folded = 0
        async for messages in store.read(STORE, *positions):
            stands = await read_offsets(
                self.connection, self.ours.projection.name, self.ours.generation
            )
            batch = decode_around(messages, stands, self.means)
            if as_live:
                ids = {stream.aggregate_id for stream in batch.streams}
                has, _ = await self.connection.run_sync(
                    find_versions, target=self.live, aggregate_ids=ids
                )
                streams = [
                    each
                    for each in batch.streams
                    if (each.version or 0) <= has.get(each.aggregate_id, 0)
                ]
                batch = Batch(streams=streams, begin=batch.begin, end={})
            outcome = await apply_batch(
                self.connection, self.ours, batch, missing=self.means.missing
            )
            if not isinstance(outcome, Applied):
                raise ProjectionError(
                    f"projection {self.shadow.projection.name}: generation"
                    f" {self.shadow.generation} is no longer the shadow that"
                    f" {self.shadow.owner} builds; run the rebuild again"
                )
            if self.surveyed is not None:
                note_applied(self.surveyed.note, self.shadow, batch, outcome)
            folded += len(batch.streams)
        return folded

    async def compare(self, outcome: RebuildOutcome, *, leaving_out: bool) -> RebuildOutcome:
        """Compares the live rows with the shadow's.

        Args:
            outcome: to which is added what was found.
            leaving_out: rows may differ where live lacks events.
        """
        name, ours, live = self.shadow.projection.name, self.ours, self.live
        behind, ahead = await count_further(self.connection, name, ours.generation, live.generation)
        outcome = replace(outcome, behind=behind, ahead=ahead)
        expected: frozenset[str] = frozenset()
        if leaving_out and behind:
            if behind > self.behind_max:
                return replace(
                    outcome,
                    reason=f"nothing was compared, because the live rows lack events of {behind}"
                    " aggregates that the event store has",
                )
            expected = await self.lacking()
        survey = None if self.surveyed is None else self.surveyed.survey_of(live.generation)
        if survey is not None:
            found = await survey.compare(self.connection, expected)
        else:
            tables = (live.table, ours.table)
            found = await compare_on(
                self.connection, self.shadow.projection, tables, expected=expected
            )
        told = tell_comparison(outcome, found, self.shadow.projection.shape)
        if ahead:
            reason = (
                f"the live rows have events of {ahead} aggregates that the event store does not have:"
                " it is another store, or an older copy of it"
            )
            told = replace(told, reason="; ".join(filter(None, [told.reason, reason])))
        return told

    @property
    def behind_max(self) -> int:
        """Of how many aggregates live may lack events, where the keys of their rows are asked for."""
        return _BEHIND_MAX if self.shadow.projection.keyed_by_aggregate else _BEHIND_SHARED_MAX

    async def lacking(self) -> frozenset[str]:
        """Returns the keys of the rows that live lacks events of."""
        projection = self.shadow.projection
        lacking = further(projection.name, self.ours.generation, self.live_generation)
        found = (await self.connection.execute(lacking)).all()
        if projection.keyed_by_aggregate:
            return frozenset(each.aggregate_id for each in found)
        keys: set[str] = set()
        for each in found:
            streams = await self.means.missing(each.aggregate_id, each.other, each.version)
            keys |= keys_of(projection, [fact for one in streams for fact in one.contexts()])
        return frozenset(keys)


@dataclass(frozen=True, slots=True)
class _Surveyed:
    """What was compared before the lock; no survey: nothing was."""

    live: int
    survey: Survey[Any] | None

    def note(self, keys: Collection[str]) -> None:
        if self.survey is not None:
            self.survey.note(keys)

    def survey_of(self, live: int) -> Survey[Any] | None:
        return self.survey if live == self.live else None


async def _survey(
    read_models: ReadModels, shadow: Shadow, means: Means, stack: AsyncExitStack
) -> _Surveyed:
    name = shadow.projection.name
    async with read_models.snapshot() as connection:
        live = (await generations.get_state(connection, name)).generation
        level = _Level(read_models, shadow, means, connection, live)
        behind, _ = await count_further(connection, name, shadow.generation, live)
        if behind > level.behind_max:
            return _Surveyed(live, None)
        # What live lacks it will fold, and nothing here notices.
        late = await level.lacking() if behind else frozenset()
    opened = open_survey(read_models, shadow.projection, (live, shadow.generation), ())
    surveyed = _Surveyed(live, await stack.enter_async_context(opened))
    surveyed.note(late)
    return surveyed


async def _wait_for_live(
    read_models: ReadModels, shadow: Shadow, still_ms: int, clock: Clock | None = None
) -> None:
    """Waits until live has of each aggregate what the shadow has, or has stood still so long."""
    name, ours = shadow.projection.name, shadow.generation
    now_ms = (clock or SystemClock()).monotonic_ms
    moved_ms = now_ms()
    quickest_ms = _PAUSE_MS_MAX
    before: list[tuple[Any, ...]] = []
    while True:
        began_ms = now_ms()
        async with read_models.snapshot() as connection:
            state = await generations.find_state(connection, name)
            assert state is not None, "it has a shadow"
            # What is parked does not come by itself.
            lacking = further(name, ours, state.generation, parked=False).limit(_WAITED_MAX)
            found = (await connection.execute(lacking)).all()
        if not found:
            return
        standing = [tuple(each) for each in found]
        if standing != before:
            moved_ms, before = now_ms(), standing
        if now_ms() - moved_ms >= still_ms:
            return
        quickest_ms = min(quickest_ms, now_ms() - began_ms)
        await asyncio.sleep(min(max(_LOOK_MS, 10 * quickest_ms), _PAUSE_MS_MAX) / 1_000)


async def _put_in_place(
    connection: AsyncConnection, target: Target[Any], ends: Mapping[QueueId, int]
) -> None:
    """Stores offsets of the topic instead of the position."""
    columns = projection_offsets.c
    await connection.execute(
        delete(projection_offsets).where(
            columns.name == target.projection.name, columns.generation == target.generation
        )
    )
    await write_offsets(connection, target, ends)
