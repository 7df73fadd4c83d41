"""
How far a log is compacted, and the bytes of a compacted segment as a file: what brokers of a group tell each other.

    │ compacted, clean │ compacted │ as it was written … │
    0                clean        end

Each broker compacts its own copy, so copies of one log differ in bytes. They have the same positions at the beginnings of
segments, the same offsets, and the same newest record of each key. Only a tombstone that was removed cannot be seen any
more: who has messages that it deleted must not take over the segment without it.

Used by `raw_log`, which has the segments; values and reads only.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES, Segment

__all__ = ["CompactedState", "SegmentPiece", "piece_of", "state_of"]


class CompactedState(NamedTuple):
    """How far a log is compacted.

    Attributes:
        clean: below this position each key has only one record, and no message that a tombstone deleted.
        forgotten: at and above this position no tombstone was removed because of its age.
        end: at and above this position every byte is as it was written.
        version: grows with the tombstones that were removed; at least 1. Segments of different versions are not
            put together.
    """

    clean: int = 0
    forgotten: int = 0
    end: int = 0
    version: int = 1


class SegmentPiece(NamedTuple):
    """Some bytes of the file of a compacted segment.

    Attributes:
        base: log position at which it begins.
        covers: log position at which the next segment begins.
        identity: distinguishes files of the same name.
        size: of the whole file, in bytes.
        at: the first byte in the file.
        data: the bytes.
    """

    base: int
    covers: int
    identity: int
    size: int
    at: int
    data: bytes


def state_of(segments: Iterable[Segment]) -> CompactedState:
    """Returns how far a log is compacted.

    Args:
        segments: of the log, in order.
    """
    clean = forgotten = end = removed = 0
    follows_clean = True
    for segment in segments:
        compacted = segment.compacted
        follows_clean = follows_clean and compacted is not None and compacted.cleaned_ms > 0
        if compacted is None:
            continue
        end = compacted.covers
        if follows_clean:
            clean = compacted.covers
        if compacted.forgotten:
            forgotten = compacted.covers
            removed += compacted.forgotten
    return CompactedState(clean, forgotten, end, 1 + removed)


def piece_of(segment: Segment, identity: int, at: int, bytes_max: int) -> SegmentPiece:
    """Returns the next bytes of a compacted segment's file.

    Args:
        segment: is compacted.
        identity: of the file that the asker has the beginning of; if it is another one, the first bytes come.
        at: how many bytes of it the asker has.
        bytes_max: of the piece.
    """
    if identity != segment.identity:
        at = 0
    size = segment.file_bytes
    position = segment.base - SEGMENT_HEADER_BYTES + at
    data = segment.read(position, min(bytes_max, size - at))
    return SegmentPiece(segment.base, segment.limit, segment.identity, size, at, data)
