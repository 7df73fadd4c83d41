"""
Rebuilding a projection: events from the topic through Spark into a shadow, then the switch.

    begin a shadow ─▶ capture where the topic ends ─▶ read and fold in Spark ─▶ rows, versions and
    offsets in one transaction ─▶ catch up ─▶ compare with the live rows ─▶ switch

Until the switch nothing that anybody reads is touched: a rebuild that is killed at any moment
leaves an unused table, which the next one drops. Sits between: the command line and the parts of
this package. Must never know a subscription.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, TypeVar

import structlog
from pyspark.sql import SparkSession
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace._domain.stream import EventStream
from headrace._eventing.publisher import event_topic
from headrace._projecting import generations
from headrace._projecting.applying import MissingReader, Target, read_offsets
from headrace._projecting.projection import Projection
from headrace._projecting.read_models import ReadModels
from headrace._runtime.clock import Clock, SystemClock
from headrace.app import load_app
from headrace.errors import ProjectionError, ProjectionNotFound
from headrace.serialization import Serializer
from headrace.spark.job import Folded, run_fold
from headrace.spark.loading import copy_generation, load_fresh, load_onto, read_base
from headrace.spark.owner import is_gone, new_owner
from headrace.spark.plan import FoldPlan, module_folder
from headrace.spark.report import RebuildReport
from headrace.spark.rows import RowCodec
from headrace.spark.session import local_session
from headrace.spark.switch import Means, Outcome, Shadow, bring_live, release
from headrace.stores.engines import EngineLimits
from headrace.stores.opening import open_event_store
from headrace.transports.base import Incoming, QueueId
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.spark.offsets import QueueSlice, plan_slices
from headrace_mq.spark.reader import fetch_ranges, read_columns

__all__ = ["Progress", "rebuild"]

T = TypeVar("T")

# Called at the start of each phase with its name and the number of things ahead, if known, or 0.
Progress = Callable[[str, int], None]

# Bulk statements and the comparison, during which the locking transaction says nothing, may take
# much longer than a command's or a live batch's statements.
_LIMITS: Final = EngineLimits(statement_timeout_ms=1_800_000, idle_transaction_ms=1_800_000)

# How long a live generation that is behind may take to catch up before comparing is given up.
_LIVE_WAIT_MS: Final = 60_000
# Messages applied per transaction while catching up; the live runner's own default.
_CATCH_UP_MESSAGES: Final = 1_000
# A cancelled Spark job ends within a task's next batch; longer is not waited for.
_CANCEL_GRACE_MS: Final = 30_000

_log = structlog.get_logger(__name__)


async def rebuild(  # noqa: PLR0913 - one argument per choice of the command line
    app: str,
    projection_name: str,
    *,
    broker: str,
    read_models_url: str,
    event_store_url: str | None = None,
    spark: SparkSession | None = None,
    start: Literal["zero", "offsets"] = "zero",
    verify: bool = True,
    switch: bool = True,
    take_over: bool = False,
    live_wait_ms: int = _LIVE_WAIT_MS,
    report: Progress | None = None,
    clock: Clock | None = None,
) -> RebuildReport:
    """Builds a projection anew beside the live one, compares the two, and switches to the new one.

    Args:
        app: the application's import path, such as `samples.bank:app`; executors import it too.
        projection_name: which of its projections.
        broker: `host:port`, as this process and every executor reach it.
        read_models_url: where the projection's tables are.
        event_store_url: fills gaps of the event topic; without it a gap is an error.
        spark: a session of any kind; None starts a local one for this rebuild.
        start: "zero" folds the whole topic; "offsets" folds what came since onto a copy of the
            live rows, as they are.
        verify: compare row for row with the live generation, at equal offsets, before switching.
        switch: make the result live if nothing speaks against it.
        take_over: begin even if another rebuild seems to be running; its result is lost.
        live_wait_ms: how long to wait for a live generation that is behind.
        report: called at the start of each phase.
        clock: measures the phases.

    Returns:
        What was done. Not switched, though asked to: `reason` says why, and the rebuilt table is
        kept until the next rebuild.

    Raises:
        RebuildRunning: another rebuild of the projection is under way.
        ProjectionError: the events cannot be read or folded, or versions are missing; nothing was
            changed.
        ExtraMissing: a local session is wanted and Java is missing.
    """
    application = load_app(app)
    projection = application.projection(projection_name)
    serializer = application.serializer
    store_url = None if event_store_url == "memory://" else event_store_url
    phases = _Phases(clock or SystemClock(), report)
    async with (
        _session(spark, phases) as session,
        _missing_reader(store_url, serializer) as missing,
        _open_read_models(read_models_url, projection) as read_models,
    ):
        plan = FoldPlan(
            app=app,
            folder=module_folder(app),
            projection=projection_name,
            broker=broker,
            event_store=store_url,
            slices=(),
        )
        work = _Work(
            session=session,
            plan=plan,
            projection=projection,
            topic=event_topic(application.name),
            read_models=read_models,
            means=Means(
                feed=partial(_feed, broker),
                serializer=serializer,
                missing=missing,
                live_wait_ms=live_wait_ms,
            ),
            phases=phases,
        )
        shadow = await work.begin(take_over=take_over)
        try:
            return await work.build(shadow, start=start, verify=verify, switch=switch)
        except BaseException:
            await asyncio.shield(work.give_up(shadow))
            raise


class _Phases:
    """Measures and announces the phases of a rebuild."""

    def __init__(self, clock: Clock, report: Progress | None) -> None:
        self._clock = clock
        self._report = report
        self._began_ms: dict[str, int] = {}
        self._running: str | None = None
        self.seconds: dict[str, float] = {}

    def begin(self, name: str, ahead: int = 0) -> None:
        """Ends the phase before and begins one."""
        self.end()
        self._running = name
        self._began_ms[name] = self._clock.monotonic_ms()
        if self._report is not None:
            self._report(name, ahead)

    def end(self) -> None:
        """Ends the phase under way, if there is one."""
        if self._running is not None:
            took_ms = self._clock.monotonic_ms() - self._began_ms[self._running]
            self.seconds[self._running] = took_ms / 1_000
            self._running = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A rebuild with everything it names opened."""

    session: SparkSession
    plan: FoldPlan
    projection: Projection[Any]
    topic: str
    read_models: ReadModels
    means: Means
    phases: _Phases

    async def begin(self, *, take_over: bool) -> Shadow:
        self.phases.begin("begin")
        name, owner = self.projection.name, new_owner()
        state = await self.read_models.state(name)
        other = state.rebuild_owner
        unfinished = state.rebuild_generation
        if unfinished is not None and other is not None and (take_over or is_gone(other)):
            _log.warning("an unfinished rebuild is cleared away", projection=name, owner=other)
            await self.read_models.abandon_shadow(name, unfinished, other)
        generation = await self.read_models.begin_shadow(self.projection, owner)
        return Shadow(projection=self.projection, generation=generation, owner=owner)

    async def give_up(self, shadow: Shadow) -> None:
        try:
            await self.read_models.abandon_shadow(
                shadow.projection.name, shadow.generation, shadow.owner
            )
        except Exception:  # noqa: BLE001 - the error that ended the rebuild matters more
            _log.exception("a shadow could not be dropped; the next rebuild does it")

    async def build(
        self, shadow: Shadow, *, start: str, verify: bool, switch: bool
    ) -> RebuildReport:
        codec = RowCodec(self.projection)
        base = None
        begin: dict[QueueId, int] = {}
        if start == "offsets":
            self.phases.begin("base")
            begin = await self._copy_live(shadow)
            async with self.read_models.snapshot() as connection:
                base = await read_base(connection, self._target(shadow), codec)
        slices = await self._capture(begin)
        self.phases.begin("fold", sum(piece.records for piece in slices))
        plan = replace(self.plan, slices=tuple(slices))
        folded = await _in_thread(
            self.session,
            shadow.owner,
            partial(
                run_fold,
                self.session,
                plan,
                keyed_by_aggregate=self.projection.keyed_by_aggregate,
                base=base,
            ),
        )
        end = {(piece.queue.topic, piece.queue.queue_id): piece.end for piece in slices}
        self.phases.begin("load", len(folded.rows))
        async with self.read_models.begin() as connection:
            await self._check_owner(connection, shadow)
            load = load_fresh if base is None else load_onto
            await load(connection, self._target(shadow), codec, folded, end)
        self.phases.begin("switch")
        outcome = await bring_live(
            self.read_models, shadow, self.means, verify=verify, switch=switch
        )
        await self._tidy(shadow, outcome)
        self.phases.end()
        return self._report(shadow, start, slices, folded, outcome)

    def _target(self, shadow: Shadow) -> Target[Any]:
        return self.read_models.target(self.projection, shadow.generation)

    async def _copy_live(self, shadow: Shadow) -> dict[QueueId, int]:
        name = self.projection.name
        parked = await self.read_models.parked(name)
        if parked:
            # Their events lie before the offsets, and nothing would fold them any more.
            raise ProjectionError(
                f"projection {name}: {parked} aggregates are parked; take them up with `headrace"
                f" projection retry {name}` or skip, or start from zero"
            )
        async with self.read_models.begin() as connection:
            state = await self._check_owner(connection, shadow)
            if state.fingerprint != self.projection.shape.fingerprint:
                raise ProjectionError(
                    f"projection {state.name}: the live rows have other fields than"
                    f" {self.projection.row.__name__} and cannot be built upon; start from zero"
                )
            live = self.read_models.target(self.projection, state.generation)
            await copy_generation(connection, live, self._target(shadow))
            return await read_offsets(connection, state.name, shadow.generation)

    async def _check_owner(
        self, connection: AsyncConnection, shadow: Shadow
    ) -> generations.ProjectionState:
        state = await generations.lock_state(connection, shadow.projection.name)
        if (state.rebuild_generation, state.rebuild_owner) != (shadow.generation, shadow.owner):
            raise ProjectionError(
                f"projection {state.name}: generation {shadow.generation} is no longer the shadow"
                f" that {shadow.owner} builds; run the rebuild again"
            )
        return state

    async def _capture(self, begin: Mapping[QueueId, int]) -> list[QueueSlice]:
        """Asks the broker, once, what there is to read."""
        self.phases.begin("capture")
        starting = {QueueRef(*queue): offset for queue, offset in begin.items()}
        try:
            held = await asyncio.to_thread(fetch_ranges, self.plan.broker, [self.topic])
            return plan_slices(held, starting=starting)
        except (MessageQueueError, ValueError) as error:
            raise ProjectionError(f"projection {self.projection.name}: {error}") from error

    async def _tidy(self, shadow: Shadow, outcome: Outcome) -> None:
        async with self.read_models.begin() as connection:
            if outcome.switched:
                await generations.drop_leftovers(connection, shadow.projection.name)
            else:
                await release(connection, shadow)

    def _report(
        self,
        shadow: Shadow,
        start: str,
        slices: Sequence[QueueSlice],
        folded: Folded,
        outcome: Outcome,
    ) -> RebuildReport:
        seconds = self.phases.seconds
        total = sum(seconds.values()) - seconds.get("session", 0.0)
        return RebuildReport(
            projection=shadow.projection.name,
            generation=shadow.generation,
            table=str(self._target(shadow).table.name),
            start=start,
            start_offsets={_queue_name(piece.queue): piece.start for piece in slices},
            end_offsets={_queue_name(piece.queue): piece.end for piece in slices},
            caught_up_offsets={_queue_name(queue): at for queue, at in outcome.offsets.items()},
            events=folded.counts["events"],
            caught_up=outcome.caught_up,
            rows=len(folded.rows),
            duplicates=folded.counts["duplicates"],
            gaps=folded.counts["gaps"],
            filled=folded.counts["filled"],
            compared=outcome.compared,
            mismatches=outcome.mismatches,
            differences=outcome.differences,
            switched=outcome.switched,
            reason=outcome.reason,
            seconds=seconds | {"total": round(total, 3)},
            events_per_second=round(folded.counts["events"] / max(seconds["fold"], 0.001), 1),
        )


