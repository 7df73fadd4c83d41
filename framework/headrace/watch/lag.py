"""
How far projections are behind the end of the event topic.

    next offset, committed with the rows ──┬─▶ messages between, age of the first of them
    end of the queue, as the broker says ──┘

The runners are not asked, so this also holds for a projection whose runner has died or was never started.
Used by `watch` and by `headrace projection status`. It writes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from headrace._runtime.clock import Clock, SystemClock
from headrace.errors import ProjectionError
from headrace.lineage.marks import WHOLE
from headrace.projections.definition.projection import Projection, projection_group
from headrace.projections.tables.origins import GenerationOrigin, ProjectionState, origins_of
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.succession import ahead_of
from headrace.stores.database.parked import ParkedStore
from headrace.stores.database.tables import reader_marks
from headrace.transports.base import QueueId, Transport

__all__ = ["GenerationLag", "Lags", "ParkedKey", "ProjectionLag", "QueueLag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """How far a projection is behind in one queue.

    Attributes:
        queue: which one.
        next_offset: what it will apply next.
        end: the offset that the next message gets.
        messages: between the two.
        age_ms: of the first of them; 0: there is none.
    """

    queue: QueueId
    next_offset: int
    end: int
    messages: int
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedKey:
    """An aggregate that a projection has parked: how far that one is behind.

    Attributes:
        aggregate_id: whose events wait.
        messages: how many.
        age_ms: since it was parked.
    """

    aggregate_id: str
    messages: int
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLag:
    """How far a generation of another version is behind, into which code of that version folds events.

    Attributes:
        generation: its number.
        version: of the definition that it is built by.
        messages: that it has not applied, of all queues.
        behind_live: of these, how many the live generation has applied.
        by_command: it does not go live by itself.
    """

    generation: int
    version: int
    messages: int
    behind_live: int
    by_command: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionLag:
    """How far one projection is behind.

    Attributes:
        projection: its name.
        generation: the live one.
        version: of the definition that the live generation was built by.
        obstacle: why this code folds no events, into the live generation or into one of its own version;
            None: it does.
        paused_at: since when it is paused, or None.
        group_paused: the consumer group that an operator has paused at the broker, or None.
        other_versions: generations of other versions, the newest first.
        queues: of the event topic.
        parked: aggregates that wait behind letters, the oldest first.
        elsewhere: why its offsets say nothing about this topic, all of which is then ahead of it;
            None: they belong to it.
    """

    projection: str
    generation: int
    version: int
    obstacle: str | None
    paused_at: datetime | None
    queues: tuple[QueueLag, ...]
    parked: tuple[ParkedKey, ...]
    elsewhere: str | None = None
    group_paused: str | None = None
    other_versions: tuple[GenerationLag, ...] = ()

    @property
    def messages(self) -> int:
        """Messages in all queues that it has not applied."""
        return sum(queue.messages for queue in self.queues)

    @property
    def age_ms(self) -> int:
        """Age of the oldest of them, 0 where there is none."""
        return max((queue.age_ms for queue in self.queues), default=0)


class Lags:
    """Measures the lag of an application's projections.

    Args:
        app_name: names the event topic.
        projections: by name.
        read_models: where they are.
        transport: knows the topic.
        clock: tells ages.
    """

    def __init__(
        self,
        *,
        app_name: str,
        projections: Mapping[str, Projection[Any]],
        read_models: ReadModels,
        transport: Transport,
        clock: Clock | None = None,
    ) -> None:
        self._app_name = app_name
        self._topic = f"{app_name}.events"
        self._projections = projections
        self._read_models = read_models
        self._transport = transport
        self._clock = clock or SystemClock()

    async def measure(self) -> list[ProjectionLag]:
        """Returns the lag of every projection, by name.

        Raises:
            ProjectionNotFound: one has no tables yet.
            Exception: of the database or the queue, which is away.
        """
        return [await self._measure(name) for name in sorted(self._projections)]

    async def check(self, *, messages_max: int, ms_max: int) -> None:
        """Returns if no projection is further behind than this; paused ones are behind on purpose.

        One whose offsets belong to another topic is as far behind as can be.

        Raises:
            ProjectionError: one is; says which, and how far.
        """
        for lag in await self.measure():
            if lag.elsewhere is not None:
                raise ProjectionError(f"projection {lag.projection} {lag.elsewhere}")
            if lag.paused_at is not None or lag.group_paused is not None:
                continue
            if lag.messages > messages_max or lag.age_ms > ms_max:
                raise ProjectionError(
                    f"projection {lag.projection} is {lag.messages} messages and"
                    f" {lag.age_ms / 1_000:.1f} s behind; `headrace projection status` tells more"
                )

    async def _measure(self, name: str) -> ProjectionLag:
        state = await self._read_models.state(name)
        async with self._read_models.snapshot() as connection:
            origins = await origins_of(connection, name)
        # Read before the ends of the queues, so that events in between make the lag larger, never smaller.
        offsets = await self._read_models.offsets(name, state.generation)
        numbers = {number: offset for (_, number), offset in offsets.items()}
        elsewhere = await self._elsewhere(name, state.generation, numbers)
        waiting = await self._transport.waiting(self._topic, {} if elsewhere else numbers)
        group = projection_group(self._app_name, name, state.version)
        return ProjectionLag(
            projection=name,
            generation=state.generation,
            version=state.version,
            obstacle=state.obstacle(self._projections[name], origins),
            paused_at=state.paused_at,
            queues=tuple(
                QueueLag(
                    queue=each.queue,
                    next_offset=offsets.get(each.queue, 0),
                    end=each.end,
                    messages=each.count,
                    age_ms=self._age_ms(each.since),
                )
                for each in waiting
            ),
            parked=await self._parked(name, state.generation),
            elsewhere=elsewhere,
            group_paused=next(iter(await self._transport.paused([group])), None),
            other_versions=await self._other_versions(
                state, origins, {each.queue: each.end for each in waiting}
            ),
        )

    async def _other_versions(
        self,
        state: ProjectionState,
        origins: Mapping[int, GenerationOrigin],
        ends: Mapping[QueueId, int],
    ) -> tuple[GenerationLag, ...]:
        found = []
        versions = {each.version for each in origins.values()} - {state.version}
        for version in sorted(versions, reverse=True):
            number = state.own(origins, version)
            if number is None:
                continue
            offsets = await self._read_models.offsets(state.name, number)
            async with self._read_models.snapshot() as connection:
                behind = await ahead_of(connection, state.name, state.generation, number)
            found.append(
                GenerationLag(
                    generation=number,
                    version=version,
                    messages=sum(
                        max(0, end - offsets.get(queue, 0)) for queue, end in ends.items()
                    ),
                    behind_live=sum(behind.values()),
                    by_command=origins[number].by_command,
                )
            )
        return tuple(found)

    async def _elsewhere(
        self, name: str, generation: int, offsets: Mapping[int, int]
    ) -> str | None:
        lineage = await self._transport.topic_lineage(self._topic)
        columns = reader_marks.c
        query = select(columns.topic_identity).where(
            columns.name == name, columns.generation == generation, columns.queue_id == WHOLE
        )
        async with self._read_models.snapshot() as connection:
            known = (await connection.execute(query)).scalar_one_or_none()
        if known is not None and lineage.identity and known != lineage.identity:
            return "belongs to another event topic"
        ends = {number: end for number, (_, end) in lineage.ranges.items()}
        if any(offset > ends.get(number, 0) for number, offset in offsets.items()):
            return "stands beyond the end of the event topic, which lost messages"
        return None

    async def _parked(self, name: str, generation: int) -> tuple[ParkedKey, ...]:
        async with self._read_models.snapshot() as connection:
            found = await connection.run_sync(ParkedStore(name, generation).read)
        return tuple(
            ParkedKey(
                aggregate_id=each.aggregate_id,
                messages=each.held,
                age_ms=self._age_ms(each.parked_at),
            )
            for each in found
        )

    def _age_ms(self, since: datetime | None) -> int:
        if since is None:
            return 0
        # At least 1: a message that waits has an age, even if the clocks of two machines differ.
        return max(1, (self._clock.now() - since) // timedelta(milliseconds=1))
