"""
One index file: what a segment holds, in blocks of about 16 MiB of log, so that nothing need be read.

    ┌─────────────┬───────────────────────────────────┬───────────────────────────────────┬─ …
    │ file header │ block: header, pages, directory   │ block: header, pages, directory   │
    └─────────────┴───────────────────────────────────┴───────────────────────────────────┴─ …

The file is derived: whatever is wrong with it, the log is walked instead and the blocks are written
anew. Sits between: `log_index`, which says when a block is due, and a file. Drawn to the byte in
`FORMAT.md`.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import msgspec
import structlog

from headrace_mq._runtime.files import Files, write_all
from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BATCH_HEADER_BYTES, check_head
from headrace_mq.store.index_page import Page, page_bytes
from headrace_mq.store.log_walk import Damage
from headrace_mq.store.queue_index import PageRef, QueueIndex, Row
from headrace_mq.store.segment import SEGMENT_SUFFIX, Segment
from headrace_mq.store.sequences import Key, Sent

__all__ = ["INDEX_SUFFIX", "Block", "Directory", "Frozen", "Part", "SegmentIndex"]

_log = structlog.get_logger(__name__)

INDEX_SUFFIX = ".index"
INDEX_MAGIC = b"HRSEGIDX"
INDEX_FORMAT = 1
_FILE = struct.Struct("<8sHHIqI4x16s16x")
_BLOCK_MAGIC = b"HRIB"
_BLOCK = struct.Struct("<4sHxxIIqqqIII4xqqqqII")
_FILE_CRC_AT, _BLOCK_CRC_AT = 12, 8
_CRC = struct.Struct("<I")
_HEAD_CRC_AT = 12


class Part(NamedTuple):
    """One queue's share of a block: its pages, and the next offset behind them."""

    ref: QueueRef
    held: QueueIndex
    end: int
    pages: list[Page]


class Frozen(NamedTuple):
    """What a block is written from: everything in one range of one segment."""

    segment: int
    start: int
    end: int
    parts: list[Part]
    senders: dict[Key, tuple[Sent, ...]]
    damage: list[Damage]


class Block(NamedTuple):
    """A written block: its range of the log, its place in the file, its append times."""

    start: int
    end: int
    at: int
    size: int
    entries: int
    min_ms: int
    max_ms: int


class _QueueRows(NamedTuple):
    topic: str
    queue_id: int
    end: int
    rows: list[Row]


class _Sender(NamedTuple):
    producer_id: int
    producer_epoch: int
    queue: int
    sent: list[Sent]


class Directory(msgspec.Struct, frozen=True, array_like=True):
    """The part of a block that a start reads; rows point into the file."""

    queues: list[_QueueRows]
    senders: list[_Sender]
    damage: list[Damage]


_decode_directory = msgspec.msgpack.Decoder(Directory).decode


