"""
A live projection kept up to date by a structured-streaming job, in place of the live runner.

    stored offsets ─▶ a query from there, with a checkpoint of its own ─▶ micro-batches ─▶ sink
          ▲                                                                                 │
          └──── the broker was away, or the projection was switched: from the start ◀───────┘

Rows and offsets are committed together, so the job may be killed at any moment and started again.
Spark's checkpoint lives as long as one query and decides nothing. Used by the command line; uses
Spark's streaming queries. It must not know a subscription.
"""

import asyncio
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace.app import load_app
from headrace.errors import ProjectionError
from headrace.events.publisher import event_topic
from headrace.lineage.marks import Reader, move_back, note_epochs, read_epochs
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.shadow import open_truth
from headrace.settings import Settings
from headrace.spark.archive import check_begins
from headrace.spark.executor.doubts import drop_strangers
from headrace.spark.executor.plan import FoldPlan, module_folder
from headrace.spark.failures import GONE, raised_in, reason_of, session_lost
from headrace.spark.job import Folded, map_records
from headrace.spark.session import SessionOnDemand, session_on_demand
from headrace.spark.stream.batch import MicroBatch, Span
from headrace.spark.stream.followed_topic import FollowedTopic
from headrace.spark.stream.increment import fold_increment
from headrace.spark.stream.sink import (
    HERE_MAX,
    AppliedBatch,
    Behind,
    Known,
    Messages,
    ProjectionSink,
    Stopped,
)
from headrace.spark.topic import fetch_ranges
from headrace.transports.base import QueueId
from headrace_mq.errors import MessageQueueError, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["BATCH_MESSAGES_MAX", "Followed", "follow"]

# Called after each batch that changed something, in the query's thread.
Progress = Callable[[AppliedBatch], None]

# Messages of a micro-batch: some ten megabytes while it is folded, and one transaction.
BATCH_MESSAGES_MAX: Final = 100_000
# From one look for new messages to the next: what is seen of it is this much later, and the broker
# is not asked without a pause.
_INTERVAL_MS: Final = 200
# How long the batch under way may take to end when the job is stopped.
_STOP_MS_MAX: Final = 30_000
# What a query fails with while a broker is away, or while a machine is so busy that a Python worker
# takes longer to start than the ten seconds that Spark gives it; and where brokers lost what it has read, because
# the next query begins where messages have changed.
_PASSING: Final = re.compile(
    r"\b(?:ConnectionLost|RequestTimeout|BrokerStopping|Python worker failed to connect back"
    r"|brokers lost its messages)\b"
)

_log = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Followed:
    """What a job has done so far.

    Attributes:
        batches: that changed something.
        messages: in them.
        rows: written or deleted, each once per batch.
        restarts: queries that were restarted.
        offsets: the next offset of each queue of the projection.
        parked: aggregates that wait, because an event of theirs does not decode or cannot be applied.
    """

    batches: int = 0
    messages: int = 0
    rows: int = 0
    restarts: int = 0
    offsets: Mapping[QueueId, int] = field(default_factory=dict)
    parked: int = 0


async def follow(  # noqa: PLR0913 - one argument per choice of the command line
    app: str,
    projection_name: str,
    *,
    broker: str,
    read_models_url: str,
    event_store_url: str | None = None,
    spark: SparkSession | SessionOnDemand | None = None,
    available_now: bool = False,
    batch_max: int = BATCH_MESSAGES_MAX,
    settings: Settings | None = None,
    stop: asyncio.Event | None = None,
    report: Progress | None = None,
    clock: Clock | None = None,
) -> Followed:
    """Applies what the event topic has behind the stored offsets, and what comes, until stopped.

    Args:
        app: the application's import path, such as `samples.bank:app`; executors import it too.
        projection_name: which of its projections.
        broker: its address, or a Kafka cluster's, as this process and every executor reach it.
        read_models_url: where the projection's tables are.
        event_store_url: fills gaps of the event topic, and knows foreign messages; without it all that
            stands in the topic is believed.
        spark: a session that is not one of Spark Connect, or one that starts when everything else is known
            to be there; None starts a local one.
        available_now: end where the topic ends now; an outage is then an error after a few
            attempts, where a job without an end waits for as long as it takes.
        batch_max: messages of a micro-batch, at most.
        settings: pauses, attempts, and how many aggregates may be parked.
        stop: ends the job when it is set, after the transaction under way.
        report: called after each batch that changed something.
        clock: tells when an aggregate was parked.

    Raises:
        ProjectionError: the events cannot be read or applied; what was stored before is.
        ExtraMissing: a local session is wanted and Java is missing.
    """
    application = load_app(app)
    projection = application.projection(projection_name)
    settings = settings or Settings()
    store_url = None if event_store_url == "memory://" else event_store_url
    async with AsyncExitStack() as opened:
        serializer = application.serializer_at(store_url)
        truth = await opened.enter_async_context(open_truth(store_url, serializer))
        plan = FoldPlan(
            app=app,
            folder=module_folder(app),
            projection=projection_name,
            broker=broker,
            event_store=store_url,
            slices=(),
            seal=truth.seal,
        )
        read_models = ReadModels(read_models_url)
        opened.push_async_callback(read_models.aclose)
        await _check(read_models, projection, broker, event_topic(application.name))
        sessions = await opened.enter_async_context(session_on_demand(spark))
        session = await sessions.get()
        _refuse_connect(session)
        sink = ProjectionSink(
            projection=projection,
            read_models=read_models,
            serializer=serializer,
            missing=truth.missing,
            belief=truth.belief,
            fold=_Folding(plan=plan, keyed_by_aggregate=projection.keyed_by_aggregate),
            settings=settings,
            here_max=HERE_MAX,
            clock=clock or SystemClock(),
            outages_max=settings.error_retries_max if available_now else None,
            stop=stop or asyncio.Event(),
        )
        job = _Job(
            session=session,
            sink=sink,
            topic=event_topic(application.name),
            broker=broker,
            available_now=available_now,
            batch_max=batch_max,
            report=report,
        )
        return await job.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folding:
    """Folds large batches on executors."""

    plan: FoldPlan
    keyed_by_aggregate: bool

    def __call__(self, batch: Messages, spans: Sequence[Span], known: Known) -> Folded:
        slices = tuple(
            QueueSlice(queue=QueueRef(*span.queue), start=span.start, end=span.end)
            for span in spans
        )
        plan = replace(self.plan, slices=slices)
        return fold_increment(
            map_records(batch.streams(), drop_strangers, plan),
            plan,
            known,
            keyed_by_aggregate=self.keyed_by_aggregate,
        )


