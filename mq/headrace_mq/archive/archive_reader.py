"""
Answers readers about messages that the log no longer holds.

Used by `archived_store`; reads `database`. Until the broker knows what the archive holds, every queue
begins at offset 0: no reader may conclude that a message is gone because a database does not answer. Until then it also
asks the database nothing, as if that were away: it may hold the messages of other brokers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from headrace_mq.archive.blocks import Blocks
from headrace_mq.archive.database import Database, KeySearch
from headrace_mq.archive.pending_queries import PendingQueries
from headrace_mq.archive.rebuilt import RebuiltBatch, rebuilt
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef
from headrace_mq.protocol.batch import BATCH_RECORDS_MAX
from headrace_mq.settings import ArchiveSettings

__all__ = ["ArchiveReader"]

# Answers kept: two places for each queue of the largest topic; few searches, each up to a megabyte.
_PLACES_MAX, _SEARCHES_MAX = 2 * QUEUES_PER_TOPIC_MAX, 16


class ArchiveReader:
    """The archived messages of all queues, for readers.

    Args:
        database: holds them.
        settings: of the archive.

    Attributes:
        on_arrived: called with the queues of which a block has been loaded.
        positions: the archived position of each log; empty until it is known.
        away: whether the last query of the database failed.
        blocks: the messages that were read back.
    """

    def __init__(self, database: Database, settings: ArchiveSettings) -> None:
        self._unchecked = database
        self._firsts: dict[QueueRef, int] | None = None
        self._places = PendingQueries(_PLACES_MAX)
        self._searches = PendingQueries(_SEARCHES_MAX)
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

    @property
    def _database(self) -> Database:
        """The database, once it was found to be this broker's archive; raises ArchiveUnavailable until then."""
        if self._firsts is None:
            raise ArchiveUnavailable(
                f"the broker does not know yet whether {self._unchecked.shown} is its archive, and reads nothing from it;"
                " headrace broker show says what is wrong"
            )
        return self._unchecked

    def position(self, log: str) -> int:
        """The log position below which everything is archived; 0 until it is known."""
        return self.positions.get(log, 0)

    def know(self, firsts: Mapping[QueueRef, int]) -> None:
        """Sets the first offset of every archived queue. Call it when the database was found to be this broker's archive."""
        self._firsts = dict(firsts)

    def added(self, firsts: Mapping[QueueRef, int]) -> None:
        """Adds the first offsets of the rows that have just been archived."""
        if self._firsts is not None:
            for queue, offset in firsts.items():
                self._firsts.setdefault(queue, offset)

    def first(self, queue: QueueRef, held: int) -> int:
        """Returns the first readable offset of a queue; `held` is the first one in the log."""
        if self._firsts is None:
            return 0
        return min(held, self._firsts.get(queue, held))

    def read(self, queue: QueueRef, offset: int, bytes_max: int, before: int) -> list[bytes] | None:
        """Returns whole batches from an offset on, all below `before`; see `Blocks.read`."""
        return self.blocks.read(queue, offset, bytes_max, before)

    def offset_at(self, queue: QueueRef, time_ms: int, before: int) -> int | None:
        """Returns the first offset stored at `time_ms` or later, or None if there is none below `before`.

        Raises:
            QueryPending: the archive must be read first.
        """
        first = self.first(queue, before)
        return self._places.ask(
            ("at", queue, time_ms, before), lambda: self._bisect(queue, time_ms, first, before)
        )

    def stored_at(self, queue: QueueRef, offset: int) -> tuple[int, int] | None:
        """Returns the first offset from `offset` on and its append time; None if the archive does not say.

        Raises:
            QueryPending: the archive must be read first.
        """
        if self.away or self._firsts is None:
            return None
        return self._places.ask(("stored", queue, offset), lambda: self._stored(queue, offset))

    def keyed(self, wanted: KeySearch) -> tuple[list[tuple[QueueRef, RebuiltBatch]], int | None]:
        """Returns messages of a key in log order, and the position of the next search or None.

        Raises:
            QueryPending: the archive must be read first.
        """
        return self._searches.ask(wanted, lambda: self._search(wanted))

    async def aclose(self) -> None:
        """Cancels all queries."""
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
        # The first row is at or before the offset, unless those rows were deleted.
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
        """Finds the first offset by bisection: append times rise, unless a clock was set back."""
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

    async def _search(
        self, wanted: KeySearch
    ) -> tuple[list[tuple[QueueRef, RebuiltBatch]], int | None]:
        rows = await self._database.keyed(wanted._replace(rows_max=wanted.rows_max + 1))
        more = None
        if len(rows) > wanted.rows_max:
            more = rows[-1][2]
            rows = [row for row in rows if row[2] < more]
        if more is not None and not rows:
            # One batch alone has more messages of the key than an answer may hold.
            one = wanted._replace(position=more, before=more + 1, rows_max=BATCH_RECORDS_MAX)
            rows, more = await self._database.keyed(one), more + 1
        found: list[tuple[QueueRef, RebuiltBatch]] = []
        for row in rows:
            queue = QueueRef(wanted.topic, row[0])
            found += [(queue, batch) for batch in rebuilt(queue, [tuple(row)[1:]])]
        return found, more
