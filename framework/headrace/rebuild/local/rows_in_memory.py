"""
A rebuild's rows in memory, ahead of their table: folded as messages come, written now and then.

    messages ─▶ decode ─▶ gate ─▶ fold ─▶ rows in memory ─▶ one transaction: rows, versions, offsets

A row that many events touch is written once per transaction, and never read back while memory holds
it. What is written stands with its offsets, so a rebuild that was killed goes on from there. Sits
between: the event topic and the tables of a shadow. Must never know a broker.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar

from pydantic import BaseModel
from sqlalchemy import Connection

from headrace.errors import ProjectionError
from headrace.projections.batch_transaction import MissingReader, fill_gap
from headrace.projections.tables.contents import (
    Target,
    begin_at,
    find_rows,
    find_versions,
    store_offsets,
    store_rows,
    store_versions,
)
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.row_tables import values_of
from headrace.projections.tables.statements import copy_into
from headrace.rebuild.decode import Told, tell
from headrace.rebuild.local.memory import Memory, remember
from headrace.rebuild.switch import Shadow
from headrace.stores.database.tables import projection_versions
from headrace.transports.base import QueueId

__all__ = ["KEPT_MAX", "Gathering", "TakenStreams", "take_filling"]

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

# Rows, and versions of aggregates, that memory holds before it is emptied: a few hundred megabytes
# of small rows.
KEPT_MAX: Final = 300_000
# Rows per statement: enough to make its own cost small, little enough for one message to the server.
_STATEMENT_ROWS_MAX: Final = 10_000


class TakenStreams(NamedTuple):
    """What became of some streams.

    Attributes:
        repeats: the places of those that had been taken before.
        gaps: before how many of them versions were missing.
        filled: streams that were taken in between.
        filled_events: events in these.
    """

    repeats: Sequence[int] = ()
    gaps: int = 0
    filled: int = 0
    filled_events: int = 0

    def counts(self, events: Sequence[int]) -> Counter[str]:
        """Returns what a report counts, given how many events each stream has."""
        before = sum(events[place] for place in self.repeats)
        return Counter(
            events=sum(events) - before + self.filled_events,
            duplicates=len(self.repeats),
            gaps=self.gaps,
            filled=self.filled,
        )


class Gathering(Generic[R]):
    """The rows of one shadow while messages are folded into them.

    Args:
        read_models: where the shadow's tables are.
        shadow: whose rows these are.
        missing: reads streams that the topic lacks.
        offsets: where the shadow stands; without any, its tables are empty.
        messages_max: messages per transaction, more or less.
        kept_max: rows, and versions, that memory holds.
    """

    def __init__(
        self,
        *,
        read_models: ReadModels,
        shadow: Shadow,
        missing: MissingReader,
        offsets: Mapping[QueueId, int],
        messages_max: int,
        kept_max: int = KEPT_MAX,
    ) -> None:
        self._read_models = read_models
        self._target = read_models.target(shadow.projection, shadow.generation)
        self._owner = shadow.owner
        self._missing = missing
        self._messages_max = messages_max
        self._kept_max = kept_max
        self._stored: dict[QueueId, int] = dict(offsets)
        self._offsets: dict[QueueId, int] = {}
        # Nothing was written yet; and: what memory does not hold is in no table either.
        self._empty = self._complete = not offsets
        self._memory = remember(shadow.projection)
        self._messages = 0

    async def add(self, queue: QueueId, end: int, told: Sequence[Told]) -> TakenStreams:
        """Folds the next streams of a queue, up to an offset, exclusive; writes when it is time.

        Returns:
            Which of them had been folded before, and what gaps took.

        Raises:
            ProjectionError: an event cannot be folded, a gap cannot be filled, or the shadow is no
                longer this rebuild's.
        """
        memory = self._memory
        if not self._complete:
            await self._learn(told)
        taken = await take_filling(memory, told, self._target, self._missing)
        if not self._complete:
            await self._learn_rows(told)
        memory.fold()
        self._messages += end - self._offsets.get(queue, self._stored.get(queue, 0))
        self._offsets[queue] = end
        full = len(memory) > self._kept_max
        if full or self._messages >= self._messages_max:
            await self.write()
        if full:
            self._complete = False
            memory.clear()
        return taken

    async def write(self) -> None:
        """Writes what has changed since the last time, in one transaction.

        Raises:
            ProjectionError: the shadow is no longer this rebuild's.
        """
        if not self._offsets:
            return
        versions, rows = self._memory.take_changes()
        written = await self._read_models.transact(
            partial(self._write, versions=versions, rows=rows)
        )
        if not written:
            raise ProjectionError(
                f"projection {self._target.projection.name}: generation {self._target.generation}"
                f" is no longer the shadow that {self._owner} builds; run the rebuild again"
            )
        self._stored |= self._offsets
        self._offsets.clear()
        self._messages = 0
        self._empty = False

    def _write(
        self, connection: Connection, *, versions: Mapping[str, int], rows: Mapping[str, R | None]
    ) -> bool:
        target = self._target
        begin = {queue: self._stored.get(queue) for queue in self._offsets}
        if begin_at(connection, target, begin) is not None:
            return False
        if self._empty and connection.dialect.name == "postgresql":
            self._copy(connection, versions, rows)
        else:
            for some in _portions(rows, _STATEMENT_ROWS_MAX):
                store_rows(connection, target, some)
            for some_versions in _portions(versions, _STATEMENT_ROWS_MAX):
                store_versions(connection, target, some_versions)
        store_offsets(connection, target, self._offsets)
        return True

    def _copy(
        self, connection: Connection, versions: Mapping[str, int], rows: Mapping[str, R | None]
    ) -> None:
        target = self._target
        records = (tuple(values_of(row).values()) for row in rows.values() if row is not None)
        copy_into(connection, target.table, records)
        name, generation = target.projection.name, target.generation
        copy_into(
            connection,
            projection_versions,
            (
                (name, generation, aggregate_id, version)
                for aggregate_id, version in versions.items()
            ),
        )

    async def _learn(self, told: Sequence[Told]) -> None:
        unknown = self._memory.unknown_aggregates(told)
        if unknown:
            versions, _ = await self._read_models.transact(
                partial(find_versions, target=self._target, aggregate_ids=unknown)
            )
            self._memory.learn_versions(unknown, versions)
            await self._learn_rows(told)

    async def _learn_rows(self, told: Sequence[Told]) -> None:
        unknown = self._memory.unknown_keys(told)
        if unknown:
            found = await self._read_models.transact(
                partial(find_rows, target=self._target, keys=unknown)
            )
            self._memory.learn_rows(dict.fromkeys(unknown) | found)


async def take_filling(
    memory: Memory[R], told: Sequence[Told], target: Target[R], missing: MissingReader
) -> TakenStreams:
    """Takes streams into memory, each gap filled first.

    Raises:
        ProjectionError: an event cannot be folded, or a gap cannot be filled.
    """
    repeats: list[int] = []
    gaps = filled = events = 0
    place, gap = memory.take(told, 0, repeats)
    while gap is not None:
        late = await fill_gap(target, told[place][0], gap, missing)
        memory.take([tell(stream, target.projection.reacts_to) for stream in late])
        gaps += 1
        filled += len(late)
        events += sum(len(stream.events) for stream in late)
        place, gap = memory.take(told, place, repeats)
    return TakenStreams(repeats, gaps, filled, events)


def _portions(values: Mapping[str, T], size: int) -> Iterator[dict[str, T]]:
    items = iter(values.items())
    while portion := dict(islice(items, size)):
        yield portion
