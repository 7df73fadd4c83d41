"""
Groups of a log as they stand in its file: read from a leader's store, and appended to a replica's.

    leader's segment   │ mark │ batch │ batch │ mark │ batch │        the same positions, offsets, times and epochs
                              read ──▶ RawRange ──▶ append            checked batch by batch
    replica's segment  │ MARK │ batch │ batch │ MARK │ batch │        MARK: "synced" as far as this disk is

The replica's marks are its own, so its recovery judges torn bytes as that of any store does. Segments begin at the same
positions on both sides.

Used by `message_store`, which owns one; writes through the flusher, as an append does. It knows no network
and no epochs: its owner makes sure that both logs are equal below the position.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace_mq._runtime.clock import Clock
from headrace_mq.errors import (
    BrokerStopping,
    CorruptBatch,
    DataCorrupt,
    InvalidArgument,
    OffsetOutOfRange,
    StoreFull,
    StoreReadOnly,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BatchHeader,
    batch_length,
    check_body,
    check_head,
    read_header,
)
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.log.clean_end import QueueEnd
from headrace_mq.store.log.commit_gate import Durable
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.log.flusher import STAGED_BYTES_MAX, Flusher
from headrace_mq.store.log.queues import Queue, Queues
from headrace_mq.store.log.write_group import Staged
from headrace_mq.store.replication.compacted_log import (
    CompactedState,
    SegmentPiece,
    piece_of,
    state_of,
)
from headrace_mq.store.replication.restart import FirstSegment
from headrace_mq.store.segment.segment import (
    MARK_BYTES,
    MARK_MAGIC,
    SEGMENT_HEADER_BYTES,
    decode_mark,
)

__all__ = ["RawGroup", "RawLog", "RawRange", "raw_groups"]

_MAGIC_BYTES = 4


class RawRange(NamedTuple):
    """Whole groups of one segment.

    Attributes:
        log: its name.
        position: log position of the first byte.
        base: log position at which the segment begins.
        file_bytes: the segment's planned size, with its header.
        data: the bytes; empty if the log ends at the position.
    """

    log: str
    position: int
    base: int
    file_bytes: int
    data: bytes


class RawGroup(NamedTuple):
    """The checked batches of one group; without a mark if the range began inside the group."""

    marked: bool
    batches: list[tuple[BatchHeader, bytes]]


class RawLog:
    """The raw side of a store; used on the event loop only.

    Args:
        logs: by name.
        queues: of the store.
        flusher: writes what is appended.
        clock: for the headers of new segments.
    """

    def __init__(
        self, logs: Mapping[str, CommitLog], queues: Queues, flusher: Flusher, clock: Clock
    ) -> None:
        self._logs = logs
        self._queues = queues
        self._flusher = flusher
        self._clock = clock
        self._planned: dict[str, int] = {}
        self._compacted: dict[str, tuple[tuple[int, int], CompactedState]] = {}
        # Who waits until all in sync have the logs up to these ends; never, once the gate is closed.
        self._waiting: list[tuple[dict[str, int], Durable]] = []
        self._is_closed = False
        flusher.when_closed(self._closed)

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room for what was appended last; it was taken back."""
        return self._flusher.is_full

    def ends(self) -> dict[str, int]:
        """Returns for each log the position below which every byte is on this disk."""
        return {name: log.synced for name, log in self._logs.items()}

    def end(self, log: str) -> int:
        """Returns the position below which every byte of a log is on this disk."""
        return self._logs[log].synced

    def keep_from(self, log: str, position: int) -> None:
        """Keeps all of a log from a position on: it is neither deleted, compacted nor archived, though it may be committed."""
        self._logs[log].kept_from = position
        if self._waiting:
            self._share()

    def kept_from(self, log: str) -> int:
        """Returns the position of a log from which on it is kept, because a broker in sync may lack it."""
        return self._logs[log].kept_from

    def shared(self) -> Durable:
        """Returns a future that ends when no log is kept from below where it ends on this disk now; see `keep_from`.

        It fails with BrokerStopping if the store or the leader's term ends before.
        """
        done = Durable(loop=asyncio.get_running_loop())
        self._waiting.append((self.ends(), done))
        self._share()
        return done

    def _share(self) -> None:
        waiting, self._waiting = self._waiting, []
        for ends, done in waiting:
            if all(self._logs[name].kept_from >= end for name, end in ends.items()):
                done.settle(None)
            elif self._is_closed:
                done.settle(BrokerStopping("the broker ended before all in sync had the messages"))
            else:
                self._waiting.append((ends, done))

    def _closed(self) -> None:
        self._is_closed = True
        self._share()

    def tail(self, log: str) -> int:
        """Returns where a log ends with what is staged: the next `append` goes on there."""
        return self._logs[log].tail

    def begin(self, log: str) -> int:
        """Returns the first position that a log holds."""
        segments = self._logs[log].segments
        return segments[0].base if segments else 0

    def compacted(self, log: str) -> CompactedState:
        """Returns how far a log is compacted."""
        held = self._logs[log]
        # Questions of replicas come often, and a log has many segments.
        seen = (held.replacements, len(held.segments))
        known = self._compacted.get(log)
        if known is None or known[0] != seen:
            known = self._compacted[log] = (seen, state_of(held.segments))
        return known[1]

    def piece(
        self, log: str, position: int, identity: int, at: int, bytes_max: int
    ) -> SegmentPiece | None:
        """Returns the next bytes of the compacted segment that holds a position, as a file; None if none does.

        Args:
            log: one of the store's logs.
            position: in the log.
            identity: of the file that the asker has the beginning of; 0: of none.
            at: how many bytes of it the asker has.
            bytes_max: of the piece.
        """
        held = self._logs[log]
        if position >= self.compacted(log).end or not held.segments:
            return None
        segment = held.segment_at(position)
        if segment.compacted is None:
            return None
        return piece_of(segment, identity, at, bytes_max)

    def first_segment(self, log: str) -> FirstSegment:
        """Returns the segment that a log begins with; it must have one."""
        held = self._logs[log]
        segment = held.segments[0]
        return FirstSegment(log, segment.base, segment.capacity + SEGMENT_HEADER_BYTES, held.epoch)

    def queue_starts(self, log: str) -> list[QueueEnd]:
        """Returns for each queue of a log the first offset that it holds; its end, if it holds none."""
        return [
            QueueEnd(ref.topic, ref.queue_id, log, queue.index.first)
            for ref, queue in self._queues
            if queue.log.name == log
        ]

    def written(self, log: str) -> int:
        """Returns the position below which `read` has every byte."""
        return self._logs[log].written

    def read(self, log: str, position: int, bytes_max: int) -> RawRange:
        """Returns written whole groups from a position on, of one segment; they may not be on the disk yet.

        Returns about `bytes_max` at most, but at least one group if there is any. Reads from the files.

        Args:
            log: one of the store's logs.
            position: where an entry begins, or the end of the log.
            bytes_max: in bytes.

        Raises:
            OffsetOutOfRange: the bytes were deleted or compacted.
            DataCorrupt: the bytes are damaged, or no entry begins at the position.
        """
        held = self._logs[log]
        if position >= held.written or not held.segments:
            return RawRange(log, position, 0, 0, b"")
        if position < held.segments[0].base:
            raise OffsetOutOfRange(f"the log {log!r} was deleted below {held.segments[0].base}")
        segment = held.segment_at(position)
        if segment.compacted is not None:
            raise OffsetOutOfRange(f"the log {log!r} was compacted at position {position}")
        limit = held.written
        if segment is not held.active:
            limit = min(limit, held.segment_end(held.segments.index(segment)))
        size = min(bytes_max, limit - position)
        while True:
            data = segment.read(position, size)
            whole = _whole_bytes(data, is_end=position + size == limit)
            if whole or position + size == limit:
                break
            size = min(2 * size, limit - position)
        file_bytes = segment.capacity + SEGMENT_HEADER_BYTES
        return RawRange(log, position, segment.base, file_bytes, data[:whole])

    def append(self, raw: RawRange) -> None:
        """Checks and stages the groups of a range; a refused range leaves no trace.

        They are durable when `ends` says so, and visible when the gate says that they are committed.

        Args:
            raw: begins where this log ends, with all that is staged.

        Raises:
            DataCorrupt: a byte of it is damaged, or it contradicts this log; ask again, or build this replica again.
            FormatTooNew: a newer version wrote it.
            StoreFull: too many bytes wait for the disk; try again soon.
            StoreReadOnly: the disk failed.
            ValueError: it begins elsewhere.
        """
        held = self._logs[raw.log]
        if raw.position != held.tail:
            raise ValueError(f"the log {raw.log!r} goes on at {held.tail}, not at {raw.position}")
        if self._flusher.read_only is not None:
            raise StoreReadOnly(self._flusher.read_only)
        if self._flusher.staged_bytes + len(raw.data) > STAGED_BYTES_MAX:
            raise StoreFull("too many bytes wait for the disk; try again soon")
        groups = list(raw_groups(raw.data, raw.position))
        queues = self._checked_queues(raw.log, groups)
        begins = self._begins_segment(held, raw)
        now_ms = self._clock.now_ms()
        for number, (marked, batches) in enumerate(groups):
            plan = None
            if begins and not number:
                plan = held.plan_segment(0, now_ms, file_bytes=raw.file_bytes)
                self._planned[raw.log] = raw.base
            group = self._flusher.new_group(held, plan, marked=marked)
            for header, data in batches:
                queue = queues[header.queue]
                # The leader skips offsets of messages that are lost.
                queue.index.tail = header.base_offset
                entry = IndexEntry(
                    header.position, header.length, header.base_offset, header.count,
                    header.appended_at_ms,
                )  # fmt: skip
                undo = self._queues.stage(queue, header)
                self._flusher.stage(group, Staged(header.queue, entry, undo), data)

    def _begins_segment(self, held: CommitLog, raw: RawRange) -> bool:
        """Whether the range begins a segment. Raises DataCorrupt if it is not of the segment that this log is in."""
        active = held.active
        # A planned segment is only there as long as its group is: a full disk may have refused it.
        base = self._planned.get(raw.log, -1) if held.tail > held.end else -1
        if active is not None:
            base = max(base, active.base)
        begins = raw.base == raw.position and raw.base != base
        if not begins and (raw.base != base or raw.position + len(raw.data) > held.tail_limit):
            raise DataCorrupt(
                f"the leader's segment at {raw.base} is not the one of this replica, {base}; build"
                " this replica again from an empty directory"
            )
        return begins

    def _checked_queues(self, log: str, groups: list[RawGroup]) -> dict[QueueRef, Queue]:
        queues: dict[QueueRef, Queue] = {}
        ends: dict[QueueRef, int] = {}
        for _, batches in groups:
            for header, _ in batches:
                ref = header.queue
                if ref not in queues:
                    try:
                        queues[ref] = self._queues.for_append(ref, log)
                    except InvalidArgument as error:
                        raise DataCorrupt(
                            f"the leader's log contradicts this one: {error}"
                        ) from error
                end = ends.get(ref, queues[ref].index.tail)
                if header.base_offset < end:
                    raise DataCorrupt(
                        f"the leader's batch at position {header.position} has offsets below {end},"
                        f" the end of {ref.topic}[{ref.queue_id}] here; build this replica again"
                    )
                ends[ref] = header.next_offset
        return queues


