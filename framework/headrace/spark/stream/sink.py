"""
Micro-batches into a projection's live table: rows, versions and offsets in one transaction.

    what the stored offsets say is new ─▶ few messages: folded here, as the live runner folds
                                       └▶ many: folded on executors onto looked-up rows ─▶ stored
                                          if no one moved the projection meanwhile

The stored offsets decide what is applied, not a query's checkpoint. A batch that they have passed
changes nothing. So several jobs, and live runners besides, exclude
each other batch by batch. Used by a streaming query's thread, in which `take` blocks; uses the
database of read models, which lives on an event loop. It must not know a broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from pyspark.sql import DataFrame
from sqlalchemy import Connection

from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock
from headrace._runtime.log import get_logger
from headrace.errors import ProjectionError
from headrace.events.belief import Belief
from headrace.projections.batch_transaction import Applied, MissingReader
from headrace.projections.definition.projection import Projection
from headrace.projections.poison import (
    BatchApplier,
    Poisoned,
    apply_in_halves,
    may_be_parked,
)
from headrace.projections.tables.contents import (
    Moved,
    OtherFields,
    Switched,
    Target,
    begin_at,
    find_rows,
    store_offsets,
    store_rows,
    store_versions,
)
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.statements import PARKED, listed, offsets_of, versions_among
from headrace.projections.turn import Turn
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.spark.executor.fold import BASE, VERSION, Record
from headrace.spark.job import Folded
from headrace.spark.rows import RowCodec
from headrace.spark.stream.batch import Span
from headrace.subscriptions.outages import is_outage
from headrace.subscriptions.reader import say_parked
from headrace.transports.base import Incoming, QueueId

__all__ = [
    "HERE_MAX",
    "AppliedBatch",
    "Behind",
    "Fold",
    "Known",
    "Messages",
    "ProjectionSink",
    "Stopped",
]

T = TypeVar("T")

# Messages up to which a batch is folded in this process: as many are done before Spark has planned
# and shuffled them.
HERE_MAX: Final = 5_000
# How often a paused projection is looked at; the live runner's own interval.
_RESUME_CHECK_MS: Final = 1_000
# Rows, and versions, per statement.
_CHUNK: Final = 10_000

_log = get_logger(__name__)


class Stopped(Exception):
    """The job is being stopped; the batch is left to the next reader."""


class Behind(Exception):
    """The stored offsets lie before the batch: the projection was switched or reset."""


class Messages(Protocol):
    """A micro-batch, as `batch.MicroBatch` is one."""

    def spans(self) -> list[Span]:
        """Returns what it holds of each queue."""
        ...

    def after(self, offsets: Mapping[QueueId, int]) -> "Messages":
        """Returns what stands at these offsets or behind them."""
        ...

    def messages(self) -> list[Incoming]:
        """Brings its messages here."""
        ...

    def streams(self) -> DataFrame:
        """Returns its streams as records."""
        ...


class Known:
    """What is stored of a generation, looked up at one moment from the query's thread."""

    def __init__(self, ask: "Callable[[Work[Any]], Any]", target: Target[Any]) -> None:
        self._ask = ask
        self._target = target
        self._codec: RowCodec[Any] = RowCodec(target.projection)

    def versions(self, aggregates: Iterable[str]) -> list[Record]:
        """Returns the last version of each aggregate that has one."""
        found = self._ask(partial(_find_versions, target=self._target, aggregates=list(aggregates)))
        return [Record.known(VERSION, key, number=version) for key, version in found]

    def rows(self, keys: Iterable[str]) -> list[Record]:
        """Returns the row of each key that has one."""
        found = self._ask(partial(find_rows, target=self._target, keys=list(keys)))
        encode = self._codec.encode
        return [Record.known(BASE, key, data=encode(row)) for key, row in found.items()]


