"""
The segments of one log in order: one writer at the end, readers anywhere before it.

Used by `flusher`, `recovery` and `message_store`; reads and writes segment files. It knows positions
and lengths, but no queues, offsets or producers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.store.index.log_index import BLOCK_BYTES, LogIndex
from headrace_mq.store.index.segment_index import INDEX_SUFFIX, SegmentIndex
from headrace_mq.store.keys.key_file import KEYS_SUFFIX
from headrace_mq.store.keys.log_keys import LogKeys
from headrace_mq.store.segment.segment import (
    MARK_BYTES,
    SEGMENT_HEADER_BYTES,
    SEGMENT_SUFFIX,
    UNFINISHED_SUFFIX,
    Compacted,
    Segment,
    SegmentPlan,
)

__all__ = ["COMPACT", "WHOLE_LOG", "CommitLog", "Placed", "SegmentInfo", "SegmentRun"]

_log = get_logger(__name__)

# The log of topics that keep the last message of each key; the only log that is rewritten.
COMPACT = "compact"
# Behind the end of every log.
WHOLE_LOG = 1 << 63

# Files next to a segment that can be rebuilt from it.
_DERIVED = (INDEX_SUFFIX, KEYS_SUFFIX)

# Batches this close are read together: between them is a mark or a small batch of another queue.
_BRIDGE_BYTES = 4_096


class SegmentInfo(NamedTuple):
    """One segment: `base` to `end` are log positions, `bytes` is the size of its file.

    The append times are None if it holds no message. `next_offsets` has, for every queue with messages
    in it, the offset after the last of them. `compacted` holds the facts of its last compaction;
    `indexed` says whether all of it is in its index file.
    """

    name: str
    base: int
    end: int
    bytes: int
    first_ms: int | None
    last_ms: int | None
    sealed: bool
    next_offsets: Mapping[QueueRef, int]
    compacted: Compacted | None = None
    indexed: bool = False


class Placed(Protocol):
    """An object that has the place of a whole batch."""

    @property
    def position(self) -> int:
        """Log position of its first byte."""
        ...

    @property
    def length(self) -> int:
        """Its length in bytes."""
        ...


class SegmentRun(NamedTuple):
    """Batches of one segment that are read together, with the bytes between them."""

    segment: Segment
    position: int
    length: int
    places: Sequence[Placed]


class CommitLog:
    """One log. All topics of one retention policy share it, so that one sync serves all of them.

    Attributes:
        name: the retention policy, and the directory's name.
        epoch: of the broker, written into new segments.
        index: finds the batches of its queues.
        keys: finds the batches that may hold a key.
        segments: open segments by position.
        end: log position after the last written group.
        written: log position below which every byte is in the file; ahead of `end` while the disk syncs.
        synced: log position below which every byte is durable.
        tail: position of the next group; ahead of `end` by the staged bytes.
        tail_limit: where the segment that holds `tail` ends.
        replacements: how often a compaction has changed positions since the start.
        held_from: where the first written group begins that is not committed yet, or None.
        kept_from: log position from which on nothing is thrown away, because a replica may lack it.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        segment_bytes: int,
        epoch: int = 1,
        index_block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        self.epoch = epoch
        self._bases: list[int] = []
        self.name = directory.name
        self.index = LogIndex(files, directory.name, block_bytes=index_block_bytes)
        self.keys = LogKeys(files, directory.name)
        self.segments: list[Segment] = []
        self.end = 0
        self.written = 0
        self.synced = 0
        self.tail = 0
        self.tail_limit = 0
        self.replacements = 0
        self.held_from: int | None = None
        self.kept_from = WHOLE_LOG

    def open(self, start: int | None = None) -> int:
        """Opens every segment file; `recovery` finds out where the log ends.

        Returns the position where the log begins.

        Args:
            start: everything below this position was to be deleted; the rest of it is deleted now. None if
                unknown.

        Raises:
            FormatTooNew: a newer version wrote a segment.
            DataCorrupt: a segment file is in the wrong place.
        """
        self._files.make_directory(self._directory)
        names = self._files.names(self._directory)
        bases = {int(stem) for stem, suffix in map(_split, names) if suffix == SEGMENT_SUFFIX}
        # Only whole segments are deleted: the first one to stay is the last one at or below `start`.
        first = max((base for base in bases if start is not None and base <= start), default=0)
        covered = 0
        for name in names:
            path = self._directory / name
            stem, suffix = _split(name)
            if suffix and self._bases and self._bases[-1] < int(stem) < covered:
                # The compacted segment before this one holds its records, but after a power cut its new name may not be
                # durable yet.
                self._files.sync_directory(self._directory)
                self._files.remove(path)
            elif suffix == SEGMENT_SUFFIX and int(stem) >= first:
                segment = Segment.open(
                    self._files, path, log=self.name, file_bytes=self._segment_bytes
                )
                self.adopt(segment)
                covered = segment.limit if segment.compacted is not None else 0
            elif (
                name.endswith((UNFINISHED_SUFFIX, UNFINISHED_SUFFIX + INDEX_SUFFIX))
                or (suffix and int(stem) not in bases)
                or (suffix and int(stem) < first)
            ):
                self._files.remove(path)
            elif not suffix:
                _log.warning(
                    "a file in a log directory is not a segment and is ignored", path=str(path)
                )

        begins = self._bases[0] if self._bases else start or 0
        if start is not None and begins > start:
            raise DataCorrupt(
                f"the log {self.name!r} begins at position {begins}, but its messages from {start}"
                " on were never deleted: a segment file is missing; put it back"
            )
        return begins

    @property
    def active(self) -> Segment | None:
        """The active segment, or None before the first one."""
        return self.segments[-1] if self.segments else None

    def adopt(self, segment: Segment) -> None:
        """Adds a new last segment."""
        self.segments.append(segment)
        self._bases.append(segment.base)
        self.index.adopt(segment)
        self.keys.adopt(segment)

    def end_at(self, position: int) -> None:
        """Sets the end of the log: durable up to here, nothing staged."""
        self.end = self.written = self.synced = position
        self.forget_staged()

    def forget_staged(self) -> None:
        """Makes `end` the position of the next group again."""
        self.tail = self.end
        self.tail_limit = self.active.limit if self.active else self.end

    def segment_end(self, number: int) -> int:
        """Returns the log position where the segment with an index ends."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else self.end

    def segment_at(self, position: int) -> Segment:
        """Returns the segment that holds a log position."""
        return self.segments[bisect_right(self._bases, position) - 1]

    def past_gap(self, position: int) -> int:
        """Returns `position`, or the next segment's base if a compaction left no bytes from there on."""
        number = bisect_right(self._bases, position) - 1
        end = self.segment_end(number)
        return position if position < self.segments[number].data_end(end) else end

    def is_committed(self, number: int) -> bool:
        """Whether all of the segment with an index is committed, and not kept; else it is neither deleted nor compacted."""
        end = self.segment_end(number)
        return end <= self.kept_from and (self.held_from is None or end <= self.held_from)

    def deletable(self, before: int) -> int:
        """Returns the number of sealed, committed segments that end at or below a log position."""
        sealed = range(len(self.segments) - 1)
        return sum(self.segment_end(n) <= before and self.is_committed(n) for n in sealed)

    def infos(self) -> list[SegmentInfo]:
        """Returns every segment in order; all but the last are sealed once they are committed."""
        spans = self.index.spans()
        last = len(self.segments) - 1
        return [
            SegmentInfo(
                name=segment.path.name,
                base=segment.base,
                end=self.segment_end(number),
                bytes=segment.file_bytes,
                first_ms=spans[segment.base].first_ms,
                last_ms=spans[segment.base].last_ms,
                sealed=number < last and self.is_committed(number),
                next_offsets=spans[segment.base].next_offsets,
                compacted=segment.compacted,
                indexed=self.index.of(segment).end == self.segment_end(number),
            )
            for number, segment in enumerate(self.segments)
        ]

    def replace(self, segment: Segment, index: SegmentIndex) -> list[Segment]:
        """Replaces segments by a compacted one; returns the replaced ones, still open.

        Closes their index files, but neither makes nor removes files. Earlier positions in their range are
        no longer valid.
        """
        first = bisect_left(self._bases, segment.base)
        behind = bisect_left(self._bases, segment.limit)
        gone = self.segments[first:behind]
        self.segments[first:behind] = [segment]
        self._bases[first:behind] = [segment.base]
        for old in self.index.replace(segment, index):
            old.close()
        for keys in self.keys.replace(segment):
            keys.close()
        self.replacements += 1
        return gone

    def drop_below(self, position: int) -> list[Segment]:
        """Drops the segments that begin below a segment's position; returns them, still open.

        Closes their index files, but removes no file.
        """
        count = bisect_left(self._bases, position)
        gone = self.segments[:count]
        del self.segments[:count], self._bases[:count]
        for index in self.index.delete_below(position):
            index.close()
        for keys in self.keys.delete_below(position):
            keys.close()
        return gone

    def remove_files(self, segments: list[Segment]) -> None:
        """Closes segments and removes their files; the next start removes files that are left.

        Raises:
            OSError: some files are still there.
        """
        for segment in segments:
            segment.close()
        names = set(self._files.names(self._directory))
        for segment in segments:
            for suffix in (*_DERIVED, SEGMENT_SUFFIX):
                path = segment.path.with_suffix(suffix)
                if path.name in names:
                    self._files.remove(path)
        self._files.sync_directory(self._directory)

    def remove_derived(self, segment: Segment) -> None:
        """Removes the files that are made from a segment, durably; the next start makes them again."""
        names = set(self._files.names(self._directory))
        for suffix in _DERIVED:
            path = segment.path.with_suffix(suffix)
            if path.name in names:
                self._files.remove(path)
        self._files.sync_directory(self._directory)

    def plan_segment(
        self, length: int, now_ms: int, *, file_bytes: int | None = None
    ) -> SegmentPlan:
        """Plans the segment that begins at `tail`, with room for a batch of `length` bytes.

        Sets `tail_limit` to the end of that segment. `file_bytes` is its size if a leader has decided it.
        """
        needed = SEGMENT_HEADER_BYTES + MARK_BYTES + length
        plan = SegmentPlan(
            directory=self._directory,
            log=self.name,
            base=self.tail,
            file_bytes=max(self._segment_bytes, needed) if file_bytes is None else file_bytes,
            epoch=self.epoch,
            now_ms=now_ms,
        )
        self.tail_limit = plan.base + plan.file_bytes - SEGMENT_HEADER_BYTES
        return plan

    def make_segment(self, plan: SegmentPlan) -> Segment:
        """Makes a planned segment; readers see it once it is adopted.

        Raises:
            OSError: the disk is full, or the like; no file is left.
            SyncFailed: the segment may or may not be there.
        """
        return Segment.create(self._files, plan)

    def runs(self, places: Sequence[Placed]) -> list[SegmentRun]:
        """Returns the runs that hold batches, in the order of their positions; joins neighbours."""
        found: list[SegmentRun] = []
        first, limit, start, end = 0, -1, 0, 0
        for number, place in enumerate(places):
            position = place.position
            if position >= limit or position - end > _BRIDGE_BYTES:
                if number:
                    found.append(self._run(places[first:number], start, end))
                at = bisect_right(self._bases, position)
                limit = self._bases[at] if at < len(self._bases) else self.end
                first, start = number, position
            end = position + place.length
        if places:
            found.append(self._run(places[first:], start, end))
        return found

    def _run(self, places: Sequence[Placed], start: int, end: int) -> SegmentRun:
        return SegmentRun(self.segment_at(start), start, end - start, places)

    def close(self) -> None:
        """Closes all segment files and their indexes."""
        self.index.close()
        self.keys.close()
        for segment in self.segments:
            segment.close()
        self.segments.clear()
        self._bases.clear()


def _split(name: str) -> tuple[str, str]:
    """Returns the digits and the suffix of a log file's name; an empty suffix for any other file."""
    stem, dot, suffix = name.partition(".")
    ours = stem.isdigit() and dot + suffix in {SEGMENT_SUFFIX, *_DERIVED}
    return (stem, dot + suffix) if ours else (name, "")
