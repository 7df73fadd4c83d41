"""
One file of a commit log: a header block, then record batches and group marks back to back.

Used by `log.commit_log`, which keeps segments in order. It knows every byte of the header and the mark
(`FORMAT.md` draws them), record batches only by their length, and no queues.
"""

import errno
import struct
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from headrace_mq._runtime.files import Files, write_all
from headrace_mq.errors import DataCorrupt, FormatTooNew

__all__ = [
    "MARK_BYTES",
    "MARK_MAGIC",
    "NO_DESCRIPTORS",
    "RESERVED_FIRST_BYTES",
    "RESERVED_STEP_BYTES",
    "SEGMENT_HEADER_BYTES",
    "SEGMENT_SUFFIX",
    "SMALL_WRITE_BYTES",
    "UNFINISHED_SUFFIX",
    "ZEROS_AHEAD_BYTES",
    "Compacted",
    "Place",
    "Segment",
    "SegmentPlan",
    "SyncFailed",
    "WriteMark",
    "compacted_header",
    "decode_mark",
    "encode_mark",
    "reserved_bytes",
    "segment_name",
]

SEGMENT_MAGIC = b"HRSEGMNT"
# The newest format that this version reads. An active segment has format 1, a compacted one format 2: so an
# older version refuses it as newer, and does not take removed records for damage.
SEGMENT_FORMAT = 2
WRITTEN_FORMAT, COMPACTED_FORMAT = 1, 2
# One page, so that writing messages never touches the header's sectors.
SEGMENT_HEADER_BYTES = 4_096
SEGMENT_SUFFIX = ".log"
# A segment has this name until its header is durable.
UNFINISHED_SUFFIX = ".log.new"

# A write this small also writes zeros ahead, so that the next writes overwrite existing blocks: their sync
# need not convert reserved blocks, which halves its time (measured on ext4: 112 instead of 232 us for
# 11 KiB). For larger writes the zeros cost more than they save.
SMALL_WRITE_BYTES = 64 << 10
# With 11 KiB per sync, every 24th one writes zeros. A start may have to read as many zeros.
ZEROS_AHEAD_BYTES = 256 << 10

# A segment's file is reserved in steps, so that a broker with a few messages takes a few MiB of disk: it
# doubles from the first size on, then grows by the step. On ext4 a step took 0.1 ms, and the sync after it no
# longer than others that convert reserved blocks.
RESERVED_FIRST_BYTES = 4 << 20
RESERVED_STEP_BYTES = 64 << 20

_HEADER = struct.Struct("<8sHHIqqqI16s4x")
# Format 2 adds these fields after the header of format 1: all of `Compacted`.
_COMPACTED = struct.Struct("<qqqqqq")
_COMPACTED_AT = _HEADER.size
_NAME_DIGITS = 20

MARK_MAGIC = b"HRG1"
MARK_FORMAT = 1
MARK_BYTES = 32
_MARK = struct.Struct("<4sBxHIIqq")
_CRC = struct.Struct("<I")
_MARK_CRC_AT, _HEADER_CRC_AT = 8, 12
# Each write encodes one, so the constant part is made once.
_MARK_START = struct.pack("<4sBxH", MARK_MAGIC, MARK_FORMAT, MARK_BYTES)
_MARK_BEHIND_CRC = struct.Struct("<Iqq")


# The process has no file descriptor left.
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class SyncFailed(Exception):
    """The disk did not confirm a write: its content is unknown from now on.

    This is not an OSError, because no failed sync may be retried, not even on a full disk: the kernel may have
    dropped the bytes, and reports success the next time.
    """


class WriteMark(NamedTuple):
    """The mark before the batches of one group write.

    When the group was written, every byte below `synced` was durable. Bad bytes below it are damage; bad bytes
    above it may be a torn write.
    """

    position: int
    synced: int


class Place(NamedTuple):
    """The place of one whole batch in its log."""

    position: int
    length: int


