"""
Finds the batches of one queue in its log: by offset and by time.

        rows: one per written page                     pages in memory
    ┌───────┬───────┬───────┬─ … ─┬───────┐  ┌────────────────────┬─────────────────┐
    │ page  │ page  │ page  │     │ page  │  │ frozen: in a block │ open: behind    │
    │ on disk                             │  │ not written yet    │ the last block  │
    └───────┴───────┴───────┴─ … ─┴───────┘  └────────────────────┴─────────────────┘

A row costs about 40 bytes for up to 512 batches, so memory stays small however many messages
there are. Used by `message_store`; a `PageSource` reads pages for it. Pure: no clock, no I/O of its
own.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from operator import attrgetter
from typing import NamedTuple, Protocol

from headrace_mq.message import QueueRef
from headrace_mq.store.index.page import IndexEntry, Page

__all__ = ["PageRef", "PageSource", "PageSummary", "QueueIndex"]

# Batches kept as a plain list before they go into a page together, which takes a fifth of the time. About
# 6 KiB for a queue.
FRESH_MAX = 32


class PageRef(NamedTuple):
    """The place of a page in a segment's index file, and its offsets."""

    segment: int
    at: int
    entries: int
    queue: QueueRef | None
    first: int
    until: int


class PageSummary(NamedTuple):
    """The facts about a page that memory holds."""

    first: int
    max_ms: int
    at: int
    entries: int


class PageSource(Protocol):
    """Reads pages of a queue, from a file, or again from the log."""

    def page(self, ref: PageRef) -> Page | None:
        """Returns the page, or None if it can be read neither from its file nor from the log."""
        ...


