"""
Reads a log's files at start: finds whole batches in order, the end of the log, and damage.

    every entry whole ─▶ accept      bad bytes, a whole entry follows ─▶ damage, or a torn write
                                     bad bytes, no whole entry follows ─▶ the end of the log

Used by `message_store`, which receives every batch; reads the segment files. The pure `judge` decides;
`FORMAT.md` explains why it is right after every crash.
"""

from enum import Enum
from itertools import pairwise
from typing import Protocol

from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import CorruptBatch, DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BatchHeader,
    check_head,
    check_whole,
)
from headrace_mq.store.index.log_index import rows_of
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.index.segment_index import Directory
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.segment.log_walk import Damage, LogWalk
from headrace_mq.store.segment.segment import MARK_BYTES, Segment, WriteMark

__all__ = ["Damage", "RecoveryListener", "Verdict", "check_batch", "judge", "recover"]

_log = get_logger(__name__)


class RecoveryListener(Protocol):
    """Receives the batches of the log, in log order."""

    def accept(self, log: str, header: BatchHeader) -> str | None:
        """Adds a whole batch; returns why it contradicts earlier ones, or None."""
        ...

    def miss(self, log: str, header: BatchHeader) -> bool:
        """Notes a damaged batch whose header may be right; returns False if it cannot be."""
        ...

    def adopt(self, log: str, segment: int, directory: Directory) -> str | None:
        """Adds a block of a segment's index; returns why it contradicts earlier batches, or None."""
        ...


class Verdict(Enum):
    """The meaning of bad bytes."""

    DAMAGED = "damaged"
    TORN = "torn"


def judge(position: int, following: int | None, *, synced: int, unwritten: bool) -> Verdict:
    """Decides what bad bytes at `position` of the last segment mean.

    Args:
        position: where the bad bytes begin.
        following: the next whole entry after them, or None.
        synced: every byte below this position has been durable.
        unwritten: a whole sector of the bad bytes holds only zeros.

        A power cut leaves zeros where a sector was not written, but only at or above `synced`. Then all later
        bytes belong to the same write, which was never acknowledged. Any other bad bytes were right once, so the
        entries after them stay.
    """
    if position < synced:
        return Verdict.DAMAGED
    if following is None or unwritten:
        return Verdict.TORN
    return Verdict.DAMAGED


def check_batch(batch: bytes | memoryview, queue: QueueRef, entry: IndexEntry) -> None:
    """Raises DataCorrupt unless the bytes are the whole, sound batch that the index names."""
    position = entry.position
    try:
        header = check_whole(batch)
    except CorruptBatch as error:
        raise DataCorrupt(f"the record batch at log position {position} is damaged") from error
    if (header.position, header.queue, header.base_offset) != (position, queue, entry.base):
        raise DataCorrupt(f"another batch stands at log position {position}")
    check_head(batch)


