"""
Notes the newest offset of each key, as far as memory allows, and decides what a compaction keeps. PURE.

    records in log order ─▶ note ─▶ newest offset of each key ─▶ kept: the records that stay

It holds only the newest offset of a key, so a decision stays right when more is noted, or when nothing
more fits. Used by `rewrite`, which reads batches. This module must never know files, segments or the
clock.
"""

from collections.abc import Mapping, Sequence

import google_crc32c

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns

__all__ = ["ENTRY_BYTES", "LatestKeys", "is_tombstone"]

# Measured: text of ASCII (49 bytes more than its characters), an integer (32), and a dictionary's
# entry at its least favourable size (about 105).
ENTRY_BYTES = 190


def is_tombstone(key: str, body: bytes) -> bool:
    """Whether a record deletes its key: it has one, and its body is empty."""
    return bool(key) and not body


class LatestKeys:
    """The newest offsets of the keys of many queues.

    Args:
        bytes_max: about how much memory it may take.
        part: of all keys only those are noted whose hash falls into this one of `parts`.
        parts: 1 for all keys.

    Attributes:
        bytes: about how much it takes.
    """

    def __init__(self, bytes_max: int, *, part: int = 0, parts: int = 1) -> None:
        self._bytes_max = bytes_max
        self._part = part
        self._parts = parts
        self._newest: dict[QueueRef, dict[str, int]] = {}
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no more should be noted."""
        return self.bytes >= self._bytes_max

    def note(self, queue: QueueRef, keys: Sequence[str], offsets: Sequence[int]) -> None:
        """Takes the keys of records that stand behind all noted before."""
        if not keys:
            return
        newest = self._newest.setdefault(queue, {})
        before = len(newest)
        if self._parts == 1:
            newest.update(zip(keys, offsets, strict=True))
        else:
            newest.update(
                (key, offset)
                for key, offset in zip(keys, offsets, strict=True)
                if google_crc32c.value(key.encode()) % self._parts == self._part
            )
        added = len(newest) - before
        self.bytes += added * (ENTRY_BYTES + sum(map(len, keys)) // len(keys))

    def kept(
        self,
        queue: QueueRef,
        offsets: Sequence[int],
        columns: Columns,
        *,
        floor: int,
        drop_tombstones: bool,
    ) -> list[int]:
        """Returns which records of a batch stay, by their index.

        Args:
            queue: of the batch.
            offsets: of its records.
            columns: the same.
            floor: what is below this offset belongs to a queue that was deleted.
            drop_tombstones: whether records that delete their key have been there long enough.
        """
        newest: Mapping[str, int] = self._newest.get(queue, {})
        if not columns.keys:
            # Without a key nothing can supersede them.
            return [at for at, offset in enumerate(offsets) if offset >= floor]
        of = newest.get
        return [
            at
            for at, (offset, key, body) in enumerate(
                zip(offsets, columns.keys, columns.bodies, strict=True)
            )
            if offset >= floor
            and (not key or (of(key, offset) <= offset and (body or not drop_tombstones)))
        ]
