"""
Reads messages back from the archive in blocks of up to 10,000, and keeps the newest blocks.

    read ─▶ a block that holds the offset ─▶ its batches; near its end the next block is loaded
        └─▶ none: "not now", and a call when it has been loaded

Used by `archive_reader`; reads `database`. Everything runs on the event loop's thread; tasks wait for the database.
Two limits: the bytes kept, and the blocks that are being loaded.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, NamedTuple

from headrace_mq._runtime.log import get_logger
from headrace_mq.archive.rebuilt import RebuiltBatch, rebuilt
from headrace_mq.errors import ArchiveUnavailable
from headrace_mq.message import QueueRef

__all__ = ["JOBS_MAX", "Blocks"]

# Blocks being loaded at a time: more than the connections, so that no connection is idle.
JOBS_MAX = 16
# Memory of a batch besides its bytes.
_BATCH_COST_BYTES = 200

_log = get_logger(__name__)


class _Block(NamedTuple):
    """The batches from offset `start` to before `until`, in order."""

    start: int
    until: int
    bases: list[int]
    batches: list[RebuiltBatch]
    bytes: int


class Blocks:
    """The blocks of all queues; the least recently used block is dropped first.

    Args:
        load: reads rows of a queue from an offset on; takes the most messages and about the most bytes.
        arrived: called with the queues of which a block has been loaded.
        messages_max: of one block.
        block_bytes_max: of one block; its last message may exceed it.
        cache_bytes: of all blocks; the newest one may exceed it.
    """

    def __init__(
        self,
        load: Callable[[QueueRef, int, int, int], Awaitable[list[Sequence[Any]]]],
        arrived: Callable[[Collection[QueueRef]], None],
        *,
        messages_max: int,
        block_bytes_max: int,
        cache_bytes: int,
    ) -> None:
        self._load_rows = load
        self._arrived = arrived
        self._messages_max = messages_max
        self._block_bytes_max = block_bytes_max
        self._cache_bytes = cache_bytes
        self._blocks: OrderedDict[tuple[QueueRef, int], _Block] = OrderedDict()
        self._of_queue: dict[QueueRef, dict[int, _Block]] = {}
        self._jobs: dict[tuple[QueueRef, int], asyncio.Task[None]] = {}
        self._put_off: set[QueueRef] = set()
        self.bytes = 0
        self.blocks_read = 0

    def read(self, queue: QueueRef, offset: int, bytes_max: int, before: int) -> list[bytes] | None:
        """Returns batches from the one that holds `offset`, or the next one after a gap.

        Returns as many as fit in `bytes_max`, and at least one if the archive holds one below
        `before`. Returns None while the block is being loaded; `arrived` is called when it is there.
        """
        while offset < before:
            block = self._holding(queue, offset)
            if block is None:
                self._load(queue, offset, before)
                return None
            at = max(0, bisect_right(block.bases, offset) - 1)
            if at < len(block.batches) and block.batches[at].end <= offset:
                at += 1
            found = _taken(block.batches, at, bytes_max, before)
            if found:
                if at + len(found) >= len(block.batches) and block.until < before:
                    self._load(queue, block.until, before)
                return found
            offset = block.until
        return []

    def _holding(self, queue: QueueRef, offset: int) -> _Block | None:
        for start, block in self._of_queue.get(queue, {}).items():
            if start <= offset < block.until:
                self._blocks.move_to_end((queue, start))
                return block
        return None

    def _load(self, queue: QueueRef, offset: int, before: int) -> None:
        key = (queue, offset)
        if key in self._jobs or self._holding(queue, offset) is not None:
            return
        if len(self._jobs) >= JOBS_MAX:
            self._put_off.add(queue)
            return
        job = self._jobs[key] = asyncio.create_task(self._fetch(queue, offset, before))
        job.add_done_callback(lambda done: self._ended(key, done))

    async def _fetch(self, queue: QueueRef, offset: int, before: int) -> None:
        rows = await self._load_rows(queue, offset, self._messages_max, self._block_bytes_max)
        batches: list[RebuiltBatch] = []
        size = 0
        for batch in rebuilt(queue, rows):
            if batch.end > offset:
                batches.append(batch)
                size += len(batch.batch) + _BATCH_COST_BYTES
            await asyncio.sleep(0)
        last = batches[-1].end if batches else offset
        is_full = len(rows) >= self._messages_max or size >= self._block_bytes_max
        # Everything below `before` is archived: an offset without a row does not exist.
        until = last if is_full and batches else max(last, before)
        self._keep(queue, _Block(offset, until, [one.base for one in batches], batches, size))
        self.blocks_read += 1

    def _keep(self, queue: QueueRef, block: _Block) -> None:
        self._blocks[queue, block.start] = block
        self._of_queue.setdefault(queue, {})[block.start] = block
        self.bytes += block.bytes
        while self.bytes > self._cache_bytes and len(self._blocks) > 1:
            (owner, start), oldest = self._blocks.popitem(last=False)
            self.bytes -= oldest.bytes
            held = self._of_queue[owner]
            del held[start]
            if not held:
                del self._of_queue[owner]

    def _ended(self, key: tuple[QueueRef, int], job: asyncio.Task[None]) -> None:
        self._jobs.pop(key, None)
        if job.cancelled():
            return
        waiting, self._put_off = {key[0], *self._put_off}, set()
        error = job.exception()
        if error is None:
            self._arrived(waiting)
        elif isinstance(error, ArchiveUnavailable):
            # The waiting fetch gets an empty answer at its timeout, and the client fetches again.
            _log.warning(
                "old messages cannot be read from the archive",
                topic=key[0].topic,
                error=str(error),
            )
        else:
            _log.error(
                "old messages cannot be read from the archive",
                topic=key[0].topic,
                exc_info=error,
            )

    async def aclose(self) -> None:
        """Cancels all loads."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)


def _taken(batches: Sequence[RebuiltBatch], at: int, bytes_max: int, before: int) -> list[bytes]:
    found: list[bytes] = []
    size = 0
    for batch in batches[at:]:
        size += len(batch.batch)
        if batch.base >= before or (found and size > bytes_max):
            break
        found.append(batch.batch)
    return found
