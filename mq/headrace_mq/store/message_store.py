"""
The broker's interface to the disk: append a batch, wait until it is durable, read batches.

Used by `broker`, which knows topics and connections; uses the logs, the index and the flusher. Call all
methods but `open` on the event loop's thread. Only `find` and `index_keys` decode a payload, for the
keys.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.files import Files, SystemFiles
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import (
    MessageQueueError,
    OffsetOutOfRange,
    SequenceGap,
    StoreFull,
    StoreReadOnly,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, assign
from headrace_mq.settings import StoreSettings
from headrace_mq.store.compaction.compaction import Compaction
from headrace_mq.store.index.log_index import BLOCK_BYTES
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.log.batch_check import checked_header
from headrace_mq.store.log.batch_reader import Batch, BatchReader, ReadFigures
from headrace_mq.store.log.clean_end import LOCK_NAME, CleanEnd, QueueEnd, read_either, write_both
from headrace_mq.store.log.commit_gate import CommitGate
from headrace_mq.store.log.commit_log import COMPACT, CommitLog, SegmentInfo
from headrace_mq.store.log.flusher import STAGED_BYTES_MAX, Flusher
from headrace_mq.store.log.index_writer import IndexWriter
from headrace_mq.store.log.lookup import Finder
from headrace_mq.store.log.queue_reads import Fetch, QueueReads
from headrace_mq.store.log.queues import FileRange, Queues
from headrace_mq.store.log.recovery import recover
from headrace_mq.store.log.write_group import Group, NewBatch, Staged, only_batch
from headrace_mq.store.replication.mend import Mender
from headrace_mq.store.replication.raw_log import RawLog
from headrace_mq.store.segment.log_walk import Damage
from headrace_mq.store.segment.segment import Segment, SyncFailed

__all__ = ["LOCK_NAME", "RETENTIONS", "Appended", "Damage", "MessageStore", "SegmentInfo"]

_log = get_logger(__name__)

# Each has one log and one directory.
RETENTIONS = ("forever", "transient", COMPACT)

_new = tuple.__new__


class Appended(NamedTuple):
    """The place of a batch; `base_offset` is -1 for a repeated batch whose offset is not known any more."""

    base_offset: int
    duplicate: bool


class MessageStore:
    """Every queue of a broker, on disk.

    Args:
        settings: of the store.
        epoch: the broker's epoch, written into every batch; a function is called after the directory has
            been locked.
        clock: sets the append time.
        files: the file system; tests pass one that fails.
        index_block_bytes: bytes of the log per block of its index.
        gate: holds written batches until the owner says that replicas have them; None: it is the only copy.

    Attributes:
        on_visible: called on the loop with the queues that have batches to read now: new ones, or ones
            that have been read from the disk.
        damage: all damage found since the start, and not mended since.
        mender: finds damage, and puts sound bytes of a peer in its place.
        epoch: the broker's epoch, once it is open.
        durable: returns a future that ends when everything appended so far is as durable as `flush`
            promises; see `Flusher.durable`.
        sync_times: how long each sync of a group took.
        find: searches for messages by key, for a few milliseconds.
        compaction: keeps the last message of each key of its log.
        raw: reads and appends whole groups as they stand in a log, for replicas.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        epoch: int | Callable[[], int] = 1,
        clock: Clock | None = None,
        files: Files | None = None,
        index_block_bytes: int = BLOCK_BYTES,
        gate: CommitGate | None = None,
    ) -> None:
        self._files = SystemFiles() if files is None else files
        self._clock = SystemClock() if clock is None else clock
        self._directory = settings.directory
        self._take_epoch = epoch if callable(epoch) else None
        self.epoch = 0 if callable(epoch) else epoch
        self._logs = {
            name: CommitLog(
                self._files,
                settings.directory / name,
                segment_bytes=(
                    settings.compact_segment_bytes if name == COMPACT else settings.segment_bytes
                ),
                index_block_bytes=index_block_bytes,
            )
            for name in RETENTIONS
        }
        self._queues = Queues(self._logs)
        self.find = Finder(self._logs, self._queues).find
        self._reader = BatchReader(self._arrived)
        self._flusher = Flusher(
            flush=settings.flush,
            interval_ms=settings.flush_interval_ms,
            committed=self._committed,
            withdrawn=self._queues.withdraw,
            gate=gate,
        )
        self.durable = self._flusher.durable
        self.sync_times = self._flusher.sync_times
        self.raw = RawLog(self._logs, self._queues, self._flusher, self._clock)
        self._reads = QueueReads(self._reader)
        # Bound once: a read at the tail has few instructions.
        self._read_of, self._fetch_now = self._reads.read, self._reader.fetch_now
        self.damage: list[Damage] = self._reads.damage
        self._writer = IndexWriter(self._logs.values())
        self.mender = Mender(self._files, self._logs, self._queues, self._writer.run)
        self.compaction = Compaction(
            self._files, settings.directory / COMPACT, self._logs[COMPACT], self._queues, settings,
            clock=self._clock, exchange=self._exchange,
        )  # fmt: skip
        self._fresh: NewBatch | None = None
        self._lock_fd: int | None = None
        self._starts = dict.fromkeys(RETENTIONS, 0)
        self._closed = False
        self.on_visible: Callable[[Collection[QueueRef]], None] | None = None

    @property
    def read_only(self) -> str | None:
        """Why the store accepts no batches any more, or None."""
        return self._flusher.read_only

    @property
    def read_figures(self) -> ReadFigures:
        """The reads from memory and from the disk."""
        return self._reader.figures

    def open(self) -> None:
        """Locks the directory and recovers everything in it. Blocks until done.

        Raises:
            DataCorrupt: durable bytes are missing or unreadable; the message says what to do.
            FormatTooNew: a newer version wrote a part of it.
            MessageQueueError: another broker holds the directory, or it cannot be used.
        """
        try:
            self._open()
        except BaseException as error:
            self._release()
            if isinstance(error, OSError | SyncFailed):
                raise MessageQueueError(
                    f"the store in {self._directory} cannot be opened: {error}; check the disk and"
                    " the rights on the directory"
                ) from error
            raise

    def _open(self) -> None:
        self._make_directories()
        self.epoch = self.epoch if self._take_epoch is None else self._take_epoch()
        clean_end, damage = read_either(self._files, self._directory)
        self.damage += damage
        for name, log in self._logs.items():
            log.epoch = self.epoch
            self._starts[name] = log.open(clean_end.starts.get(name))
            self.damage += recover(log, self._queues, synced=clean_end.logs.get(name, 0))
        self._queues.skip_missed()
        for queue in clean_end.queues:
            self._queues.skip_to(QueueRef(queue.topic, queue.queue_id), queue.log, queue.end)
        self._queues.forget_surplus()
        _log.info(
            "the store is open",
            directory=str(self._directory),
            queues=len(self._queues),
            damaged=len(self.damage),
            **{f"{name}_end": log.end for name, log in self._logs.items()},
        )

    def _make_directories(self) -> None:
        missing = [self._directory, *self._directory.parents]
        for directory in reversed([path for path in missing if not self._files.exists(path)]):
            self._files.make_directory(directory)
            self._files.sync_directory(directory.parent)
        self._lock_fd = self._files.open(self._directory / LOCK_NAME, create=True)
        if not self._files.lock(self._lock_fd):
            raise MessageQueueError(
                f"another broker uses {self._directory}; stop it, or give this one a directory of"
                " its own"
            )
        for log in RETENTIONS:
            self._files.make_directory(self._directory / log)
        self._files.sync_directory(self._directory)

    def append(
        self,
        batch: bytearray | memoryview,
        *,
        retention: str,
        header: BatchHeader | None = None,
    ) -> Appended:
        """Accepts one whole batch and fills in the broker's fields, in place.

        The batch is durable and visible when the future of `durable` ends. A refused batch leaves no trace.

        Args:
            batch: exactly one batch, writable; the caller may change it after the call.
            retention: one of RETENTIONS; always the same for a queue as long as it has messages.
            header: the result of `read_header` for `batch`, if the caller has it already.

        Raises:
            CorruptBatch: the bytes are not a sound batch.
            UnsupportedVersion: a newer producer wrote it.
            InvalidArgument: too many records, or the queue is in another log.
            SequenceGap: batches of this producer are missing.
            StoreFull: too many bytes wait for the disk; try again soon.
            StoreReadOnly: the disk failed, or the store is closed.
            ValueError: no such retention.
        """
        flusher, queues = self._flusher, self._queues
        if self._closed or flusher.read_only is not None:
            raise StoreReadOnly(flusher.read_only or "the store is closed")
        header = checked_header(batch, header)
        length = header.length
        queue = queues.for_append(header.queue, retention)
        repeats = queues.duplicate_of(header)
        if repeats is not None:
            return Appended(repeats, duplicate=True)
        if flusher.staged_bytes + length > STAGED_BYTES_MAX:
            raise StoreFull(
                f"{flusher.staged_bytes} bytes wait for the disk; it is slower than its producers:"
                " try again soon"
            )
        now_ms = self._clock.now_ms()
        base = queue.index.tail
        group = flusher.group_for(queue.log, length, now_ms)
        position = group.end
        assign(
            batch,
            base_offset=base,
            position=position,
            appended_at_ms=now_ms,
            epoch=self.epoch,
        )
        undo = queues.stage(queue, header)
        # Building a named tuple as a tuple takes half the time.
        entry = _new(IndexEntry, (position, length, base, header.count, now_ms))
        flusher.stage(group, _new(Staged, (header.queue, entry, undo)), bytes(batch))
        return _new(Appended, (base, False))

    def repeated(self, batch: bytearray | memoryview, header: BatchHeader) -> Appended | None:
        """Returns the answer of `append` for a batch that the store holds already, or None for a new one.

        Raises:
            CorruptBatch: the bytes are not a sound batch.
        """
        try:
            base_offset = self._queues.duplicate_of(checked_header(batch, header))
        except SequenceGap:
            return None
        return None if base_offset is None else Appended(base_offset, duplicate=True)

    def read(self, queue: QueueRef, offset: int, bytes_max: int) -> list[Batch]:
        """Returns whole visible batches from the one that holds `offset`, or the next after a gap.

        Returns as many as fit in `bytes_max`, at least one if there is any. It leaves out a damaged batch from
        then on and adds it to `damage`.

        Raises:
            OffsetOutOfRange: below the first offset held, or above the next one.
        """
        return self._read(queue, offset, bytes_max, self._reader.fetch) or []

    def read_now(self, queue: QueueRef, offset: int, bytes_max: int) -> list[Batch] | None:
        """Does the same without waiting for the disk; returns only the batches in memory.

        Returns None if the first batch is not in memory: `on_visible` is called with the queue when it has been
        read. If the kernel cannot say what memory holds, this call waits like `read`.

        Raises:
            OffsetOutOfRange: below the first offset held, or above the next one.
        """
        if (fresh := self._fresh) and fresh.offset == offset and fresh.queue == queue:
            return [fresh.batch]
        return self._read(queue, offset, bytes_max, self._fetch_now)

    def _read(
        self, queue: QueueRef, offset: int, bytes_max: int, fetch: Fetch
    ) -> list[Batch] | None:
        first, end = self.range(queue)
        if not first <= offset <= end:
            raise OffsetOutOfRange(
                f"offset {offset} of {queue.topic}[{queue.queue_id}] is not in {first} to {end}"
            )
        if offset == end:
            return []
        known = self._queues.get(queue)
        assert known is not None
        return self._read_of(known, queue, offset, bytes_max, fetch)

    def wait_for_mending(self, may_mend: Callable[[Damage], bool] | None) -> None:
        """Sets who is asked about each damaged batch that a reader meets; see `QueueReads.may_mend`."""
        self._reads.may_mend = may_mend

    def mended(self, log: str, position: int, end: int, queues: Iterable[QueueRef]) -> None:
        """Lets readers have the bytes between two positions again, and tells those of the queues."""
        self._reader.forget(log)
        self._reads.mended(log, position, end)
        self._arrived(list(queues))

    def file_range_from(
        self, queue: QueueRef, offset: int, bytes_max: int, batches_max: int
    ) -> FileRange | None:
        """Returns the file that holds the batches from an offset on; see `Queue.file_range_from`."""
        known = self._queues.get(queue)
        return None if known is None else known.file_range_from(offset, bytes_max, batches_max)

    def range(self, queue: QueueRef) -> tuple[int, int]:
        """Returns the first offset held and the next one to become visible; (0, 0) if unknown."""
        known = self._queues.get(queue)
        if known is None:
            return (0, 0)
        # Superseded records do not count as missing: the log holds the queue from its beginning.
        return (0 if known.log.name == COMPACT else known.index.first, known.index.end)

    def offset_at(self, queue: QueueRef, time_ms: int) -> int:
        """Returns the first offset held whose batch was appended at `time_ms` or later.

        Returns the next offset to become visible if there is no such batch, and 0 for an unknown queue. If the
        clock went back, later batches may be older than `time_ms`, but no earlier one is younger.
        """
        known = self._queues.get(queue)
        return 0 if known is None else known.index.since(time_ms)

    def end_below(self, queue: QueueRef, positions: Mapping[str, int]) -> int | None:
        """Returns where a queue ends below its log's position; see `Queue.end_below`."""
        known = self._queues.get(queue)
        return None if known is None else known.end_below(positions[known.log.name])

    def stored_at(self, queue: QueueRef, offset: int) -> int | None:
        """Returns the append time of the batch that holds an offset, or of the next one after a gap."""
        known = self._queues.get(queue)
        found = known.index.find(offset, 0) if known is not None else None
        return found[0].at_ms if found else None

    def index_keys(self, bytes_max: int) -> bool:
        """Reads about `bytes_max` more for the key index; returns whether there is more to read.

        Only the speed of `find` depends on it. The broker calls it when it is idle.
        """
        more = [log.keys.step(log.end, bytes_max) for log in self._logs.values()]
        self._writer.step()
        return any(more)

    def segments(self, log: str) -> list[SegmentInfo]:
        """Returns every segment of a log in order; all but the last are sealed.

        Raises:
            ValueError: no such log.
        """
        return self._log(log).infos()

    def delete_segments(self, log: str, before: int) -> int:
        """Deletes the sealed segments that end at or below a log position; returns their number.

        First offsets move up; the next offsets of queues stay, even if a queue becomes empty. Batches that were
        read earlier stay readable. Blocks for one sync.

        Raises:
            StoreReadOnly: the disk failed, or the store is closed.
            StoreFull: the disk has no room for the checkpoint; no segment was deleted.
            ValueError: no such log.
        """
        held = self._log(log)
        if self._closed or self._flusher.read_only is not None:
            raise StoreReadOnly(self._flusher.read_only or "the store is closed")
        count = held.deletable(before)
        if not count:
            return 0
        earlier, start = self._starts[log], held.segments[count].base
        self._starts[log] = start
        try:
            self._write_checkpoint()
        except OSError as error:
            # If the new checkpoint reached the disk all the same, the next start deletes them: no harm.
            self._starts[log] = earlier
            raise StoreFull(f"nothing was deleted: {error}; make room on the disk") from error
        # They may be using the files of a segment that is deleted.
        self._writer.wait()
        self._reader.wait()
        gone = held.drop_below(start)
        self._queues.delete_below(log, start)
        try:
            held.remove_files(gone)
        except OSError as error:
            _log.warning(
                "deleted segments are still on the disk; the next start removes them",
                log=log,
                error=str(error),
            )
        return count

    def _log(self, name: str) -> CommitLog:
        if name not in self._logs:
            raise ValueError(f"log {name!r} is unknown; use {' or '.join(self._logs)}")
        return self._logs[name]

    def queues(self) -> list[tuple[QueueRef, str]]:
        """Returns every queue that has or had messages, with its retention, in any order."""
        return [(ref, queue.log.name) for ref, queue in self._queues if queue.index.end]

    async def aclose(self) -> None:
        """Makes all appended batches durable, then unlocks the directory."""
        if self._closed:
            return
        self._closed = True
        if self._lock_fd is None:
            return
        await self.compaction.aclose()
        await self._flusher.aclose()
        await self._writer.aclose()
        try:
            if self._flusher.read_only is None:
                self._write_checkpoint()
        except OSError as error:
            # The logs are durable without it; the next start only checks less.
            _log.warning(
                "the store's checkpoint cannot be written; the next start checks less",
                error=str(error),
            )
        finally:
            self._release()

    def _committed(self, groups: Sequence[Group]) -> None:
        # In the order of the logs, so that every process serves waiters in the same order.
        visible: dict[QueueRef, None] = {}
        due = False
        for group in groups:
            index = group.log.index
            if group.plan is not None:
                index.cut(group.start)
                due = True
            visible |= dict.fromkeys(self._queues.commit(group))
            # A block cut earlier may still wait for the sync of its range.
            due = index.grown(group.end) or due or group.log.synced < group.end
        self._fresh = only_batch(groups)
        if self.on_visible is not None:
            self.on_visible(visible.keys())
        self._fresh = None
        if due:
            self._writer.step()

    def _arrived(self, queues: Collection[QueueRef]) -> None:
        if self.on_visible is not None:
            self.on_visible(sorted(queues))

    def _exchange(self, replace: Callable[[], Sequence[Segment]]) -> None:
        # They may be using the files of a segment that is deleted.
        self._writer.wait()
        self._reader.wait()
        for gone in replace():
            gone.close()
        self._reader.forget(COMPACT)

    def _write_checkpoint(self) -> None:
        clean_end = CleanEnd(
            logs={name: log.synced for name, log in self._logs.items()},
            queues=[
                QueueEnd(ref.topic, ref.queue_id, queue.log.name, queue.index.end)
                for ref, queue in self._queues
            ],
            starts=self._starts,
        )
        write_both(self._files, self._directory, clean_end)

    def _release(self) -> None:
        self._writer.stop()
        self._reader.stop()
        for log in self._logs.values():
            log.close()
        if self._lock_fd is not None:
            self._files.close(self._lock_fd)
            self._lock_fd = None