def raw_groups(data: bytes, position: int) -> Iterator[RawGroup]:
    """Yields the groups of raw bytes; every byte of them is covered by a checksum.

    Args:
        data: whole groups; the first may lack its mark.
        position: log position of the first byte.

    Raises:
        DataCorrupt: a byte is damaged, or belongs to another position.
        FormatTooNew: a newer version wrote it.
    """
    at, group = 0, RawGroup(marked=False, batches=[])
    while at < len(data):
        if data.startswith(MARK_MAGIC, at):
            if decode_mark(data, at).position != position + at:
                raise DataCorrupt(f"a group mark of another place came for {position + at}")
            if group.batches:
                yield group
            group = RawGroup(marked=True, batches=[])
            at += MARK_BYTES
            continue
        try:
            check_body(data, at)
        except CorruptBatch as error:
            raise DataCorrupt(f"the batch for position {position + at}: {error}") from error
        check_head(data, at)
        header = read_header(data, at)
        if header.position != position + at:
            raise DataCorrupt(f"a batch of another place came for {position + at}")
        group.batches.append((header, data[at : at + header.length]))
        at += header.length
    if group.batches:
        yield group


def _whole_bytes(data: bytes, *, is_end: bool) -> int:
    """Returns how many of the bytes are whole groups; with `is_end`, no entry follows them."""
    at = whole = 0
    while at + _MAGIC_BYTES <= len(data):
        if data.startswith(MARK_MAGIC, at):
            whole = at
            at += MARK_BYTES
        elif at + MARK_BYTES > len(data):
            break
        else:
            at += batch_length(data, at)
    return at if is_end and at == len(data) else whole