class SegmentIndex:
    """The index of one segment, in memory only what belongs to the file as a whole.

    Attributes:
        segment: whose index it is.
        blocks: written and good, by position.
        next_offsets: for every queue in the blocks, the offset behind its last batch in them.
    """

    def __init__(self, files: Files, segment: Segment, log: str) -> None:
        self._files = files
        self._log = log
        self._fd: int | None = None
        self._size = 0
        self.segment = segment
        self.path = index_path(segment.path)
        self.blocks: list[Block] = []
        self.next_offsets: dict[QueueRef, int] = {}

    @property
    def end(self) -> int:
        """Log position up to which the blocks tell everything."""
        return self.blocks[-1].end if self.blocks else self.segment.base

    def load(self, limit: int) -> Iterator[tuple[Block, Directory]]:
        """Yields every block that can be believed; what follows the last of them is cut off.

        Args:
            limit: no block may claim more than the log holds.
        """
        reason = self._open()
        while reason is None and self._fd is not None and self._size < self._files.size(self._fd):
            try:
                block, directory = self._read_block(limit)
            except (DataCorrupt, OSError) as error:
                reason = str(error)
                break
            self._size += block.size
            yield block, directory
        if reason is not None:
            _log.warning("an index is taken from the log again", path=str(self.path), why=reason)
            self.cut()

    def cut(self) -> None:
        """Drops what stands behind the accepted blocks from the file."""
        if self._fd is None:
            return
        last = self.blocks[-1] if self.blocks else None
        self._size = last.at + last.size if last else 0
        try:
            self._files.truncate(self._fd, self._size)
        except OSError as error:
            _log.warning("an index cannot be cut", path=str(self.path), error=str(error))

    def accept(self, block: Block, ends: Iterator[tuple[QueueRef, int]]) -> None:
        """Counts a block in: one that `load` yielded, or one that `append` wrote."""
        self.blocks.append(block)
        self.next_offsets.update(ends)

    def append(self, frozen: Frozen) -> tuple[Block, list[list[Row]]]:
        """Writes a block behind the others; returns the rows of each part. Called in a thread.

        Nothing counts before `accept`: a failed write is overwritten by the next one.

        Raises:
            OSError: no space or the like.
        """
        if self._fd is None:
            self._fd = self._files.open(self.path, create=True)
            self._size = 0
        at = max(self._size, _FILE.size)
        content, block, rows = _encode_block(frozen, at, self.segment)
        if self._size == 0:
            write_all(self._files, self._fd, 0, [self._header()])
        write_all(self._files, self._fd, at, content)
        self._size = at + block.size
        return block, rows

    def read_page(self, ref: PageRef) -> Page:
        """Reads one page.

        Raises:
            DataCorrupt: it is not the page that was written.
            OSError: it cannot be read.
        """
        if self._fd is None:
            raise DataCorrupt("an index has no file")
        page = Page.decode(self._files.read(self._fd, ref.at, page_bytes(ref.entries)))
        if page.first != ref.first or not self.segment.base <= page.position < self.end:
            raise DataCorrupt("a page of an index stands in a wrong place")
        return page

    def write_page(self, ref: PageRef, page: Page) -> None:
        """Replaces a damaged page where it stands; without success if the disk refuses."""
        if self._fd is not None:
            try:
                write_all(self._files, self._fd, ref.at, [page.encode()])
            except OSError as error:
                _log.warning("an index cannot be repaired", path=str(self.path), error=str(error))

    def block_at(self, at: int) -> Block:
        """Returns the block that holds a byte of the file."""
        return next(block for block in reversed(self.blocks) if block.at <= at)

    def close(self) -> None:
        """Closes the file."""
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None

    def _open(self) -> str | None:
        """Opens the file and checks its header; returns what is wrong with it."""
        try:
            self._fd = self._files.open(self.path)
            found = self._files.read(self._fd, 0, _FILE.size)
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error)
        if found == self._header():
            self._size = _FILE.size
            return None
        if len(found) < _FILE.size or not found.startswith(INDEX_MAGIC):
            return "it has no header"
        version = _FILE.unpack(found)[1]
        if version != INDEX_FORMAT:
            return f"it has format {version}, this version reads {INDEX_FORMAT}"
        return "its header is damaged, or it is the index of another segment"

    def _header(self) -> bytes:
        # The segment's own checksum ties the index to it, and not to another of the same name.
        identity = self.segment.identity
        plain = _FILE.pack(
            INDEX_MAGIC, INDEX_FORMAT, _FILE.size, 0, self.segment.base, identity,
            self._log.encode(),
        )  # fmt: skip
        return _sealed(plain, _FILE_CRC_AT)

    def _read_block(self, limit: int) -> tuple[Block, Directory]:
        assert self._fd is not None
        at = self._size
        head = self._files.read(self._fd, at, _BLOCK.size)
        if len(head) < _BLOCK.size or head != _sealed(head, _BLOCK_CRC_AT):
            raise DataCorrupt(f"the block at byte {at} is damaged")
        (
            magic, _, _, directory_crc, start, end, size, directory_at, directory_bytes, entries,
            min_ms, max_ms, first, last, first_crc, last_crc,
        ) = _BLOCK.unpack(head)  # fmt: skip
        if magic != _BLOCK_MAGIC or start != self.end or not start < end <= limit:
            raise DataCorrupt(f"the block at byte {at} claims what the log does not hold")
        directory = self._files.read(self._fd, at + directory_at, directory_bytes)
        if google_crc32c.value(directory) != directory_crc:
            raise DataCorrupt(f"the directory of the block at byte {at} is damaged")
        for position, crc in ((first, first_crc), (last, last_crc)):
            if entries and head_crc(self.segment, position) != crc:
                raise DataCorrupt(f"another batch than it says stands at log position {position}")
        try:
            decoded = _decode_directory(directory)
        except msgspec.DecodeError as error:
            raise DataCorrupt(f"the directory of the block at byte {at} is damaged") from error
        return Block(start, end, at, size, entries, min_ms, max_ms), decoded


def index_path(segment: Path) -> Path:
    """Returns where the index of a segment file stands."""
    return segment.with_name(segment.name.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX)


def head_crc(segment: Segment, position: int) -> int | None:
    """Returns the checksum of the head of a batch, which stands for all of it; None if unsound."""
    head = segment.read(position, BATCH_HEADER_BYTES)
    try:
        check_head(head)
    except DataCorrupt:
        return None
    return int(_CRC.unpack_from(head, _HEAD_CRC_AT)[0])


def _sealed(plain: bytes, crc_at: int) -> bytes:
    crc = google_crc32c.value(plain[:crc_at] + plain[crc_at + _CRC.size :])
    return plain[:crc_at] + _CRC.pack(crc) + plain[crc_at + _CRC.size :]


def _encode_block(
    frozen: Frozen, at: int, segment: Segment
) -> tuple[list[bytes], Block, list[list[Row]]]:
    pages: list[bytes] = []
    rows: list[list[Row]] = []
    entries: list[tuple[int, int]] = []
    size = _BLOCK.size
    count = 0
    for part in frozen.parts:
        rows.append([])
        for page in part.pages:
            encoded = page.encode()
            rows[-1].append(Row(page.first, page.max_ms, at + size, len(page)))
            size += len(encoded)
            pages.append(encoded)
            count += len(page)
            entries.append((page.position, page.entry(len(page) - 1).position))
    numbers = {part.ref: number for number, part in enumerate(frozen.parts)}
    directory = msgspec.msgpack.encode(
        Directory(
            [
                _QueueRows(*part.ref, part.end, of)
                for part, of in zip(frozen.parts, rows, strict=True)
            ],
            [
                _Sender(*key[:2], numbers[key[2]], list(sent))
                for key, sent in frozen.senders.items()
            ],
            frozen.damage,
        )
    )
    first = min((position for position, _ in entries), default=-1)
    last = max((position for _, position in entries), default=-1)
    all_pages = [page for part in frozen.parts for page in part.pages]
    block = Block(
        frozen.start, frozen.end, at, size + len(directory), count,
        min((page.min_ms for page in all_pages), default=0),
        max((page.max_ms for page in all_pages), default=0),
    )  # fmt: skip
    plain = _BLOCK.pack(
        _BLOCK_MAGIC, _BLOCK.size, 0, google_crc32c.value(directory), block.start, block.end,
        block.size, size, len(directory), count, block.min_ms, block.max_ms, first, last,
        (head_crc(segment, first) or 0) if count else 0,
        (head_crc(segment, last) or 0) if count else 0,
    )  # fmt: skip
    return [_sealed(plain, _BLOCK_CRC_AT), *pages, directory], block, rows
