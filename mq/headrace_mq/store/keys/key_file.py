"""
One key file: which batches of a segment may hold a key, in blocks that are searched by hash.

A hash is the CRC-32C of topic, a zero byte and the key. Its highest byte selects one of the 256
pages of a block. A page lists hashes and positions of batches in log order, so nothing is ever
sorted. Different keys may share a hash, so a search reads the batches.

      0     4                          4 + 4n                    4 + 8n
    ┌─────┬──────────────────────────┬─────────────────────────┐
    │ CRC │ n hashes, u32            │ n positions, less start │
    └─────┴──────────────────────────┴─────────────────────────┘

The directory of a block is 257 numbers (u32): how many entries precede each page.

Used by `log_keys`, which collects keys and looks them up; writes a `segment.block_file`. `FORMAT.md` draws
the file to the byte.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

import google_crc32c

from headrace_mq._runtime.files import Files
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.index.page import little_endian
from headrace_mq.store.segment.block_file import BLOCK_HEADER_BYTES, Block, BlockFile, Content, Kind
from headrace_mq.store.segment.segment import Segment

__all__ = ["KEYS_SUFFIX", "KeyDraft", "KeyFile", "digest_of"]

KEYS_SUFFIX = ".keys"
_PAGES = 256
_PAGE_SHIFT = 24
_NUMBER_BYTES = 4
_CRC_BYTES = 4


def digest_of(topic: str, key: str) -> int:
    """Returns the hash under which a key of a topic is entered."""
    return int(google_crc32c.value(topic.encode() + b"\0" + key.encode()))


class KeyDraft:
    """The entries of a new block. Searches use it while it grows and while it is being written.

    Attributes:
        segment: base of the segment it belongs to.
        start, end: the range of the log that it covers.
        keys: the number of entries.
    """

    __slots__ = (
        "_first", "_hashes", "_last", "_max_ms", "_min_ms", "_positions",
        "batches", "end", "keys", "segment", "start",
    )  # fmt: skip

    def __init__(self, segment: int, start: int) -> None:
        self.segment = segment
        self.start = self.end = start
        self.keys = 0
        self.batches = 0
        self._hashes = [array("I") for _ in range(_PAGES)]
        self._positions = [array("I") for _ in range(_PAGES)]
        self._first = self._last = -1
        self._min_ms = self._max_ms = 0

    def add(self, position: int, at_ms: int, digests: Iterable[int]) -> None:
        """Adds a batch after the others, with the hashes of its keys, each once."""
        if not self.batches:
            self._first, self._min_ms, self._max_ms = position, at_ms, at_ms
        self.batches += 1
        self._last = position
        self._min_ms, self._max_ms = min(self._min_ms, at_ms), max(self._max_ms, at_ms)
        for digest in digests:
            page = digest >> _PAGE_SHIFT
            self._hashes[page].append(digest)
            self._positions[page].append(position - self.start)
            self.keys += 1

    def find(self, digest: int) -> list[int]:
        """Returns the positions of the batches that may hold a key, in order."""
        page = digest >> _PAGE_SHIFT
        return list(_matching(self._hashes[page], self._positions[page], digest, self.start))

    def content(self) -> Content:
        """Returns the content to write to the file."""
        pages = []
        for hashes, positions in zip(self._hashes, self._positions, strict=True):
            plain = little_endian(hashes).tobytes() + little_endian(positions).tobytes()
            pages.append(_checksum(plain) + plain)
        counts = array("I", accumulate(map(len, self._hashes), initial=0))
        return Content(
            self.start, self.end, pages, little_endian(counts).tobytes(), self.batches,
            self._min_ms, self._max_ms, self._first, self._last,
        )  # fmt: skip


def _decoded(directory: bytes) -> "array[int]":
    counts = array("I")
    if len(directory) != (_PAGES + 1) * _NUMBER_BYTES:
        raise DataCorrupt("the directory of a block of keys has a wrong size")
    counts.frombytes(directory)
    little_endian(counts, copy=False)
    if counts[0] or any(second < first for first, second in pairwise(counts)):
        raise DataCorrupt("the directory of a block of keys contradicts itself")
    return counts


_KIND = Kind(KEYS_SUFFIX, b"HRSEGKEY", b"HRKB", 1, _decoded)


class KeyFile(BlockFile["array[int]"]):
    """The key file of one segment."""

    def __init__(self, files: Files, segment: Segment, log: str) -> None:
        super().__init__(files, segment, log, _KIND)

    def block_of(self, position: int) -> Block | None:
        """Returns the block that covers a log position, or None."""
        at = bisect_right(self.blocks, position, key=_end_of)
        return self.blocks[at] if at < len(self.blocks) else None

    def find(self, block: Block, digest: int) -> list[int]:
        """Returns the positions of the batches of a block that may hold a key, in order.

        Raises:
            DataCorrupt: the bytes are not those that were written.
            OSError: they cannot be read.
        """
        at = block.at + block.size - block.directory_bytes
        directory = self.read(at, block.directory_bytes)
        if google_crc32c.value(directory) != block.directory_crc:
            raise DataCorrupt("the directory of a block of keys is damaged")
        counts = _decoded(directory)
        hashes, positions = self._page(block, counts, digest >> _PAGE_SHIFT)
        return list(_matching(hashes, positions, digest, block.start))

    def entries(self, block: Block, counts: "array[int]") -> Iterator[tuple[int, int]]:
        """Yields position and hash of every entry of a block, in any order.

        Raises:
            DataCorrupt: the bytes are not those that were written.
            OSError: they cannot be read.
        """
        if block.size != _page_at(counts, _PAGES) + block.directory_bytes:
            raise DataCorrupt("a block of keys has a wrong size")
        for page in range(_PAGES):
            for digest, position in zip(*self._page(block, counts, page), strict=True):
                if digest >> _PAGE_SHIFT != page:
                    raise DataCorrupt(f"page {page} of a block of keys has hashes of another")
                yield block.start + position, digest

    def drop(self, block: Block, reason: str) -> None:
        """Drops a block and all later ones; their range must be read again."""
        del self.blocks[self.blocks.index(block) :]
        self.cut(reason)

    def _page(
        self, block: Block, counts: "array[int]", page: int
    ) -> "tuple[array[int], array[int]]":
        entries = counts[page + 1] - counts[page]
        size = entries * _NUMBER_BYTES
        data = self.read(block.at + _page_at(counts, page), _CRC_BYTES + 2 * size)
        plain = data[_CRC_BYTES:]
        if len(plain) < 2 * size or data[:_CRC_BYTES] != _checksum(plain):
            raise DataCorrupt(f"page {page} of a block of keys is damaged")
        hashes, positions = array("I"), array("I")
        hashes.frombytes(plain[:size])
        positions.frombytes(plain[size:])
        little_endian(hashes, copy=False)
        little_endian(positions, copy=False)
        return hashes, positions


def _page_at(counts: "array[int]", page: int) -> int:
    return BLOCK_HEADER_BYTES + page * _CRC_BYTES + 2 * _NUMBER_BYTES * counts[page]


def _checksum(plain: bytes) -> bytes:
    return int(google_crc32c.value(plain)).to_bytes(_CRC_BYTES, "little")


def _matching(
    hashes: "array[int]", positions: "array[int]", digest: int, start: int
) -> Iterator[int]:
    at = -1
    while True:
        try:
            at = hashes.index(digest, at + 1)
        except ValueError:
            return
        yield start + positions[at]


def _end_of(block: Block) -> int:
    return block.end