class QueueIndex:
    """The batches of one queue that readers may see, in offset order.

    Offsets may have gaps, where a batch was damaged; they never overlap.

    Attributes:
        end: the next offset to become visible.
        tail: the next offset to be assigned; ahead of `end` by the batches that are not durable yet.
    """

    __slots__ = (
        "_ats",
        "_dropped",
        "_entries",
        "_first",
        "_firsts",
        "_fresh",
        "_frozen",
        "_maxes",
        "_own_maxes",
        "_pages",
        "_queue",
        "_segments",
        "_source",
        "end",
        "tail",
    )  # fmt: skip

    def __init__(self, queue: QueueRef | None = None, source: PageSource | None = None) -> None:
        self._queue = queue
        self._source = source
        self._firsts = array("q")
        self._own_maxes = array("q")
        # The latest append time up to and including each row: it never falls, so it can be bisected.
        self._maxes = array("q")
        self._ats = array("q")
        self._segments = array("q")
        self._entries = array("H")
        self._pages: list[Page] = []
        # The newest entries, in no page yet; `_held` moves them into pages.
        self._fresh: list[IndexEntry] = []
        self._frozen = 0
        self._dropped: set[int] = set()
        self._first: int | None = None
        self.end = 0
        self.tail = 0

    @property
    def first(self) -> int:
        """The lowest offset held, or `end` if the queue holds no batch."""
        return self.end if self._first is None else self._first

    def add(self, entry: IndexEntry) -> None:
        """Appends a batch; its base must not be below `end`."""
        _, _, base, records, _ = entry
        if base < self.end:
            raise ValueError(f"offset {base} is below the queue's end {self.end}")
        fresh = self._fresh
        fresh.append(entry)
        if self._first is None:
            self._first = base
        self.end = end = base + records
        if end > self.tail:
            self.tail = end
        if len(fresh) >= FRESH_MAX:
            self._held()

    def _held(self) -> list[Page]:
        """Returns the pages in memory, with all entries in them."""
        pages = self._pages
        fresh = self._fresh
        if fresh:
            self._fresh = []
        while fresh:
            taken = pages[-1].extend(fresh) if len(pages) > self._frozen else 0
            fresh = fresh[taken:]
            if fresh:
                position, _, base, _, at_ms = fresh[0]
                pages.append(Page(base, position, at_ms))
        return pages

    def skip_to(self, end: int) -> None:
        """Leaves a gap up to `end`, so that offsets of lost messages are never assigned again."""
        self.end = max(self.end, end)
        self.tail = max(self.tail, self.end)

    def find(self, offset: int, bytes_max: int, batches_max: int | None = None) -> list[IndexEntry]:
        """Returns whole batches from the one that holds `offset`, or the next one after a gap.

        Returns as many as fit in `bytes_max`, at least one if there is any, and at most `batches_max`.
        """
        found: list[IndexEntry] = []
        size = 0
        entries = self._entries_from(offset)
        for entry in entries if batches_max is None else islice(entries, batches_max):
            if entry.position in self._dropped:
                continue
            size += entry.length
            if found and size > bytes_max:
                return found
            found.append(entry)
        return found

    def since(self, time_ms: int) -> int:
        """Returns the first offset held whose batch was appended at `time_ms` or later, or `end`."""
        at = bisect_left(self._maxes, time_ms)
        for row in range(at, len(self._firsts)):
            page = self._page(row)
            found = None if page is None else page.since(time_ms)
            if found is not None:
                return max(found, self.first)
        for page in self._held():
            found = page.since(time_ms)
            if found is not None:
                return max(found, self.first)
        return self.end

    def end_below(self, position: int) -> int | None:
        """Returns the offset after the last batch held below a log position; None: there is no such batch.

        If a page cannot be read, the offset is lower, at the page's beginning.
        """
        pages = self._held()
        at = bisect_left(pages, position, key=_position_of)
        if at:
            return pages[at - 1].end_below(position)
        rows = bisect_left(self._segments, position)
        if not rows:
            return None
        segment = bisect_left(self._segments, self._segments[rows - 1])

        def first_position(row: int) -> int:
            page = self._page(row)
            return position if page is None else page.position

        # Rows of earlier segments stand below it.
        row = bisect_left(range(rows), position, lo=segment, key=first_position) - 1
        if row < 0:
            return None
        page = self._page(row)
        return self._firsts[row] if page is None else page.end_below(position)

    def drop(self, position: int) -> None:
        """Drops the batch at a log position, because it is damaged."""
        self._dropped.add(position)
        self._find_first()

    def restore(self, position: int) -> None:
        """Takes a dropped batch back, because its bytes are sound again."""
        self._dropped.discard(position)
        self._find_first()

    def freeze(self) -> list[Page]:
        """Ends the open pages and returns them. New entries go into new pages."""
        pages = self._held()[self._frozen :]
        self._frozen = len(self._pages)
        return pages

    def open_pages(self) -> list[Page]:
        """Returns the pages since the last `freeze`."""
        return self._held()[self._frozen :]

    def publish(self, segment: int, pages: list[Page], rows: list[PageSummary]) -> None:
        """Replaces the oldest pages in memory by rows; the pages can be read from the file now."""
        count = len(pages)
        if self._pages[:count] != pages:
            # The segment was deleted while its pages were being written.
            return
        for row in rows:
            self._add_row(segment, row)
        del self._pages[:count]
        self._frozen -= count

    def adopt(self, segment: int, rows: list[PageSummary], end: int) -> None:
        """Adds rows after everything held, from a file of an earlier run."""
        for row in rows:
            self._add_row(segment, row)
        if rows and self._first is None:
            self._first = rows[0].first
        self.skip_to(end)

    def delete_below(self, position: int) -> None:
        """Forgets all batches of the segments below a segment's position."""
        rows = bisect_left(self._segments, position)
        for column in (self._firsts, self._own_maxes, self._ats, self._segments, self._entries):
            del column[:rows]
        self._maxes = array("q", accumulate(self._own_maxes, max))
        pages = sum(page.position < position for page in self._held())
        del self._pages[:pages]
        self._frozen = max(0, self._frozen - pages)
        self._dropped = {at for at in self._dropped if at >= position}
        self._find_first()

    def replace(self, segment: int, behind: int, rows: list[PageSummary]) -> None:
        """Replaces everything held for positions from `segment` to before `behind` by new rows."""
        first, last = (bisect_left(self._segments, at) for at in (segment, behind))
        columns = (
            (self._firsts, [row.first for row in rows]),
            (self._own_maxes, [row.max_ms for row in rows]),
            (self._ats, [row.at for row in rows]),
            (self._segments, [segment for _ in rows]),
            (self._entries, [row.entries for row in rows]),
        )
        for column, fresh in columns:
            column[first:last] = array(column.typecode, fresh)
        self._maxes = array("q", accumulate(self._own_maxes, max))
        self._dropped = {at for at in self._dropped if not segment <= at < behind}
        self._find_first()

    def page_of(self, entry: IndexEntry) -> PageRef | None:
        """Returns the page from which `find` read an entry, or None if it was in memory."""
        pages = self._held()
        if not self._firsts or (pages and entry.base >= pages[0].first):
            return None
        return self._ref(self._row_of(entry.base))

    def _add_row(self, segment: int, row: PageSummary) -> None:
        self._firsts.append(row.first)
        self._own_maxes.append(row.max_ms)
        self._maxes.append(max(row.max_ms, self._maxes[-1]) if self._maxes else row.max_ms)
        self._ats.append(row.at)
        self._segments.append(segment)
        self._entries.append(row.entries)

    def _find_first(self) -> None:
        self._first = None
        if not self._dropped:
            if self._firsts:
                self._first = self._firsts[0]
            elif pages := self._held():
                self._first = pages[0].first
        elif found := self.find(0, 0):
            self._first = found[0].base

    def _row_of(self, offset: int) -> int:
        return max(0, bisect_right(self._firsts, offset) - 1)

    def _ref(self, row: int) -> PageRef:
        if row + 1 < len(self._firsts):
            until = self._firsts[row + 1]
        else:
            pages = self._held()
            until = pages[0].first if pages else self.end
        return PageRef(
            self._segments[row], self._ats[row], self._entries[row], self._queue,
            self._firsts[row], until,
        )  # fmt: skip

    def _page(self, row: int) -> Page | None:
        assert self._source is not None
        return self._source.page(self._ref(row))

    def _entries_from(self, offset: int) -> Iterable[IndexEntry]:
        fresh = self._fresh
        if fresh and offset >= fresh[0].base:
            # Readers near the end get these entries; no page is made of them for that.
            at = bisect_right(fresh, offset, key=_base_of) - 1
            _, _, base, records, _ = fresh[at]
            return fresh[at if offset < base + records else at + 1 :]
        pages = self._pages_from(offset)
        return (entry for page in pages for entry in page.entries(offset))

    def _pages_from(self, offset: int) -> Iterator[Page]:
        pages = self._held()
        if not pages or offset < pages[0].first:
            for row in range(self._row_of(offset), len(self._firsts)):
                page = self._page(row)
                if page is not None:
                    yield page
        at = max(0, bisect_right(pages, offset, key=_first_of) - 1)
        yield from pages[at:]


_base_of = attrgetter("base")


def _first_of(page: Page) -> int:
    return page.first


def _position_of(page: Page) -> int:
    return page.position
