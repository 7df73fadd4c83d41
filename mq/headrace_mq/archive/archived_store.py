"""
A message store whose oldest messages are in the archive; it has the interface of `MessageStore`.

    offset ─▶  │ archive                          │ log                    │
               first                              held                     end

Used by the broker, which reads it like any store; uses `archive_reader`. Messages that the log still holds come from
the log. The broker's own journals are never archived: they hold messages that no reader may see yet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files
from headrace_mq.archive.archive_reader import ArchiveReader
from headrace_mq.archive.database import KeySearch
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, read_header
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC
from headrace_mq.protocol.transactions import TRANSACTION_TOPIC
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.batch_reader import Batch
from headrace_mq.store.log.commit_gate import CommitGate
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.log.lookup import FOUND_BYTES_MAX, FOUND_MAX, Cursor, Found, LookupQuery
from headrace_mq.store.log.write_group import Group
from headrace_mq.store.message_store import RETENTIONS, MessageStore
from headrace_mq.store.segment.log_walk import Gap, LogWalk
from headrace_mq.store.segment.segment import MARK_BYTES, WriteMark

__all__ = ["ARCHIVED_LOGS", "OWN_TOPICS", "ArchivedStore", "LogRange"]

# The compacted log is not archived: its size is bounded by its keys, and an archive would keep
# the records that a compaction removed.
ARCHIVED_LOGS = tuple(log for log in RETENTIONS if log != COMPACT)
OWN_TOPICS = frozenset({SCHEDULE_TOPIC, TRANSACTION_TOPIC})
# The archiver reads this much of the log at a time.
_WINDOW_BYTES = 1 << 20
_NO_OFFSET = (1 << 63) - 1

OnDamage = Callable[[int, int], None]


class ArchivedStore(MessageStore):
    """Every queue of a broker: its newer messages on disk, its older ones in the archive.

    Args:
        settings: of the log.
        past: reads the archive.
        epoch: see `MessageStore`.
        clock: tells the append time.
        files: the file system.
        gate: see `MessageStore`.

    Attributes:
        opened_at: where each log ended when the store was opened.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        past: ArchiveReader,
        epoch: int | Callable[[], int] = 1,
        clock: Clock | None = None,
        files: Files | None = None,
        gate: CommitGate | None = None,
    ) -> None:
        super().__init__(settings, epoch=epoch, clock=clock, files=files, gate=gate)
        self._past = past
        self._visible = dict.fromkeys(RETENTIONS, 0)
        self.opened_at = dict(self._visible)
        self._find_held = self.find
        self.find = self._find
        past.on_arrived = self._arrived

    def open(self) -> None:
        """Opens the log; see `MessageStore.open`."""
        super().open()
        self._visible = {name: log.end for name, log in self._logs.items()}
        self.opened_at = dict(self._visible)

    def range(self, queue: QueueRef) -> tuple[int, int]:
        """The first offset of the archive or the log, and the next one to become visible."""
        held, end = super().range(queue)
        return (held if queue.topic in OWN_TOPICS else self._past.first(queue, held)), end

    def read_now(self, queue: QueueRef, offset: int, bytes_max: int) -> list[Batch] | None:
        """Returns batches, or None while they come from the disk or the archive.

        Raises:
            OffsetOutOfRange: below the first offset of the archive, or above the next one.
        """
        held = super().range(queue)[0]
        if offset >= held or offset < self.range(queue)[0]:
            return super().read_now(queue, offset, bytes_max)
        found = self._past.read(queue, offset, bytes_max, held)
        if found:
            return list(found)
        return None if found is None else super().read_now(queue, held, bytes_max)

    def offset_at(self, queue: QueueRef, time_ms: int) -> int:
        """The first offset stored at `time_ms` or later; see `MessageStore.offset_at`.

        Raises:
            QueryPending: the archive must be read first.
        """
        found = super().offset_at(queue, time_ms)
        held = super().range(queue)[0]
        if found > held or self.range(queue)[0] >= held:
            return found
        archived = self._past.offset_at(queue, time_ms, held)
        return found if archived is None else archived

    def stored_at(self, queue: QueueRef, offset: int) -> int | None:
        """When the message of an offset, or the next one after a gap, was appended.

        Returns None for an unknown queue, or if the archive does not answer.

        Raises:
            QueryPending: the archive must be read first.
        """
        held = super().range(queue)[0]
        if offset >= held or self.range(queue)[0] >= held:
            return super().stored_at(queue, offset)
        found = self._past.stored_at(queue, offset)
        if found is None or found[0] < held:
            return None if found is None else found[1]
        return super().stored_at(queue, held)

    def _find(
        self,
        wanted: LookupQuery,
        cursor: Cursor | None = None,
        *,
        starts: Mapping[QueueRef, int] | None = None,
        messages_max: int = FOUND_MAX,
        bytes_max: int = FOUND_BYTES_MAX,
        records_max: int | None = None,
    ) -> Found:
        """Searches the archive up to where the log begins, then the log; see `Finder.find`."""
        log = next((q.log for ref, q in self._queues if ref.topic == wanted.topic), None)
        begin = 0 if cursor is None or log is None or cursor.log != log.name else cursor.position
        if log is None or (cursor is not None and cursor.log != log.name):
            before = 0
        else:
            before = log.segments[0].base if log.segments else log.end
        if log is None or begin >= before or not wanted.key:
            return self._find_held(
                wanted,
                cursor,
                starts=starts,
                messages_max=messages_max,
                bytes_max=bytes_max,
                records_max=records_max,
            )
        asked = KeySearch(
            wanted.topic, wanted.key, begin, before, wanted.from_ms, wanted.to_ms, messages_max
        )
        rows, more = self._past.keyed(asked)
        batches: list[bytes] = []
        messages = size = records = 0
        last = -1
        for queue, row in rows:
            if starts is not None and row.base < starts.get(queue, _NO_OFFSET):
                continue
            header = read_header(row.batch)
            position = header.position
            size += len(row.batch)
            records += header.count
            full = size > bytes_max or (records_max is not None and records > records_max)
            # The next search begins at a position: so an answer holds all batches of a position or none.
            if batches and full and position != last:
                more = position
                break
            batches.append(row.batch)
            messages += row.end - row.base
            last = position
        return Found(batches, messages, Cursor(log.name, before if more is None else more))

    # ---- for the archiver --------------------------------------------------------------------

    def archivable(self, log: str) -> tuple[int, int]:
        """Returns the range of log positions that may be archived.

        Everything in it is durable and visible, so it never changes. In a group that is what every broker in sync has:
        what a leader finds at its start, it serves no client before the others have it.
        """
        held = self._log(log)
        end = min(held.synced, self._visible[log])
        return min(held.segments[0].base if held.segments else end, end), end

    def kept_from(self, log: str) -> int:
        """Returns the log position from which on nothing may be archived, because a broker in sync may lack it."""
        return self._log(log).kept_from

    def stretch(
        self, log: str, start: int, end: int, bytes_max: int, on_damage: OnDamage
    ) -> "LogRange":
        """Returns the messages of a log between two positions, up to about `bytes_max`; see `LogRange`.

        They are in one segment. Do not delete it before they have been read.
        """
        held = self._log(log)
        segment = held.segment_at(start)
        limit = min(end, held.segment_end(held.segments.index(segment)))
        walk = LogWalk(segment, limit, window_bytes=_WINDOW_BYTES)
        return LogRange(walk, start, min(limit, start + bytes_max), self._is_seen, on_damage)

    def is_cold(self, log: str, start: int) -> bool:
        """Whether a read at a position would wait for the disk."""
        segment = self._log(log).segment_at(start)
        try:
            return segment.read_cached(start, _WINDOW_BYTES) is None
        except OSError:
            return False

    def warm(self, log: str, start: int) -> None:
        """Reads the log at a position into the page cache. Call it in a thread."""
        self._log(log).segment_at(start).read(start, _WINDOW_BYTES)

    def _is_seen(self, header: BatchHeader) -> bool:
        """Whether readers of its queue can see this batch."""
        queue = self._queues.get(header.queue)
        if queue is None or header.queue.topic in OWN_TOPICS:
            return False
        found = queue.index.find(header.base_offset, 0)
        return bool(found) and found[0].position == header.position

    def _committed(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._visible[group.log.name] = group.end
        super()._committed(groups)


class LogRange:
    """Reads batches of a log in order, and tracks how far it has read.

    Args:
        walk: reads the entries of the segment.
        start: the log position to begin at.
        until: stop before the first entry that begins here or later.
        wanted: takes a header; whether to yield its batch.
        on_damage: called with the start and the length of a damaged place, which is skipped unless it raises.
    """

    def __init__(
        self,
        walk: LogWalk,
        start: int,
        until: int,
        wanted: Callable[[BatchHeader], bool],
        on_damage: OnDamage,
    ) -> None:
        self._walk = walk
        self._start = start
        self._until = until
        self._wanted = wanted
        self._on_damage = on_damage
        self._end = start

    @property
    def end(self) -> int:
        """The log position up to which everything was read."""
        return self._end

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yields the wanted batches; raises OSError if the disk cannot be read."""
        at = self._start
        for entry in self._walk.entries_from(at):
            if isinstance(entry, Gap):
                self._on_damage(entry.start, entry.end - entry.start)
                at = entry.end
            elif isinstance(entry, WriteMark):
                at += MARK_BYTES
            else:
                at += entry.length
                if self._wanted(entry):
                    yield entry, self._walk.batch(entry)
            if at >= self._until:
                break
        self._end = at
