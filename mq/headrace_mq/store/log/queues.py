"""
Every queue of the store by name: its index, and the sequences of its producers.

This module owns everything that an append changes except the bytes, so one call undoes an append.
Used by `message_store` and `recovery`; uses the index and the sequences. Pure: no clock, no I/O.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headrace_mq.errors import InvalidArgument
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BATCH_RECORDS_MAX, BatchHeader
from headrace_mq.store.index.log_index import rows_of
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.index.queue_index import PageSummary, QueueIndex
from headrace_mq.store.index.segment_index import Directory
from headrace_mq.store.index.sequences import (
    PRODUCERS_MAX,
    Key,
    SentBatch,
    Sequences,
    Undo,
)
from headrace_mq.store.log.commit_log import COMPACT, CommitLog
from headrace_mq.store.log.write_group import Group, Staged
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES, Segment

__all__ = ["FileRange", "Queue", "Queues"]

_new = tuple.__new__


class FileRange(NamedTuple):
    """Batches of a queue in one file, for a reader in another process.

    Attributes:
        path: of the file.
        shift: add it to a log position to get the byte in the file.
        entries: the batches, in offset order; at least one.
    """

    path: Path
    shift: int
    entries: Sequence[IndexEntry]


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue: its log, and its index."""

    log: CommitLog
    index: QueueIndex

    def file_range_from(self, offset: int, bytes_max: int, batches_max: int) -> FileRange | None:
        """Returns the batches from the one that holds `offset` on, as far as one file holds them.

        Returns None if the log does not hold the offset, or is compacted, because then its files change.
        Reads no file. The file may be deleted at any time, so a reader must check its bytes.
        """
        log, index = self.log, self.index
        if log.name == COMPACT or not index.first <= offset < index.end:
            return None
        entries = index.find(offset, bytes_max, batches_max)
        if not entries:
            return None
        segment = log.segment_at(entries[0].position)
        end = log.segment_end(log.segments.index(segment))
        inside = [entry for entry in entries if entry.position < end]
        return FileRange(segment.path, SEGMENT_HEADER_BYTES - segment.base, inside)

    def end_below(self, position: int) -> int | None:
        """Returns the offset after its messages below a log position; None: it holds none there.

        Messages of a compacted segment have moved, so it counts only up to the segment that holds the position.
        """
        if self.log.segments:
            segment = self.log.segment_at(position)
            if segment.compacted is not None and segment.base < position:
                position = segment.base
        return self.index.end_below(position)