@dataclass(slots=True, kw_only=True)
class _Job:
    """Queries, one after the other."""

    session: SparkSession
    sink: ProjectionSink
    topic: str
    broker: str
    available_now: bool
    batch_max: int
    report: Progress | None
    done: Followed = field(default_factory=Followed)
    # Of the topic's brokers, in which the offsets are right.
    epochs: Mapping[int, int] = field(default_factory=dict)

    async def run(self) -> Followed:
        settings = self.sink.settings
        backoff = Backoff(ms_min=settings.retry_ms_min, ms_max=settings.retry_ms_max)
        attempt = 0
        try:
            await self.sink.persist(self._set_up)
            while True:
                before = self.done.batches
                place = await self.sink.persist(self.sink.place)
                self.done.offsets = place.offsets
                failure = await self._away(
                    place.target.generation, place.offsets
                ) or await self._query(self.done.offsets)
                if failure is None or self.sink.stop.is_set():
                    return self.done
                attempt = 1 if self.done.batches > before else attempt + 1
                self._judge(failure, attempt)
                self.done.restarts += 1
                await self.sink.unless_stopped(backoff.pause(attempt))
        except Stopped:
            return self.done

    def _judge(self, failure: Exception, attempt: int) -> None:
        """Raises a failure unless a new query may do better."""
        name = self.sink.projection.name
        if isinstance(failure, Behind):
            _log.info("projection was switched", projection=name, place=str(failure))
            return
        if isinstance(failure, MessageQueueError):
            reason = f"{type(failure).__name__}: {failure}"
        elif isinstance(failure, PySparkException):
            reason = raised_in(failure)
        else:
            raise failure
        limit = self.sink.outages_max
        if not _PASSING.search(reason) or (limit is not None and attempt >= limit):
            raise ProjectionError(
                f"projection {name}: the streaming query failed: {reason_of(failure)}"
            ) from failure
        _log.warning(
            "the streaming query failed; will try again",
            projection=name,
            attempt=attempt,
            error=reason,
        )

    async def _set_up(self) -> None:
        await self.sink.read_models.ensure(self.sink.projection)

    async def _away(self, generation: int, offsets: Mapping[QueueId, int]) -> Exception | None:
        """Looks whether the broker holds what a query from these offsets reads; returns why it cannot.

        If brokers lost messages that the projection has read, the projection goes back to where they have changed.

        Raises:
            ProjectionError: some of it was trimmed.
        """
        name = self.sink.projection.name
        reader = (name, generation)
        transact = self.sink.read_models.transact
        epochs = await self.sink.persist(lambda: transact(partial(read_epochs, reader=reader)))
        known = {QueueRef(self.topic, number): epoch for number, epoch in epochs.items()}
        try:
            held = await asyncio.to_thread(fetch_ranges, self.broker, [self.topic], known=known)
        except MessageQueueError as error:
            return error
        self.done.offsets, back = _unchanged(held, offsets)
        check_begins(name, held, self.done.offsets)
        now = self.epochs = {one.queue_id: one.epoch for one in held if one.epoch}
        if back:
            _log.warning(
                "brokers lost messages that were folded; going back to where they have changed",
                projection=name,
                offsets=back,
            )
        if back or now != epochs:
            work = partial(_go_back, reader=reader, topic=self.topic, back=back, epochs=now)
            await self.sink.persist(lambda: transact(work))
        return None

    async def _query(self, offsets: Mapping[QueueId, int]) -> Exception | None:
        """Runs one query to its end; returns why it failed, or None."""
        failures: list[Exception] = []
        idle = asyncio.Event()
        idle.set()
        loop = asyncio.get_running_loop()

        def take(frame: DataFrame, _batch_id: int) -> None:
            loop.call_soon_threadsafe(idle.clear)
            frame.persist()
            try:
                self._note(self.sink.take(MicroBatch(frame), loop))
            except Exception as error:
                # The query says no more than that something was raised.
                failures.append(error)
                raise
            finally:
                frame.unpersist()
                loop.call_soon_threadsafe(idle.set)

        with tempfile.TemporaryDirectory(prefix="headrace-follow-") as folder:
            try:
                query = await asyncio.to_thread(self._start, take, offsets, Path(folder))
            except PySparkException as error:
                return error
            ended = asyncio.create_task(asyncio.to_thread(_await_end, query))
            stopping = asyncio.create_task(self.sink.stop.wait())
            try:
                await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    # What is being stored is stored first; a batch that has not begun is left.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(idle.wait(), _STOP_MS_MAX / 1_000)
            finally:
                stopping.cancel()
                await asyncio.shield(asyncio.to_thread(_stop, query))
                failure = await asyncio.shield(ended)
        own = [each for each in failures if not isinstance(each, Stopped)]
        return own[-1] if own else failure

    def _start(
        self, take: Callable[[DataFrame, int], None], offsets: Mapping[QueueId, int], folder: Path
    ) -> StreamingQuery:
        self.session.dataSource.register(FollowedTopic)
        source = self.session.readStream.format(FollowedTopic.name()).options(
            broker=self.broker, topic=self.topic, maxRecordsPerBatch=str(self.batch_max)
        )
        queues = {str(number): offset for (_, number), offset in offsets.items()}
        if queues:
            place = msgspec.json.encode({self.topic: queues}).decode()
            source = source.option("startingOffsets", place)
            if self.epochs:
                # A loss from then on is one that the query notices.
                known = {self.topic: {str(number): one for number, one in self.epochs.items()}}
                source = source.option("startingEpochs", msgspec.json.encode(known).decode())
        writer = source.load().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", folder.as_uri())
        if self.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{_INTERVAL_MS} milliseconds").start()

    def _note(self, taken: AppliedBatch) -> None:
        done = self.done
        done.offsets = taken.offsets
        done.parked = taken.parked
        if not taken.messages:
            return
        done.batches += 1
        done.messages += taken.messages
        done.rows += taken.rows
        if self.report is not None:
            self.report(taken)


