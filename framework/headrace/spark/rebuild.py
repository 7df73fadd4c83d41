"""
Rebuilding a projection: events from the topic through Spark into a shadow, then the switch.

    begin a shadow ─▶ capture where the topic ends ─▶ read and fold in Spark ─▶ rows, versions and
    offsets in one transaction ─▶ catch up ─▶ compare with the live rows ─▶ switch

Until the switch nothing that anybody reads is touched: a rebuild that is killed at any moment
leaves an unused table, which the next one drops. Used by the command line; uses the other modules
of this package. It must not know a subscription.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace.app import App, load_app
from headrace.errors import ProjectionError, SparkUnreachable
from headrace.events.publisher import event_topic
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import Target
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.level import bring_shadow
from headrace.rebuild.local.partial_rebuild import Mending, Refolded, Wanted
from headrace.rebuild.local.rebuild import INCREMENT_MAX, fold_increment_here
from headrace.rebuild.owner import Kind, new_owner
from headrace.rebuild.phases import Phases, Progress
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.shadow import Building, open_read_models
from headrace.rebuild.source import Opened, Source, open_events
from headrace.rebuild.stored_events import STORE
from headrace.rebuild.switch import Shadow
from headrace.serialization import JsonSerializer
from headrace.spark.archive import check_begins, held_with
from headrace.spark.executor.event_reader import UNDECODABLE
from headrace.spark.executor.plan import FoldPlan, module_folder
from headrace.spark.executor.positions import share_slices
from headrace.spark.exported import Exported, finding
from headrace.spark.failures import SPARK_ERRORS, reason_of
from headrace.spark.job import Folded, run_fold
from headrace.spark.load import Loading
from headrace.spark.native import NativeFold, plan_native
from headrace.spark.progress.bytes_read import reading_progress, told_meanwhile
from headrace.spark.progress.queues import Finished
from headrace.spark.report import queue_name, report_of
from headrace.spark.result.connection import CONNECTIONS_MAX
from headrace.spark.result.copy import Copying
from headrace.spark.result.disk import Stored, shared_folder
from headrace.spark.result.live_rows import Beginning
from headrace.spark.result.parts import Spool
from headrace.spark.resumption import fold_left, resumed_plan, written_plan
from headrace.spark.rows import RowCodec
from headrace.spark.session import SessionOnDemand, run_cancellable, session_on_demand
from headrace.spark.tasks import TASK_BYTES_MIN, divide_plan
from headrace.transports.base import QueueId
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import Bound, QueueSlice, plan_slices
from headrace_mq.spark.reader import Part, fetch_ranges, read_columns

__all__ = ["rebuild"]

# How long a live generation that is behind may take to catch up before comparing is given up.
_LIVE_WAIT_MS: Final = 60_000
# Messages applied per transaction while catching up; the live runner's own default.
_CATCH_UP_MESSAGES: Final = 1_000
# From so many messages on a declared projection is SQL: while Spark compiles it, fewer are folded in Python.
_NATIVE_MESSAGES_MIN: Final = 200_000
# Tasks that read the event store. Each looks through all of it for its share: more are more work for it.
_SHARES: Final = 4
# Rows that are decoded together.
_ROWS_MAX: Final = 10_000

_log = get_logger(__name__)


async def rebuild(  # noqa: PLR0913 - one argument per choice of the command line
    app: str,
    projection_name: str,
    *,
    broker: str | None,
    read_models_url: str,
    event_store_url: str | None = None,
    spark: SparkSession | SessionOnDemand | None = None,
    source: Source = "topic",
    start: Literal["zero", "offsets"] = "zero",
    wanted: Wanted | None = None,
    export: str | Path | None = None,
    verify: bool = True,
    switch: bool = True,
    accept: int = False,
    take_over: bool = False,
    live_wait_ms: int = _LIVE_WAIT_MS,
    connections_max: int = CONNECTIONS_MAX,
    task_bytes_min: int = TASK_BYTES_MIN,
    report: Progress | None = None,
    clock: Clock | None = None,
) -> RebuildReport:
    """Rebuilds a projection next to the live one, compares the two, and switches to the new one.

    Args:
        app: the application's import path, such as `samples.bank:app`; executors import it too.
        projection_name: which of its projections.
        broker: `host:port`, as this process and every executor reach it; None: as for `Choices`.
        read_models_url: where the projection's tables are; PostgreSQL, as every executor reaches it
            too.
        event_store_url: fills gaps of the event topic, and knows foreign messages; as every executor
            reaches it. Without it a gap is an error, and all that stands in the topic is believed.
        source: folds the event "topic", or the event "store", which every executor then reads.
        spark: a session of any kind, or one that starts when everything else is known to be there; None
            starts a local one for this rebuild.
        start: "zero" folds the whole topic; "offsets" folds what came since onto a copy of the
            live rows, as they are.
        wanted: fold these rows alone, from zero, among live rows that stay as they are.
        export: a folder of exported events; what it holds is read from there, the rest from the
            broker. Executors have to see it under the same path.
        verify: compare row for row with the live generation, at equal offsets, before switching.
        switch: make the result live if nothing speaks against it.
        accept: how many rows may differ; True: any number.
        take_over: begin even if another rebuild seems to be running; its result is lost, but for what its
            tasks have copied.
        live_wait_ms: how long to wait for a live generation that is behind, or stands still.
        connections_max: to PostgreSQL, of all executors together; a task holds one from its first
            rows to its last.
        task_bytes_min: of messages for which another task is wanted, up to as many tasks as there are cores.
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
    phases = Phases(clock or SystemClock(), report)
    wishes = _Wishes(verify=verify, switch=switch, accept=accept)
    events = partial(
        open_events,
        source=source,
        urls=(broker, event_store_url),
        switch=switch,
        live_wait_ms=live_wait_ms,
        messages_max=_CATCH_UP_MESSAGES,
        read=_read,
    )
    opened = _opened(
        app,
        projection_name,
        read_models_url,
        spark=spark,
        phases=phases,
        events=events,
        find=finding(export, some_rows=wanted is not None, start=start),
    )
    async with opened as begun:
        work = replace(begun, task_bytes_min=task_bytes_min)
        if wanted is not None:
            return await work.mend(wanted, wishes, take_over=take_over)
        phases.begin("begin")
        kind: Kind = "store" if source == "store" else "copy" if start == "offsets" else "topic"
        async with work.begun(kind, take_over=take_over, keep_finished=not switch) as shadow:
            session = await work.sessions.get(phases.interlude("session"))
            with shared_folder(session) as folder:
                loading = Loading(
                    read_models=work.read_models,
                    shadow=shadow,
                    onto=kind == "copy",
                    connections_max=connections_max,
                    folder=folder,
                )
                return await work.build(shadow, loading, wishes)


