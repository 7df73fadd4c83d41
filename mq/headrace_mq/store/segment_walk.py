"""
Every entry of one segment file in order, and every stretch of bytes that is none. Reads only.

Sits between: `inspection` and `repair`, which judge and copy what is found, and a segment. Decides
nothing: what bad bytes mean is told by `recovery.judge`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from headrace_mq.errors import CorruptBatch, DataCorrupt
from headrace_mq.protocol.batch import (
    BATCH_HEADER_BYTES,
    MAGIC,
    BatchHeader,
    check_body,
    check_head,
    read_header,
)
from headrace_mq.store.segment import (
    MARK_BYTES,
    MARK_MAGIC,
    SEGMENT_HEADER_BYTES,
    Mark,
    Segment,
    decode_mark,
)

__all__ = ["SECTOR_BYTES", "Gap", "SegmentWalk"]

# The smallest unit that a disk writes as a whole.
SECTOR_BYTES = 512

# Read at once; larger batches are read whole.
_WINDOW_BYTES = 4 << 20
# A header and the longest topic its one-byte length can name.
_HEAD_READ_BYTES = BATCH_HEADER_BYTES + 255
_ENTRY_MAGIC = re.compile(rb"HR[BG]1")


class Gap(NamedTuple):
    """Bytes that are no whole entry, up to the next one or to the end of what was asked for.

    `head` is the header of the batch that stood there, where the broker's part of it is sound.
    """

    start: int
    end: int
    head: BatchHeader | None
    whole_follows: bool


class SegmentWalk:
    """What stands in one segment up to the log position `limit`."""

    def __init__(self, segment: Segment, limit: int) -> None:
        self._segment = segment
        self._limit = limit
        self._buffer = b""
        self._start = segment.base

    def entries(self) -> Iterator[Mark | BatchHeader | Gap]:
        """Yields everything in order, up to the limit, without a hole between.

        Raises:
            FormatTooNew: a newer version wrote the next entry.
            OSError: the file cannot be read.
        """
        position = self._segment.base
        while position < self._limit:
            try:
                entry = self._entry(position)
            except DataCorrupt:
                gap = self._gap(position)
                yield gap
                position = gap.end
                continue
            yield entry
            position += MARK_BYTES if isinstance(entry, Mark) else entry.length

    def batch(self, header: BatchHeader) -> bytes:
        """Returns the bytes of a batch that `entries` yielded."""
        return self._window(header.position, header.length)

    def has_bytes(self, position: int) -> bool:
        """Whether anything but zeros stands in the sector's length behind `position`."""
        return any(self._window(position, SECTOR_BYTES))

    def has_unwritten_sector(self, gap: Gap) -> bool:
        """Whether a sector's part of the gap is all zeros, as if it was never written."""
        position, skew = gap.start, SEGMENT_HEADER_BYTES - self._segment.base
        while position < gap.end:
            length = min(gap.end - position, SECTOR_BYTES - (position + skew) % SECTOR_BYTES)
            if not any(self._window(position, length)):
                return True
            position += length
        return False

    def _entry(self, position: int) -> Mark | BatchHeader:
        head = self._window(position, _HEAD_READ_BYTES)
        if head.startswith(MARK_MAGIC):
            mark = decode_mark(head, 0)
            if mark.position != position:
                raise DataCorrupt(f"a group mark of another place stands at {position}")
            return mark
        header = self._head(position)
        if header.length > self._limit - position:
            raise DataCorrupt(f"the record batch at {position} is longer than its segment")
        try:
            check_body(self._window(position, header.length))
        except CorruptBatch as error:
            raise DataCorrupt(f"the record batch at {position} is damaged") from error
        return header

    def _head(self, position: int) -> BatchHeader:
        head = self._window(position, _HEAD_READ_BYTES)
        if not head.startswith(MAGIC):
            raise DataCorrupt(f"no entry at {position}")
        # First, so that a flipped bit in the version is damage and no newer version.
        check_head(head)
        header = read_header(head)
        if header.position != position:
            raise DataCorrupt(f"a record batch of another place stands at {position}")
        return header

    def _gap(self, position: int) -> Gap:
        try:
            head = self._head(position)
        except DataCorrupt:
            head = None
        # A sound head says where its batch ends, so nothing inside the batch is taken for one.
        following = self._following(position + (1 if head is None else head.length))
        end = self._limit if following is None else following
        return Gap(position, end, head, following is not None)

    def _following(self, position: int) -> int | None:
        while position < self._limit:
            data = self._segment.next_data(position)
            if data is None or data >= self._limit:
                return None
            position = max(position, data)
            # Checking a candidate moves the window; these bytes stay.
            found = self._window(position, min(_WINDOW_BYTES, self._limit - position))
            for candidate in _ENTRY_MAGIC.finditer(found):
                if self._is_whole(position + candidate.start()):
                    return position + candidate.start()
            if len(found) < len(MAGIC):
                return None
            position += len(found) - len(MAGIC) + 1
        return None

    def _is_whole(self, position: int) -> bool:
        try:
            self._entry(position)
        except DataCorrupt:
            return False
        return True

    def _window(self, position: int, length: int) -> bytes:
        at = position - self._start
        if at < 0 or at + length > len(self._buffer):
            size = min(max(length, _WINDOW_BYTES), max(0, self._limit - position))
            self._buffer = self._segment.read(position, size)
            self._start, at = position, 0
        return self._buffer[at : at + length]
