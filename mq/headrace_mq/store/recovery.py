"""
What a start makes of the files: whole batches in order, where the log ends, what is damaged.

    every entry whole ─▶ accept      bad bytes, something whole behind ─▶ damage, or a torn write
                                     bad bytes, nothing whole behind  ─▶ the end of the log

Sits between: `message_store`, which is told every batch, and the segment files. The decision is
the pure `judge`; `FORMAT.md` argues why it is right after every crash.
"""

import re
from enum import Enum
from itertools import pairwise
from typing import NamedTuple, Protocol

import structlog

from headrace_mq.errors import CorruptBatch, DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    check_body,
    check_head,
    check_whole,
    read_header,
)
from headrace_mq.store.commit_log import CommitLog
from headrace_mq.store.segment import (
    MARK_BYTES,
    MARK_MAGIC,
    SEGMENT_HEADER_BYTES,
    Mark,
    Segment,
    decode_mark,
)

__all__ = ["Damage", "Ledger", "Verdict", "check_batch", "judge", "recover"]

_log = structlog.get_logger(__name__)

# Read at once while walking; larger batches are read whole.
_WINDOW_BYTES = 4 << 20
# A header and the longest topic its one-byte length can name.
_HEAD_READ_BYTES = BATCH_HEADER_BYTES + 255
_ENTRY_MAGIC = re.compile(rb"HR[BG]1")
_MAGIC_BYTES = 4
# The smallest unit that a disk writes as a whole.
SECTOR_BYTES = 512


class Damage(NamedTuple):
    """Bytes of a log that can no longer be read as what was written.

    `queue`, `base_offset` and `records` say which messages they held, where that can be told.
    """

    log: str
    position: int
    length: int
    reason: str
    queue: QueueRef | None = None
    base_offset: int = -1
    records: int = 0


class Ledger(Protocol):
    """Who is told what the log holds, in log order."""

    def accept(self, log: str, header: BatchHeader) -> str | None:
        """Takes a whole batch, or says why it contradicts what came before."""
        ...

    def miss(self, log: str, header: BatchHeader) -> bool:
        """Takes note of a damaged batch whose header may be right; False if it cannot be."""
        ...


class Verdict(Enum):
    """What bad bytes are."""

    DAMAGED = "damaged"
    TORN = "torn"


def judge(position: int, following: int | None, *, synced: int, unwritten: bool) -> Verdict:
    """Decides what bad bytes at `position` of the last segment are.

    Args:
        position: where the bad bytes begin.
        following: the next whole entry behind them, or None.
        synced: below this position every byte was durable once.
        unwritten: a whole sector of the bad bytes holds zeros only.

    A power cut leaves zeros where a sector was not written, and only at or above `synced`: then
    all that follows belongs to the same write, which nobody was told of. Anything else was right
    once, so what follows it stays.
    """
    if position < synced:
        return Verdict.DAMAGED
    if following is None or unwritten:
        return Verdict.TORN
    return Verdict.DAMAGED


def check_batch(batch: bytes | memoryview, position: int) -> None:
    """Raises DataCorrupt unless these are the whole, sound bytes of the batch at `position`."""
    try:
        header = check_whole(batch)
    except CorruptBatch as error:
        raise DataCorrupt(f"the record batch at log position {position} is damaged") from error
    if header.position != position:
        raise DataCorrupt(f"another batch stands at log position {position}")
    check_head(batch)


class _Walk:
    """Reads the entries of one segment, up to the log position `limit`."""

    def __init__(self, segment: Segment, limit: int) -> None:
        self._segment = segment
        self._limit = limit
        self._buffer = b""
        self._start = segment.base

    def entry(self, position: int) -> Mark | BatchHeader:
        """Returns the whole entry at `position`.

        Raises:
            DataCorrupt: there is none.
            FormatTooNew: a newer version wrote it.
        """
        at = self._window(position, _HEAD_READ_BYTES)
        if self._buffer.startswith(MARK_MAGIC, at):
            mark = decode_mark(self._buffer, at)
            if mark.position != position:
                raise DataCorrupt(f"a group mark of another place stands at {position}")
            return mark
        header = self.head(position)
        if header.length > self._limit - position:
            raise DataCorrupt(f"the record batch at {position} is longer than its segment")
        at = self._window(position, header.length)
        try:
            check_body(self._buffer, at)
        except CorruptBatch as error:
            raise DataCorrupt(f"the record batch at {position} is damaged") from error
        return header

    def head(self, position: int) -> BatchHeader:
        """Returns the header at `position` if the broker's part of it is sound.

        Raises:
            DataCorrupt: it is not.
            FormatTooNew: it is, and a newer version wrote it.
        """
        at = self._window(position, _HEAD_READ_BYTES)
        if len(self._buffer) - at < BATCH_HEADER_BYTES:
            raise DataCorrupt(f"the segment ends at {position}")
        if not self._buffer.startswith(b"HRB1", at):
            raise DataCorrupt(f"no entry at {position}")
        # First, so that a flipped bit in the version is damage and no newer version.
        check_head(self._buffer, at)
        header = read_header(self._buffer, at)
        if header.position != position:
            raise DataCorrupt(f"a record batch of another place stands at {position}")
        return header

    def sound_head(self, position: int) -> BatchHeader | None:
        """Returns the header at `position`, or None if it is not sound."""
        try:
            return self.head(position)
        except DataCorrupt:
            return None

    def has_bytes(self, position: int) -> bool:
        """Whether anything but zeros stands near behind `position`."""
        at = self._window(position, SECTOR_BYTES)
        return any(self._buffer[at : at + SECTOR_BYTES])

    def following(self, position: int) -> int | None:
        """Returns the next position from `position` on where a whole entry stands."""
        while position < self._limit:
            data = self._segment.next_data(position)
            if data is None or data >= self._limit:
                return None
            position = max(position, data)
            at = self._window(position, min(_WINDOW_BYTES, self._limit - position))
            # Checking a candidate may move the window; these bytes stay.
            buffer, start = self._buffer, self._start
            if len(buffer) - at < _MAGIC_BYTES:
                return None
            for found in _ENTRY_MAGIC.finditer(buffer, at):
                if self._is_whole(start + found.start()):
                    return start + found.start()
            position = start + len(buffer) - _MAGIC_BYTES + 1
        return None

    def has_unwritten_sector(self, position: int, end: int) -> bool:
        """Whether a sector's part of these bytes is all zeros, as if it was never written."""
        skew = SEGMENT_HEADER_BYTES - self._segment.base
        while position < end:
            length = min(end - position, SECTOR_BYTES - (position + skew) % SECTOR_BYTES)
            at = self._window(position, length)
            if not any(self._buffer[at : at + length]):
                return True
            position += length
        return False

    def _is_whole(self, position: int) -> bool:
        try:
            self.entry(position)
        except DataCorrupt:
            return False
        return True

    def _window(self, position: int, length: int) -> int:
        """Makes `length` bytes from `position` readable; returns where they begin."""
        at = position - self._start
        if at < 0 or at + length > len(self._buffer):
            size = min(max(length, _WINDOW_BYTES), max(0, self._limit - position))
            self._buffer = self._segment.read(position, size)
            self._start, at = position, 0
        return at