class _Wishes(NamedTuple):
    """What becomes of the result, as `rebuild` is asked for it."""

    verify: bool
    switch: bool
    accept: int


@asynccontextmanager
async def _opened(
    app: str,
    projection_name: str,
    read_models_url: str,
    *,
    spark: SparkSession | SessionOnDemand | None,
    phases: Phases,
    events: Callable[[App], AbstractAsyncContextManager[Opened]],
    find: Callable[..., Exported] | None,
) -> "AsyncIterator[_Work]":
    """Opens what a rebuild needs, and closes it; what can be checked without a session is."""
    application = load_app(app)
    projection, serializer = application.projection(projection_name), application.serializer
    name = event_topic(application.name)
    async with (
        events(application) as found,
        open_read_models(read_models_url, projection) as read_models,
        session_on_demand(spark) as sessions,
    ):
        exported: Exported | None = None
        if find is not None:
            vouched = found.event_store is not None
            exported = await asyncio.to_thread(find, application, projection, vouched=vouched)
        plan = FoldPlan(
            app=app,
            folder=module_folder(app),
            projection=projection_name,
            broker=found.broker or "",
            event_store=found.event_store,
            slices=(),
            shares=_SHARES if found.origin else 0,
            archive=() if exported is None else exported.messages,
            seal=found.seal,
        )
        # Rows of an aggregate each are folded where they are read, at two thirds of the cost; and what
        # is read of the store has the order of positions, which no query keeps.
        in_python = projection.keyed_by_aggregate or found.origin is not None
        work = _Work(
            sessions=sessions,
            plan=plan,
            projection=projection,
            serializer=serializer,
            native=None if in_python else plan_native(serializer, projection),
            exported=exported,
            events=found,
            topic_name=name,
            read_models=read_models,
            building=Building(read_models, projection),
            phases=phases,
        )
        if found.origin is None:
            await work.held()
        yield work


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """A rebuild with everything it names opened."""

    sessions: SessionOnDemand
    plan: FoldPlan
    projection: Projection[Any]
    serializer: JsonSerializer
    native: NativeFold | None
    exported: Exported | None
    events: Opened
    topic_name: str
    read_models: ReadModels
    building: Building
    phases: Phases
    task_bytes_min: int = TASK_BYTES_MIN

    @property
    def query(self) -> NativeFold | None:
        """The projection as SQL, over exported files if these are read as columns."""
        return self.exported.native if self.exported and self.exported.native else self.native

    @asynccontextmanager
    async def begun(self, kind: Kind, **choices: Any) -> AsyncIterator[Shadow]:
        """Takes a shadow; where tasks copy rows of their own, with what a killed rebuild has copied."""
        by_task = self.read_models.engine.dialect.name == "postgresql" and kind == "topic"
        by_task = by_task and self.exported is None and self.projection.keyed_by_aggregate
        shadow = await self.building.begin(kind, adopt="staged" if by_task else False, **choices)
        # Without Spark what was copied stays as it is.
        unless = (SparkUnreachable,) if by_task else ()
        async with self.building.given_up_on_failure(shadow, unless=unless):
            yield shadow

    async def build(self, shadow: Shadow, loading: Loading, wishes: _Wishes) -> RebuildReport:
        begin: dict[QueueId, int] = {}
        if loading.onto:
            self.phases.begin("base")
            begin = await self.building.copy_live(shadow)
        plan = replace(self.plan, slices=tuple(await self._capture(begin)))
        plan = await resumed_plan(plan, loading, self.held)
        slices = plan.slices
        end = {(piece.queue.topic, piece.queue.queue_id): piece.end for piece in slices}
        ahead = sum(piece.records for piece in slices)
        if loading.onto and ahead <= INCREMENT_MAX and not self.plan.archive:
            ranges = {queue: (begin.get(queue, 0), last) for queue, last in end.items()}
            report = await fold_increment_here(
                shadow, self.read_models, self.events, self.serializer, ranges,
                phases=self.phases, wishes=wishes._asdict(),
            )  # fmt: skip
            return replace(report, seconds=self.phases.with_total("session"))
        base = await loading.base() if loading.onto else None
        if self.plan.shares:
            # Each share is of all positions.
            end = {STORE: slices[0].end} if slices else {STORE: 0}
            ahead //= self.plan.shares
        self.phases.begin("fold", ahead)
        why = ""
        if self.exported:
            session = await self.sessions.get(self.phases.interlude("session"))
            why = self.exported.unsuited(session, ahead, _NATIVE_MESSAGES_MIN)
        work = await self.as_messages(why) if why else self
        native = work.query if ahead >= _NATIVE_MESSAGES_MIN else None
        try:
            folded, rows = await work.load(plan, loading, base=base, end=end, native=native)
        except ProjectionError as error:
            if native is None or UNDECODABLE not in str(error):
                raise
            # A query ends at a stream that does not decode; what folds in Python goes around it.
            _log.warning("folding again, in Python", reason=str(error))
            work = await work.as_messages(str(error))
            self.phases.begin("fold", ahead)
            folded, rows = await work.load(plan, loading, base=base, end=end, native=None)
        self.phases.begin("switch")
        outcome = await bring_shadow(
            self.read_models, shadow, self.events.means, self.events.origin, **wishes._asdict()
        )
        await self.building.finish(shadow, outcome)
        self.phases.end()
        start = "offsets" if loading.onto else "zero"
        report = report_of(
            shadow,
            folded,
            outcome,
            self.events.means,
            slices=slices[:1] if self.plan.shares else slices,
            exported=work.exported,
            seconds=self.phases.with_total("session"),
        )
        table, source = self._target(shadow).table.name, "store" if self.plan.shares else "topic"
        return replace(report, table=str(table), start=start, source=source, rows=rows)

    async def as_messages(self, why: str) -> "_Work":
        """Returns the same work, with messages read of exported files."""
        if self.exported is None:
            return self
        return replace(self, exported=await asyncio.to_thread(self.exported.as_messages, why))

    async def load(
        self,
        plan: FoldPlan,
        loading: Loading,
        *,
        base: pa.Table | Beginning | Stored | None,
        end: Mapping[QueueId, int],
        native: NativeFold | None,
    ) -> tuple[Folded, int]:
        """Folds into the shadow; returns what was counted, and how many rows there are."""
        owner, written = loading.shadow.owner, None
        if base is None and native is None:
            plan, written = await written_plan(plan, loading, partial(self._divided, tag=owner))
        async with loading.prepared(written) as into:
            noted = await loading.noted() if written else {}
            fold = partial(self._fold, tag=owner, base=base, native=native)
            folded = await fold_left(fold, plan, noted, into)
            self._leave_out(plan, folded)
            rows = await loading.count(into, folded)
            self.phases.begin("load", rows)
            await loading.load(into, end)
        return folded, rows

    async def mend(self, wanted: Wanted, wishes: _Wishes, *, take_over: bool) -> RebuildReport:
        assert self.events.topic is not None, "rows of some keys are folded from there"
        mending = Mending(
            projection=self.projection,
            read_models=self.read_models,
            topic=self.events.topic,
            means=self.events.means,
            refold=self._refold,
            phases=self.phases,
            outside=("session",),
        )
        return await mending.run(wanted, take_over=take_over, **wishes._asdict())

    async def _refold(self, keys: frozenset[str], ends: Mapping[QueueId, int]) -> Refolded:
        """Folds the events of keys from the first one to these offsets, exclusive."""
        codec: RowCodec[Any] = RowCodec(self.projection)
        held = await self.held()
        # The rows of a few keys are folded from the first event on.
        check_begins(self.projection.name, held, {})
        queues = [QueueRef(one.topic, one.queue_id) for one in held]
        slices = self._plan(
            held, ending={queue: ends.get((queue.topic, queue.queue_id), 0) for queue in queues}
        )
        # Of few rows the events are few: what they take in Python is less than compiling a query.
        plan = replace(self.plan, slices=tuple(slices), only=keys)
        folded = await self._fold(plan, tag=new_owner(), base=None, native=None)
        rows = [codec.row(row) for encoded in folded.row_chunks(_ROWS_MAX) for row in encoded]
        return Refolded(
            rows={self.projection.key_form.text_of(row): row for row in rows},
            versions=folded.versions,
            counts={**folded.counts, "foreign": folded.foreign},
            queues=folded.queues,
            left_out={aggregate_id: sentence for aggregate_id, _, sentence in folded.left_out},
        )

    def _leave_out(self, plan: FoldPlan, folded: Folded) -> None:
        """Remembers, for what follows, which aggregates executors have left out.

        Raises:
            ProjectionError: of all executors together they are too many.
        """
        topic = STORE if plan.shares else (self.topic_name, 0)
        for aggregate_id, offset, sentence in folded.left_out:
            if not self.events.means.left_out.note(aggregate_id, topic, offset, sentence):
                raise ProjectionError(f"projection {self.projection.name}: {sentence}")

    async def _fold(
        self,
        plan: FoldPlan,
        *,
        tag: str,
        base: pa.Table | Beginning | Stored | None,
        native: NativeFold | None,
        into: Copying | Spool | None = None,
    ) -> Folded:
        session, name = (
            await self.sessions.get(self.phases.interlude("session")),
            self.projection.name,
        )
        counts: Counter[str] = Counter()
        if native is not None and native.files and self.exported:
            plan, counts = self.exported.tail(plan), self.exported.counts
        divided = await self._divided(plan, tag=tag, onto=base is not None or bool(counts))
        readers = max(plan.shares, 1)
        ahead = {queue_name(piece.queue): piece.records // readers for piece in plan.slices}
        pieces = Counter(queue_name(piece.queue) for piece in divided.slices)
        finished = Finished(session, ahead, pieces)
        with reading_progress(session, SystemClock()) as progress:
            progress.expect(sum(piece.records for piece in divided.slices))
            fold = partial(
                run_fold,
                session,
                replace(divided, progress=progress.place),
                keyed_by_aggregate=self.projection.keyed_by_aggregate,
                base=base,
                native=native,
                finished=finished,
                into=into,
            )
            async with told_meanwhile(self.phases.passed, finished.news, progress.news):
                job = f"headrace rebuild {name}: read and fold"
                folded = await run_cancellable(session, tag, fold, description=job)
        folded.counts.update(counts)
        return folded

    async def _divided(self, plan: FoldPlan, *, tag: str, onto: bool = False) -> FoldPlan:
        """Divides what a plan reads of the topic among tasks, unless it is."""
        if plan.shares or plan.groups:
            return plan
        session = await self.sessions.get(self.phases.interlude("session"))
        divide = partial(divide_plan, session, plan, onto=onto, task_bytes_min=self.task_bytes_min)
        try:
            job = f"headrace rebuild {self.projection.name}: look for keys in several queues"
            return await run_cancellable(session, tag, divide, description=job)
        except (MessageQueueError, *SPARK_ERRORS) as error:
            why = str(error) if isinstance(error, MessageQueueError) else reason_of(error)
            raise ProjectionError(f"projection {self.projection.name}: {why}") from error

    def _target(self, shadow: Shadow) -> Target[Any]:
        return self.read_models.target(self.projection, shadow.generation)

    async def _capture(self, begin: Mapping[QueueId, int]) -> Sequence[QueueSlice]:
        """Asks, once, what there is to read."""
        self.phases.begin("capture")
        if self.events.origin is not None:
            return share_slices(self.plan.shares, await self.events.origin.store.end())
        starting = {QueueRef(*queue): offset for queue, offset in begin.items()}
        held = await self.held()
        check_begins(self.projection.name, held, begin)
        return self._plan(held, starting=starting)

    async def held(self) -> list[QueueRange]:
        try:
            held = await asyncio.to_thread(fetch_ranges, self.plan.broker, [self.topic_name])
            return held_with(self.plan.archive, held)
        except (MessageQueueError, ValueError) as error:
            raise ProjectionError(f"projection {self.projection.name}: {error}") from error

    def _plan(
        self, held: Sequence[QueueRange], *, starting: Bound = "earliest", ending: Bound = "latest"
    ) -> list[QueueSlice]:
        try:
            return plan_slices(held, starting=starting, ending=ending)
        except ValueError as error:
            raise ProjectionError(f"projection {self.projection.name}: {error}") from error


def _read(broker: str, queue: QueueRef, start: int, end: int) -> Iterator[Part]:
    return read_columns(broker, QueueSlice(queue=queue, start=start, end=end))
