"""
One projection's part in a rebuild of several: its shadow, where it stands, and how it ended.

    stand ─▶ add, add, … ─▶ write ─▶ bring_live ─▶ the report
      └────────┴────────────┴────────────┴─▶ fail: the shadow is dropped, the other parts go on

Used by `rebuild`, which reads the topic once for all parts and gives each its messages. It must not
know a broker.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from headrace._runtime.log import get_logger
from headrace.domain.message import DomainEvent
from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.decode import Decoded
from headrace.rebuild.level import Origin, bring_shadow
from headrace.rebuild.local.rows_in_memory import Gathering
from headrace.rebuild.phases import Phases
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.shadow import Building
from headrace.rebuild.switch import Means, RebuildOutcome, Shadow
from headrace.transports.base import QueueId

__all__ = ["Base", "Laid", "Part"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """What a shadow was given to begin with, apart from the topic.

    Attributes:
        start: the offset of each queue at which it begins; it ends where the shadow's offsets stand.
        messages: of the topic that need not be read any more.
        counts: what was counted of them: `events`, `duplicates`, `gaps` and `filled`.
    """

    start: Mapping[QueueId, int] = field(default_factory=dict)
    messages: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


# Fills an empty shadow with rows, versions and offsets, in one transaction.
Base = Callable[[ReadModels, Shadow], Awaitable[Laid]]


class Part:
    """What becomes of one shadow.

    Args:
        read_models: where the shadow's tables are.
        shadow: begun, and this process's.
        means: of catching up, and of filling gaps.
        phases: what it is doing.
        origin: the event store that is folded; None: the topic is.

    Attributes:
        name: the projection's.
        failure: what ended it early.
        report: what was done; None before the end.
    """

    def __init__(
        self,
        read_models: ReadModels,
        shadow: Shadow,
        means: Means,
        phases: Phases,
        *,
        origin: Origin | None = None,
    ) -> None:
        self.name = shadow.projection.name
        self.failure: Exception | None = None
        self.report: RebuildReport | None = None
        self._read_models = read_models
        self._shadow = shadow
        self._means = means
        self._phases = phases
        self._origin = origin
        self._building = Building(read_models, shadow.projection)
        self._gathering: Gathering[Any] | None = None
        self._start: dict[QueueId, int] = {}
        self._next: dict[QueueId, int] = {}
        self._end: dict[QueueId, int] = {}
        self._counts: Counter[str] = Counter()
        self._rows = 0
        self._laid = Laid()

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Makes an error of what is done within the failure of this part, and of no other."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it ends this part; the others go on
            await self.fail(error)

    async def fail(self, error: Exception) -> None:
        """Ends it: drops the shadow and what memory holds of it; never raises."""
        self.failure = error
        self._gathering = None
        self._phases.end()
        _log.warning("a rebuild has failed", projection=self.name, error=str(error))
        await self._building.give_up(self._shadow)

    @property
    def projection(self) -> Projection[Any]:
        """What is rebuilt."""
        return self._shadow.projection

    def begin(self, phase: str) -> None:
        """Says what it does next."""
        self._phases.begin(phase)

    async def copy_live(self) -> None:
        """Begins with the live rows, as they are.

        Raises:
            ProjectionError: as `Building.copy_live`.
        """
        self._phases.begin("base")
        await self._building.copy_live(self._shadow)

    async def lay(self, base: Base) -> None:
        """Begins with what something else makes, unless what it goes on with has begun so.

        Raises:
            ProjectionError: it cannot be made.
        """
        self._phases.begin("base")
        if not await self._read_models.offsets(self.name, self._shadow.generation):
            self._laid = await base(self._read_models, self._shadow)

    async def stand(
        self,
        ranges: Mapping[QueueId, tuple[int, int]],
        *,
        starts: Mapping[QueueId, int],
        messages_max: int,
        kept_max: int,
    ) -> None:
        """Finds where it stands, and makes ready to fold from there to the ends of the queues.

        Args:
            ranges: the first offset held and the next readable one of every queue.
            starts: the offset of a queue's first message ever, if above 0.
            messages_max: messages per transaction.
            kept_max: rows, and versions, that memory holds.

        Raises:
            ProjectionError: a queue begins behind where it stands, or ends before.
        """
        offsets = await self._read_models.offsets(self.name, self._shadow.generation)
        self._next = {queue: max(offsets.get(queue, 0), starts.get(queue, 0)) for queue in ranges}
        self._start = self._next | {
            queue: start for queue, start in self._laid.start.items() if queue in ranges
        }
        self._end = {queue: last for queue, (_, last) in ranges.items()}
        for queue, (first, last) in ranges.items():
            if last < self._next[queue]:
                raise ProjectionError(
                    f"projection {self.name}: {queue[0]}/{queue[1]} ends at {last}, before"
                    f" {self._next[queue]}, where the live rows stand; if the topic was recreated, or"
                    f" this is another event store, run `headrace projection rebuild {self.name}"
                    " --from store`, which starts over"
                )
            if first > self._next[queue]:
                raise ProjectionError(
                    f"projection {self.name}: {queue[0]}/{queue[1]} begins at offset {first}, so"
                    f" that events from {self._next[queue]} on are gone; build the rows from sealed"
                    f" history (`headrace projection rebuild {self.name} --from-export DIR`) or from the"
                    " event store (`--from store`)"
                )
        self._gathering = Gathering(
            read_models=self._read_models,
            shadow=self._shadow,
            missing=self._means.missing,
            offsets=offsets,
            messages_max=messages_max,
            kept_max=kept_max,
        )
        ahead = sum(self._end[queue] - self._next[queue] for queue in ranges)
        self._phases.begin("fold", ahead)

    def position(self, queue: QueueId) -> int:
        """Returns the offset of the next message of a queue that it has not been given."""
        return self._next[queue]

    def passed(self, queue: QueueId) -> None:
        """Says that it has taken a queue, and how many messages of others are left."""
        left = sum(end - self._next[each] for each, end in self._end.items())
        self._phases.passed(f"{queue[0]}/{queue[1]} folded", left)

    def needs(self, queue: QueueId, end: int) -> bool:
        """Whether it goes on, and needs messages of a queue that lie before an offset."""
        return self.failure is None and self._next[queue] < end

    @property
    def reads_back(self) -> bool:
        """Whether it may have to read rows, which it does for all messages of a piece at once."""
        return self._gathering is not None and self._gathering.reads_back

    def reacts_to(self, event_type: type[DomainEvent]) -> bool:
        """Whether events of a type may touch a row."""
        return self._shadow.projection.reacts_to(event_type)

    async def add(self, queue: QueueId, decoded: Decoded) -> None:
        """Folds the next streams of a queue, without those that it has behind it.

        Raises:
            ProjectionError: as `Gathering.add`.
        """
        assert self._gathering is not None, "it stands, and has not failed"
        seen = bisect_left(decoded.offsets, self._next[queue])
        told = decoded.told[seen:] if seen else decoded.told
        taken = await self._gathering.add(queue, decoded.end, told)
        self._next[queue] = decoded.end
        self._counts += taken.counts(decoded.counts[seen:] if seen else decoded.counts)

    async def write(self) -> None:
        """Writes what memory still holds, and ends folding.

        Raises:
            ProjectionError: the shadow is no longer this rebuild's.
        """
        assert self._gathering is not None, "it stands, and has not failed"
        await self._gathering.write()
        self._gathering = None
        reader = self._read_models.reader(
            self._shadow.projection, generation=self._shadow.generation
        )
        self._rows = await reader.count()
        self._phases.end()

    async def bring_live(self, *, verify: bool, switch: bool, accept: int = False) -> None:
        """Catches up, compares and switches, each if asked, and reports.

        Args:
            verify: compare with the live rows.
            switch: put the result in place.
            accept: how many rows may differ; True: any number.

        Raises:
            ProjectionError: as `switch.bring_live`.
        """
        self._phases.begin("switch")
        outcome = await bring_shadow(
            self._read_models,
            self._shadow,
            self._means,
            self._origin,
            verify=verify,
            switch=switch,
            accept=accept,
        )
        await self._building.finish(self._shadow, outcome)
        self._phases.end()
        self.report = self._report(outcome)

    async def set_aside(self, as_of: str) -> None:
        """Leaves the result to be looked at, as of a moment, and reports.

        Args:
            as_of: which one, as a person wrote it.
        """
        self._phases.begin("switch")
        number = self._shadow.generation
        reason = f"the rows are as of {as_of}; they stay until `headrace projection drop {self.name} {number}`"
        outcome = RebuildOutcome(offsets=dict(self._end), reason=reason)
        await self._building.finish(self._shadow, outcome)
        self._phases.end()
        self.report = self._report(outcome)

    def _report(self, outcome: RebuildOutcome) -> RebuildReport:
        target = self._read_models.target(self._shadow.projection, self._shadow.generation)
        seconds = self._phases.seconds
        counts = self._counts + Counter(self._laid.counts)
        folding = seconds["fold"] + (seconds["base"] if self._laid.counts else 0)
        return RebuildReport(
            projection=self.name,
            generation=self._shadow.generation,
            table=str(target.table.name),
            source="topic" if self._origin is None else "store",
            start="offsets" if any(self._start.values()) else "zero",
            start_offsets=_named(self._start),
            end_offsets=_named(self._end),
            caught_up_offsets=_named(outcome.offsets),
            archived=self._laid.messages,
            events=counts["events"],
            duplicates=counts["duplicates"],
            gaps=counts["gaps"],
            filled=counts["filled"],
            caught_up=outcome.caught_up,
            rows=self._rows,
            foreign=self._means.foreign,
            left_out=self._means.left_out.sentences,
            compared=outcome.compared,
            mismatches=outcome.mismatches,
            differences=outcome.differences,
            columns=dict(outcome.columns),
            samples=dict(outcome.samples),
            behind=outcome.behind,
            ahead=outcome.ahead,
            switched=outcome.switched,
            reason=outcome.reason,
            seconds={**seconds, "total": round(sum(seconds.values()), 3)},
            events_per_second=round(counts["events"] / max(folding, 0.001), 1),
        )


def _named(offsets: Mapping[QueueId, int]) -> dict[str, int]:
    return {f"{topic}/{number}": offset for (topic, number), offset in offsets.items()}