class _Recovery:
    """Walks one log; collects what is damaged."""

    def __init__(self, log: CommitLog, ledger: Ledger, synced: int) -> None:
        self._log = log
        self._ledger = ledger
        self._synced = synced
        self.damage: list[Damage] = []

    def run(self) -> None:
        """Recovers every segment in order and makes the last one ready for writing."""
        segments = self._log.segments
        for segment, following in pairwise(segments):
            self._note_header(segment)
            walk = _Walk(segment, following.base)
            position = self._whole_entries(walk, segment.base, following.base)
            while position < following.base:
                end = walk.following(self._scan_from(walk, position)) or following.base
                self._note(walk, position, end)
                position = self._whole_entries(walk, end, following.base)
        if segments:
            self._recover_last(segments[-1])

    def _recover_last(self, segment: Segment) -> None:
        self._note_header(segment)
        walk = _Walk(segment, segment.held_end)
        position = self._whole_entries(walk, segment.base, segment.held_end)
        while True:
            following = walk.following(self._scan_from(walk, position))
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
                " move it away to go on without it"
            )
        if walk.has_bytes(position):
            _log.info("a torn write was cut off", log=self._log.name, position=position)
        segment.cut(position)
        try:
            segment.reserve()
        except OSError as error:
            _log.warning("disk blocks cannot be reserved", path=str(segment.path), error=str(error))
        # What a killed process had written, but not synced, is about to become visible.
        segment.sync()
        self._log.end_at(position)

    def _whole_entries(self, walk: _Walk, position: int, limit: int) -> int:
        """Hands on entries from `position` up to the first one that is not whole."""
        log, accept = self._log.name, self._ledger.accept
        while position < limit:
            try:
                entry = walk.entry(position)
            except DataCorrupt:
                return position
            if isinstance(entry, Mark):
                self._synced = max(self._synced, entry.synced)
                position += MARK_BYTES
                continue
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

    def _look_ahead(self, walk: _Walk, position: int | None) -> None:
        """Learns from later groups how far the disk was known to be durable."""
        while position is not None:
            try:
                entry = walk.entry(position)
            except DataCorrupt:
                position = walk.following(position + 1)
                continue
            if isinstance(entry, Mark):
                self._synced = max(self._synced, entry.synced)
                position += MARK_BYTES
            else:
                position += entry.length

    @staticmethod
    def _scan_from(walk: _Walk, position: int) -> int:
        # A sound head says where its batch ends, so nothing inside the batch is taken for one.
        head = walk.sound_head(position)
        return position + (1 if head is None else head.length)

    def _note(self, walk: _Walk, position: int, end: int) -> None:
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
            self._report(Damage(self._log.name, segment.base, 0, segment.header_damage))

    def _report(self, damage: Damage) -> None:
        self.damage.append(damage)
        _log.error("the log is damaged", **damage._asdict())


def recover(log: CommitLog, ledger: Ledger, *, synced: int) -> list[Damage]:
    """Hands every whole batch of an open log to the ledger and finds the log's end.

    The log is ready for writing on return, and all that was accepted is durable.

    Args:
        log: opened, not yet read.
        ledger: who is told of the batches.
        synced: the log is known to have been durable up to here at its last clean end.

    Raises:
        DataCorrupt: bytes that were durable are not there at all; a person has to decide.
        FormatTooNew: a newer version wrote a part of it.
        OSError: a file cannot be read or written.
    """
    limit = log.active.limit if log.active else 0
    if synced > limit:
        raise DataCorrupt(
            f"the log {log.name!r} reached position {synced} when it was closed, but its files end"
            f" at {limit}: a segment file is missing; put it back"
        )
    recovery = _Recovery(log, ledger, synced)
    recovery.run()
    return recovery.damage
