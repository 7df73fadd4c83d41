"""
A rebuild's shadow from its begin to its end, whichever engine fills it.

    begin (──▶ copy_live) ──▶ filled by an engine ──▶ switch.bring_live ──▶ finish
      └──▶ give_up: dropped; a rebuild that dies leaves it, and the next one drops or adopts it
    reopen: one that was finished and not put in place ──▶ switch.bring_live ──▶ finish

Used by an engine; uses the generations of a projection. It must not know events.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import insert, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._runtime.clock import SystemClock
from headrace._runtime.log import get_logger
from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError, ProjectionNotFound, RebuildRunning
from headrace.events.belief import Belief
from headrace.events.seals import Seal
from headrace.lineage.generation_epochs import GenerationEpochs, copy_epochs
from headrace.projections.batch_transaction import MissingReader
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import generations
from headrace.projections.tables.contents import Target, read_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.owner import Kind, has_lock, kind_of, new_owner
from headrace.rebuild.switch import RebuildOutcome, Shadow, release
from headrace.serialization import Serializer
from headrace.stores.database.engines import EngineLimits
from headrace.stores.database.parked import ParkedStore
from headrace.stores.database.schema import check
from headrace.stores.database.tables import (
    projection_offsets,
    projection_versions,
)
from headrace.stores.open import open_event_store
from headrace.transports.base import QueueId

__all__ = ["Building", "Truth", "open_read_models", "open_truth"]

# Bulk statements and the comparison, during which the locking transaction says nothing, may take
# much longer than a command's or a live batch's statements.
_LIMITS: Final = EngineLimits(statement_timeout_ms=1_800_000, idle_transaction_ms=1_800_000)

_log = get_logger(__name__)


class Building:
    """The shadow of one rebuild.

    Args:
        read_models: where the tables are.
        projection: what is rebuilt.
    """

    def __init__(self, read_models: ReadModels, projection: Projection[Any]) -> None:
        self._read_models = read_models
        self._projection = projection

    async def begin(
        self,
        kind: Kind = "topic",
        *,
        take_over: bool,
        adopt: bool | Literal["staged"] = False,
        keep_finished: bool = False,
        as_of: str | None = None,
        epochs: GenerationEpochs | None = None,
    ) -> Shadow:
        """Takes a shadow to fill.

        Args:
            kind: what it is filled from; after "copy", `copy_live` comes next.
            take_over: begin even if another rebuild seems to be running.
            adopt: go on with what a rebuild of the same kind that has died had built, where its
                columns fit; "staged": with what its tasks have copied next to the table, if anything.
            keep_finished: leave the table alone that an earlier rebuild has finished and not put in
                place, until one comes that is to go live.
            as_of: the moment that it is filled up to, as a person wrote it; None: it may go live.
            epochs: notes those of the topic's brokers, before anything is read; None: there is no topic.

        Raises:
            RebuildRunning: another rebuild of the projection is under way.
            ProjectionError: the broker is away.
        """
        owner = new_owner(kind)
        # What comes from the store goes live with epochs that are asked then.
        epochs = None if kind == "store" else epochs
        now = {} if epochs is None else await epochs.now()
        async with self._held(owner):
            generation = await self._clear(owner, kind, take_over=take_over, adopt=adopt)
            if generation is None:
                generation = await self._read_models.begin_shadow(
                    self._projection, owner, keep_finished=keep_finished, as_of=as_of
                )
            if epochs is not None:
                await epochs.begin(self._read_models, (self._projection.name, generation), now)
        return Shadow(projection=self._projection, generation=generation, owner=owner)

    async def reopen(self, *, take_over: bool) -> Shadow:
        """Takes the shadow that a rebuild has finished and not put in place.

        Args:
            take_over: take it even if another rebuild seems to be running.

        Raises:
            RebuildRunning: a rebuild of the projection is under way.
            ProjectionError: there is no such shadow, or it has other fields.
        """
        name, owner = self._projection.name, new_owner("finished")
        before = await self._read_models.state(name)
        gone = take_over or await self._is_running(before.rebuild_owner) is False
        async with self._held(owner), self._read_models.begin() as connection:
            state = await generations.lock_state(connection, name)
            other, generation = state.rebuild_owner, state.rebuild_generation
            if other is None or generation is None:
                version = self._projection.version
                generation = await generations.find_finished(connection, state, version)
            elif not (kind_of(other) == "finished" and gone and other == before.rebuild_owner):
                raise RebuildRunning(
                    f"projection {name}: {other} is rebuilding it; its table is not finished"
                )
            if generation is None:
                raise ProjectionError(
                    f"projection {name}: there is no rebuilt table that was kept, and none of version"
                    f" {self._projection.version} next to the live one; build one with"
                    f" `headrace projection rebuild {name}`"
                )
            await generations.reopen_shadow(
                connection, self._projection, generation, owner, SystemClock().now()
            )
        return Shadow(projection=self._projection, generation=generation, owner=owner)

    async def copy_live(self, shadow: Shadow) -> dict[QueueId, int]:
        """Fills a shadow with the live rows, versions and offsets, and returns those.

        Raises:
            ProjectionError: the live rows have other fields, or wait for parked events, which lie
                before the offsets; or the shadow is no longer this owner's.
        """
        name = self._projection.name
        async with self._read_models.begin() as connection:
            state = await self.check_owner(connection, shadow)
            parked = await connection.run_sync(ParkedStore(name, state.generation).count)
            if parked:
                raise ProjectionError(
                    f"projection {name}: {parked} aggregates are parked; take them up with"
                    f" `headrace parked retry --processor projection:{name}` or skip, or start from zero"
                )
            if state.version != self._projection.version:
                raise ProjectionError(
                    f"projection {name}: the live rows are of version {state.version} and this code has"
                    f" version {self._projection.version}, which folds all events; start from zero"
                )
            if state.fingerprint != self._projection.fingerprint:
                raise ProjectionError(
                    f"projection {name}: the live rows have other fields than"
                    f" {self._projection.row.__name__} and cannot be built upon; start from zero"
                )
            live = self._read_models.target(self._projection, state.generation)
            copy = self._read_models.target(self._projection, shadow.generation)
            await _copy(connection, live, copy)
            return await read_offsets(connection, name, shadow.generation)

    async def give_up(self, shadow: Shadow) -> None:
        """Drops a shadow whose rebuild has failed; never raises."""
        try:
            await self._read_models.abandon_shadow(
                shadow.projection.name, shadow.generation, shadow.owner
            )
        except Exception:  # noqa: BLE001 - the error that ended the rebuild matters more
            _log.exception("a shadow could not be dropped; the next rebuild does it")
        finally:
            await self._read_models.locks.release(shadow.owner)

    @asynccontextmanager
    async def given_up_on_failure(
        self, shadow: Shadow, *, unless: tuple[type[Exception], ...] = ()
    ) -> AsyncIterator[None]:
        """Drops the shadow if what is done within fails, or is cancelled.

        Args:
            shadow: of this rebuild.
            unless: failures that leave it as a kill does, for the next rebuild to go on with.
        """
        try:
            yield
        except unless:
            await asyncio.shield(self._read_models.locks.release(shadow.owner))
            raise
        except BaseException:
            await asyncio.shield(self.give_up(shadow))
            raise

    async def finish(self, shadow: Shadow, outcome: RebuildOutcome) -> None:
        """Drops what is no longer needed after a switch; ends a rebuild that keeps its table."""
        async with self._read_models.begin() as connection:
            if outcome.switched:
                await generations.drop_leftovers(connection, shadow.projection.name)
            else:
                await release(connection, shadow)
        await self._read_models.locks.release(shadow.owner)

    async def _clear(
        self, owner: str, kind: Kind, *, take_over: bool, adopt: bool | Literal["staged"]
    ) -> int | None:
        """Clears a dead rebuild away; returns its generation where the owner goes on with it.

        Raises:
            RebuildRunning: it is not dead.
        """
        state = await self._read_models.state(self._projection.name)
        name, other, unfinished = state.name, state.rebuild_owner, state.rebuild_generation
        if unfinished is None or other is None:
            return None
        running = await self._is_running(other)
        if not take_over and running:
            raise generations.running(state)
        if not take_over and running is None:
            # Only its age tells.
            return None
        # What was copied was not folded; another moment may be another one.
        going_on = adopt and kind_of(other) == kind and kind not in {"copy", "moment"}
        if going_on and await self._adopt(unfinished, other, owner, staged=adopt == "staged"):
            _log.info("an unfinished rebuild goes on", projection=name, generation=unfinished)
            return unfinished
        _log.warning("an unfinished rebuild is cleared away", projection=name, owner=other)
        await self._read_models.abandon_shadow(name, unfinished, other)
        return None

    async def _is_running(self, owner: str | None) -> bool | None:
        """Whether an owner's rebuild still runs; None: it is of a version that held no lock."""
        if owner is None or not has_lock(owner):
            return None
        return await self._read_models.locks.is_held(owner)

    @asynccontextmanager
    async def _held(self, owner: str) -> AsyncIterator[None]:
        """Holds an owner's lock, from before others may read its name; not after an error."""
        await self._read_models.locks.hold(owner)
        try:
            yield
        except BaseException:
            await asyncio.shield(self._read_models.locks.release(owner))
            raise

    async def _adopt(self, generation: int, other: str, owner: str, *, staged: bool) -> bool:
        async with self._read_models.begin() as connection:
            return await generations.adopt_shadow(
                connection, self._projection, generation, owners=(other, owner), staged=staged
            )

    @staticmethod
    async def check_owner(
        connection: AsyncConnection, shadow: Shadow
    ) -> generations.ProjectionState:
        """Locks the projection and returns its state.

        Raises:
            ProjectionError: the shadow is no longer this rebuild's.
        """
        state = await generations.lock_state(connection, shadow.projection.name)
        if (state.rebuild_generation, state.rebuild_owner) != (shadow.generation, shadow.owner):
            raise ProjectionError(
                f"projection {state.name}: generation {shadow.generation} is no longer the shadow"
                f" that {shadow.owner} builds; run the rebuild again"
            )
        return state


