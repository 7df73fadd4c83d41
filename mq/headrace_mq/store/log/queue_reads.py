"""
Reads the batches of a queue, and decides what becomes of a damaged one.

    entries of the index ─▶ batches ─▶ all sound: returned
                                └─▶ damaged: is it about to be mended?  yes ─▶ the reader comes back
                                                                        no  ─▶ left out, and reported

Used by `message_store`, which calls it for every read.
"""

from collections.abc import Callable, Sequence

from headrace_mq._runtime.log import get_logger
from headrace_mq.message import QueueRef
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.log.batch_reader import Batch, BatchReader
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.log.queues import Queue
from headrace_mq.store.segment.log_walk import Damage

__all__ = ["Fetch", "QueueReads"]

Fetch = Callable[[QueueRef, CommitLog, list[IndexEntry]], Sequence[Batch | str] | None]

_log = get_logger(__name__)


class QueueReads:
    """The damage that readers met, and what they leave out because of it.

    Args:
        reader: one that reads without waiting comes back when `on_visible` names its queue.

    Attributes:
        damage: all that readers leave out now, with what the start found.
        may_mend: asked about a damaged batch; True: read it again when `on_visible` names its queue. None: no one mends.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self.damage: list[Damage] = []
        self.may_mend: Callable[[Damage], bool] | None = None
        self._left_out: dict[tuple[str, int], Queue] = {}

    def read(
        self, known: Queue, queue: QueueRef, offset: int, bytes_max: int, fetch: Fetch
    ) -> list[Batch] | None:
        """Returns sound batches from an offset on; None if the first one is being read or mended.

        Args:
            known: the queue.
            queue: its name.
            offset: within its range.
            bytes_max: at least one batch is returned, if there is any.
            fetch: of the reader; it returns None for: not now.
        """
        while entries := known.index.find(offset, bytes_max):
            found = fetch(queue, known.log, entries)
            if found is None:
                return None
            sound: list[Batch] = []
            for entry, batch in zip(entries, found, strict=False):
                if not isinstance(batch, str):
                    sound.append(batch)
                elif not self._is_misread(known, entry):
                    waits = fetch == self._reader.fetch_now
                    if self._is_mended(known, queue, entry, batch, waits=waits):
                        return sound or None
            if sound:
                return sound
        return []

    @staticmethod
    def _is_misread(known: Queue, entry: IndexEntry) -> bool:
        """Whether the page was wrong about the batch; it is rebuilt then."""
        ref = known.index.page_of(entry)
        return ref is not None and known.log.index.reload(ref, entry)

    def _is_mended(
        self, known: Queue, queue: QueueRef, entry: IndexEntry, reason: str, *, waits: bool
    ) -> bool:
        """Whether the reader shall come back for a damaged batch; else it is left out from now on."""
        log = known.log
        damage = Damage(log.name, *entry.place, reason, queue, entry.base, entry.records)
        if self.may_mend is not None and self.may_mend(damage) and waits:
            return True
        known.index.drop(entry.position)
        self._left_out[log.name, entry.position] = known
        self.damage.append(damage)
        _log.error("a stored batch is damaged; readers skip it", **damage.facts())
        return False

    def mended(self, log: str, position: int, end: int) -> None:
        """Lets readers have what was left out between two positions of a log, because it is sound again."""
        for place in [one for one in self._left_out if one[0] == log and position <= one[1] < end]:
            self._left_out.pop(place).index.restore(place[1])
            # What the start left out is in no index, so it stays until the next one.
            self.damage[:] = [one for one in self.damage if (one.log, one.position) != place]