class _Recovery:
    """Walks one log; collects its damage."""

    def __init__(self, log: CommitLog, ledger: RecoveryListener, synced: int) -> None:
        self._log = log
        self._index = log.index
        self._ledger = ledger
        self._synced = synced
        self.damage: list[Damage] = []

    def run(self) -> None:
        """Recovers every segment in order and makes the last one ready for writing."""
        segments = self._log.segments
        for segment, following in pairwise(segments):
            self._recover_sealed(segment, following.base)
        if not segments:
            return
        if segments[-1].compacted is None:
            self._recover_last(segments[-1])
        else:
            # Later segments are gone. The store writes no more to this one: it begins a new one.
            self._recover_sealed(segments[-1], segments[-1].limit)
            self._log.end_at(segments[-1].limit)

    def _recover_sealed(self, segment: Segment, limit: int) -> None:
        self._note_header(segment)
        data_end = segment.data_end(limit)
        walk = LogWalk(segment, data_end)
        position = self._indexed(segment, limit)
        position = self._whole_entries(walk, position, data_end)
        while position < data_end:
            end = walk.following(self._scan_from(walk, position)) or data_end
            self._note(walk, position, end)
            position = self._whole_entries(walk, end, data_end)
        if data_end < segment.limit < limit:
            self._report(
                Damage(self._log.name, segment.limit, limit - segment.limit, "a segment is missing")
            )
        self._index.cut(limit)
        self._index.write_due(limit)

    def _recover_last(self, segment: Segment) -> None:
        self._note_header(segment)
        # Bytes that a killed process wrote without a sync are about to become visible, and a block of the index
        # must cover only durable bytes.
        segment.sync()
        walk = LogWalk(segment, segment.held_end)
        position = self._indexed(segment, segment.held_end)
        position = self._whole_entries(walk, position, segment.held_end)
        while True:
            following = walk.following(self._scan_from(walk, position), durable=self._synced)
            unwritten = following is not None and walk.has_unwritten_sector(position, following)
            if unwritten and position >= self._synced:
                self._look_ahead(walk, following)
            if judge(position, following, synced=self._synced, unwritten=unwritten) is Verdict.TORN:
                break
            end = self._synced if following is None else following
            self._note(walk, position, end)
            position = self._whole_entries(walk, end, segment.held_end)
        if segment.header_damage is not None and position == segment.base:
            raise DataCorrupt(
                f"{segment.path} holds nothing that can be read; restore it from a backup, or"
                f" move it away with `headrace store repair {segment.path.parent.parent}` to go on"
                " without it"
            )
        if walk.has_bytes(position):
            _log.info("a torn write was cut off", log=self._log.name, position=position)
        segment.cut(position)
        try:
            segment.reserve()
        except OSError as error:
            _log.warning(
                "disk blocks cannot be reserved; the broker goes on without",
                path=str(segment.path),
                error=str(error),
            )
        segment.sync()
        self._log.end_at(position)

    def _whole_entries(self, walk: LogWalk, position: int, limit: int) -> int:
        """Passes on entries from `position` up to the first one that is not whole."""
        log, accept = self._log.name, self._ledger.accept
        while position < limit:
            try:
                entry = walk.entry(position)
            except DataCorrupt:
                return position
            if isinstance(entry, WriteMark):
                self._synced = max(self._synced, entry.synced)
                position += MARK_BYTES
                continue
            if self._index.grown(position):
                self._index.write_due(position)
            contradiction = accept(log, entry)
            if contradiction is not None:
                self._report(
                    Damage(
                        log, position, entry.length, contradiction,
                        entry.queue, entry.base_offset, entry.count,
                    )
                )  # fmt: skip
            position += entry.length
        return position

    def _indexed(self, segment: Segment, limit: int) -> int:
        """Reads the segment's index; returns the position where it ends."""
        index = self._index.of(segment)
        for block, directory in index.load(limit):
            contradiction = self._ledger.adopt(self._log.name, segment.base, directory)
            if contradiction is not None:
                index.cut(contradiction)
                break
            index.accept(block)
            index.note_ends((ref, end) for ref, end, _ in rows_of(directory))
            for damage in directory.damage:
                self._tell(damage)
        self._index.begin(index.end)
        # A block is written only after its range of the log is durable.
        self._synced = max(self._synced, index.end)
        return index.end

    def _look_ahead(self, walk: LogWalk, position: int | None) -> None:
        """Learns from later marks how far the log was durable."""
        while position is not None:
            try:
                entry = walk.entry(position)
            except DataCorrupt:
                position = walk.following(position + 1, durable=self._synced)
                continue
            if isinstance(entry, WriteMark):
                self._synced = max(self._synced, entry.synced)
                position += MARK_BYTES
            else:
                position += entry.length

    @staticmethod
    def _scan_from(walk: LogWalk, position: int) -> int:
        # A sound head gives the end of its batch, so no bytes inside are mistaken for a batch.
        head = walk.sound_head(position)
        return position + (1 if head is None else head.length)

    def _note(self, walk: LogWalk, position: int, end: int) -> None:
        head = walk.sound_head(position)
        reason = "bytes that are no entry" if head is None else "a batch fails its checksum"
        known = head is not None and self._ledger.miss(self._log.name, head)
        if head is not None and known:
            self._report(
                Damage(
                    self._log.name, position, end - position, reason,
                    head.queue, head.base_offset, head.count,
                )
            )  # fmt: skip
        else:
            self._report(Damage(self._log.name, position, end - position, reason))

    def _note_header(self, segment: Segment) -> None:
        if segment.header_damage is not None:
            self._tell(Damage(self._log.name, segment.base, 0, segment.header_damage))

    def _report(self, damage: Damage) -> None:
        self._index.note_damage(damage)
        self._tell(damage)

    def _tell(self, damage: Damage) -> None:
        self.damage.append(damage)
        _log.error(
            "the log is damaged; run `headrace store check` when the broker is stopped",
            **damage.facts(),
        )


def recover(log: CommitLog, ledger: RecoveryListener, *, synced: int) -> list[Damage]:
    """Passes every whole batch of an open log to the ledger and finds the log's end.

    On return the log is ready for writing, and all accepted batches are durable.

    Args:
        log: opened, not yet read.
        ledger: receives the batches.
        synced: the log was durable up to here at its last clean end.

    Raises:
        DataCorrupt: durable bytes are missing; an operator must decide what to do.
        FormatTooNew: a newer version wrote a part of it.
        OSError: a file cannot be read or written.
    """
    limit = log.active.limit if log.active else 0
    if synced > limit:
        raise DataCorrupt(
            f"the log {log.name!r} reached position {synced} when it was closed, but its files end"
            f" at {limit}: a segment file is missing; put it back, or go on without it as"
            " `headrace store check DIR` and `headrace store repair DIR` say (DIR: the broker's"
            " data directory)"
        )
    recovery = _Recovery(log, ledger, synced)
    recovery.run()
    log.keys.load(log.end)
    return recovery.damage
