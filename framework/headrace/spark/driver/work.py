"""
A rebuild with everything it names opened, and what there is to read for it.

Used by the parts of a rebuild that fold; asks the broker or the event store where they end. It must
not know a Spark job.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from pyspark.sql import SparkSession

from headrace.app import App, load_app
from headrace.errors import ProjectionError, SparkUnreachable
from headrace.events.publisher import event_topic
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import Target
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.owner import Kind
from headrace.rebuild.phases import Phases
from headrace.rebuild.shadow import Building, open_read_models
from headrace.rebuild.source import Opened
from headrace.rebuild.switch import Shadow
from headrace.serialization import JsonSerializer
from headrace.spark.archive import check_begins, held_with, identity_of, known_epochs
from headrace.spark.driver.exported import Exported
from headrace.spark.executor.plan import FoldPlan, module_folder
from headrace.spark.executor.positions import share_slices
from headrace.spark.held_offsets import check_same_topic
from headrace.spark.native import NativeFold, plan_native
from headrace.spark.session import SessionOnDemand, session_on_demand
from headrace.spark.several.one_pass import OnePass
from headrace.spark.tasks import TASK_BYTES_MIN
from headrace.spark.topic import fetch_identity, fetch_ranges, read_columns
from headrace.transports.base import QueueId
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import Bound, QueueSlice, plan_slices
from headrace_mq.spark.reader import Part

__all__ = ["RebuildWork", "Wishes", "open_work", "read_topic"]

# Tasks that read the event store. Each looks through all of it for its share: more are more work for it.
_SHARES: Final = 4


class Wishes(NamedTuple):
    """What becomes of the result, as `rebuild` is asked for it."""

    verify: bool
    switch: bool
    accept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildWork:
    """A rebuild with everything it names opened.

    Attributes:
        sessions: gives the Spark session when it is needed.
        plan: what travels to executors, without what is to be read.
        projection: which one.
        serializer: knows the event types.
        native: the projection as SQL; None: it is folded in Python.
        exported: a folder of exported events; None: all comes from the topic or the store.
        events: the topic or the store.
        topic_name: of the event topic.
        read_models: where the projection's tables are.
        building: begins and ends shadows.
        phases: what is being done.
        task_bytes_min: bytes of messages for which another task is wanted.
        shared: where it meets the rebuilds of other projections that read together; None: it is alone.
    """

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
    shared: OnePass | None = None

    @property
    def query(self) -> NativeFold | None:
        """The projection as SQL, over exported files if these are read as columns."""
        return self.exported.native if self.exported and self.exported.native else self.native

    @asynccontextmanager
    async def begun(self, kind: Kind, **choices: Any) -> AsyncIterator[Shadow]:
        """Takes a shadow; where tasks copy rows of their own, with what a killed rebuild has copied."""
        by_task = self.read_models.engine.dialect.name == "postgresql" and kind == "topic"
        by_task = by_task and self.exported is None and self.projection.keyed_by_aggregate
        by_task = by_task and self.shared is None
        adopt: Literal["staged", False] = "staged" if by_task else False
        epochs = self.events.means.epochs
        shadow = await self.building.begin(kind, adopt=adopt, epochs=epochs, **choices)
        # Without Spark what was copied stays as it is.
        unless = (SparkUnreachable,) if by_task else ()
        async with self.building.given_up_on_failure(shadow, unless=unless):
            yield shadow

    async def session(self) -> SparkSession:
        """Returns the session; its start is a phase of its own."""
        return await self.sessions.get(self.phases.interlude("session"))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits for the others of a shared pass, and for its turn; alone it has it."""
        if self.shared is None:
            yield
            return
        self.phases.begin("wait")
        async with self.shared.turn(self.projection.name):
            yield

    async def as_messages(self, why: str) -> "RebuildWork":
        """Returns the same work, with messages read of exported files."""
        if self.exported is None:
            return self
        return replace(self, exported=await asyncio.to_thread(self.exported.as_messages, why))

    def target(self, shadow: Shadow) -> Target[Any]:
        """Returns where the rows of a shadow are."""
        return self.read_models.target(self.projection, shadow.generation)

    async def capture(self, begin: Mapping[QueueId, int]) -> Sequence[QueueSlice]:
        """Asks, once, what there is to read.

        Args:
            begin: the offset of each queue from which on; of others, all.

        Raises:
            ProjectionError: the broker is away; or the topic begins or ends elsewhere.
        """
        self.phases.begin("capture")
        if self.shared is not None:
            return await self.shared.once("slices", partial(self._captured, begin))
        return await self._captured(begin)

    async def _captured(self, begin: Mapping[QueueId, int]) -> Sequence[QueueSlice]:
        if self.events.origin is not None:
            return share_slices(self.plan.shares, await self.events.origin.store.end())
        held = await self.held()
        check_begins(self.projection.name, held, begin)
        firsts = {(one.topic, one.queue_id): one.first for one in held}
        # A queue that began behind that offset has nothing before its first one.
        starting = {
            QueueRef(*queue): max(offset, firsts.get(queue, 0)) for queue, offset in begin.items()
        }
        return self.slices(held, starting=starting)

    async def held(self) -> list[QueueRange]:
        """Returns what there is of the topic, in the broker and in exported files.

        Raises:
            ProjectionError: the broker is away, or files do not go with the topic.
        """
        try:
            known = known_epochs(self.exported.parts if self.exported else [])
            held = await asyncio.to_thread(
                fetch_ranges, self.plan.broker, [self.topic_name], known=known
            )
            if self.exported is not None:
                found = await asyncio.to_thread(fetch_identity, self.plan.broker, self.topic_name)
                check_same_topic(self.topic_name, identity_of(self.exported.parts), found)
            return held_with(self.plan.archive, held)
        except (MessageQueueError, ValueError) as error:
            raise ProjectionError(f"projection {self.projection.name}: {error}") from error

    def slices(
        self, held: Sequence[QueueRange], *, starting: Bound = "earliest", ending: Bound = "latest"
    ) -> list[QueueSlice]:
        """Returns what to read of what there is.

        Raises:
            ProjectionError: it is not there.
        """
        try:
            return plan_slices(held, starting=starting, ending=ending)
        except ValueError as error:
            raise ProjectionError(f"projection {self.projection.name}: {error}") from error