class Compacted(NamedTuple):
    """The extra fields of a compacted segment.

    Attributes:
        end: log position after its last batch.
        covers: log position at which the next segment begins; records in between are removed, or are
            part of this segment if it joined several.
        cleaned_ms: since when each of its keys has had one record, in ms since 1970; 0 if superseded
            records remain in it.
        tombstones: the number of records that delete their key.
        rounds: how often it was rewritten; distinguishes files of the same name.
        forgotten: the number of tombstones that were removed from it because of their age.
    """

    end: int
    covers: int
    cleaned_ms: int
    tombstones: int
    rounds: int
    forgotten: int = 0


class SegmentPlan(NamedTuple):
    """The facts to make a new segment from."""

    directory: Path
    log: str
    base: int
    file_bytes: int
    epoch: int
    now_ms: int


def segment_name(base: int) -> str:
    """Returns the file name of the segment whose first byte is at log position `base`."""
    return f"{base:0{_NAME_DIGITS}d}{SEGMENT_SUFFIX}"


def reserved_bytes(needed: int, most: int) -> int:
    """Returns the size to which a file of at most `most` bytes is reserved, so that `needed` bytes fit."""
    if needed > RESERVED_STEP_BYTES:
        size = -(-needed // RESERVED_STEP_BYTES) * RESERVED_STEP_BYTES
    else:
        size = RESERVED_FIRST_BYTES
        while size < needed:
            size *= 2
    return min(size, most)


def encode_mark(mark: WriteMark | tuple[int, int]) -> bytes:
    """Builds the 32 bytes of a mark; accepts a plain tuple."""
    position, synced = mark
    behind = _MARK_BEHIND_CRC.pack(0, position, synced)
    return _MARK_START + _CRC.pack(google_crc32c.value(_MARK_START + behind)) + behind


def decode_mark(buffer: bytes, at: int) -> WriteMark:
    """Reads and checks the mark at byte `at`.

    Raises:
        DataCorrupt: there is no whole, sound mark.
        FormatTooNew: a newer version wrote it.
    """
    plain = buffer[at : at + MARK_BYTES]
    if len(plain) < MARK_BYTES or plain[:4] != MARK_MAGIC:
        raise DataCorrupt(f"no group mark at byte {at}")
    _, version, _, crc, _, position, synced = _MARK.unpack(plain)
    if crc != google_crc32c.value(plain[:_MARK_CRC_AT] + plain[_MARK_CRC_AT + _CRC.size :]):
        raise DataCorrupt(f"the group mark at byte {at} fails its checksum")
    if version > MARK_FORMAT:
        raise FormatTooNew(
            f"a group mark of format {version} was written by a newer version; this one reads"
            f" up to format {MARK_FORMAT}"
        )
    return WriteMark(position, synced)


def _encode_header(plan: SegmentPlan) -> bytes:
    block = bytearray(SEGMENT_HEADER_BYTES)
    _HEADER.pack_into(
        block, 0, SEGMENT_MAGIC, WRITTEN_FORMAT, SEGMENT_HEADER_BYTES, 0,
        plan.base, plan.now_ms, plan.file_bytes, plan.epoch, plan.log.encode(),
    )  # fmt: skip
    return _sealed(block)


def compacted_header(plan: SegmentPlan, compacted: Compacted) -> bytes:
    """Builds the first page of a compacted segment."""
    block = bytearray(SEGMENT_HEADER_BYTES)
    _HEADER.pack_into(
        block, 0, SEGMENT_MAGIC, COMPACTED_FORMAT, SEGMENT_HEADER_BYTES, 0,
        plan.base, plan.now_ms, plan.file_bytes, plan.epoch, plan.log.encode(),
    )  # fmt: skip
    _COMPACTED.pack_into(block, _COMPACTED_AT, *compacted)
    return _sealed(block)


def _sealed(block: bytearray) -> bytes:
    _CRC.pack_into(block, _HEADER_CRC_AT, _header_crc(bytes(block)))
    return bytes(block)


def _header_crc(block: bytes) -> int:
    return int(google_crc32c.value(block[:_HEADER_CRC_AT] + block[_HEADER_CRC_AT + _CRC.size :]))


class Segment:
    """One open segment file.

    Attributes:
        path: the file.
        base: log position of the first byte after the header.
        capacity: planned bytes for marks and batches; for a compacted segment, the log positions that
            it covers.
        compacted: the extra fields of a compacted segment, or None.
        header_damage: a sentence if the header fails its checksum; then the file name gives the base.
        identity: the header's checksum, 0 if damaged; distinguishes segments of the same name.
    """

    __slots__ = (
        "_fd", "_files", "_reserved", "_shift", "_written_to", "base", "capacity", "compacted", "header_damage",
        "identity", "path",
    )  # fmt: skip

    def __init__(self, files: Files, path: Path, fd: int, *, base: int, capacity: int) -> None:
        self._files = files
        self._fd = fd
        self.path = path
        self.base = base
        self.capacity = capacity
        self.compacted: Compacted | None = None
        self.header_damage: str | None = None
        self.identity = 0
        self._written_to = base
        # The size of the file; what lies behind `_written_to` is reserved.
        self._reserved = files.size(fd)
        # Add it to a log position to get the byte in the file.
        self._shift = SEGMENT_HEADER_BYTES - base

    @classmethod
    def create(cls, files: Files, plan: SegmentPlan) -> "Segment":
        """Makes a segment whose first bytes are reserved; it is durable under its name on return.

        Raises:
            OSError: the disk is full, or the like; no file is left.
            SyncFailed: the segment may or may not be there.
        """
        path = plan.directory / segment_name(plan.base)
        unfinished = path.with_suffix(UNFINISHED_SUFFIX)
        fd = files.open(unfinished, create=True)
        try:
            files.allocate(fd, reserved_bytes(SEGMENT_HEADER_BYTES, plan.file_bytes))
            header = _encode_header(plan)
            write_all(files, fd, 0, [header])
            segment = cls(
                files, path, fd, base=plan.base, capacity=plan.file_bytes - SEGMENT_HEADER_BYTES
            )
            segment.identity = _header_crc(header)
            segment.sync()
            segment._publish(unfinished)
        except BaseException:
            files.close(fd)
            _remove_quietly(files, unfinished)
            raise
        return segment

    @classmethod
    def open(cls, files: Files, path: Path, *, log: str, file_bytes: int) -> "Segment":
        """Opens a segment and checks its header.

        If the header is damaged, `file_bytes` gives the size.

        Raises:
            FormatTooNew: a newer version wrote it.
            DataCorrupt: it is a sound segment of another position or log.
        """
        base = int(path.name.partition(".")[0])
        fd = files.open(path)
        try:
            segment = cls(files, path, fd, base=base, capacity=file_bytes - SEGMENT_HEADER_BYTES)
            segment._check_header(files.read(fd, 0, SEGMENT_HEADER_BYTES), log)
        except BaseException:
            files.close(fd)
            raise
        return segment

    def _check_header(self, block: bytes, log: str) -> None:
        if len(block) < SEGMENT_HEADER_BYTES or not block.startswith(SEGMENT_MAGIC):
            self.header_damage = f"{self.path} has no segment header"
            return
        _, version, _, crc, base, _, file_bytes, _, name = _HEADER.unpack_from(block)
        # Checked first, so that a flipped bit in the version is damage, not a newer version.
        if crc != _header_crc(block):
            self.header_damage = f"the header of {self.path} fails its checksum"
            return
        if version > SEGMENT_FORMAT:
            raise FormatTooNew(
                f"{self.path} has segment format {version}, this version reads up to"
                f" {SEGMENT_FORMAT}; start the version that wrote it"
            )
        written_for = name.rstrip(b"\0").decode()
        if base != self.base or written_for != log:
            raise DataCorrupt(
                f"{self.path} is segment {segment_name(base)} of the log {written_for!r};"
                " move the file back to its place"
            )
        self.capacity = file_bytes - SEGMENT_HEADER_BYTES
        self.identity = crc
        if version == COMPACTED_FORMAT:
            self.compacted = Compacted(*_COMPACTED.unpack_from(block, _COMPACTED_AT))
            self.capacity = self.compacted.covers - base

    def _publish(self, unfinished: Path) -> None:
        try:
            self._files.rename(unfinished, self.path)
            self._files.sync_directory(self.path.parent)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                # No sync was tried, so the outcome is known: remove the file; the next attempt makes it again.
                _remove_quietly(self._files, self.path)
                raise
            raise SyncFailed(f"{self.path}: {error}") from error

    @property
    def limit(self) -> int:
        """Log position after the last byte that fits."""
        return self.base + self.capacity

    @property
    def file_bytes(self) -> int:
        """The size of its file on the disk."""
        if self.compacted is not None:
            return SEGMENT_HEADER_BYTES + self.compacted.end - self.base
        return self._reserved

    def data_end(self, limit: int) -> int:
        """Returns the log position after its last entry, if the segment ends at `limit`."""
        return limit if self.compacted is None else min(limit, self.compacted.end)

    @property
    def held_end(self) -> int:
        """Log position after the last byte of the file."""
        return self.base + max(0, self._files.size(self._fd) - SEGMENT_HEADER_BYTES)

    def read(self, position: int, length: int) -> bytes:
        """Reads up to `length` bytes from a log position; fewer at the end of the file."""
        return self._files.read(self._fd, position + self._shift, length)

    def read_cached(self, position: int, length: int) -> bytearray | None:
        """Returns the same bytes if memory holds all of them, or None; raises OSError if that is unknown."""
        return self._files.read_cached(self._fd, position + self._shift, length)

    def write(self, position: int, parts: list[bytes]) -> None:
        """Writes all parts at the end of the log, and sometimes zeros after them; reserves more if needed.

        After an OSError, some of the bytes may be written.
        """
        end = position + sum(map(len, parts))
        if end > self._written_to:
            zeros = min(ZEROS_AHEAD_BYTES, self.limit - end)
            if zeros > 0 and end - position <= SMALL_WRITE_BYTES:
                parts = [*parts, bytes(zeros)]
                end += zeros
            if end + self._shift > self._reserved:
                self._reserve(end)
            self._written_to = end
        write_all(self._files, self._fd, position + self._shift, parts)

    def mend(self, position: int, data: bytes) -> None:
        """Writes over bytes that were written before; reserves nothing, and writes nothing behind them.

        After an OSError, some of the bytes may be written.
        """
        write_all(self._files, self._fd, position + self._shift, [data])

    def sync(self) -> int:
        """Makes all written bytes durable; returns the time this took, in microseconds.

        Raises:
            SyncFailed: the disk's content is unknown, or the file was removed: the system still writes to it,
                but no program can ever open it again.
        """
        try:
            took_us = self._files.sync(self._fd)
            removed = self._files.is_removed(self._fd)
        except OSError as error:
            raise SyncFailed(f"{self.path}: {error}") from error
        if removed:
            raise SyncFailed(f"{self.path} was removed while the broker ran")
        return took_us

    def next_data(self, position: int) -> int | None:
        """Returns the first log position from `position` on that may hold bytes other than zero."""
        at = self._files.next_data(self._fd, position + self._shift)
        return None if at is None else at - self._shift

    def cut(self, position: int) -> None:
        """Replaces every byte from a log position on by zeros, and gives reserved bytes back to the disk."""
        self._files.truncate(self._fd, position + self._shift)
        self._written_to = position
        self._reserved = position + self._shift

    def reserve(self) -> None:
        """Reserves disk blocks for what is written and for more, up to the capacity.

        Raises:
            OSError: the disk is full, or the like; `cut` gives back what is reserved already.
        """
        self._reserve(self._written_to)

    def _reserve(self, end: int) -> None:
        needed = end + self._shift
        size = reserved_bytes(needed, max(needed, SEGMENT_HEADER_BYTES + self.capacity))
        self._files.allocate(self._fd, size)
        self._reserved = size

    def close(self) -> None:
        """Closes the file."""
        self._files.close(self._fd)


def _remove_quietly(files: Files, path: Path) -> None:
    # The caller raises the error that matters; recovery removes leftover files.
    try:
        files.remove(path)
    except OSError:
        return
