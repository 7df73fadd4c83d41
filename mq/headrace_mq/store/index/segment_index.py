"""
One index file: the entries of a segment, in blocks of about 16 MiB of log, so that a start need not read the log.

Used by `log_index`, which says when a block is due; writes a `segment.block_file`. `FORMAT.md` draws the
file to the byte.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from headrace_mq._runtime.files import Files
from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.store.index.page import Page, page_bytes
from headrace_mq.store.index.queue_index import PageRef, PageSummary, QueueIndex
from headrace_mq.store.index.sequences import Key, SentBatch
from headrace_mq.store.segment.block_file import BLOCK_HEADER_BYTES, Block, BlockFile, Content, Kind
from headrace_mq.store.segment.log_walk import Damage
from headrace_mq.store.segment.segment import Segment

__all__ = ["INDEX_SUFFIX", "Directory", "Frozen", "QueuePart", "SegmentIndex"]

INDEX_SUFFIX = ".index"


class QueuePart(NamedTuple):
    """One queue's part of a block: its pages, and the next offset after them."""

    ref: QueueRef
    held: QueueIndex
    end: int
    pages: list[Page]


class Frozen(NamedTuple):
    """The content of a block to be written: all entries of one range of a segment."""

    segment: int
    start: int
    end: int
    parts: list[QueuePart]
    senders: dict[Key, tuple[SentBatch, ...]]
    damage: list[Damage]


class _QueueRows(NamedTuple):
    topic: str
    queue_id: int
    end: int
    rows: list[PageSummary]


class _Sender(NamedTuple):
    producer_id: int
    producer_epoch: int
    queue: int
    sent: list[SentBatch]


class Directory(msgspec.Struct, frozen=True, array_like=True):
    """The part of a block that a start reads; rows point into the file."""

    queues: list[_QueueRows]
    senders: list[_Sender]
    damage: list[Damage]


_DECODER = msgspec.msgpack.Decoder(Directory)


def _decoded(directory: bytes) -> Directory:
    try:
        return _DECODER.decode(directory)
    except msgspec.DecodeError as error:
        raise DataCorrupt(f"the directory of a block does not decode: {error}") from error


_KIND = Kind(INDEX_SUFFIX, b"HRSEGIDX", b"HRIB", 1, _decoded)


class SegmentIndex(BlockFile[Directory]):
    """The index of one segment; memory holds only the facts about the file as a whole.

    Attributes:
        next_offsets: for every queue in the blocks, the offset after its last batch in them.
    """

    def __init__(self, files: Files, segment: Segment, log: str) -> None:
        super().__init__(files, segment, log, _KIND)
        self.next_offsets: dict[QueueRef, int] = {}

    def note_ends(self, ends: Iterator[tuple[QueueRef, int]]) -> None:
        """Notes the next offsets after an accepted block."""
        self.next_offsets.update(ends)

    def write(self, frozen: Frozen) -> tuple[Block, list[list[PageSummary]]]:
        """Writes a block after the others; returns the rows of each part. Called in a thread.

        Raises:
            OSError: no space or the like.
        """
        content, rows = _encoded(frozen, self.next_at)
        return self.append(content), rows

    def read_page(self, ref: PageRef) -> Page:
        """Reads one page.

        Raises:
            DataCorrupt: the bytes are not the page that was written.
            OSError: it cannot be read.
        """
        page = Page.decode(self.read(ref.at, page_bytes(ref.entries)))
        if page.first != ref.first or not self.segment.base <= page.position < self.end:
            raise DataCorrupt("a page of an index stands in a wrong place")
        return page

    def write_page(self, ref: PageRef, page: Page) -> None:
        """Replaces a damaged page in place; ignores a failure of the disk."""
        self.replace(ref.at, page.encode())

    def block_at(self, at: int) -> Block:
        """Returns the block that holds a byte of the file."""
        return next(block for block in reversed(self.blocks) if block.at <= at)


def _encoded(frozen: Frozen, at: int) -> tuple[Content, list[list[PageSummary]]]:
    pages: list[bytes] = []
    rows: list[list[PageSummary]] = []
    entries: list[tuple[int, int]] = []
    size = BLOCK_HEADER_BYTES
    count = 0
    for part in frozen.parts:
        rows.append([])
        for page in part.pages:
            encoded = page.encode()
            rows[-1].append(PageSummary(page.first, page.max_ms, at + size, len(page)))
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
    all_pages = [page for part in frozen.parts for page in part.pages]
    content = Content(
        frozen.start, frozen.end, pages, directory, count,
        min((page.min_ms for page in all_pages), default=0),
        max((page.max_ms for page in all_pages), default=0),
        min((position for position, _ in entries), default=-1),
        max((position for _, position in entries), default=-1),
    )  # fmt: skip
    return content, rows