class Queues:
    """All queues, and the sequences of all producers.

    Args:
        logs: by retention.
        producers_max: most pairs of producer and queue to remember.
    """

    def __init__(
        self, logs: Mapping[str, CommitLog], *, producers_max: int = PRODUCERS_MAX
    ) -> None:
        self._logs = logs
        self._queues: dict[QueueRef, Queue] = {}
        self._sequences = Sequences(producers_max)
        self._missed_ends: dict[QueueRef, int] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[tuple[QueueRef, Queue]]:
        return iter(self._queues.items())

    def get(self, ref: QueueRef) -> Queue | None:
        """Returns a queue that has messages, visible or staged."""
        return self._queues.get(ref)

    def for_append(self, ref: QueueRef, retention: str) -> Queue:
        """Returns the queue, or a new one; `stage` adds it to the store.

        Raises:
            InvalidArgument: its messages are in another log.
            ValueError: no such retention.
        """
        log = self._logs.get(retention)
        if log is None:
            raise ValueError(f"retention {retention!r} is unknown; use {' or '.join(self._logs)}")
        queue = self._queues.get(ref)
        if queue is None:
            return Queue(log, QueueIndex(ref, log.index))
        if queue.log is not log:
            raise InvalidArgument(
                f"{ref.topic}[{ref.queue_id}] has messages with retention {queue.log.name!r}, which"
                f" cannot change to {retention!r}; use another topic"
            )
        return queue

    def duplicate_of(self, header: BatchHeader) -> int | None:
        """Returns None for a new batch, or the base offset of the batch it repeats; -1 if unknown.

        Raises:
            SequenceGap: batches of this producer are missing.
        """
        if not header.producer_id:
            return None
        return self._sequences.duplicate_of(
            (header.producer_id, header.producer_epoch, header.queue),
            header.first_sequence,
            header.count,
        )

    def stage(self, queue: Queue, header: BatchHeader) -> Undo | None:
        """Assigns the queue's next offsets to the batch; `withdraw` undoes it."""
        base = queue.index.tail
        queue.index.tail = base + header.count
        if not base:
            self._queues.setdefault(header.queue, queue)
        if not header.producer_id:
            return None
        return self._sequences.record(
            (header.producer_id, header.producer_epoch, header.queue),
            _new(SentBatch, (header.first_sequence, header.count, base)),
        )

    def commit(self, group: Group) -> Collection[QueueRef]:
        """Makes a group's batches visible; returns their queues in the order of the log."""
        touched: dict[QueueRef, QueueIndex] = {}
        sent: list[Undo] = []
        for ref, entry, undo in group.staged:
            index = touched.get(ref)
            if index is None:
                index = touched[ref] = self._queues[ref].index
            index.add(entry)
            if undo is not None:
                sent.append(undo)
        group.log.index.note(touched, sent)
        self._sequences.forget_surplus()
        return touched.keys()

    def withdraw(self, groups: Sequence[Group]) -> None:
        """Undoes everything that groups staged; pass the latest group first."""
        withdrawn: list[Staged] = [staged for group in groups for staged in reversed(group.staged)]
        for staged in withdrawn:
            if staged.undo is not None:
                self._sequences.undo(staged.undo)
            # Not the queue's end: earlier batches may be written and wait for replicas.
            self._queues[staged.queue].index.tail = staged.entry.base
        for ref in {staged.queue for staged in withdrawn}:
            if self._queues[ref].index.tail == 0:
                del self._queues[ref]

    def skip_to(self, ref: QueueRef, retention: str, end: int) -> None:
        """Makes sure that offsets below `end` are never assigned again."""
        self._known(ref, retention).index.skip_to(end)

    def forget_surplus(self) -> None:
        """Drops the producers that have been silent the longest, down to the limit."""
        self._sequences.forget_surplus()

    # For `recovery`, while it walks the logs.

    def accept(self, log: str, header: BatchHeader) -> str | None:
        """Adds a whole batch of the log; returns None, or why it contradicts earlier batches."""
        queue = self._known(header.queue, log)
        if queue.log.name != log:
            return f"its queue stands in the log {queue.log.name!r}"
        if header.base_offset < queue.index.end:
            return f"its offsets are below {queue.index.end}, the end of its queue"
        queue.index.add(
            IndexEntry(
                header.position, header.length, header.base_offset, header.count,
                header.appended_at_ms,
            )
        )  # fmt: skip
        self._missed_ends.pop(header.queue, None)
        sent: list[Undo] = []
        if header.producer_id:
            key = (header.producer_id, header.producer_epoch, header.queue)
            batch = SentBatch(header.first_sequence, header.count, header.base_offset)
            sent = [self._sequences.record(key, batch)]
        queue.log.index.note({header.queue: queue.index}, sent)
        return None

    def miss(self, log: str, header: BatchHeader) -> bool:
        """Leaves a gap for a damaged batch, if its header fits the batches before it.

        The damaged bytes include its count and its sequence. So the next whole batch of the queue decides
        where offsets go on; only if there is none, the count does.
        """
        queue = self._queues.get(header.queue)
        if (
            queue is None
            or queue.log.name != log
            or self._missed_ends.get(header.queue, queue.index.end) != header.base_offset
            or header.count > BATCH_RECORDS_MAX
        ):
            return False
        self._missed_ends[header.queue] = header.next_offset
        # With a wrong sequence the store could take new messages for repeated ones and lose them.
        self._sequences.forget((header.producer_id, header.producer_epoch, header.queue))
        return True

    def skip_missed(self) -> None:
        """Leaves a gap for damaged batches that no whole batch of their queue follows."""
        for ref, end in self._missed_ends.items():
            queue = self._queues[ref]
            queue.index.skip_to(end)
            queue.log.index.note({ref: queue.index})
        self._missed_ends.clear()

    def adopt(self, log: str, segment: int, directory: Directory) -> str | None:
        """Adds a block of an index; if it contradicts earlier batches, returns why and adds nothing."""
        for ref, _, rows in rows_of(directory):
            known = self._queues.get(ref)
            if known is None:
                continue
            if known.log.name != log:
                return f"{ref.topic}[{ref.queue_id}] stands in the log {known.log.name!r}"
            if rows and rows[0].first < known.index.end:
                return f"offsets of {ref.topic}[{ref.queue_id}] are below its end"
        refs = []
        for ref, end, rows in rows_of(directory):
            refs.append(ref)
            self._known(ref, log).index.adopt(segment, rows, end)
        for producer_id, producer_epoch, number, sent in directory.senders:
            self._sequences.restore((producer_id, producer_epoch, refs[number]), sent)
        self._sequences.forget_surplus()
        return None

    def delete_below(self, log: str, position: int) -> None:
        """Drops all batches of a log's segments below a segment's position; ends stay."""
        for queue in self._queues.values():
            if queue.log.name == log:
                queue.index.delete_below(position)

    def replace(
        self, log: str, segment: Segment, rows: Mapping[QueueRef, list[PageSummary]]
    ) -> None:
        """Replaces everything held for a segment's positions by the rows of a compacted segment."""
        for ref, queue in self._queues.items():
            if queue.log.name == log:
                queue.index.replace(segment.base, segment.limit, rows.get(ref, []))

    def remembered(self) -> dict[Key, int]:
        """Returns for every producer in a queue the lowest offset of its remembered batches."""
        return self._sequences.lowest()

    def _known(self, ref: QueueRef, log: str) -> Queue:
        queue = self._queues.get(ref)
        if queue is None:
            owner = self._logs[log]
            queue = self._queues[ref] = Queue(owner, QueueIndex(ref, owner.index))
        return queue