Work = Callable[[Connection], T]
# Folds the streams of a batch, which has these spans, onto what is known.
Fold = Callable[[Messages, Sequence[Span], Known], Folded]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedBatch:
    """What became of a batch.

    Attributes:
        messages: of it that were applied, duplicates and rejections among them.
        rows: written or deleted.
        here: whether it was folded in this process.
        offsets: the next offset of each queue of the projection.
        parked: aggregates that wait now, because an event of theirs does not decode or cannot be applied.
    """

    messages: int
    rows: int
    here: bool
    offsets: Mapping[QueueId, int]
    parked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the projection stands."""

    target: Target[Any]
    offsets: Mapping[QueueId, int]
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionSink:
    """Applies micro-batches to the live generation of a projection.

    Attributes:
        projection: which one.
        read_models: where its tables are.
        serializer: decodes messages that are folded here.
        missing: reads streams that the topic lacks.
        fold: folds a large batch on executors.
        settings: sizes of transactions, pauses, how many aggregates may be parked.
        clock: tells when an aggregate was parked.
        here_max: messages up to which a batch is folded here.
        outages_max: attempts during an outage of the database before it is raised; None: no limit.
        stop: set when the job is to end.
        belief: judges what comes from the topic; None: all of it is believed.
    """

    projection: Projection[Any]
    read_models: ReadModels
    serializer: Serializer
    missing: MissingReader
    fold: Fold
    settings: Settings
    clock: Clock
    here_max: int
    outages_max: int | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    belief: Belief | None = None

    async def place(self) -> _Place:
        """Returns where the generation of this version stands; waits while the projection is paused.

        It is the live one, or one that is built next to it, and goes live when it can.

        Raises:
            Stopped: the job ended meanwhile.
            ProjectionError: the live generation has other fields than the projection.
        """
        name = self.projection.name
        turn: Turn[Any] = Turn(
            self.projection,
            self.read_models,
            by_itself=self.settings.projection_switch == "on_catch_up",
            check_ms=_RESUME_CHECK_MS,
            on_wait=self._say_waiting,
        )

        async def ready() -> None:
            await turn.wait()

        await self.unless_stopped(ready())
        generation, is_live = await turn.wait()
        if not is_live:
            is_live = await turn.try_to_go_live(generation)
        state = await self.read_models.state(name)
        target = self.read_models.target(self.projection, generation)
        if is_live and state.fingerprint != self.projection.fingerprint:
            raise OtherFields(
                f"projection {name}: generation {generation} was built with other fields than"
                f" {self.projection.row.__name__} has here; rebuild it, or run the code it was"
                " built with"
            )
        offsets, letters = await self.read_models.transact(partial(_find_place, target=target))
        return _Place(target=target, offsets=offsets, letters=letters)

    def _say_waiting(self, why: str) -> None:
        _log.warning("projection waits", projection=self.projection.name, reason=why)

    def take(self, batch: Messages, loop: asyncio.AbstractEventLoop) -> AppliedBatch:
        """Applies what is new of a batch; blocks, in a thread that is not the loop's.

        Raises:
            Behind: the projection stands before the batch.
            Stopped: the job is to end.
            ProjectionError: the batch cannot be applied.
        """

        def run(work: Coroutine[Any, Any, T]) -> T:
            return asyncio.run_coroutine_threadsafe(work, loop).result()

        def wait(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
            return run(self.persist(work))

        def ask(work: Work[Any]) -> Any:
            return wait(partial(_transact, self.read_models, work))

        spans, rows = batch.spans(), 0
        while True:
            place = wait(self.place)
            new = _new(spans, place.offsets)
            count = sum(span.end - span.start for span in new)
            if not new:
                return AppliedBatch(
                    messages=0, rows=rows, here=True, offsets=place.offsets, parked=place.letters
                )
            rest = batch.after(place.offsets)
            here = self._belongs_here(count, place)
            if not here:
                try:
                    folded = self.fold(rest, new, Known(ask, place.target))
                except ProjectionError as error:
                    # One by one it is seen which event is at fault, and its aggregate is parked.
                    _log.warning("a batch is folded again in this process", error=str(error))
                    here = True
                else:
                    end = {span.queue: span.end for span in new}
                    outcome = ask(partial(_store, place=place, folded=folded, end=end))
            if here:
                outcome = run(self._apply(rest.messages(), place))
            if isinstance(outcome, Applied):
                offsets = dict(place.offsets) | {span.queue: span.end for span in new}
                rows += outcome.rows
                parked = 0
                if here:
                    # What was applied is reported, also when the job is stopped by now.
                    with suppress(Stopped):
                        _, parked = ask(partial(_find_place, target=place.target))
                return AppliedBatch(
                    messages=count, rows=rows, here=here, offsets=offsets, parked=parked
                )
            _log.info(
                "another reader advanced the offsets; reading again",
                projection=self.projection.name,
            )

    async def persist(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        again: Callable[[Exception], bool] = lambda _: False,
    ) -> T:
        """Does work with the database, again and again while it is away.

        Args:
            work: makes one attempt.
            again: judges what is no outage; True: there is another attempt.

        Raises:
            Stopped: the job is to end.
            ProjectionError: it was away at every attempt of a job that makes so many.
        """
        backoff = Backoff(ms_min=self.settings.retry_ms_min, ms_max=self.settings.retry_ms_max)
        outages = 0

        async def attempt() -> T:
            if self.stop.is_set():
                raise Stopped
            return await work()

        def final(error: Exception) -> bool:
            nonlocal outages
            if not is_outage(error):
                return not again(error)
            outages += 1
            return outages == self.outages_max

        async def pause(number: int) -> None:
            await self.unless_stopped(backoff.pause(number))

        what = f"use the database of read models for projection {self.projection.name}"
        try:
            return await backoff.persist(
                attempt, what=what, unless=(Stopped,), final=final, pause=pause
            )
        except Exception as error:
            if not is_outage(error):
                raise
            raise ProjectionError(
                f"projection {self.projection.name}: the database of read models is away,"
                f" after {outages} attempts: {error}"
            ) from error

    def _belongs_here(self, count: int, place: _Place) -> bool:
        # Handlers write in the transaction; what is parked is known in it alone.
        return count <= self.here_max or self.projection.has_handlers or place.letters > 0

    async def _apply(
        self, messages: Sequence[Incoming], place: _Place
    ) -> Applied | Moved | Switched:
        """Applies messages as the live runner does, in transactions of its size."""
        positions: dict[QueueId, int | None] = dict(place.offsets)
        if self.belief is not None:
            messages = await self.persist(partial(self.belief.sift, messages))
        applier: BatchApplier[Any] = BatchApplier(
            read_models=self.read_models,
            missing=self.missing,
            serializer=self.serializer,
            settings=self.settings,
            clock=self.clock,
            say_parked=partial(say_parked, about={"projection": self.projection.name}),
        )

        async def apply(batch: Sequence[Incoming]) -> Applied | Moved | Switched | Poisoned:
            attempt = applier.attempts(place.target, batch, positions)
            return await self.persist(attempt, again=may_be_parked)

        def applied(batch: Sequence[Incoming]) -> None:
            positions.update({message.queue: message.offset + 1 for message in batch})

        halved = await apply_in_halves(
            messages, apply, batch_max=self.settings.projection_batch_max, applied=applied
        )
        return Applied(rows=halved.rows) if halved.stopped is None else halved.stopped

    async def unless_stopped(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Waits for something.

        Raises:
            Stopped: the job is to end; the wait was given up.
        """
        tasks = {asyncio.ensure_future(waiting), asyncio.ensure_future(self.stop.wait())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self.stop.is_set():
            raise Stopped
        for task in done:
            task.result()


async def _transact(read_models: ReadModels, work: Work[T]) -> T:
    return await read_models.transact(work)


def _new(spans: Sequence[Span], offsets: Mapping[QueueId, int]) -> list[Span]:
    new: list[Span] = []
    for span in spans:
        # A queue without an offset begins where the topic does.
        at = offsets.get(span.queue, span.start)
        if at < span.start:
            raise Behind(f"the projection stands at {at} of {span.queue}, before {span.start}")
        if at < span.end:
            new.append(Span(queue=span.queue, start=at, end=span.end))
    return new


def _find_place(connection: Connection, target: Target[Any]) -> tuple[dict[QueueId, int], int]:
    place = {"name": target.projection.name, "generation": target.generation}
    found = connection.execute(offsets_of(), place)
    offsets = {(topic, queue_id): offset for topic, queue_id, offset in found}
    return offsets, target.parked.count(connection)


def _find_versions(
    connection: Connection, target: Target[Any], aggregates: Sequence[str]
) -> list[tuple[str, int]]:
    if not aggregates:
        return []
    place = {"name": target.projection.name, "generation": target.generation}
    dialect = connection.dialect
    found = connection.execute(versions_among(dialect), {**place, **listed(dialect, aggregates)})
    return [(aggregate_id, version) for aggregate_id, version in found if version != PARKED]


def _store(
    connection: Connection, place: _Place, folded: Folded, end: Mapping[QueueId, int]
) -> Applied | Moved | Switched:
    """Stores what executors made of rows that were looked up outside this transaction.

    Rows change with an offset, or where a letter is taken up; parking moves an offset too. So they
    are as they were if all offsets are, and there was no letter then nor is one now.
    """
    target = place.target
    stopped = begin_at(connection, target, {queue: place.offsets.get(queue) for queue in end})
    if stopped is not None:
        return stopped
    offsets, letters = _find_place(connection, target)
    if letters or offsets != place.offsets:
        return Moved(offsets=offsets)
    codec: RowCodec[Any] = RowCodec(target.projection)
    key_of = target.projection.key_form.text_of
    for encoded in folded.row_chunks(_CHUNK):
        rows = [codec.row(row) for row in encoded]
        store_rows(connection, target, {key_of(row): row for row in rows})
    store_rows(connection, target, dict.fromkeys(folded.deleted))
    versions = iter(folded.versions.items())
    while some := dict(islice(versions, _CHUNK)):
        store_versions(connection, target, some)
    store_offsets(connection, target, end)
    return Applied(rows=len(folded.rows) + len(folded.deleted))
