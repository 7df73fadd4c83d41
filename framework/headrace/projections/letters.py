"""
Letters: the aggregates that a projection has parked, because an event of theirs cannot be applied.

    an event fails ──▶ parked: later events of its aggregate wait ──retry──▶ applied, in order
                              everything else flows               └─skip──▶ applied without it

A letter holds the place of an event, not the event. A retry reads the waiting events from the event
store, so they pass the code and the upcasters of that day. Until then the aggregate's version stays where
it is; later events of it are counted and left out.

Used by the live runner, which parks, and by `headrace.parked`, which retries and skips. Handlers and
processes use its letter and its limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from headrace.domain.stream import EventStream
from headrace.errors import LetterNotFound, ProjectionError
from headrace.projections.batch_transaction import (
    Applied,
    Batch,
    MissingReader,
    apply_through,
)
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import (
    Moved,
    Switched,
    Target,
    begin_at,
    store_offsets,
    store_versions,
)
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.base import EventStore
from headrace.stores.database.parked import Letter
from headrace.subscriptions.outages import is_outage
from headrace.transports.base import Incoming, QueueId

__all__ = ["Full", "Letters", "park"]

# How often a retry looks for events that came for the aggregate meanwhile. Then it ends with an error
# and they stay parked, because events may keep coming faster than they are applied.
_ROUNDS_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """Nothing was written: as many aggregates as may be are parked."""

    letters: int


def park(
    connection: Connection,
    *,
    target: Target[Any],
    message: Incoming,
    begin: Mapping[QueueId, int | None],
    error: Exception,
    now: datetime,
    letters_max: int,
) -> Applied | Moved | Switched | Full:
    """Parks the aggregate of a message and moves the offset past it, in the caller's transaction.

    An aggregate that is parked already waits for one message more.

    Raises:
        OtherFields: the live generation has other columns than this projection.
    """
    elsewhere = begin_at(connection, target, begin)
    if elsewhere is not None:
        return elsewhere
    parked = target.parked
    if not parked.hold(connection, message.key):
        count = parked.count(connection)
        if count >= letters_max:
            return Full(letters=count)
        place = (*message.queue, message.offset)
        parked.add(connection, message.key, error, now=now, place=place)
    store_offsets(connection, target, {message.queue: message.offset + 1})
    return Applied(rows=0)


class Letters:
    """The letters of one projection's live generation.

    May be used while the projection runs, here or in another process.

    Args:
        projection: whose.
        read_models: where they are.
        store: has the events that wait.
    """

    def __init__(
        self, projection: Projection[Any], read_models: ReadModels, store: EventStore
    ) -> None:
        self._projection = projection
        self._models = read_models
        self._store = store

    async def all(self) -> list[Letter]:
        """Returns the letters, the oldest first."""
        target = await self._target()
        return await self._models.transact(target.parked.read)

    async def retry(self, aggregate_id: str) -> Letter | None:
        """Applies what waits, in order; returns None, or the letter that is left where it failed.

        The events that were applied before the failure stay applied.

        Raises:
            LetterNotFound: the aggregate is not parked.
            ProjectionError: the projection was switched, or events keep coming faster than they
                are applied; nothing is lost, try again.
            sqlalchemy.exc.SQLAlchemyError, OSError: a database is away.
        """
        return await self._take_up(aggregate_id, passing=0)

    async def skip(self, aggregate_id: str) -> Letter | None:
        """Like `retry`, but passes over the one stream that fails: its events are never applied.

        Raises:
            LetterNotFound, ProjectionError: as `retry`.
        """
        return await self._take_up(aggregate_id, passing=1)

    async def _take_up(self, aggregate_id: str, *, passing: int) -> Letter | None:
        target = await self._target()
        for _ in range(_ROUNDS_MAX):
            letter = await self._find(target, aggregate_id)
            try:
                streams = await self._store.read_stream(aggregate_id, after_version=letter.version)
            except Exception as error:
                if is_outage(error):
                    raise
                if not passing:
                    return await self._note_failure(target, aggregate_id, error)
                passing -= 1
                await self._pass_over(target, aggregate_id, letter.version + 1)
                continue
            failed = await self._apply(target, aggregate_id, streams)
            if failed is not None:
                version, reason = failed
                if not passing:
                    return await self._note_failure(target, aggregate_id, reason)
                passing -= 1
                await self._pass_over(target, aggregate_id, version)
                continue
            released = await self._models.transact(partial(_release, target=target, letter=letter))
            if released is True:
                return None
            if released is not False:
                self._require_applied(released)
        raise ProjectionError(
            f"events of {aggregate_id} keep coming faster than projection"
            f" {self._projection.name} applies them; try again"
        )

    async def _apply(
        self, target: Target[Any], aggregate_id: str, streams: Sequence[EventStream]
    ) -> tuple[int, Exception] | None:
        """Applies streams, all at once or else one by one; returns the version that failed."""
        if not streams:
            return None
        try:
            await self._apply_at_once(target, aggregate_id, streams)
        except Exception as error:
            if is_outage(error):
                raise
        else:
            return None
        for stream in streams:
            assert stream.version is not None, "the event store returns no rejections here"
            try:
                await self._apply_at_once(target, aggregate_id, [stream])
            except Exception as error:
                if is_outage(error):
                    raise
                return stream.version, error
        return None

    async def _apply_at_once(
        self, target: Target[Any], aggregate_id: str, streams: Sequence[EventStream]
    ) -> None:
        batch = Batch(streams=streams, begin={}, end={}, taken_up=aggregate_id)
        outcome = await apply_through(
            self._models.transact, target, batch, missing=_missing_of(self._store)
        )
        self._require_applied(outcome)

    async def _pass_over(self, target: Target[Any], aggregate_id: str, version: int) -> None:
        def transact(connection: Connection) -> Any:
            elsewhere = begin_at(connection, target, {})
            if elsewhere is None:
                store_versions(connection, target, {aggregate_id: version})
            return elsewhere or Applied(rows=0)

        self._require_applied(await self._models.transact(transact))

    async def _note_failure(
        self, target: Target[Any], aggregate_id: str, error: Exception
    ) -> Letter:
        fail = partial(target.parked.fail, aggregate_id=aggregate_id, error=error)
        await self._models.transact(fail)
        return await self._find(target, aggregate_id)

    async def _find(self, target: Target[Any], aggregate_id: str) -> Letter:
        found: Letter | None = await self._models.transact(
            partial(target.parked.find, aggregate_id=aggregate_id)
        )
        if found is None:
            raise LetterNotFound(
                f"projection {self._projection.name} has not parked {aggregate_id!r};"
                f" `headrace parked list --processor projection:{self._projection.name}` lists what it has"
            )
        return found

    async def _target(self) -> Target[Any]:
        generation = await self._models.generation(self._projection.name)
        return self._models.target(self._projection, generation)

    def _require_applied(self, outcome: Applied | Moved | Switched) -> None:
        if not isinstance(outcome, Applied):
            raise ProjectionError(
                f"projection {self._projection.name} was switched to another generation meanwhile;"
                " look at its letters again"
            )


def _release(
    connection: Connection, *, target: Target[Any], letter: Letter
) -> bool | Moved | Switched:
    """Ends a letter, unless a message came for it since it was read: an event may be missing."""
    elsewhere = begin_at(connection, target, {})
    if elsewhere is not None:
        return elsewhere
    return target.parked.release(connection, letter)


def _missing_of(store: EventStore) -> MissingReader:
    async def read(aggregate_id: str, after_version: int, to_version: int) -> Sequence[EventStream]:
        return await store.read_stream(
            aggregate_id, after_version=after_version, to_version=to_version
        )

    return read
