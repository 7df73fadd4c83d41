"""
Answers readers about messages that the log no longer holds.

Used by `archived_store`; reads `database`. Until the broker knows what the archive holds, it takes every
queue to begin at offset 0: no reader may conclude that a message is gone because a database is away.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from headrace_mq.archive.blocks import Blocks
from headrace_mq.archive.database import Database, Keyed
from headrace_mq.archive.questions import Questions
from headrace_mq.archive.rebuilt import Rebuilt, rebuilt
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef
from headrace_mq.protocol.batch import BATCH_RECORDS_MAX
from headrace_mq.settings import ArchiveSettings

__all__ = ["Past"]

# Numbers: two for each queue of the largest topic. Searches: each may hold a megabyte.
_PLACES_MAX, _SEARCHES_MAX = 2 * QUEUES_PER_TOPIC_MAX, 16


class Past:
    """The archived messages of all queues, for readers.

    Args:
        database: holds them.
        settings: of the archive.

    Attributes:
        on_arrived: called with queues of which something has come that was asked for.
        positions: how far each log is archived; empty until that is known.
        away: whether the database failed when it was last asked.
        blocks: what was read back.
    """

    def __init__(self, database: Database, settings: ArchiveSettings) -> None:
        self._database = database
        self._firsts: dict[QueueRef, int] | None = None
        self._places = Questions(_PLACES_MAX)
        self._searches = Questions(_SEARCHES_MAX)
        self.blocks = Blocks(
            self._block,
            self._arrived,
            messages_max=settings.block_messages_max,
            block_bytes_max=settings.block_bytes_max,
            cache_bytes=settings.cache_bytes,
        )
        self.on_arrived: Callable[[Collection[QueueRef]], None] | None = None
        self.positions: dict[str, int] = {}
        self.away = False

    def position(self, log: str) -> int:
        """The log position below which everything is archived; 0 until it is known."""
        return self.positions.get(log, 0)

    def know(self, firsts: Mapping[QueueRef, int]) -> None:
        """Takes note of what the archive holds."""
        self._firsts = dict(firsts)

    def added(self, firsts: Mapping[QueueRef, int]) -> None:
        """Takes note of the first offsets of what has been archived."""
        if self._firsts is not None:
            for queue, offset in firsts.items():
                self._firsts.setdefault(queue, offset)

    def first(self, queue: QueueRef, held: int) -> int:
        """The first offset of a queue that can be read, if `held` is the log's."""
        if self._firsts is None:
            return 0
        return min(held, self._firsts.get(queue, held))

    def read(self, queue: QueueRef, offset: int, bytes_max: int, before: int) -> list[bytes] | None:
        """Whole batches from an offset on, all below `before`; see `Blocks.read`."""
        return self.blocks.read(queue, offset, bytes_max, before)

    def offset_at(self, queue: QueueRef, time_ms: int, before: int) -> int | None:
        """The first offset stored at a time or later, or None if that is not below `before`.

        Raises:
            Coming: it is looked for.
        """
        first = self.first(queue, before)
        return self._places.ask(
            ("at", queue, time_ms, before), lambda: self._bisect(queue, time_ms, first, before)
        )

    def stored_at(self, queue: QueueRef, offset: int) -> tuple[int, int] | None:
        """The first message from an offset on, and its append time; None if it cannot be told.

        Raises:
            Coming: it is looked for.
        """
        if self.away:
            return None
        return self._places.ask(("stored", queue, offset), lambda: self._stored(queue, offset))

    def keyed(self, wanted: Keyed) -> tuple[list[tuple[QueueRef, Rebuilt]], int | None]:
        """Messages of a key in the order of the log, and the position where to go on, if any.

        Raises:
            Coming: they are looked for.
        """
        return self._searches.ask(wanted, lambda: self._search(wanted))

    async def aclose(self) -> None:
        """Gives up what is on its way."""
        await self.blocks.aclose()
        await self._places.aclose()
        await self._searches.aclose()

    def _arrived(self, queues: Collection[QueueRef]) -> None:
        if self.on_arrived is not None:
            self.on_arrived(sorted(queues))

    async def _block(
        self, queue: QueueRef, offset: int, messages_max: int, bytes_max: int
    ) -> list[Sequence[Any]]:
        rows = await self._database.block(queue, offset, messages_max, bytes_max)
        self.away = False
        # The rows begin before the offset, unless all rows there were deleted.
        if self._firsts is not None:
            if not rows:
                self._firsts.pop(queue, None)
            elif rows[0][0] > offset:
                self._firsts[queue] = max(self._firsts.get(queue, 0), rows[0][0])
        return rows

    async def _stored(self, queue: QueueRef, offset: int) -> tuple[int, int] | None:
        try:
            return await self._database.stored_from(queue, offset)
        except ArchiveUnavailable:
            self.away = True
            return None

    async def _bisect(self, queue: QueueRef, time_ms: int, first: int, before: int) -> int | None:
        """Halves the offsets: append times rise with them, but for clocks that were set back."""
        low, high = first, before
        while low < high:
            middle = (low + high) // 2
            held = await self._database.stored_from(queue, middle)
            if held is None or held[0] >= high or held[1] >= time_ms:
                high = middle
            else:
                low = held[0] + 1
        held = await self._database.stored_from(queue, low) if low < before else None
        return held[0] if held is not None and held[0] < before else None

    async def _search(self, wanted: Keyed) -> tuple[list[tuple[QueueRef, Rebuilt]], int | None]:
        rows = await self._database.keyed(wanted._replace(rows_max=wanted.rows_max + 1))
        more = None
        if len(rows) > wanted.rows_max:
            more = rows[-1][2]
            rows = [row for row in rows if row[2] < more]
        if more is not None and not rows:
            # One batch alone has more of them.
            one = wanted._replace(position=more, before=more + 1, rows_max=BATCH_RECORDS_MAX)
            rows, more = await self._database.keyed(one), more + 1
        found: list[tuple[QueueRef, Rebuilt]] = []
        for row in rows:
            queue = QueueRef(wanted.topic, row[0])
            found += [(queue, batch) for batch in rebuilt(queue, [tuple(row)[1:]])]
        return found, more