async def _copy(connection: AsyncConnection, source: Target[Any], copy: Target[Any]) -> None:
    """Copies a generation into another, inside the database."""
    names = [column.name for column in source.table.columns]
    await connection.execute(insert(copy.table).from_select(names, select(source.table)))
    for table in (projection_versions, projection_offsets):
        kept = [column for column in table.columns if column.name != "generation"]
        rows = select(literal(copy.generation), *kept).where(
            table.c.name == source.projection.name, table.c.generation == source.generation
        )
        into = ["generation", *(column.name for column in kept)]
        await connection.execute(insert(table).from_select(into, rows))
    name = source.projection.name
    live, new = (name, source.generation), (name, copy.generation)
    await connection.run_sync(copy_epochs, live, new)


@asynccontextmanager
async def open_read_models(url: str, projection: Projection[Any]) -> AsyncIterator[ReadModels]:
    """Opens the database of read models for bulk work, with the projection set up in it.

    Raises:
        ProjectionError: something else has the projection's name.
    """
    read_models = ReadModels(url, limits=_LIMITS)
    try:
        try:
            await read_models.ensure(projection)
        except ProjectionError:
            # The live generation has other columns, which is what a rebuild is for; any other
            # obstacle means that nothing is stored under this name.
            if await _is_unknown(read_models, projection):
                raise
        yield read_models
    finally:
        await read_models.aclose()


