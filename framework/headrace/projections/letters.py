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

from sqlalchemy import Connection, RowMapping, Select, delete, func, select, update

from headrace._runtime.tracebacks import storable, traceback_of
from headrace.domain.stream import EventStream
from headrace.errors import LetterNotFound, ProjectionError
from headrace.projections.batch_transaction import (
    Applied,
    Batch,
    MissingReader,
    apply_through,
    hold,
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
from headrace.stores.base import EventStore, LetterState
from headrace.stores.database.tables import parked_rows, projection_versions, projections
from headrace.subscriptions.outages import is_outage
from headrace.transports.base import Incoming, QueueId

__all__ = [
    "ERROR_CHARACTERS_MAX",
    "Full",
    "Letter",
    "Letters",
    "is_parked",
    "new_row",
    "park",
    "read_letters",
    "read_live_letters",
    "reason_of",
]

# Characters of an error kept with a letter: enough to name the event, the fold and the error's message.
ERROR_CHARACTERS_MAX: Final = 2_000
# How often a retry looks for events that came for the aggregate meanwhile. Then it ends with an error
# and they stay parked, because events may keep coming faster than they are applied.
_ROUNDS_MAX: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """An aggregate that a projection has parked.

    Attributes:
        aggregate_id: whose events wait.
        version: the last one that was applied; the failure is behind it.
        queue: where the message stands that could not be applied.
        offset: its place there.
        parked_at: since when.
        held: messages that wait, the first one included.
        retries: how often taking it up has failed since.
        error: what went wrong last.
        error_name: its name; empty where an older version has parked it.
        traceback: where; empty where an older version has parked it.
    """

    aggregate_id: str
    version: int
    queue: QueueId
    offset: int
    parked_at: datetime
    held: int
    retries: int
    error: str
    error_name: str = ""
    traceback: str = ""


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
    if is_parked(connection, target, message.key):
        hold(connection, target, {message.key: 1})
    else:
        of_target = _of(target)
        count = connection.execute(
            select(func.count()).select_from(parked_rows).where(*of_target)
        ).scalar_one()
        if count >= letters_max:
            return Full(letters=count)
        topic, queue_id = message.queue
        connection.execute(
            parked_rows.insert().values(
                name=target.projection.name,
                generation=target.generation,
                aggregate_id=message.key,
                topic=topic,
                queue_id=queue_id,
                message_offset=message.offset,
                parked_at=now,
                **new_row(error),
            )
        )
    store_offsets(connection, target, {message.queue: message.offset + 1})
    return Applied(rows=0)


def new_row(error: Exception) -> dict[str, Any]:
    """Returns the columns of an aggregate that was just parked that are the same for all readers."""
    waits = {"held": 1, "attempts": 1, "state": LetterState.PARKED.value}
    return {"command_id": "", "command": "", **waits, **reason_of(error)}


def reason_of(error: Exception) -> dict[str, str]:
    """Returns the columns that say why something is parked: its name, a sentence, and a traceback."""
    return {
        "error": type(error).__name__,
        "sentence": storable(str(error))[:ERROR_CHARACTERS_MAX],
        "traceback": traceback_of(error),
    }


def is_parked(connection: Connection, target: Target[Any], aggregate_id: str) -> bool:
    """Whether an aggregate waits behind a letter of a generation."""
    columns = parked_rows.c
    query = select(columns.held).where(*_of(target), columns.aggregate_id == aggregate_id)
    return connection.execute(query).first() is not None


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
        return await self._models.transact(partial(_read, target=target))

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
        columns = parked_rows.c

        def transact(connection: Connection) -> None:
            connection.execute(
                update(parked_rows)
                .where(*_of(target), columns.aggregate_id == aggregate_id)
                .values(attempts=columns.attempts + 1, **reason_of(error))
            )

        await self._models.transact(transact)
        return await self._find(target, aggregate_id)

    async def _find(self, target: Target[Any], aggregate_id: str) -> Letter:
        found = await self._models.transact(
            partial(_read, target=target, aggregate_id=aggregate_id)
        )
        if not found:
            raise LetterNotFound(
                f"projection {self._projection.name} has not parked {aggregate_id!r};"
                f" `headrace parked list --processor projection:{self._projection.name}` lists what it has"
            )
        return found[0]

    async def _target(self) -> Target[Any]:
        generation = await self._models.generation(self._projection.name)
        return self._models.target(self._projection, generation)

    def _require_applied(self, outcome: Applied | Moved | Switched) -> None:
        if not isinstance(outcome, Applied):
            raise ProjectionError(
                f"projection {self._projection.name} was switched to another generation meanwhile;"
                " look at its letters again"
            )


def _of(target: Target[Any]) -> tuple[Any, Any]:
    columns = parked_rows.c
    return columns.name == target.projection.name, columns.generation == target.generation


def read_letters(
    connection: Connection, name: str, generation: int, aggregate_id: str | None = None
) -> list[Letter]:
    """Returns the letters of a generation, the oldest first; those of one aggregate if given."""
    letters = parked_rows.c
    query = _letters_query().where(letters.name == name, letters.generation == generation)
    if aggregate_id is not None:
        query = query.where(letters.aggregate_id == aggregate_id)
    return [_letter_of(row) for row in connection.execute(query).mappings()]


def read_live_letters(connection: Connection) -> list[tuple[str, Letter]]:
    """Returns the letters of all readers, each with the reader's name; of projections the live ones."""
    letters, live = parked_rows.c, projections.c
    # Others have no row there, and letters of the generation 0.
    generation = (
        select(func.coalesce(func.max(live.generation), 0))
        .where(live.name == letters.name)
        .correlate(parked_rows)
        .scalar_subquery()
    )
    query = _letters_query().where(letters.generation == generation, letters.command_id == "")
    # The sort is stable: within a name the oldest is first.
    rows = connection.execute(query).mappings().all()
    return [(row["name"], _letter_of(row)) for row in sorted(rows, key=lambda row: row["name"])]


def _letters_query() -> Select[Any]:
    letters, versions = parked_rows.c, projection_versions.c
    return (
        select(
            parked_rows,
            func.coalesce(letters.version, versions.version, 0).label("done"),
        )
        .outerjoin_from(
            parked_rows,
            projection_versions,
            (versions.name == letters.name)
            & (versions.generation == letters.generation)
            & (versions.aggregate_id == letters.aggregate_id),
        )
        .order_by(letters.parked_at, letters.aggregate_id)
    )


def _letter_of(row: RowMapping) -> Letter:
    return Letter(
        aggregate_id=row["aggregate_id"],
        version=row["done"],
        queue=(row["topic"], row["queue_id"]),
        offset=row["message_offset"],
        parked_at=row["parked_at"],
        held=row["held"],
        retries=row["attempts"] - 1,
        error=row["sentence"],
        error_name=row["error"],
        traceback=row["traceback"],
    )


def _read(
    connection: Connection, *, target: Target[Any], aggregate_id: str | None = None
) -> list[Letter]:
    return read_letters(connection, target.projection.name, target.generation, aggregate_id)


def _release(
    connection: Connection, *, target: Target[Any], letter: Letter
) -> bool | Moved | Switched:
    """Ends a letter, unless a message came for it since it was read: an event may be missing."""
    elsewhere = begin_at(connection, target, {})
    if elsewhere is not None:
        return elsewhere
    columns = parked_rows.c
    gone = connection.execute(
        delete(parked_rows).where(
            *_of(target),
            columns.aggregate_id == letter.aggregate_id,
            columns.held == letter.held,
        )
    )
    return gone.rowcount == 1


def _missing_of(store: EventStore) -> MissingReader:
    async def read(aggregate_id: str, after_version: int, to_version: int) -> Sequence[EventStream]:
        return await store.read_stream(
            aggregate_id, after_version=after_version, to_version=to_version
        )

    return read
