"""
The key index of one log: reads committed batches later, in small steps, and notes their keys.

    committed ─▶ step: decoded, entered in the draft ──(16 MiB, or many keys)──▶ pending
              ──(durable)──▶ block in NNN.keys

Used by `message_store`, which calls its steps, and by `log.lookup`, which searches; reads and writes the key
files. Memory holds one draft, and one more that waits to be written. A search reads the log itself where it is
not indexed yet, and where a damaged file lost entries.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.protocol.batch import BatchHeader, decode_columns
from headrace_mq.store.keys.key_file import KeyDraft, KeyFile, digest_of
from headrace_mq.store.segment.block_file import Block
from headrace_mq.store.segment.log_walk import LogWalk
from headrace_mq.store.segment.segment import Segment

__all__ = ["KEYS_BLOCK_BYTES", "KEYS_MAX", "KeyBlock", "KeyLookup", "LogKeys", "keys_of"]

_log = get_logger(__name__)

# Bytes of the log per block, as in the offset index.
KEYS_BLOCK_BYTES = 16 << 20
# Entries of a block, unless one batch has more: 1 MiB on the disk and in memory, 4 KiB a page.
KEYS_MAX = 131_072
# Bytes of the log read at a time; a larger batch is read whole.
_WINDOW_BYTES = 128 << 10
# Steps without a write after the disk refused a block: 10 s at a step every 100 ms.
_STEPS_PUT_OFF = 100


class KeyBlock(NamedTuple):
    """A block that was written; pass it to `publish`."""

    draft: KeyDraft
    block: Block


class KeyLookup(NamedTuple):
    """Positions of batches that may hold a key, up to `end`; None if the range is not indexed."""

    positions: list[int] | None
    end: int


def keys_of(batch: bytes, header: BatchHeader) -> list[str]:
    """Returns the keys of a batch, one per record; an empty list if no record has one.

    A batch whose payload does not decode has no keys.
    """
    try:
        return decode_columns(batch, header).keys
    except DataCorrupt:
        return []


class LogKeys:
    """All key files of one log, and the keys that are not in them yet.

    Used on the event loop, except `write`, which may run in a thread.
    """

    def __init__(
        self,
        files: Files,
        log: str,
        *,
        block_bytes: int = KEYS_BLOCK_BYTES,
        keys_max: int = KEYS_MAX,
    ) -> None:
        self._files = files
        self._log = log
        self._block_bytes = block_bytes
        self._keys_max = keys_max
        self._bases: list[int] = []
        self._key_files: list[KeyFile] = []
        self._draft: KeyDraft | None = None
        self._pending: KeyDraft | None = None
        self._put_off = 0
        # All segments before this one have been read to their ends.
        self._complete = 0

    def adopt(self, segment: Segment) -> None:
        """Adds a new last segment."""
        self._bases.append(segment.base)
        self._key_files.append(KeyFile(self._files, segment, self._log))

    def load(self, end: int) -> None:
        """Opens the files; `end` is where the log ends."""
        for number, file in enumerate(self._key_files):
            for block, _ in file.load(self._segment_end(number, end)):
                file.accept(block)

    def step(self, end: int, bytes_max: int) -> bool:
        """Reads about `bytes_max` more of the log; returns whether there is more to read below `end`.

        Args:
            end: the log is committed up to here.
            bytes_max: one batch may exceed it.
        """
        if self._pending is not None:
            self._put_off = max(0, self._put_off - 1)
            return False
        if self._draft is None:
            self._draft = self._begin(end)
        draft = self._draft
        if draft is None:
            return False
        number = self._number_of(draft.segment)
        limit = self._segment_end(number, end)
        segment = self._key_files[number].segment
        walk = LogWalk(segment, limit, window_bytes=min(bytes_max, _WINDOW_BYTES))
        until = min(limit, draft.end + bytes_max)
        try:
            for header in walk.batches(draft.end, until):
                keys = keys_of(walk.batch(header), header)
                digests = {digest_of(header.queue.topic, key) for key in keys if key}
                draft.add(header.position, header.appended_at_ms, digests)
                draft.end = header.position + header.length
                if draft.keys >= self._keys_max:
                    break
            else:
                draft.end = min(walk.position, limit)
                if draft.end >= segment.data_end(limit):
                    draft.end = limit
        except (OSError, FormatTooNew) as error:
            # A reader of the messages reports it; the rest of the segment stays unindexed.
            _log.warning(
                "keys of a segment cannot be read; searches by key read it instead",
                log=self._log,
                error=str(error),
            )
            return False
        sealed = number + 1 < len(self._bases) and draft.end == limit
        if sealed or draft.keys >= self._keys_max or draft.end - draft.start >= self._block_bytes:
            self._draft, self._pending = None, draft
        return draft.end < end

    def _begin(self, end: int) -> KeyDraft | None:
        """Begins a draft at the place in the first segment up to which keys were read."""
        while self._complete < len(self._bases):
            file = self._key_files[self._complete]
            if file.end < self._segment_end(self._complete, end):
                return KeyDraft(file.segment.base, file.end)
            if self._complete + 1 == len(self._bases):
                return None
            self._complete += 1
        return None

    def lookup(
        self, position: int, digest: int, *, from_ms: int, to_ms: int, end: int
    ) -> KeyLookup:
        """Returns the batches that may hold a hash, from a log position up to a later one.

        Args:
            position: in the log, in one of its segments.
            digest: from `digest_of`.
            from_ms: the first append time to search.
            to_ms: the first append time after the range.
            end: of the log.
        """
        number = bisect_right(self._bases, position) - 1
        file = self._key_files[number]
        block = file.block_of(position)
        if block is not None:
            if not block.entries or block.max_ms < from_ms or block.min_ms >= to_ms:
                return KeyLookup([], block.end)
            try:
                found = file.find(block, digest)
                return KeyLookup([at for at in found if at >= position], block.end)
            except (DataCorrupt, OSError) as error:
                self._drop(number, block, str(error))
                return KeyLookup(None, block.end)
        for draft in (self._pending, self._draft):
            if draft is not None and draft.start <= position < draft.end:
                return KeyLookup([at for at in draft.find(digest) if at >= position], draft.end)
        return KeyLookup(None, self._segment_end(number, end))

    def _drop(self, number: int, block: Block, reason: str) -> None:
        file = self._key_files[number]
        if self._pending is not None and self._pending.segment == file.segment.base:
            # A block is being written after the damage; the next search finds the damage again.
            return
        # Drop the draft, even one of a later segment: this segment would wait until its block is full.
        self._draft = None
        file.drop(block, reason)
        self._complete = min(self._complete, number)

    # For the writer; see `LogIndex`.

    def due(self, synced: int) -> KeyDraft | None:
        """Returns the block to write, once its range of the log is durable."""
        if self._pending is None or self._put_off or self._pending.end > synced:
            return None
        return self._pending

    def put_off(self) -> None:
        """Makes no block due for a while, because the disk refused one."""
        self._put_off = _STEPS_PUT_OFF

    def write(self, draft: KeyDraft) -> KeyBlock:
        """Writes a block that is due. It has no effect before `publish`.

        Raises:
            OSError: no space or the like; it stays due.
        """
        file = self._key_files[self._number_of(draft.segment)]
        return KeyBlock(draft, file.append(draft.content()))

    def publish(self, written: KeyBlock) -> None:
        """Makes searches read a written block from its file."""
        if self._pending is not written.draft:
            # The segment was deleted while its block was being written.
            return
        self._key_files[self._number_of(written.draft.segment)].accept(written.block)
        self._pending = None

    def write_due(self, synced: int) -> None:
        """Writes the block that is due, in this thread; a block that fails is built again later."""
        self._put_off = 0
        draft = self.due(synced)
        if draft is not None:
            try:
                self.publish(self.write(draft))
            except OSError as error:
                _log.warning("an index cannot be written", log=self._log, error=str(error))

    def delete_below(self, position: int) -> list[KeyFile]:
        """Forgets the segments below a position; returns their key files, still open."""
        count = sum(base < position for base in self._bases)
        gone = self._key_files[:count]
        del self._key_files[:count], self._bases[:count]
        self._complete = max(0, self._complete - count)
        if self._draft is not None and self._draft.segment < position:
            self._draft = None
        if self._pending is not None and self._pending.segment < position:
            self._pending = None
        return gone

    def replace(self, segment: Segment) -> list[KeyFile]:
        """Replaces segments by a compacted one; returns their files, still open.

        Its keys are read again like those of new messages.
        """
        first = bisect_left(self._bases, segment.base)
        behind = bisect_left(self._bases, segment.limit)
        gone = self._key_files[first:behind]
        self._key_files[first:behind] = [KeyFile(self._files, segment, self._log)]
        self._bases[first:behind] = [segment.base]
        # Drop the draft, even one of a later segment: this segment would wait until its block is full.
        self._draft = None
        if self._pending is not None and segment.base <= self._pending.segment < segment.limit:
            self._pending = None
        self._complete = min(self._complete, first)
        return gone

    def files(self) -> Iterator[KeyFile]:
        """Yields the key file of each segment."""
        yield from self._key_files

    def close(self) -> None:
        """Closes all files and forgets everything."""
        for file in self._key_files:
            file.close()
        self._key_files.clear()
        self._bases.clear()
        self._draft = self._pending = None

    def _number_of(self, base: int) -> int:
        return bisect_right(self._bases, base) - 1

    def _segment_end(self, number: int, end: int) -> int:
        return self._bases[number + 1] if number + 1 < len(self._bases) else end
