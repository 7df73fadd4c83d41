"""
A rebuild's rows in memory, ahead of their table: folded as messages come, written now and then.

    messages ─▶ decode ─▶ gate ─▶ fold ─▶ rows in memory ─▶ one transaction: rows, versions, offsets

A row that many events touch is written once per transaction, and never read back while memory holds
it. What no table holds yet is not looked for there, and is copied in; the rest is written in place of
what is there. What is written stands with its offsets, so a rebuild that was killed goes on from there.
Used by the parts of a rebuild; writes the tables of a shadow. It must not know a broker.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
    store_new_rows,
    store_new_versions,
    store_offsets,
    store_rows,
    store_versions,
)
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.decode import Told, tell
from headrace.rebuild.local.memory import Memory, remember
from headrace.rebuild.switch import Shadow
from headrace.transports.base import QueueId

__all__ = ["KEPT_MAX", "Gathering", "TakenStreams", "WrittenKeys", "take_filling"]

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")
F = TypeVar("F")

# Rows, and versions of aggregates, that memory holds before it is emptied: a few hundred megabytes
# of small rows.
KEPT_MAX: Final = 300_000
# Rows per statement: enough to make its own cost small, little enough for one message to the server.
_STATEMENT_ROWS_MAX: Final = 10_000
# Bits of the filter, 16 MiB: after 10,000,000 keys it is wrong of 2 keys in 100, and of half of them
# after 85,000,000, which costs a look each.
_BITS_MAX: Final = 1 << 27


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


class WrittenKeys:
    """Knows which keys were written, in memory that does not grow: a Bloom filter.

    Of a key that was written it always says so; of one that was not it seldom says so by mistake. So a
    key of which it says no is in no table, needs no look there, and may be copied in.

    Args:
        bits: of memory, a power of two up to 4,294,967,296.
    """

    def __init__(self, bits: int = _BITS_MAX) -> None:
        self._mask = bits - 1
        self._bits = bytearray(max(bits >> 3, 1))

    def add(self, keys: Iterable[str]) -> None:
        """Takes in keys that were written."""
        bits, mask = self._bits, self._mask
        for key in keys:
            # Two halves of one hash, of which each is one.
            number = hash(key)
            one, other = number & mask, number >> 32 & mask
            bits[one >> 3] |= 1 << (one & 7)
            bits[other >> 3] |= 1 << (other & 7)

    def among(self, keys: Iterable[str]) -> set[str]:
        """Returns those of some keys that may have been written; the others were not."""
        bits, mask = self._bits, self._mask
        found = set()
        for key in keys:
            number = hash(key)
            one, other = number & mask, number >> 32 & mask
            if bits[one >> 3] >> (one & 7) & 1 and bits[other >> 3] >> (other & 7) & 1:
                found.add(key)
        return found


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
        # What memory does not hold is in no table either.
        self._complete = not offsets
        # Of aggregates and of rows; None: what the tables hold was written by another process.
        self._written = None if offsets else (WrittenKeys(), WrittenKeys())
        self._memory = remember(shadow.projection)
        self._messages = 0

    @property
    def reads_back(self) -> bool:
        """Whether what streams need may have to be read, which is done for many of them at once."""
        return not self._complete

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
        if self._written is not None:
            aggregates, keys = self._written
            aggregates.add(versions)
            keys.add(rows)
        self._stored |= self._offsets
        self._offsets.clear()
        self._messages = 0

    def _write(
        self, connection: Connection, *, versions: Mapping[str, int], rows: Mapping[str, R | None]
    ) -> bool:
        target = self._target
        begin = {queue: self._stored.get(queue) for queue in self._offsets}
        if begin_at(connection, target, begin) is not None:
            return False
        new, rest = self._parted(0, versions)
        store_new_versions(connection, target, new)
        for some in _portions(rest, _STATEMENT_ROWS_MAX):
            store_versions(connection, target, some)
        new_rows, other_rows = self._parted(1, rows)
        store_new_rows(connection, target, new_rows)
        for some_rows in _portions(other_rows, _STATEMENT_ROWS_MAX):
            store_rows(connection, target, some_rows)
        store_offsets(connection, target, self._offsets)
        return True

    def _parted(
        self, which: int, values: Mapping[str, T]
    ) -> tuple[Mapping[str, T], Mapping[str, T]]:
        """Returns what is in no table, and the rest."""
        if self._written is None:
            return {}, values
        written = self._written[which].among(values)
        if not written:
            return values, {}
        new = {key: value for key, value in values.items() if key not in written}
        return new, {key: values[key] for key in written}

    def _may_be_stored(self, which: int, keys: Collection[str]) -> Collection[str]:
        return keys if self._written is None else self._written[which].among(keys)

    async def _learn(self, told: Sequence[Told]) -> None:
        unknown = self._memory.unknown_aggregates(told)
        if unknown:
            stored = self._may_be_stored(0, unknown)
            versions, _ = await self._find(find_versions, stored) if stored else ({}, None)
            self._memory.learn_versions(unknown, versions)
            await self._learn_rows(told)

    async def _learn_rows(self, told: Sequence[Told]) -> None:
        unknown = self._memory.unknown_keys(told)
        if unknown:
            stored = self._may_be_stored(1, unknown)
            found = await self._find(find_rows, stored) if stored else {}
            self._memory.learn_rows(dict.fromkeys(unknown) | found)

    async def _find(
        self, find: Callable[[Connection, Target[R], Collection[str]], F], keys: Collection[str]
    ) -> F:
        return await self._read_models.transact(
            lambda connection: find(connection, self._target, keys)
        )


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
