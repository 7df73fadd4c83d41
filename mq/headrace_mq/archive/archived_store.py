"""
A message store whose oldest messages are in the archive: the same port, a longer past.

    offset ─▶  │ archive                          │ log                    │
               first                              held                     end

Used by the broker, which reads it like any store; uses `past`. What the log still holds comes from the
log. The broker's own journals are never archived: they hold messages that no reader may see yet.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files
from headrace_mq.archive.database import Keyed
from headrace_mq.archive.past import Past
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, read_header
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC
from headrace_mq.protocol.transactions import TRANSACTION_TOPIC
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.batch_reader import Batch
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.log.lookup import FOUND_BYTES_MAX, FOUND_MAX, Cursor, Found, LookupQuery
from headrace_mq.store.log.write_group import Group
from headrace_mq.store.message_store import RETENTIONS, MessageStore
from headrace_mq.store.segment.log_walk import LogWalk

__all__ = ["ARCHIVED_LOGS", "OWN_TOPICS", "ArchivedStore", "LogStretch"]

# What is compacted is bounded by its keys and stays in its log, where it changes: an archive would keep
# what a compaction has taken out.
ARCHIVED_LOGS = tuple(log for log in RETENTIONS if log != COMPACT)
OWN_TOPICS = frozenset({SCHEDULE_TOPIC, TRANSACTION_TOPIC})
# Read at once by the archiver.
_WINDOW_BYTES = 1 << 20
_NO_OFFSET = (1 << 63) - 1


class ArchivedStore(MessageStore):
    """Every queue of a broker, on disk and behind that in the archive.

    Args:
        settings: where the log is, and how.
        past: what the archive holds.
        epoch: as of a `MessageStore`.
        clock: tells the append time.
        files: the file system.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        past: Past,
        epoch: int | Callable[[], int] = 1,
        clock: Clock | None = None,
        files: Files | None = None,
    ) -> None:
        super().__init__(settings, epoch=epoch, clock=clock, files=files)
        self._past = past
        self._visible = dict.fromkeys(RETENTIONS, 0)
        self._find_held = self.find
        self.find = self._find
        past.on_arrived = self._arrived

    def open(self) -> None:
        """Opens the log; see `MessageStore.open`."""
        super().open()
        self._visible = {name: log.end for name, log in self._logs.items()}

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
            Coming: the archive is asked.
        """
        found = super().offset_at(queue, time_ms)
        held = super().range(queue)[0]
        if found > held or self.range(queue)[0] >= held:
            return found
        archived = self._past.offset_at(queue, time_ms, held)
        return found if archived is None else archived

    def stored_at(self, queue: QueueRef, offset: int) -> int | None:
        """When the message of an offset, or the next one after a gap, was appended.

        None also where the archive cannot tell.

        Raises:
            Coming: the archive is asked.
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
                wanted, cursor, starts=starts, messages_max=messages_max, bytes_max=bytes_max
            )
        asked = Keyed(
            wanted.topic, wanted.key, begin, before, wanted.from_ms, wanted.to_ms, messages_max
        )
        rows, more = self._past.keyed(asked)
        batches: list[bytes] = []
        messages = size = 0
        last = -1
        for queue, row in rows:
            if starts is not None and row.base < starts.get(queue, _NO_OFFSET):
                continue
            position = read_header(row.batch).position
            size += len(row.batch)
            # A search goes on at a position, so what stands at one comes in one answer.
            if batches and size > bytes_max and position != last:
                more = position
                break
            batches.append(row.batch)
            messages += row.end - row.base
            last = position
        return Found(batches, messages, Cursor(log.name, before if more is None else more))

    # ---- for the archiver --------------------------------------------------------------------

    def archivable(self, log: str) -> tuple[int, int]:
        """The log positions that may be archived: where the log begins, and up to where.

        What is there is durable and visible, so it will stand there for good.
        """
        held = self._log(log)
        end = min(held.synced, self._visible[log])
        return min(held.segments[0].base if held.segments else end, end), end

    def stretch(self, log: str, start: int, end: int, bytes_max: int) -> "LogStretch":
        """The messages of a log between two positions, up to about so many bytes.

        They stand in one segment, which must not be deleted before they have been read.
        """
        held = self._log(log)
        segment = held.segment_at(start)
        limit = min(end, held.segment_end(held.segments.index(segment)))
        walk = LogWalk(segment, limit, window_bytes=_WINDOW_BYTES)
        return LogStretch(walk, start, min(limit, start + bytes_max), limit, self._is_seen)

    def is_cold(self, log: str, start: int) -> bool:
        """Whether what stands at a position would have to be waited for."""
        segment = self._log(log).segment_at(start)
        try:
            return segment.read_cached(start, _WINDOW_BYTES) is None
        except OSError:
            return False

    def warm(self, log: str, start: int) -> None:
        """Reads what stands at a position, so that memory holds it; for a thread."""
        self._log(log).segment_at(start).read(start, _WINDOW_BYTES)

    def _is_seen(self, header: BatchHeader) -> bool:
        """Whether readers of its queue see this batch, and may."""
        queue = self._queues.get(header.queue)
        if queue is None or header.queue.topic in OWN_TOPICS:
            return False
        found = queue.index.find(header.base_offset, 0)
        return bool(found) and found[0].position == header.position

    def _committed(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._visible[group.log.name] = group.end
        super()._committed(groups)


class LogStretch:
    """Batches of a log one after the other, and how far that went.

    Args:
        walk: reads them.
        start: the log position to begin at.
        until: no batch that begins here or later is read.
        limit: nothing at or behind it is looked at.
        wanted: which batches are.
    """

    def __init__(
        self,
        walk: LogWalk,
        start: int,
        until: int,
        limit: int,
        wanted: Callable[[BatchHeader], bool],
    ) -> None:
        self._walk = walk
        self._start = start
        self._until = until
        self._limit = limit
        self._wanted = wanted
        self._done = False

    @property
    def end(self) -> int:
        """The log position up to which everything was read."""
        return min(self._walk.position, self._limit) if self._done else self._start

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yields the batches that readers see; raises OSError where the disk does not read."""
        for header in self._walk.batches(self._start, self._until):
            if self._wanted(header):
                yield header, self._walk.batch(header)
        self._done = True