async def _is_unknown(read_models: ReadModels, projection: Projection[Any]) -> bool:
    try:
        await read_models.state(projection.name)
    except ProjectionNotFound:
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What an event store is for a rebuild that reads the topic.

    Attributes:
        missing: reads streams that the topic lacks.
        belief: judges what the topic has; None: all of it is believed.
        seal: what the store's own messages carry; None without a store.
    """

    missing: MissingReader
    belief: Belief | None = None
    seal: Seal | None = None


@asynccontextmanager
async def open_truth(url: str | None, serializer: Serializer) -> AsyncIterator[Truth]:
    """Opens the event store that fills gaps and knows foreign messages; None: none does.

    Raises:
        SchemaOutOfDate: there is no such database, or its schema is not this version's.
        DefinitionError: the URL is not one of SQLite or PostgreSQL.
    """
    if url is None:
        yield Truth(missing=_find_nothing)
        return
    # A store that is made for a mistyped URL would know none of the topic's events.
    await check(url)
    store = await open_event_store(url, serializer)

    async def find(aggregate_id: str, after: int, to: int) -> Sequence[EventStream]:
        return await store.read_stream(aggregate_id, after_version=after, to_version=to)

    try:
        seal = Seal(await store.identity())
        belief = Belief(seal=seal, find=store.find_stored, serializer=serializer)
        yield Truth(missing=find, belief=belief, seal=seal)
    finally:
        await store.aclose()


async def _find_nothing(*_of: object) -> Sequence[EventStream]:
    return ()
