"""
A file next to a segment that describes it in blocks, so that the log need not be read.

    ┌─────────────┬───────────────────────────────────┬───────────────────────────────────┬─ …
    │ file header │ block: header, pages, directory   │ block: header, pages, directory   │
    └─────────────┴───────────────────────────────────┴───────────────────────────────────┴─ …

The file is derived: if it is damaged, the store walks the log instead and writes the blocks again. Used by
`index.segment_index` and `keys.key_file`, which define pages and directories.
`FORMAT.md` draws the file to the byte.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import google_crc32c

from headrace_mq._runtime.files import Files, write_all
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import DataCorrupt
from headrace_mq.protocol.batch import BATCH_HEADER_BYTES, check_head
from headrace_mq.store.segment.segment import SEGMENT_SUFFIX, Segment

__all__ = ["BLOCK_HEADER_BYTES", "Block", "BlockFile", "Content", "Kind"]

_log = get_logger(__name__)

_FILE = struct.Struct("<8sHHIqI4x16s16x")
_BLOCK = struct.Struct("<4sHxxIIqqqIII4xqqqqII")
BLOCK_HEADER_BYTES = _BLOCK.size
_FILE_CRC_AT, _BLOCK_CRC_AT = 12, 8
_CRC = struct.Struct("<I")
_HEAD_CRC_AT = 12

D = TypeVar("D")


class Kind(NamedTuple, Generic[D]):
    """One kind of block file; `decode` raises DataCorrupt."""

    suffix: str
    magic: bytes
    block_magic: bytes
    version: int
    decode: Callable[[bytes], D]


class Content(NamedTuple):
    """The content of a new block; `first` and `last` are the positions of its first and last batch, or -1."""

    start: int
    end: int
    pages: list[bytes]
    directory: bytes
    entries: int
    min_ms: int
    max_ms: int
    first: int
    last: int


class Block(NamedTuple):
    """A written block: its range of the log, its place in the file, its append times."""

    start: int
    end: int
    at: int
    size: int
    entries: int
    min_ms: int
    max_ms: int
    directory_bytes: int
    directory_crc: int


class BlockFile(Generic[D]):
    """The block file of one segment; memory holds only the facts about the file as a whole.

    Attributes:
        segment: the segment that it describes.
        path: of the file.
        blocks: accepted blocks, by position.
        flaw: why `load` did not accept the whole file.
    """

    def __init__(self, files: Files, segment: Segment, log: str, kind: Kind[D]) -> None:
        self._files = files
        self._log = log
        self._kind = kind
        self._fd: int | None = None
        self._size = 0
        self.segment = segment
        self.path = segment.path.with_name(
            segment.path.name.removesuffix(SEGMENT_SUFFIX) + kind.suffix
        )
        self.blocks: list[Block] = []
        self.flaw: str | None = None

    @property
    def end(self) -> int:
        """Log position up to which the blocks cover the segment."""
        return self.blocks[-1].end if self.blocks else self.segment.base

    @property
    def next_at(self) -> int:
        """Byte of the file where the next block will begin."""
        return max(self._size, _FILE.size)

    def load(self, limit: int, *, keep: bool = False) -> Iterator[tuple[Block, D]]:
        """Yields every sound block; cuts off the bytes after the last one.

        The caller accepts each block before it takes the next one.

        Args:
            limit: the end of the log; a block beyond it is not sound.
            keep: do not change the file.
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
        self.flaw = reason
        if reason is not None and not keep:
            self.cut(reason)

    def cut(self, reason: str) -> None:
        """Cuts the file after the accepted blocks; logs the reason."""
        _log.warning(
            "an index file is damaged or old; the broker rebuilds it from the log",
            path=str(self.path),
            why=reason,
        )
        if self._fd is None:
            return
        last = self.blocks[-1] if self.blocks else None
        self._size = last.at + last.size if last else 0
        try:
            self._files.truncate(self._fd, self._size)
        except OSError as error:
            _log.warning("an index cannot be cut", path=str(self.path), error=str(error))

    def accept(self, block: Block) -> None:
        """Accepts a block that `load` yielded or `append` wrote."""
        self.blocks.append(block)

    def append(self, content: Content) -> Block:
        """Writes a block at `next_at`. Called in a thread.

        The block has no effect before `accept`: the next write overwrites a failed one.

        Raises:
            OSError: no space or the like.
        """
        at = self.next_at
        if self._fd is None:
            self._fd = self._files.open(self.path, create=True)
        if self._size == 0:
            write_all(self._files, self._fd, 0, [self._header()])
        size = _BLOCK.size + sum(map(len, content.pages)) + len(content.directory)
        block = Block(
            content.start, content.end, at, size, content.entries, content.min_ms, content.max_ms,
            len(content.directory), google_crc32c.value(content.directory),
        )  # fmt: skip
        header = self._block_header(block, content)
        write_all(self._files, self._fd, at, [header, *content.pages, content.directory])
        self._size = at + size
        return block

    def read(self, at: int, length: int) -> bytes:
        """Reads bytes of the file, unchecked.

        Raises:
            DataCorrupt: there is no file.
            OSError: they cannot be read.
        """
        if self._fd is None:
            raise DataCorrupt("an index has no file")
        return self._files.read(self._fd, at, length)

    def replace(self, at: int, content: bytes) -> None:
        """Overwrites damaged bytes; ignores a failure of the disk."""
        if self._fd is not None:
            try:
                write_all(self._files, self._fd, at, [content])
            except OSError as error:
                _log.warning("an index cannot be repaired", path=str(self.path), error=str(error))

    def close(self) -> None:
        """Closes the file."""
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None

    def _open(self) -> str | None:
        """Opens the file and checks its header; returns its flaw or None."""
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
        if len(found) < _FILE.size or not found.startswith(self._kind.magic):
            return "it has no header"
        version = _FILE.unpack(found)[1]
        if version != self._kind.version:
            return f"it has format {version}, this version reads {self._kind.version}"
        return "its header is damaged, or it is the index of another segment"

    def _header(self) -> bytes:
        # The segment's checksum ties the file to it, not to another segment of the same name.
        plain = _FILE.pack(
            self._kind.magic, self._kind.version, _FILE.size, 0, self.segment.base,
            self.segment.identity, self._log.encode(),
        )  # fmt: skip
        return _sealed(plain, _FILE_CRC_AT)

    def _block_header(self, block: Block, content: Content) -> bytes:
        crcs = [
            (_head_crc(self.segment, position) or 0) if content.entries else 0
            for position in (content.first, content.last)
        ]
        plain = _BLOCK.pack(
            self._kind.block_magic, _BLOCK.size, 0, block.directory_crc, block.start, block.end,
            block.size, block.size - block.directory_bytes, block.directory_bytes, block.entries,
            block.min_ms, block.max_ms, content.first, content.last, *crcs,
        )  # fmt: skip
        return _sealed(plain, _BLOCK_CRC_AT)

    def _read_block(self, limit: int) -> tuple[Block, D]:
        assert self._fd is not None
        at = self._size
        head = self._files.read(self._fd, at, _BLOCK.size)
        if len(head) < _BLOCK.size or head != _sealed(head, _BLOCK_CRC_AT):
            raise DataCorrupt(f"the block at byte {at} is damaged")
        (
            magic, _, _, directory_crc, start, end, size, directory_at, directory_bytes, entries,
            min_ms, max_ms, first, last, first_crc, last_crc,
        ) = _BLOCK.unpack(head)  # fmt: skip
        if magic != self._kind.block_magic or start != self.end or not start < end <= limit:
            raise DataCorrupt(f"the block at byte {at} claims what the log does not hold")
        directory = self._files.read(self._fd, at + directory_at, directory_bytes)
        if google_crc32c.value(directory) != directory_crc:
            raise DataCorrupt(f"the directory of the block at byte {at} is damaged")
        for position, crc in ((first, first_crc), (last, last_crc)):
            if entries and _head_crc(self.segment, position) != crc:
                raise DataCorrupt(f"another batch than it says stands at log position {position}")
        block = Block(start, end, at, size, entries, min_ms, max_ms, directory_bytes, directory_crc)
        return block, self._kind.decode(directory)


def _head_crc(segment: Segment, position: int) -> int | None:
    """Returns the checksum of a batch's head, which identifies the batch; None if it is not sound."""
    head = segment.read(position, BATCH_HEADER_BYTES)
    try:
        check_head(head)
    except DataCorrupt:
        return None
    return int(_CRC.unpack_from(head, _HEAD_CRC_AT)[0])


def _sealed(plain: bytes, crc_at: int) -> bytes:
    crc = google_crc32c.value(plain[:crc_at] + plain[crc_at + _CRC.size :])
    return plain[:crc_at] + _CRC.pack(crc) + plain[crc_at + _CRC.size :]
