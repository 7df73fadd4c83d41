"""
Reads the entries of one segment in order, and finds the next whole entry after bad bytes.

Used by `log.recovery`, `check.inspection` and `check.repair`, which judge its findings, and by the indexes; reads
a segment. It distinguishes whole entries from damaged bytes, but knows no producers.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from headrace_mq.errors import CorruptBatch, DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BATCH_HEADER_BYTES,
    PLAIN_BYTES_MAX,
    BatchHeader,
    check_body,
    check_head,
    read_header,
)
from headrace_mq.store.segment.segment import (
    MARK_BYTES,
    MARK_MAGIC,
    SEGMENT_HEADER_BYTES,
    Segment,
    WriteMark,
    decode_mark,
)

__all__ = ["SECTOR_BYTES", "ZEROS_MAX_BYTES", "Damage", "Gap", "LogWalk"]

# A start reads this much at a time.
_WINDOW_BYTES = 4 << 20
# A header and the longest topic its one-byte length can name.
_HEAD_READ_BYTES = BATCH_HEADER_BYTES + 255
_ENTRY_MAGIC = re.compile(rb"HR[BG]1")
_MAGIC_BYTES = 4
# The smallest unit that a disk writes as a whole.
SECTOR_BYTES = 512
# No batch that can be decoded holds more zeros in a row. So after this many, no write was ever complete: a start
# need not read the gigabyte that is reserved after a log's end.
ZEROS_MAX_BYTES = PLAIN_BYTES_MAX


class Damage(NamedTuple):
    """Damaged bytes of a log.

    `queue`, `base_offset` and `records` say which messages they held, if known.
    """

    log: str
    position: int
    length: int
    reason: str
    queue: QueueRef | None = None
    base_offset: int = -1
    records: int = 0

    @property
    def sentence(self) -> str:
        """Returns the messages or the position, and the flaw, as a sentence."""
        if self.queue is None:
            return f"{self.log} at log position {self.position}: {self.reason}"
        topic, queue_id = self.queue
        return f"{topic}/{queue_id} from offset {self.base_offset}, {self.records}: {self.reason}"

    def facts(self) -> dict[str, object]:
        """Returns the same as fields of a log line."""
        place = {"log": self.log, "position": self.position, "length": self.length}
        if self.queue is None:
            return {**place, "reason": self.reason}
        topic, queue_id = self.queue
        messages = {"base_offset": self.base_offset, "messages": self.records}
        return {"topic": topic, "queue_id": queue_id, **messages, **place, "reason": self.reason}


class Gap(NamedTuple):
    """Bytes that are not a whole entry, up to the next entry or to the limit.

    `head` is the header of the batch at this position, if the broker's part of it is sound.
    """

    start: int
    end: int
    head: BatchHeader | None
    whole_follows: bool


class LogWalk:
    """Reads the entries of one segment, up to the log position `limit`.

    Args:
        segment: to read.
        limit: read no byte at or above it.
        window_bytes: read at a time, at least a header; a larger batch is read whole.

    Attributes:
        position: where `batches` continues.
    """

    def __init__(self, segment: Segment, limit: int, *, window_bytes: int = _WINDOW_BYTES) -> None:
        self._segment = segment
        self._limit = limit
        self._window_bytes = max(window_bytes, _HEAD_READ_BYTES)
        self.position = segment.base
        self._buffer = b""
        self._start = segment.base

    def entries(self, *, synced: int | None = None) -> Iterator[WriteMark | BatchHeader | Gap]:
        """Yields entries and gaps in order, up to the limit; they cover every byte.

        Args:
            synced: for the active segment: from here on, and from the "synced" of its marks on, zeros may mean
                that nothing was written. None for any other segment.

        Raises:
            FormatTooNew: a newer version wrote the next entry.
            OSError: the file cannot be read.
        """
        yield from self.entries_from(self._segment.base, synced=synced)

    def entries_from(
        self, position: int, *, synced: int | None = None
    ) -> Iterator[WriteMark | BatchHeader | Gap]:
        """Does the same from a position on at which an entry begins; see `entries`."""
        while position < self._limit:
            try:
                entry = self.entry(position)
            except DataCorrupt:
                gap = self._gap(position, synced)
                yield gap
                position = gap.end
                continue
            if isinstance(entry, WriteMark):
                position += MARK_BYTES
                synced = None if synced is None else max(synced, entry.synced)
            else:
                position += entry.length
            yield entry

    def _gap(self, position: int, durable: int | None) -> Gap:
        head = self.sound_head(position)
        # A sound head gives the end of its batch, so no bytes inside are mistaken for a batch.
        behind = position + (1 if head is None else head.length)
        following = self.following(behind, durable=durable)
        end = self._limit if following is None else following
        return Gap(position, end, head, following is not None)

    def entry(self, position: int) -> WriteMark | BatchHeader:
        """Returns the whole entry at `position`.

        Raises:
            DataCorrupt: there is no whole entry.
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
            DataCorrupt: it is not sound.
            FormatTooNew: it is sound, but a newer version wrote it.
        """
        at = self._window(position, _HEAD_READ_BYTES)
        if len(self._buffer) - at < BATCH_HEADER_BYTES:
            raise DataCorrupt(f"the segment ends at {position}")
        if not self._buffer.startswith(b"HRB1", at):
            raise DataCorrupt(f"no entry at {position}")
        # Checked first, so that a flipped bit in the version is damage, not a newer version.
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
        """Whether a byte other than zero follows soon after `position`."""
        at = self._window(position, SECTOR_BYTES)
        return any(self._buffer[at : at + SECTOR_BYTES])

    def following(
        self, position: int, *, until: int | None = None, durable: int | None = None
    ) -> int | None:
        """Returns the next position from `position` on where a whole entry begins.

        Args:
            position: where to begin.
            until: stop the search about here; None: at the limit.
            durable: from this position on, ZEROS_MAX_BYTES of zeros in a row end the search; None if every
                byte was written, so that zeros mean nothing.
        """
        zeros = 0
        end = self._limit if until is None else min(until, self._limit)
        while position < end and zeros < ZEROS_MAX_BYTES:
            data = self._segment.next_data(position)
            if data is None or data >= end:
                return None
            position = max(position, data)
            at = self._window(position, min(self._window_bytes, self._limit - position))
            # Checking a candidate may move the window, so keep these bytes.
            buffer, start = self._buffer, self._start
            if len(buffer) - at < _MAGIC_BYTES:
                return None
            if not at and buffer == bytes(len(buffer)):
                if durable is not None and start >= durable:
                    zeros += len(buffer)
                position = start + len(buffer)
                continue
            zeros = 0
            for found in _ENTRY_MAGIC.finditer(buffer, at):
                if self._is_whole(start + found.start()):
                    return start + found.start()
            position = start + len(buffer) - _MAGIC_BYTES + 1
        return None

    def has_unwritten_sector(self, position: int, end: int) -> bool:
        """Whether the bytes of a sector in this range are all zeros, as if never written."""
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
        """Loads `length` bytes from `position`; returns their index in the buffer."""
        at = position - self._start
        if at < 0 or at + length > len(self._buffer):
            size = min(max(length, self._window_bytes), max(0, self._limit - position))
            self._buffer = self._segment.read(position, size)
            self._start, at = position, 0
        return at

    def batch(self, header: BatchHeader) -> bytes:
        """Returns the bytes of a batch, by a header that this walk returned."""
        at = self._window(header.position, header.length)
        return self._buffer[at : at + header.length]

    def batches(self, position: int, until: int) -> Iterator[BatchHeader]:
        """Yields every whole batch that begins between two positions; skips damage.

        Raises:
            FormatTooNew: a newer version wrote the next one.
            OSError: the file cannot be read.
        """
        self.position = position
        while self.position < until:
            try:
                entry = self.entry(self.position)
            except DataCorrupt:
                head = self.sound_head(self.position)
                behind = self.position + (1 if head is None else head.length)
                self.position = self.following(behind, until=until) or max(behind, until)
                continue
            if isinstance(entry, WriteMark):
                self.position += MARK_BYTES
                continue
            self.position += entry.length
            yield entry

    def heads(self, position: int) -> Iterator[BatchHeader]:
        """Yields every header with a sound head from `position` on; does not read the bodies."""
        while position < self._limit:
            at = self._window(position, MARK_BYTES)
            if self._buffer.startswith(MARK_MAGIC, at):
                position += MARK_BYTES
                continue
            head = self.sound_head(position)
            if head is not None:
                yield head
                position += head.length
                continue
            following = self.following(position + 1)
            if following is None:
                return
            position = following
