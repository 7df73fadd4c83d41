"""
Puts sound bytes of a peer in the place of damaged ones.

    damaged range ─▶ a peer's bytes ─▶ checked: every checksum, positions, epochs, offsets ─▶ written in place, synced
                                └─▶ anything differs: nothing is written

A power cut within the write leaves sectors of the old bytes and of the new ones. Checksums cover every byte, so that is the
old damage or the sound batch, and never another one. Marks are not a peer's: they say what this disk had.

Used by `message_store`, which owns one, for the owner of a store with replicas. It knows no network. Call it on the event
loop, but for `write`, which waits for the disk: `begin` has the store's thread do it, and nothing deletes, cuts or compacts
the file meanwhile.
"""

from asyncio import Future
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headrace_mq._runtime.files import Files
from headrace_mq.errors import CorruptBatch, DataCorrupt, FormatTooNew
from headrace_mq.protocol.batch import BatchHeader, check_body, check_head, read_header
from headrace_mq.store.index.segment_index import INDEX_SUFFIX
from headrace_mq.store.keys.key_file import KEYS_SUFFIX
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.log.queues import Queues
from headrace_mq.store.replication.epochs import EpochHistory
from headrace_mq.store.segment.log_walk import Damage, Gap, LogWalk
from headrace_mq.store.segment.segment import (
    MARK_BYTES,
    MARK_MAGIC,
    Segment,
    decode_mark,
    encode_mark,
)

__all__ = ["Mender", "Patch", "ScrubPart", "damage_within", "read_part", "remove_indexes"]

_WINDOW_BYTES = 256 << 10


class Patch(NamedTuple):
    """Checked bytes for a place of a segment's file."""

    segment: Segment
    position: int
    data: bytes

    @property
    def end(self) -> int:
        """The log position after the last byte."""
        return self.position + len(self.data)


class ScrubPart(NamedTuple):
    """A part of a segment to be read by a scrub, which opens the file itself; none of a compacted one.

    `end` is where the part ends at the earliest; `limit` is where the segment's entries end.
    """

    log: str
    path: Path
    file_bytes: int
    identity: int
    position: int
    end: int
    limit: int


