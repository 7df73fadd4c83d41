"""
Compares the index and key files of a segment with the segment itself. Reads only.

Used by `inspection`; reads the block files. The broker itself replaces a file that fails a checksum or
ends early. But it would trust a sound file that contradicts the log, so a check reports this as damage.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from headrace_mq._runtime.files import Files
from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader
from headrace_mq.store.index.log_index import rows_of
from headrace_mq.store.index.queue_index import PageRef
from headrace_mq.store.index.segment_index import Directory, SegmentIndex
from headrace_mq.store.keys.key_file import KeyFile, digest_of
from headrace_mq.store.keys.log_keys import keys_of
from headrace_mq.store.segment.block_file import Block, BlockFile
from headrace_mq.store.segment.log_walk import LogWalk
from headrace_mq.store.segment.segment import Segment

__all__ = ["Flaw", "index_flaw", "indexed_end", "keys_flaw"]

D = TypeVar("D")


class Flaw(NamedTuple):
    """The flaw of a file; `believed`: a broker would trust the file and not notice."""

    reason: str
    believed: bool


def indexed_end(files: Files, segment: Segment, log: str) -> int:
    """Returns the log position below which a start reads the segment's index, not the segment."""
    index = SegmentIndex(files, segment, log)
    try:
        for _ in _blocks(index, segment.held_end):
            pass
        return index.end
    finally:
        index.close()


def index_flaw(files: Files, segment: Segment, log: str, limit: int) -> Flaw | None:
    """Checks a segment's index against the log, up to the log position `limit`."""
    index = SegmentIndex(files, segment, log)
    try:
        for block, directory in _blocks(index, limit):
            found = _indexed(index, directory)
            known = {damage.position for damage in directory.damage}
            expected = {
                header.position: (
                    header.queue, header.base_offset, header.length, header.count,
                    header.appended_at_ms,
                )
                for header in LogWalk(segment, block.end).batches(block.start, block.end)
                if header.position not in known
            }  # fmt: skip
            flaw = _compared(block, found, expected, {at: e[2] for at, e in expected.items()})
            if flaw is not None:
                return flaw
    except (DataCorrupt, OSError) as error:
        return Flaw(str(error), believed=False)
    finally:
        index.close()
    return None if index.flaw is None else Flaw(index.flaw, believed=False)


def keys_flaw(files: Files, segment: Segment, log: str, limit: int) -> Flaw | None:
    """Checks a segment's keys against the log, up to the log position `limit`."""
    keys = KeyFile(files, segment, log)
    try:
        for block, counts in _blocks(keys, limit):
            found: dict[int, set[int]] = {}
            for position, digest in keys.entries(block, counts):
                found.setdefault(position, set()).add(digest)
            walk = LogWalk(segment, block.end)
            expected, lengths = {}, {}
            for header in walk.batches(block.start, block.end):
                lengths[header.position] = header.length
                digests = _digests(walk.batch(header), header)
                if digests:
                    expected[header.position] = digests
            flaw = _compared(block, found, expected, lengths)
            if flaw is not None:
                return flaw
    except (DataCorrupt, OSError) as error:
        return Flaw(str(error), believed=False)
    finally:
        keys.close()
    return None if keys.flaw is None else Flaw(keys.flaw, believed=False)


def _blocks(file: BlockFile[D], limit: int) -> Iterator[tuple[Block, D]]:
    for block, directory in file.load(limit, keep=True):
        file.accept(block)
        yield block, directory


def _indexed(
    index: SegmentIndex, directory: Directory
) -> dict[int, tuple[QueueRef, int, int, int, int]]:
    found = {}
    for ref, end, rows in rows_of(directory):
        for row in rows:
            place = PageRef(index.segment.base, row.at, row.entries, ref, row.first, end)
            for entry in index.read_page(place).entries(row.first):
                position, length, base, records, at_ms = entry
                found[position] = (ref, base, length, records, at_ms)
    return found


def _digests(batch: bytes, header: BatchHeader) -> set[int]:
    return {digest_of(header.queue.topic, key) for key in keys_of(batch, header) if key}


def _compared(
    block: Block,
    found: Mapping[int, object],
    expected: Mapping[int, object],
    lengths: Mapping[int, int],
) -> Flaw | None:
    """Compares entries by position; entries of batches that were damaged later may be left over."""
    starts = sorted(lengths)
    for position in sorted({*found, *expected}):
        if found.get(position) == expected.get(position):
            continue
        whole = bisect_right(starts, position) - 1
        inside = whole >= 0 and position < starts[whole] + lengths[starts[whole]]
        if position in expected or inside or not block.start <= position < block.end:
            return Flaw(f"it says of log position {position} what the log does not", believed=True)
    return None
