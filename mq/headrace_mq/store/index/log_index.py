"""
The index of one log: collects entries of committed batches, writes them later in blocks, reads pages back.

    committed ─▶ draft ──(16 MiB, or a new segment)──▶ pending ──(durable)──▶ block in NNN.index

Used by `message_store`, `log.recovery` and `log.queues`; reads and writes the index files. In memory it
holds an entry for each batch after the last written block, and a row for each page before that.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.store.index.page import IndexEntry, Page
from headrace_mq.store.index.queue_index import PageRef, PageSummary, QueueIndex
from headrace_mq.store.index.segment_index import Directory, Frozen, QueuePart, SegmentIndex
from headrace_mq.store.index.sequences import BATCHES_REMEMBERED, Key, SentBatch, Undo
from headrace_mq.store.segment.block_file import Block
from headrace_mq.store.segment.log_walk import Damage, LogWalk
from headrace_mq.store.segment.segment import Segment

__all__ = ["BLOCK_BYTES", "LogIndex", "Span", "Written"]

_log = get_logger(__name__)

# A start walks at most this much of the log after the last block. Memory holds the index of this much: about
# 3 MiB if all batches are as small as can be, 113 bytes.
BLOCK_BYTES = 16 << 20
# Pages kept decoded: about 11 MiB, and half a million batches.
PAGES_CACHED_MAX = 1_024


class Written(NamedTuple):
    """A block that was written; pass it to `publish`."""

    frozen: Frozen
    block: Block
    rows: list[list[PageSummary]]


class Span(NamedTuple):
    """The content of one segment: its append times, and the next offset of each queue after it."""

    first_ms: int | None
    last_ms: int | None
    next_offsets: dict[QueueRef, int]


class LogIndex:
    """All index files of one log, and the entries that are not in them yet.

    Used on the event loop, except `write`, which may run in a thread.
    """

    def __init__(self, files: Files, log: str, *, block_bytes: int = BLOCK_BYTES) -> None:
        self._files = files
        self._log = log
        self._block_bytes = block_bytes
        self._files_by_base: OrderedDict[int, SegmentIndex] = OrderedDict()
        self._pages: OrderedDict[tuple[int, int], Page | None] = OrderedDict()
        self._pending: deque[Frozen] = deque()
        self._put_off = 0
        self._start = 0
        self._touched: dict[QueueRef, QueueIndex] = {}
        self._senders: dict[Key, tuple[SentBatch, ...]] = {}
        self._damage: list[Damage] = []

    def adopt(self, segment: Segment) -> None:
        """Adds a segment, with an index file of its own."""
        self._files_by_base[segment.base] = SegmentIndex(self._files, segment, self._log)

    def of(self, segment: Segment) -> SegmentIndex:
        """Returns the index file of an adopted segment."""
        return self._files_by_base[segment.base]

    def begin(self, position: int) -> None:
        """Sets the position below which everything is in blocks or pending."""
        self._start = position

    # Entries of committed batches, or of batches that a start finds, in log order.

    def note(self, touched: Mapping[QueueRef, QueueIndex], sent: Iterable[Undo] = ()) -> None:
        """Notes queues whose index has just changed: batches were added, or left out as damaged.

        Args:
            touched: these queues.
            sent: the sequences that were recorded for the batches, in log order.
        """
        self._touched.update(touched)
        senders = self._senders
        for key, batch, _ in sent:
            # The order of the keys shows later which producer has been silent the longest.
            earlier = senders.pop(key, ())
            senders[key] = (*earlier[1 - BATCHES_REMEMBERED :], batch)

    def note_damage(self, damage: Damage) -> None:
        """Notes damaged bytes, so that later starts report them too."""
        self._damage.append(damage)

    def grown(self, end: int) -> bool:
        """Cuts a block if enough of the log follows the last one; returns whether it did."""
        if end - self._start < self._block_bytes:
            return False
        self.cut(end)
        return True

    def cut(self, end: int) -> None:
        """Ends the current block at a log position, such as its segment's end."""
        if end <= self._start:
            return
        parts = [
            QueuePart(ref, index, index.end, index.freeze()) for ref, index in self._touched.items()
        ]
        self._pending.append(
            Frozen(
                self._segment_of(self._start), self._start, end, parts, self._senders, self._damage
            )
        )
        self._start, self._touched, self._senders, self._damage = end, {}, {}, []

    def _segment_of(self, position: int) -> int:
        return next(base for base in reversed(self._files_by_base) if base <= position)

    def due(self, synced: int) -> Frozen | None:
        """Returns the next block to write, once its range of the log is durable."""
        if len(self._pending) == self._put_off or self._pending[0].end > synced:
            return None
        return self._pending[0]

    def put_off(self) -> None:
        """Makes no block due until the next one is cut, because the disk refused a block."""
        self._put_off = len(self._pending)

    def write(self, frozen: Frozen) -> Written:
        """Writes a block that is due. It has no effect before `publish`.

        Raises:
            OSError: no space or the like; it stays due.
        """
        block, rows = self._files_by_base[frozen.segment].write(frozen)
        return Written(frozen, block, rows)

    def publish(self, written: Written) -> None:
        """Makes lookups read a written block from its file, and drops its pages from memory."""
        frozen, block, rows = written
        if not self._pending or self._pending[0] is not frozen:
            return
        self._pending.popleft()
        self._put_off = 0
        for part, of in zip(frozen.parts, rows, strict=True):
            part.held.publish(frozen.segment, part.pages, of)
        index = self._files_by_base[frozen.segment]
        index.accept(block)
        index.note_ends((part.ref, part.end) for part in frozen.parts)

    def write_due(self, synced: int) -> None:
        """Writes all blocks that are due, in this thread; blocks that fail stay in memory."""
        self._put_off = 0
        while (frozen := self.due(synced)) is not None:
            try:
                self.publish(self.write(frozen))
            except OSError as error:
                _log.warning("an index cannot be written", log=self._log, error=str(error))
                return

    # For lookups.

    def page(self, ref: PageRef) -> Page | None:
        """Returns a page, read from its file; rebuilds a damaged page from the log."""
        key = (ref.segment, ref.at)
        if key in self._pages:
            self._pages.move_to_end(key)
            return self._pages[key]
        index = self._files_by_base[ref.segment]
        try:
            page: Page | None = index.read_page(ref)
        except (DataCorrupt, OSError) as error:
            _log.warning(
                "an index page is damaged; the broker rebuilds it from the log",
                path=str(index.path),
                why=str(error),
            )
            page = self._from_log(index, ref)
        self._keep(key, page)
        return page

    def reload(self, ref: PageRef, entry: IndexEntry) -> bool:
        """Rebuilds a page that may be wrong; returns whether it no longer has the entry."""
        index = self._files_by_base[ref.segment]
        page = self._from_log(index, ref)
        self._keep((ref.segment, ref.at), page)
        return page is None or next(page.entries(entry.base), None) != entry

    def _from_log(self, index: SegmentIndex, ref: PageRef) -> Page | None:
        block = index.block_at(ref.at)
        page: Page | None = None
        for head in LogWalk(index.segment, block.end).heads(block.start):
            if head.queue != ref.queue or not ref.first <= head.base_offset < ref.until:
                continue
            if page is None:
                page = Page(head.base_offset, head.position, head.appended_at_ms)
            elif head.base_offset < page.end:
                continue
            page.add(
                IndexEntry(
                    head.position, head.length, head.base_offset, head.count, head.appended_at_ms
                )
            )
        if page is not None and page.first == ref.first and len(page) <= ref.entries:
            index.write_page(ref, page)
        return page

    def _keep(self, key: tuple[int, int], page: Page | None) -> None:
        self._pages[key] = page
        if len(self._pages) > PAGES_CACHED_MAX:
            self._pages.popitem(last=False)

    def spans(self) -> dict[int, Span]:
        """Returns the content of each segment, by its position."""
        spans: dict[int, Span] = {}
        for base, index in self._files_by_base.items():
            times = [(b.min_ms, b.max_ms) for b in index.blocks if b.entries]
            offsets = dict(index.next_offsets)
            for part in self._unwritten(base):
                times += [(page.min_ms, page.max_ms) for page in part.pages]
                offsets[part.ref] = part.end
            spans[base] = Span(
                min((first for first, _ in times), default=None),
                max((last for _, last in times), default=None),
                offsets,
            )
        return spans

    def _unwritten(self, segment: int) -> Iterator[QueuePart]:
        for frozen in self._pending:
            if frozen.segment == segment:
                yield from frozen.parts
        # The last segment may be new and empty: its first group waits for replicas.
        if self._files_by_base and segment == self._segment_of(self._start):
            for ref, index in self._touched.items():
                yield QueuePart(ref, index, index.end, index.open_pages())

    def delete_below(self, position: int) -> list[SegmentIndex]:
        """Forgets the segments below a position; returns their index files, still open."""
        if self._start < position:
            # The first group behind waits for replicas, so its commit has not ended the block yet.
            self.cut(position)
        gone = [base for base in self._files_by_base if base < position]
        while self._pending and self._pending[0].start < position:
            self._pending.popleft()
        self._put_off = 0
        for key in [key for key in self._pages if key[0] < position]:
            del self._pages[key]
        return [self._files_by_base.pop(base) for base in gone]

    def replace(self, segment: Segment, index: SegmentIndex) -> list[SegmentIndex]:
        """Replaces segments by a compacted one; returns their files, still open."""
        gone = [base for base in self._files_by_base if segment.base <= base < segment.limit]
        old = [self._files_by_base[base] for base in gone]
        # The new segment has the first one's place in the order.
        self._files_by_base[segment.base] = index
        for base in gone[1:]:
            del self._files_by_base[base]
        for key in [key for key in self._pages if segment.base <= key[0] < segment.limit]:
            del self._pages[key]
        return old

    def blocks(self, segment: Segment) -> list[Block]:
        """Returns the written blocks of a segment."""
        return list(self._files_by_base[segment.base].blocks)

    def close(self) -> None:
        """Closes all files and forgets everything."""
        for index in self._files_by_base.values():
            index.close()
        self._files_by_base.clear()
        self._pages.clear()
        self._pending.clear()


def rows_of(directory: Directory) -> Iterator[tuple[QueueRef, int, list[PageSummary]]]:
    """Yields each queue of a block, with its next offset after the block and its pages."""
    for topic, queue_id, end, rows in directory.queues:
        yield QueueRef(topic, queue_id), end, rows