class Mender:
    """The damaged places of one open store, and sound bytes for them.

    Args:
        files: the file system.
        logs: by name.
        queues: of the store.
        run: does work of the disk in a thread; what deletes or replaces files waits for it.
    """

    def __init__(
        self,
        files: Files,
        logs: Mapping[str, CommitLog],
        queues: Queues,
        run: Callable[[Callable[[], None]], "Future[None]"],
    ) -> None:
        self.files = files
        self._run = run
        self._logs = logs
        self._queues = queues

    def damage_in(self, log: str, position: int, length: int) -> list[Damage]:
        """Returns what is damaged now among durable bytes; nothing where a log does not have the range any more.

        Nothing of compacted segments either: entries of another broker's begin at other positions.

        Raises:
            OSError: the file cannot be read.
        """
        held = self._logs[log]
        end = min(position + length, held.synced)
        if not held.segments or position < held.segments[0].base or position >= end:
            return []
        segment, limit = self._place(held, position)
        if segment.compacted is not None:
            return []
        return list(damage_within(segment, log, position, min(end, limit), limit))

    def is_compacted(self, log: str, position: int) -> bool:
        """Whether a position is in a compacted segment, whose bytes another broker may not have."""
        held = self._logs[log]
        return bool(held.segments) and held.segment_at(position).compacted is not None

    def sound(self, log: str, position: int, length: int, bytes_max: int) -> bytes:
        """Returns the durable, sound, whole entries of a range for a peer; as many as fit, none if there are none.

        A first entry above `bytes_max` is returned all the same. Compacted segments have other bytes on each broker, so
        none of theirs are returned.

        Raises:
            OSError: the file cannot be read.
        """
        held = self._logs[log]
        if not held.segments or position < held.segments[0].base or position >= held.synced:
            return b""
        segment, limit = self._place(held, position)
        if segment.compacted is not None:
            return b""
        end = min(position + length, limit)
        at = position
        for entry_end in _sound_ends(segment, at, end):
            if entry_end - position > bytes_max and at > position:
                break
            at = entry_end
        return segment.read(position, at - position)

    def patch(self, damage: Damage, data: bytes, epochs: EpochHistory) -> Patch:
        """Checks a peer's bytes for the begin of a damaged range, or all of it.

        Args:
            damage: where, and which batch the index has there, if it has one.
            data: the peer's.
            epochs: of the log.

        Raises:
            DataCorrupt: they are damaged, or not those of this place; the sentence says what differs.
            FormatTooNew: a newer version wrote them.
        """
        log, position = damage.log, damage.position
        held, end = self._logs[log], position + len(data)
        if not data or len(data) > damage.length:
            raise DataCorrupt(f"{len(data)} bytes came for {damage.length} damaged ones")
        if not held.segments or position < held.segments[0].base or end > held.synced:
            raise DataCorrupt(f"the log {log!r} does not hold {position} to {end} any more")
        segment, limit = self._place(held, position)
        if segment.compacted is not None or end > limit:
            raise DataCorrupt(f"{segment.path} was compacted or cut, so other bytes stand there")
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            if data.startswith(MARK_MAGIC, at):
                if decode_mark(data, at).position != position + at:
                    raise DataCorrupt(f"a group mark of another place came for {position + at}")
                # All below is on this disk by now; what a peer's disk had decides nothing here.
                parts.append(encode_mark((position + at, position + at)))
                at += MARK_BYTES
                continue
            header = self._checked(damage, data, at, epochs)
            parts.append(data[at : at + header.length])
            at += header.length
        return Patch(segment, position, b"".join(parts))

    def _checked(self, damage: Damage, data: bytes, at: int, epochs: EpochHistory) -> BatchHeader:
        """Returns the header of a batch that stands where the log, its epochs and its index have one."""
        position = damage.position + at
        try:
            check_body(data, at)
        except CorruptBatch as error:
            raise DataCorrupt(f"the batch for position {position}: {error}") from error
        check_head(data, at)
        header = read_header(data, at)
        if header.position != position or at + header.length > len(data):
            raise DataCorrupt(f"a batch of another place came for {position}")
        first, known = epochs.starts[:1], epochs.last(position + 1)
        # What a broker wrote that ran alone has one epoch in the file: the highest one.
        adopted = bool(first) and known == first[0][0]
        if not known or header.epoch > known or (header.epoch < known and not adopted):
            raise DataCorrupt(
                f"a batch of epoch {header.epoch} came for {position}, which is of epoch {known}"
            )
        expected = (damage.queue, damage.base_offset)
        if damage.queue is not None and not at and (header.queue, header.base_offset) != expected:
            raise DataCorrupt(f"another batch came for {position}")
        queue = self._queues.get(header.queue)
        if queue is not None and queue.log.name != damage.log:
            raise DataCorrupt(f"the queue of the batch for {position} is in another log")
        held = queue.index.find(header.base_offset, 0) if queue is not None else []
        if (
            held
            and held[0].base < header.next_offset
            and held[0].place != (position, header.length)
        ):
            raise DataCorrupt(f"the batch for {position} has offsets that are known elsewhere")
        return header

    def begin(self, patch: Patch) -> "Future[None]":
        """Has checked bytes written in a thread; the future has the outcome of `write`.

        Call it in the same step as `patch`: from then on no file is deleted or compacted before that has ended.

        Raises:
            StoreReadOnly: the store is closed.
        """
        return self._run(partial(self.write, patch))

    def write(self, patch: Patch) -> None:
        """Writes checked bytes in place; they are durable on return.

        Raises:
            DataCorrupt: the file is another one by now; nothing was written.
            OSError, SyncFailed: the disk refused; the place holds the old damage, the sound bytes, or sectors of both.
        """
        segment = patch.segment
        # A descriptor of its own: a failed sync is then reported to the one that writes messages as well.
        own = Segment.open(
            self.files, segment.path, log=segment.path.parent.name, file_bytes=segment.file_bytes
        )
        try:
            if own.identity != segment.identity or own.header_damage is not None:
                raise DataCorrupt(
                    f"{segment.path} is another file by now, or its header is damaged"
                )
            own.mend(patch.position, patch.data)
            own.sync()
        finally:
            own.close()

    def segment_paths(self, log: str, position: int) -> set[Path]:
        """Returns the file that holds a position; none where the log begins later."""
        held = self._logs[log]
        if not held.segments or position < held.segments[0].base:
            return set()
        return {held.segment_at(position).path}

    def scrub_part(self, log: str, position: int, bytes_max: int) -> ScrubPart | None:
        """Returns the next durable part of a log from a position on; None where it ends."""
        held = self._logs[log]
        if not held.segments or position >= held.synced:
            return None
        position = max(position, held.segments[0].base)
        segment, limit = self._place(held, position)
        while segment.compacted is not None:
            position = held.segment_end(held.segments.index(segment))
            if position >= held.synced:
                return None
            segment, limit = self._place(held, position)
        end = min(position + bytes_max, limit)
        return ScrubPart(
            log, segment.path, segment.file_bytes, segment.identity, position, end, limit
        )

    @staticmethod
    def _place(held: CommitLog, position: int) -> tuple[Segment, int]:
        """Returns the segment of a position, and where its durable entries end."""
        segment = held.segment_at(position)
        end = min(held.segment_end(held.segments.index(segment)), held.synced)
        return segment, segment.data_end(end)


