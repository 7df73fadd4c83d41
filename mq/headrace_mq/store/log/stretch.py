"""
Where batches of one queue stand in one file, for whoever reads them in another process.

Sits between: `message_store`, and the broker's sifting processes. Nothing is read here; a reader
checks what it finds, since the file may be gone by then.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.log.queues import Queue
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES

__all__ = ["Stretch", "stretch_from"]


class Stretch(NamedTuple):
    """Batches of a queue in one file.

    Attributes:
        path: of the file.
        shift: what is added to a log position to get a byte of the file.
        entries: the batches, in offset order; at least one.
    """

    path: Path
    shift: int
    entries: Sequence[IndexEntry]


def stretch_from(queue: Queue, offset: int, bytes_max: int, batches_max: int) -> Stretch | None:
    """Returns the batches from the one that holds an offset on, as far as they are in one file.

    None where the log does not hold the offset, or is compacted: its files change.
    """
    log, index = queue.log, queue.index
    if log.name == COMPACT or not index.first <= offset < index.end:
        return None
    entries = index.find(offset, bytes_max, batches_max)
    if not entries:
        return None
    segment = log.segment_at(entries[0].position)
    end = log.segment_end(log.segments.index(segment))
    inside = [entry for entry in entries if entry.position < end]
    return Stretch(segment.path, SEGMENT_HEADER_BYTES - segment.base, inside)
