"""
Notes the newest offset of each key, as far as memory allows, and decides what a compaction keeps. PURE.

    records in log order ─▶ note ─▶ newest offset of each key ─▶ kept: the records that stay

It holds only the newest offset of each key. So a decision stays right when more keys are noted, and also if
no more keys fit. Used by `rewrite`, which reads batches. It must not know files, segments or the clock.
"""

from collections.abc import Mapping, Sequence

import google_crc32c

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns

__all__ = ["ENTRY_BYTES", "LatestKeys", "is_tombstone"]

# Measured: an ASCII text (49 bytes plus its characters), an integer (32), and an entry of a dictionary at its
# worst fill (about 105).
ENTRY_BYTES = 190


def is_tombstone(key: str, body: bytes) -> bool:
    """Whether a record deletes its key: it has a key, and its body is empty."""
    return bool(key) and not body


class LatestKeys:
    """The newest offsets of the keys of many queues.

    Args:
        bytes_max: memory it may use, about.
        part: note only keys whose hash falls into this one of `parts`.
        parts: 1 for all keys.

    Attributes:
        bytes: memory it uses, about.
    """

    def __init__(self, bytes_max: int, *, part: int = 0, parts: int = 1) -> None:
        self._bytes_max = bytes_max
        self._part = part
        self._parts = parts
        self._newest: dict[QueueRef, dict[str, int]] = {}
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no more keys fit."""
        return self.bytes >= self._bytes_max

    def note(self, queue: QueueRef, keys: Sequence[str], offsets: Sequence[int]) -> None:
        """Notes the keys of records that follow all noted before."""
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
            floor: records below this offset belong to a deleted queue.
            drop_tombstones: whether tombstones are old enough to be removed.
        """
        newest: Mapping[str, int] = self._newest.get(queue, {})
        if not columns.keys:
            # Without keys no record is superseded.
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