def _queue_name(queue: QueueRef | QueueId) -> str:
    topic, queue_id = queue
    return f"{topic}/{queue_id}"


@asynccontextmanager
async def _session(spark: SparkSession | None, phases: _Phases) -> AsyncIterator[SparkSession]:
    given = spark or SparkSession.getActiveSession()
    if given is not None:
        yield given
        return
    phases.begin("session")
    started = await asyncio.to_thread(local_session)
    try:
        yield started
    finally:
        await asyncio.shield(asyncio.to_thread(started.stop))


@asynccontextmanager
async def _open_read_models(url: str, projection: Projection[Any]) -> AsyncIterator[ReadModels]:
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


async def _find_nothing(*_of: object) -> Sequence[EventStream]:
    return ()


@asynccontextmanager
async def _missing_reader(url: str | None, serializer: Serializer) -> AsyncIterator[MissingReader]:
    if url is None:
        yield _find_nothing
        return
    store = await open_event_store(url, serializer)

    async def find(aggregate_id: str, after: int, to: int) -> Sequence[EventStream]:
        return await store.read_stream(aggregate_id, after_version=after, to_version=to)

    try:
        yield find
    finally:
        await store.aclose()


async def _feed(
    broker: str, queue: QueueId, start: int, end: int
) -> AsyncIterator[Sequence[Incoming]]:
    messages = _messages(broker, QueueSlice(queue=QueueRef(*queue), start=start, end=end))
    try:
        while some := await asyncio.to_thread(lambda: list(islice(messages, _CATCH_UP_MESSAGES))):
            yield some
    except MessageQueueError as error:
        raise ProjectionError(f"catching up with {_queue_name(queue)}: {error}") from error


def _messages(broker: str, piece: QueueSlice) -> Iterator[Incoming]:
    for header, columns, first, last in read_columns(broker, piece):
        for index in range(first, last):
            yield Incoming(
                queue=(piece.queue.topic, piece.queue.queue_id),
                offset=header.base_offset + index,
                key=columns.keys[index] if columns.keys else "",
                tag=columns.tags[index] if columns.tags else "",
                headers=columns.headers[index] if columns.headers else {},
                body=columns.bodies[index],
            )


async def _in_thread(session: SparkSession, tag: str, work: Callable[[], T]) -> T:
    """Runs blocking Spark work in a thread; a cancellation ends the work's jobs too."""

    def tagged() -> T:
        session.addTag(tag)
        try:
            return work()
        finally:
            session.removeTag(tag)

    task = asyncio.create_task(asyncio.to_thread(tagged))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.to_thread(session.interruptTag, tag)
        await asyncio.wait({task}, timeout=_CANCEL_GRACE_MS / 1_000)
        raise
