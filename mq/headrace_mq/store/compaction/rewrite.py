"""
Rewrites sealed segments without superseded records: reads them, writes a new file, renames it.

    read every batch ─▶ all records stay: as it is     ─▶ NAME.log.new ─▶ sync ─▶ rename to NAME.log
                        some stay: sparse                  and its index            │ sync directory
                        none: left out, or its head alone                           ▼ the others go

Everything here runs in a thread and opens its own files. `FORMAT.md` explains why a crash at any step leaves
the old segments or the new one. Used by `compaction`, which decides what to rewrite. It never touches files that
readers hold.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files, write_all
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import MessageQueueError, UndecodableBatch
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, Columns, decode_placed, read_header
from headrace_mq.protocol.sparse import moved, removed_before, thinned
from headrace_mq.store.compaction.latest_keys import LatestKeys, is_tombstone
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.index.queue_index import PageSummary, QueueIndex
from headrace_mq.store.index.segment_index import INDEX_SUFFIX, Frozen, QueuePart, SegmentIndex
from headrace_mq.store.index.sequences import BATCHES_REMEMBERED, Key, SentBatch
from headrace_mq.store.keys.key_file import KEYS_SUFFIX
from headrace_mq.store.segment.log_walk import Gap, LogWalk
from headrace_mq.store.segment.segment import (
    SEGMENT_HEADER_BYTES,
    SEGMENT_SUFFIX,
    UNFINISHED_SUFFIX,
    Compacted,
    Segment,
    SegmentPlan,
    SyncFailed,
    compacted_header,
    segment_name,
)

__all__ = [
    "RewriteContext",
    "RewriteRate",
    "Rewriter",
    "Rewritten",
    "SegmentUnusable",
    "Source",
    "Stopped",
]

_log = get_logger(__name__)

# Bytes collected for one write: few calls, little memory.
_WRITE_BYTES = 1 << 20
_NEVER = 1 << 63


class Stopped(Exception):
    """The store is closing; no file was changed."""


class SegmentUnusable(Exception):
    """A segment cannot be rewritten; the message says why. No file was changed."""


class Source(NamedTuple):
    """A sealed segment: its place in the log, and the next offsets of its queues after it."""

    base: int
    covers: int
    compacted: Compacted | None
    next_offsets: Mapping[QueueRef, int]


class RewriteContext(NamedTuple):
    """The facts that a rewrite needs besides the segments.

    Attributes:
        floors: offsets below which messages belong to deleted queues.
        remembered: for each producer in a queue, the lowest offset whose batch must stay known.
        drop_tombstones: whether tombstones are old enough to be removed.
        cleaned_ms: when the new segment became clean; 0 if this rewrite does not make it clean.
        epoch: of the broker.
        now_ms: the current time.
    """

    floors: Mapping[QueueRef, int]
    remembered: Mapping[Key, int]
    drop_tombstones: bool
    cleaned_ms: int
    epoch: int
    now_ms: int


class Rewritten(NamedTuple):
    """A segment that replaces others, open, with its index; and the numbers of this rewrite."""

    segment: Segment
    written: SegmentIndex
    rows: dict[QueueRef, list[PageSummary]]
    kept: int
    removed: int
    bytes_before: int
    bytes_after: int


class RewriteRate:
    """Limits the rate at which a thread reads and writes.

    Args:
        bytes_per_s: the limit; 0: no limit.
        clock: measures the time.
    """

    def __init__(self, bytes_per_s: int, clock: Clock) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._started_ms = clock.monotonic_ms()
        self._bytes = 0
        self.stop = threading.Event()

    def spend(self, size: int) -> None:
        """Counts bytes, and waits if they are over the rate. Raises Stopped."""
        self._bytes += size
        if self._bytes_per_s:
            due_ms = self._started_ms + self._bytes * 1_000 // self._bytes_per_s
            ahead_ms = due_ms - self._clock.monotonic_ms()
            if ahead_ms > 0:
                self.stop.wait(ahead_ms / 1_000)
        if self.stop.is_set():
            raise Stopped


class Rewriter:
    """Reads and rewrites segments of one log, in a thread.

    Args:
        files: the file system.
        directory: of the log.
        pace: limits the rate.
    """

    def __init__(self, files: Files, directory: Path, pace: RewriteRate) -> None:
        self._files = files
        self._directory = directory
        self._pace = pace

    def collect(self, sources: Sequence[Source], keys: LatestKeys) -> int:
        """Notes the keys of segments in order, until memory is full; returns the number of segments read.

        Raises:
            Stopped: the store is closing.
            SegmentUnusable: a segment is damaged.
            OSError: a segment cannot be read.
        """
        for number, source in enumerate(sources):
            with self._opened(source) as walk:
                for header in _batches(walk, source):
                    self._pace.spend(header.length)
                    offsets, columns = _decoded(walk.batch(header), header)
                    keys.note(header.queue, columns.keys, offsets)
                    if keys.is_full:
                        return number
        return len(sources)

    def is_worth_it(self, source: Source, keys: LatestKeys, needed: RewriteContext) -> bool:
        """Whether a rewrite would remove a record of a clean segment. Raises as `collect`."""
        with self._opened(source) as walk:
            for header in _batches(walk, source):
                self._pace.spend(header.length)
                offsets, columns = _decoded(walk.batch(header), header)
                kept = keys.kept(
                    header.queue, offsets, columns,
                    floor=needed.floors.get(header.queue, 0),
                    drop_tombstones=needed.drop_tombstones,
                )  # fmt: skip
                if len(kept) < len(offsets):
                    return True
        return False

    def rewrite(
        self, group: Sequence[Source], keys: LatestKeys, needed: RewriteContext
    ) -> Rewritten:
        """Replaces neighbours by one segment, durably.

        The files of all but the first stay until `remove_others`.

        Raises:
            Stopped: the store is closing; no file was changed.
            SegmentUnusable: a segment is damaged; no file was changed.
            OSError: the disk is full, or the like; no file was changed.
            SyncFailed: the next start may find the old segment or the new one.
        """
        path = self._directory / segment_name(group[0].base)
        unfinished = path.with_suffix(UNFINISHED_SUFFIX)
        fd = self._files.open(unfinished, create=True)
        draft = _Draft(self._files, fd, group, keys, needed)
        try:
            try:
                for source in group:
                    self._copy(source, draft)
                draft.finish(self._directory.name)
                # If this fails, no reader uses the file, and the next attempt writes another one.
                self._files.sync(fd)
            finally:
                self._files.close(fd)
            rewritten = self._with_index(unfinished, draft)
        except BaseException:
            self._remove(unfinished, unfinished.with_name(unfinished.name + INDEX_SUFFIX))
            raise
        self._publish(rewritten, path)
        return rewritten

    def _copy(self, source: Source, draft: "_Draft") -> None:
        with self._opened(source) as walk:
            for header in _batches(walk, source):
                self._pace.spend(header.length)
                draft.take(walk.batch(header), header)

    def _with_index(self, unfinished: Path, draft: "_Draft") -> Rewritten:
        log = self._directory.name
        segment = Segment.open(self._files, unfinished, log=log, file_bytes=0)
        index = SegmentIndex(self._files, segment, log)
        try:
            parts = [
                QueuePart(ref, held, held.end, held.freeze()) for ref, held in draft.queues.items()
            ]
            block, rows = index.write(
                Frozen(segment.base, segment.base, segment.limit, parts, draft.senders, [])
            )
        except BaseException:
            index.close()
            segment.close()
            raise
        index.accept(block)
        index.note_ends((part.ref, part.end) for part in parts)
        return Rewritten(
            segment, index,
            {part.ref: of for part, of in zip(parts, rows, strict=True)},
            draft.kept, draft.removed, draft.bytes_before, draft.end - segment.base,
        )  # fmt: skip

    def _publish(self, rewritten: Rewritten, path: Path) -> None:
        segment, index = rewritten.segment, rewritten.written
        try:
            self._files.rename(segment.path, path)
            self._files.sync_directory(self._directory)
        except OSError as error:
            index.close()
            segment.close()
            raise SyncFailed(f"{path}: {error}") from error
        # From here on a start finds the new segment, and removes the others.
        with suppress(OSError):
            self._files.rename(index.path, path.with_suffix(INDEX_SUFFIX))
        segment.path, index.path = path, path.with_suffix(INDEX_SUFFIX)
        self._remove(path.with_suffix(KEYS_SUFFIX))

    def remove_others(self, group: Sequence[Source]) -> None:
        """Removes the files of replaced segments, once no thread can write to them."""
        for source in group[1:]:
            old = self._directory / segment_name(source.base)
            self._remove(*(old.with_suffix(s) for s in (INDEX_SUFFIX, KEYS_SUFFIX, SEGMENT_SUFFIX)))

    def _remove(self, *paths: Path) -> None:
        for path in paths:
            # The next start removes the rest.
            with suppress(OSError):
                if self._files.exists(path):
                    self._files.remove(path)

    @contextmanager
    def _opened(self, source: Source) -> Iterator[LogWalk]:
        path = self._directory / segment_name(source.base)
        try:
            segment = Segment.open(
                self._files, path, log=self._directory.name,
                file_bytes=SEGMENT_HEADER_BYTES + source.covers - source.base,
            )  # fmt: skip
        except MessageQueueError as error:
            raise SegmentUnusable(str(error)) from error
        try:
            if segment.header_damage is not None:
                raise SegmentUnusable(segment.header_damage)
            yield LogWalk(segment, segment.data_end(source.covers))
        finally:
            segment.close()


class _Draft:
    """A new segment that is being written: the remaining parts of batches, back to back."""

    def __init__(
        self,
        files: Files,
        fd: int,
        group: Sequence[Source],
        keys: LatestKeys,
        needed: RewriteContext,
    ) -> None:
        self._files = files
        self._fd = fd
        self._group = group
        self._keys = keys
        self._needed = needed
        self._base, self._covers = group[0].base, group[-1].covers
        self._ends: dict[QueueRef, int] = {}
        for source in group:
            self._ends.update(source.next_offsets)
        self._gaps: dict[QueueRef, int] = {}
        self._parts: list[bytes] = []
        self._written = self.end = self._base
        self._tombstones = 0
        earlier = (source.compacted for source in group if source.compacted is not None)
        self._forgotten = sum(compacted.forgotten for compacted in earlier)
        self.queues: dict[QueueRef, QueueIndex] = {}
        self.senders: dict[Key, tuple[SentBatch, ...]] = {}
        self.kept = self.removed = self.bytes_before = 0

    def take(self, batch: bytes, header: BatchHeader) -> None:
        """Adds the next batch of the group, or its remaining records."""
        queue, needed = header.queue, self._needed
        self.bytes_before += header.length
        offsets, columns = _decoded(batch, header)
        kept = self._keys.kept(
            queue, offsets, columns,
            floor=needed.floors.get(queue, 0), drop_tombstones=needed.drop_tombstones,
        )  # fmt: skip
        self.kept += len(kept)
        self.removed += len(offsets) - len(kept)
        if needed.drop_tombstones and columns.keys:
            stay = set(kept)
            self._forgotten += sum(
                is_tombstone(columns.keys[at], columns.bodies[at])
                for at in range(len(offsets))
                if at not in stay
            )
        gap = self._gaps.pop(queue, 0) + removed_before(batch)
        if not kept and not self._is_needed(header):
            self._gaps[queue] = gap + header.count
            return
        if columns.keys:
            self._tombstones += sum(
                is_tombstone(columns.keys[at], columns.bodies[at]) for at in kept
            )
        left: bytes | bytearray = batch
        if len(kept) < len(offsets):
            left = thinned(batch, header, offsets, columns, kept)
            header = read_header(left)
        self._add(moved(left, header, position=self.end, gap=gap), header)

    def finish(self, log: str) -> None:
        """Writes the collected bytes, and the first page. Raises OSError."""
        self._write()
        needed, sources = self._needed, self._group
        rounds = max(source.compacted.rounds if source.compacted else 0 for source in sources) + 1
        plan = SegmentPlan(
            directory=Path(), log=log, base=self._base,
            file_bytes=SEGMENT_HEADER_BYTES + self.end - self._base,
            epoch=needed.epoch, now_ms=needed.now_ms,
        )  # fmt: skip
        page = compacted_header(
            plan,
            Compacted(
                self.end, self._covers, needed.cleaned_ms, self._tombstones, rounds, self._forgotten
            ),
        )
        write_all(self._files, self._fd, 0, [page])

    def _is_needed(self, header: BatchHeader) -> bool:
        """Whether the head of a batch is needed even without records.

        The last batch of a queue says where the queue ends. A recent batch of a producer is needed to
        recognise a retry.
        """
        if header.next_offset >= self._ends.get(header.queue, 0):
            return True
        if not header.producer_id:
            return False
        key = (header.producer_id, header.producer_epoch, header.queue)
        return header.base_offset >= self._needed.remembered.get(key, _NEVER)

    def _add(self, batch: bytearray, header: BatchHeader) -> None:
        queue, length = header.queue, len(batch)
        if self.end + length > self._covers:
            raise SegmentUnusable(
                f"the remaining records of segment {segment_name(self._base)} do not fit into it"
            )
        if queue not in self.queues:
            self.queues[queue] = QueueIndex(queue)
        self.queues[queue].add(
            IndexEntry(self.end, length, header.base_offset, header.count, header.appended_at_ms)
        )
        if header.producer_id:
            key = (header.producer_id, header.producer_epoch, queue)
            sent = SentBatch(header.first_sequence, header.count, header.base_offset)
            self.senders[key] = (*self.senders.pop(key, ())[1 - BATCHES_REMEMBERED :], sent)
        self._parts.append(bytes(batch))
        self.end += length
        if self.end - self._written >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        at = SEGMENT_HEADER_BYTES + self._written - self._base
        write_all(self._files, self._fd, at, self._parts)
        self._parts, self._written = [], self.end


def _decoded(batch: bytes, header: BatchHeader) -> tuple[Sequence[int], Columns]:
    """Returns the records of a batch. A batch that no reader can decode stays, as if it had no keys."""
    try:
        return decode_placed(batch, header)
    except UndecodableBatch:
        return range(header.base_offset, header.next_offset), Columns([], [], [], [], [])


def _batches(walk: LogWalk, source: Source) -> Iterator[BatchHeader]:
    for entry in walk.entries():
        if isinstance(entry, Gap):
            raise SegmentUnusable(
                f"segment {segment_name(source.base)} is damaged at log position {entry.start};"
                " it and all later segments stay as they are"
            )
        if isinstance(entry, BatchHeader):
            yield entry