@asynccontextmanager
async def open_work(
    app: str,
    projection_name: str,
    read_models_url: str,
    *,
    spark: SparkSession | SessionOnDemand | None,
    phases: Phases,
    events: Callable[[App], AbstractAsyncContextManager[Opened]],
    find: Callable[..., Exported] | None,
) -> AsyncIterator[RebuildWork]:
    """Opens what a rebuild needs, and closes it; what can be checked without a session is.

    Args:
        app: the application's import path.
        projection_name: which of its projections.
        read_models_url: where the projection's tables are.
        spark: a session, or one on demand.
        phases: of this rebuild.
        events: opens what is folded.
        find: looks into exported files; None: there are none.

    Raises:
        ProjectionError: something is not there, or not what was exported.
    """
    application = load_app(app)
    projection = application.projection(projection_name)
    async with (
        events(application) as found,
        open_read_models(read_models_url, projection) as read_models,
        session_on_demand(spark) as sessions,
    ):
        serializer = application.serializer_at(found.event_store)
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
        work = RebuildWork(
            sessions=sessions,
            plan=plan,
            projection=projection,
            serializer=serializer,
            native=None if in_python else plan_native(serializer, projection),
            exported=exported,
            events=found,
            topic_name=event_topic(application.name),
            read_models=read_models,
            building=Building(read_models, projection),
            phases=phases,
        )
        if found.origin is None:
            await work.held()
        yield work


def read_topic(broker: str, queue: QueueRef, start: int, end: int) -> Iterator[Part]:
    """Reads batches of a queue, as the event topic is read while catching up."""
    return read_columns(broker, QueueSlice(queue=queue, start=start, end=end))