async def _check(
    read_models: ReadModels, projection: Projection[Any], broker: str, topic: str
) -> None:
    """Finds out, before Java starts, what no waiting would mend.

    Raises:
        ProjectionError: the projection's table or the topic is not what the job needs.
        SchemaOutOfDate: the schema is not this version's.
    """
    # A database or a broker that is away is waited for, later and as often as the settings say.
    with suppress(OSError, SQLAlchemyError):
        await read_models.ensure(projection)
    try:
        await asyncio.to_thread(fetch_ranges, broker, [topic])
    except TopicNotFound as error:
        raise ProjectionError(f"projection {projection.name}: {error}") from error
    except (MessageQueueError, OSError) as error:
        _log.warning("the broker does not answer yet", broker=broker, error=str(error))


def _refuse_connect(session: SparkSession) -> None:
    if not hasattr(session, "sparkContext"):
        raise ProjectionError(
            "a continuous job writes to the database from the driver, which Spark Connect has"
            " elsewhere; use --master, or run it where the Connect server is"
        )


def _stop(query: Any) -> None:
    with suppress(*GONE):  # it ended with its session
        query.stop()


def _await_end(query: Any) -> Exception | None:
    try:
        query.awaitTermination()
    except PySparkException as error:
        return error
    except GONE as error:
        return session_lost(error)
    return None


def _unchanged(
    held: Sequence[QueueRange], offsets: Mapping[QueueId, int]
) -> tuple[dict[QueueId, int], dict[int, int]]:
    """Returns offsets that are not behind changed messages, and by queue those that were moved back; pure."""
    found, back = dict(offsets), {}
    for one in held:
        offset = offsets.get((one.topic, one.queue_id), 0)
        if (kept := one.kept(offset)) < offset:
            found[one.topic, one.queue_id] = back[one.queue_id] = kept
    return found, back


def _go_back(
    connection: Connection,
    reader: Reader,
    topic: str,
    back: Mapping[int, int],
    epochs: Mapping[int, int],
) -> None:
    move_back(connection, topic, {reader: back})
    note_epochs(connection, reader, epochs)
