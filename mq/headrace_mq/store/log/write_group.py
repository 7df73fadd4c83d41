"""
Batches of one log that are written with one call and synced together.

    mark │ block: many small batches │ block: a large batch │ block …
         └───────────── pieces of whole batches ─────────────

Used by `message_store`, which adds batches, and by `flusher`, which writes them. This module must not know
what a batch means, or when it becomes durable. Pure: no clock, no I/O.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.index.sequences import Undo
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.segment.segment import MARK_BYTES, Segment, SegmentPlan

__all__ = ["BLOCK_BYTES", "LONE_BYTES", "Group", "NewBatch", "Staged", "only_batch"]

# A batch this large is a piece of its own: copying it into a larger piece costs more than a piece.
LONE_BYTES = 4 << 10
# Smaller batches are joined to pieces of about this size, which malloc has without a system call.
BLOCK_BYTES = 64 << 10


class Staged(NamedTuple):
    """The facts about a batch that waits to be written; `undo` restores its producer's sequence."""

    queue: QueueRef
    entry: IndexEntry
    undo: Undo | None


class NewBatch(NamedTuple):
    """A batch that has just become visible, in memory for the readers that wait for it."""

    queue: QueueRef
    offset: int
    batch: bytes


class Group:
    """Batches of one log that are written with one call and synced together.

    Attributes:
        end: log position behind the last batch.
        batch_bytes: bytes of its batches, without the mark.
        marked: whether a mark precedes the batches. Not so only if a replica goes on inside a leader's group,
            whose mark it has.
        blocks: the bytes after the mark, in pieces of whole batches that one call writes. Complete
            after `close_block`.
    """

    __slots__ = (
        "_loose", "_loose_bytes", "batch_bytes", "blocks", "end", "failure", "limit", "log", "marked", "plan",
        "segment", "staged", "start", "synced",
    )  # fmt: skip

    def __init__(
        self, log: CommitLog, limit: int, plan: SegmentPlan | None, *, marked: bool = True
    ) -> None:
        self.log = log
        self.start = log.tail
        self.end = log.tail + MARK_BYTES if marked else log.tail
        self.marked = marked
        self.batch_bytes = 0
        self.limit = limit
        self.plan = plan
        self.staged: list[Staged] = []
        self.blocks: list[bytes] = []
        # Batches after the last block.
        self._loose: list[bytes] = []
        self._loose_bytes = 0
        self.synced = 0
        self.segment: Segment | None = None
        self.failure: MessageQueueError | None = None

    def add(self, staged: Staged, batch: bytes) -> None:
        """Adds a batch at `end`."""
        length = len(batch)
        self.staged.append(staged)
        self.batch_bytes += length
        self.end += length
        if length >= LONE_BYTES:
            self.close_block()
            self.blocks.append(batch)
            return
        self._loose.append(batch)
        self._loose_bytes += length
        if self._loose_bytes >= BLOCK_BYTES:
            self.close_block()

    def close_block(self) -> None:
        """Makes a block of the batches that are not in a block yet."""
        if self._loose:
            self.blocks.append(b"".join(self._loose))
            self._loose.clear()
            self._loose_bytes = 0


def only_batch(groups: Sequence[Group]) -> NewBatch | None:
    """Returns the only batch of written groups; None if they hold more than one."""
    if len(groups) != 1 or len(groups[0].staged) != 1:
        return None
    ((queue, entry, _),) = groups[0].staged
    return NewBatch(queue, entry.base, groups[0].blocks[0])
