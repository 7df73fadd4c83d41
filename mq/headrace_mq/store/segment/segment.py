"""
One file of a commit log: a header block, then record batches and group marks back to back.

Used by `log.commit_log`, which keeps segments in order. It knows the header and the mark to the byte
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
    "segment_name",
]

SEGMENT_MAGIC = b"HRSEGMNT"
# Read up to this one. A segment that is written to has the first; a compacted one the second, so that
# an older version refuses it as newer and does not take what was taken out for damage.
SEGMENT_FORMAT = 2
WRITTEN_FORMAT, COMPACTED_FORMAT = 1, 2
# One page, so that no write of messages ever touches the header's sectors again.
SEGMENT_HEADER_BYTES = 4_096
SEGMENT_SUFFIX = ".log"
# A segment has this name until its header is durable.
UNFINISHED_SUFFIX = ".log.new"

# A write this small also writes zeros ahead, so that the next ones overwrite blocks that are there:
# their sync has no reserved block to turn into a written one, which halves its time (measured on
# ext4: 112 instead of 232 us for 11 KiB). A larger write would gain less than its zeros cost.
SMALL_WRITE_BYTES = 64 << 10
# Every 24th sync of 11 KiB carries them then, and a start may have as much to look through.
ZEROS_AHEAD_BYTES = 256 << 10

_HEADER = struct.Struct("<8sHHIqqqI16s4x")
# Of format 2, behind the header of format 1: all of `Compacted`.
_COMPACTED = struct.Struct("<qqqqq")
_COMPACTED_AT = _HEADER.size
_NAME_DIGITS = 20

MARK_MAGIC = b"HRG1"
MARK_FORMAT = 1
MARK_BYTES = 32
_MARK = struct.Struct("<4sBxHIIqq")
_CRC = struct.Struct("<I")
_MARK_CRC_AT, _HEADER_CRC_AT = 8, 12
# The same in pieces, since one is encoded with every write: what never changes, and the rest.
_MARK_START = struct.pack("<4sBxH", MARK_MAGIC, MARK_FORMAT, MARK_BYTES)
_MARK_BEHIND_CRC = struct.Struct("<Iqq")


# As many files and sockets are open as the system grants.
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class SyncFailed(Exception):
    """The disk did not confirm a write: what it holds is unknown from now on.

    Kept apart from OSError because no errno of a failed sync, not even a full disk, may be
    retried: the kernel may have dropped the bytes and will report success next time.
    """


class WriteMark(NamedTuple):
    """What stands before the batches of one group write.

    `synced` is the log position below which every byte was durable when the group was written:
    the line between bytes that may be torn and bytes that can only be damaged.
    """

    position: int
    synced: int


class Place(NamedTuple):
    """Where one whole batch stands in its log."""

    position: int
    length: int


class Compacted(NamedTuple):
    """What tells a compacted segment from one that was written to.

    Attributes:
        end: log position behind its last batch.
        covers: log position at which the next segment begins: what stood in between is gone, or
            stands in this segment where several became one.
        cleaned_ms: when each of its keys had one record left for the first time, in ms since 1970;
            0 where records that are superseded within it remain.
        tombstones: how many records in it delete their key.
        rounds: how often it was rewritten, so that no two files of a name are taken for each other.
    """

    end: int
    covers: int
    cleaned_ms: int
    tombstones: int
    rounds: int


class SegmentPlan(NamedTuple):
    """What a new segment is made from."""

    directory: Path
    log: str
    base: int
    file_bytes: int
    epoch: int
    now_ms: int


def segment_name(base: int) -> str:
    """Returns the file name of the segment whose first byte is at log position `base`."""
    return f"{base:0{_NAME_DIGITS}d}{SEGMENT_SUFFIX}"


def encode_mark(mark: WriteMark | tuple[int, int]) -> bytes:
    """Builds the 32 bytes of a mark, which may be a plain tuple."""
    position, synced = mark
    behind = _MARK_BEHIND_CRC.pack(0, position, synced)
    return _MARK_START + _CRC.pack(google_crc32c.value(_MARK_START + behind)) + behind


def decode_mark(buffer: bytes, at: int) -> WriteMark:
    """Reads and checks the mark at byte `at`.

    Raises:
        DataCorrupt: there is no whole, undamaged mark.
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
        capacity: bytes for marks and batches that the file was planned for; of a compacted
            segment the log positions that it stands for.
        compacted: what a compaction says of it, or None.
        header_damage: a sentence when the header fails its checksum; its file name then counts.
        identity: the header's checksum, 0 if that is damaged: tells segments of one name apart.
    """

    __slots__ = (
        "_fd", "_files", "_shift", "_written_to", "base", "capacity", "compacted", "header_damage",
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
        # From a log position to a place in the file.
        self._shift = SEGMENT_HEADER_BYTES - base

    @classmethod
    def create(cls, files: Files, plan: SegmentPlan) -> "Segment":
        """Makes a segment of reserved, zeroed bytes; durable with its name on return.

        Raises:
            OSError: no space or the like; nothing is left behind.
            SyncFailed: the segment may or may not be there.
        """
        path = plan.directory / segment_name(plan.base)
        unfinished = path.with_suffix(UNFINISHED_SUFFIX)
        fd = files.open(unfinished, create=True)
        try:
            files.allocate(fd, plan.file_bytes)
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

        `file_bytes` counts where the header is damaged and cannot say it.

        Raises:
            FormatTooNew: a newer version wrote it.
            DataCorrupt: it is a sound segment, but of another place or log.
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
        # First, so that a flipped bit in the version is damage and no newer version.
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
                # Nothing was synced, so nothing is unknown: it goes, and is made again.
                _remove_quietly(self._files, self.path)
                raise
            raise SyncFailed(f"{self.path}: {error}") from error

    @property
    def limit(self) -> int:
        """Log position after the last byte that fits."""
        return self.base + self.capacity

    @property
    def file_bytes(self) -> int:
        """What its file takes on the disk."""
        if self.compacted is not None:
            return SEGMENT_HEADER_BYTES + self.compacted.end - self.base
        return SEGMENT_HEADER_BYTES + self.capacity

    def data_end(self, limit: int) -> int:
        """Log position behind its last entry, where the segment ends at `limit`."""
        return limit if self.compacted is None else min(limit, self.compacted.end)

    @property
    def held_end(self) -> int:
        """Log position after the last byte of the file."""
        return self.base + max(0, self._files.size(self._fd) - SEGMENT_HEADER_BYTES)

    def read(self, position: int, length: int) -> bytes:
        """Reads up to `length` bytes from a log position; fewer at the end of the file."""
        return self._files.read(self._fd, position + self._shift, length)

    def read_cached(self, position: int, length: int) -> bytearray | None:
        """The same bytes if memory holds them all, or None; raises OSError where none can tell."""
        return self._files.read_cached(self._fd, position + self._shift, length)

    def write(self, position: int, parts: list[bytes]) -> None:
        """Writes all parts at a log position, the end of the log, and now and then zeros behind.

        On OSError some of it may be written.
        """
        end = position + sum(map(len, parts))
        if end > self._written_to:
            self._written_to = end
            zeros = min(ZEROS_AHEAD_BYTES, self.limit - end)
            if zeros > 0 and end - position <= SMALL_WRITE_BYTES:
                parts = [*parts, bytes(zeros)]
                self._written_to += zeros
        write_all(self._files, self._fd, position + self._shift, parts)

    def sync(self) -> int:
        """Makes what was written durable; returns the microseconds it took.

        Raises:
            SyncFailed: it is unknown what the disk holds, or the file was removed: the system still
                writes to it, but nothing will ever read it again.
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
        """The first log position from `position` on that may hold other bytes than zeros."""
        at = self._files.next_data(self._fd, position + self._shift)
        return None if at is None else at - self._shift

    def cut(self, position: int) -> None:
        """Drops every byte from a log position on; zeros stand there afterwards."""
        self._files.truncate(self._fd, position + self._shift)
        self._written_to = position

    def reserve(self) -> None:
        """Reserves disk blocks for the whole capacity again, after a cut."""
        self._files.allocate(self._fd, SEGMENT_HEADER_BYTES + self.capacity)

    def close(self) -> None:
        """Closes the file."""
        self._files.close(self._fd)


def _remove_quietly(files: Files, path: Path) -> None:
    # The caller's error is the one worth raising; recovery removes leftovers anyway.
    try:
        files.remove(path)
    except OSError:
        return
