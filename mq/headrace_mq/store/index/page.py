"""
Up to 512 batches of one queue, in offset order: the unit in which an index is read and searched.

      0     4          8            16               24         32
    ┌─────┬──────────┬────────────┬────────────────┬──────────┬─────────────────────────────────┐
    │ CRC │ entries  │ first base │ first position │ first ms │ 5 columns of u32 per entry …    │
    └─────┴──────────┴────────────┴────────────────┴──────────┴─────────────────────────────────┘

The columns, one after the other, are: base offset, log position and append time (signed), each
less the first one; length; records. So a page is written and read without touching an entry.

Used by `queue_index`, which searches pages, and by `segment_index`, which keeps their bytes.
Pure: no clock, no I/O.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import google_crc32c

from headrace_mq.errors import DataCorrupt
from headrace_mq.store.segment.segment import Place

__all__ = ["ENTRIES_MAX", "PAGE_HEADER_BYTES", "IndexEntry", "Page", "little_endian", "page_bytes"]

# One read and one checksum of 10 KiB finds a batch; a disk reads about as much at once anyway.
ENTRIES_MAX = 512

_HEADER = struct.Struct("<IIqqq")
PAGE_HEADER_BYTES = _HEADER.size
_CRC_BYTES = 4
_ENTRY_BYTES = 20
_U32, _I31 = 1 << 32, 1 << 31


class IndexEntry(NamedTuple):
    """The entry of one batch in an index."""

    position: int
    length: int
    base: int
    records: int
    at_ms: int

    @property
    def place(self) -> Place:
        """Its place in the log."""
        return Place(self.position, self.length)


def page_bytes(entries: int) -> int:
    """Returns the size of a page with this many entries, in bytes."""
    return PAGE_HEADER_BYTES + entries * _ENTRY_BYTES


class Page:
    """Batches of one queue. Entries are only appended, and never change.

    Attributes:
        first: base offset of the first batch.
        position: log position of the first batch.
        min_ms: the earliest append time.
        max_ms: the latest append time; not always that of the last batch, because clocks jump.
    """

    __slots__ = (
        "_bases", "_lengths", "_positions", "_records", "_times",
        "first", "first_ms", "max_ms", "min_ms", "position",
    )  # fmt: skip

    def __init__(self, first: int, position: int, first_ms: int) -> None:
        self.first = first
        self.position = position
        self.first_ms = self.min_ms = self.max_ms = first_ms
        self._bases = array("I")
        self._positions = array("I")
        self._times = array("i")
        self._lengths = array("I")
        self._records = array("I")

    def __len__(self) -> int:
        return len(self._bases)

    @property
    def end(self) -> int:
        """The offset after the last batch."""
        return self.first + self._bases[-1] + self._records[-1]

    def add(self, entry: IndexEntry) -> bool:
        """Adds a batch after the last one; returns False if it does not fit into this page."""
        return self.extend([entry]) == 1

    def extend(self, entries: Sequence[IndexEntry]) -> int:
        """Adds batches after the last one, as many as fit; returns how many did."""
        taken = entries[: ENTRIES_MAX - len(self._bases)]
        if not taken:
            return 0
        # By column: five calls for all batches, not for each batch.
        positions, lengths, bases, records, times = zip(*taken, strict=True)
        earliest, latest = min(times), max(times)
        if (
            bases[-1] - self.first >= _U32
            or positions[-1] - self.position >= _U32
            or earliest - self.first_ms < -_I31
            or latest - self.first_ms >= _I31
        ):
            return sum(takewhile(bool, map(self.add, taken))) if len(taken) > 1 else 0
        self._bases.extend([base - self.first for base in bases])
        self._positions.extend([position - self.position for position in positions])
        self._times.extend([at_ms - self.first_ms for at_ms in times])
        self._lengths.extend(lengths)
        self._records.extend(records)
        self.min_ms = min(self.min_ms, earliest)
        self.max_ms = max(self.max_ms, latest)
        return len(taken)

    def entry(self, at: int) -> IndexEntry:
        """Returns the entry at an index in the page."""
        return IndexEntry(
            self.position + self._positions[at],
            self._lengths[at],
            self.first + self._bases[at],
            self._records[at],
            self.first_ms + self._times[at],
        )

    def entries(self, offset: int) -> Iterator[IndexEntry]:
        """Yields the batch that holds `offset`, or the next one after a gap, and all later ones."""
        at = max(0, bisect_right(self._bases, offset - self.first) - 1)
        if self.first + self._bases[at] + self._records[at] <= offset:
            at += 1
        for number in range(at, len(self._bases)):
            yield self.entry(number)

    def since(self, time_ms: int) -> int | None:
        """Returns the first offset whose append time is `time_ms` or later, or None."""
        if self.max_ms < time_ms:
            return None
        delta = time_ms - self.first_ms
        at = next(number for number, ms in enumerate(self._times) if ms >= delta)
        return self.first + self._bases[at]

    def end_below(self, position: int) -> int:
        """Returns the offset after the batches below a log position that is above the first batch's."""
        at = bisect_left(self._positions, position - self.position) - 1
        return self.first + self._bases[at] + self._records[at]

    def encode(self) -> bytes:
        """Builds the page's bytes."""
        columns = (self._bases, self._positions, self._times, self._lengths, self._records)
        plain = _HEADER.pack(0, len(self), self.first, self.position, self.first_ms) + b"".join(
            little_endian(column).tobytes() for column in columns
        )
        crc = google_crc32c.value(plain[_CRC_BYTES:])
        return int(crc).to_bytes(_CRC_BYTES, "little") + plain[_CRC_BYTES:]

    @classmethod
    def decode(cls, data: bytes) -> "Page":
        """Reads and checks a page; other bytes may follow it.

        Raises:
            DataCorrupt: the bytes are not a whole page.
        """
        if len(data) < PAGE_HEADER_BYTES:
            raise DataCorrupt("a page of an index is cut off")
        crc, entries, first, position, first_ms = _HEADER.unpack_from(data)
        size = page_bytes(entries)
        if not 1 <= entries <= ENTRIES_MAX or len(data) < size:
            raise DataCorrupt("a page of an index is cut off")
        if crc != google_crc32c.value(data[_CRC_BYTES:size]):
            raise DataCorrupt("a page of an index fails its checksum")
        page = cls(first, position, first_ms)
        at = PAGE_HEADER_BYTES
        for column in (page._bases, page._positions, page._times, page._lengths, page._records):
            column.frombytes(data[at : at + 4 * entries])
            little_endian(column, copy=False)
            at += 4 * entries
        page.max_ms = first_ms + max(page._times)
        page.min_ms = first_ms + min(page._times)
        return page


def little_endian(column: "array[int]", *, copy: bool = True) -> "array[int]":
    """Returns a column in the byte order of the files; without `copy`, it changes the column itself."""
    if sys.byteorder == "little":
        return column
    swapped = column[:] if copy else column
    swapped.byteswap()
    return swapped