def _sound_ends(segment: Segment, position: int, end: int) -> Iterator[int]:
    """Yields where each sound entry from a position on ends, up to the first one that is not, or is longer."""
    walk = LogWalk(segment, end, window_bytes=_WINDOW_BYTES)
    while position < end:
        try:
            entry = walk.entry(position)
        except (DataCorrupt, FormatTooNew):
            return
        position += entry.length if isinstance(entry, BatchHeader) else MARK_BYTES
        yield position


def damage_within(
    segment: Segment, log: str, position: int, until: int, limit: int
) -> Iterator[Damage]:
    """Yields the damaged ranges that begin from an entry's position on, and before `until`.

    Args:
        segment: to read.
        log: its name.
        position: where an entry begins.
        until: stop here, or after the entry that spans it.
        limit: where the segment's entries end.

    Raises:
        OSError: the file cannot be read.
        FormatTooNew: a newer version wrote an entry.
    """
    walk = LogWalk(segment, limit, window_bytes=_WINDOW_BYTES)
    for entry in walk.entries_from(position):
        start = entry.start if isinstance(entry, Gap) else entry.position
        if start >= until:
            return
        if not isinstance(entry, Gap):
            continue
        head, length = entry.head, entry.end - entry.start
        if head is None:
            yield Damage(log, entry.start, length, "bytes that are no entry")
        else:
            reason = "a batch fails its checksum"
            yield Damage(log, entry.start, length, reason, head.queue, head.base_offset, head.count)


def read_part(files: Files, part: ScrubPart) -> tuple[list[Damage], int]:
    """Reads and checks a part of a segment; returns what is damaged, and where to go on. Call it in a thread.

    The log may change meanwhile, so what is found must be looked at again.

    Raises:
        OSError: the file cannot be read, or is gone.
        DataCorrupt, FormatTooNew: the segment is not one of this log or version.
    """
    segment = Segment.open(files, part.path, log=part.log, file_bytes=part.file_bytes)
    try:
        if segment.identity != part.identity:
            raise DataCorrupt(f"{part.path} is another file by now")
        found: list[Damage] = []
        walk = LogWalk(segment, part.limit, window_bytes=_WINDOW_BYTES)
        position = part.position
        for entry in walk.entries_from(part.position):
            if isinstance(entry, Gap):
                reason = "bytes that are no whole entry"
                found.append(Damage(part.log, entry.start, entry.end - entry.start, reason))
                position = entry.end
            else:
                position = entry.position
                position += entry.length if isinstance(entry, BatchHeader) else MARK_BYTES
            if position >= part.end:
                break
        return found, position
    finally:
        segment.close()


def remove_indexes(files: Files, segments: Collection[Path]) -> None:
    """Removes the files made from segments of a closed store, so that its next start reads the segments again.

    Raises:
        OSError: some are still there.
    """
    for segment in segments:
        names = set(files.names(segment.parent))
        for suffix in (INDEX_SUFFIX, KEYS_SUFFIX):
            path = segment.with_suffix(suffix)
            if path.name in names:
                files.remove(path)
        files.sync_directory(segment.parent)
