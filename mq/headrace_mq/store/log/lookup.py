"""
Finds messages by their key: asks the key index which batches to look into, and looks.

    cursor ─▶ block of keys? ─▶ its candidates are read       ─▶ found, and the cursor to go on
              none yet?      ─▶ the log itself is read there

One call does a bounded amount of work, so that an event loop can afford it; the answer is what a
reader of all messages would find. Used by `message_store`; reads the logs. Keeps no state.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace_mq.errors import DataCorrupt, FormatTooNew, InvalidArgument
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader
from headrace_mq.store.keys.key_file import digest_of
from headrace_mq.store.keys.log_keys import keys_of
from headrace_mq.store.log.commit_log import COMPACT, CommitLog
from headrace_mq.store.log.queues import Queues
from headrace_mq.store.segment.log_walk import LogWalk

__all__ = [
    "FIND_WORK_BYTES",
    "FOUND_BYTES_MAX",
    "FOUND_MAX",
    "Cursor",
    "Finder",
    "Found",
    "LookupQuery",
]

# What one call reads at most, besides one batch: milliseconds, also where every batch is a message.
FIND_WORK_BYTES = 256 << 10
# Messages that one call returns at most, unless one batch holds more of them.
FOUND_MAX = 1_000
# Bytes that one call returns at most, unless one batch is larger: a tenth of a frame.
FOUND_BYTES_MAX = 1 << 20
# A search of one block costs two reads of about a page of memory each.
_LOOKUP_BYTES = 8 << 10
_WINDOW_BYTES = 128 << 10
_CANDIDATE_WINDOW_BYTES = 4 << 10
_NEVER_MS = _NO_OFFSET = (1 << 63) - 1


class Cursor(NamedTuple):
    """Where a search goes on: a log and a position in it.

    The name of a log that is compacted is followed by `@` and what tells whether positions have
    come to mean something else since.
    """

    log: str
    position: int


class LookupQuery(NamedTuple):
    """What is searched for: `from_ms` counts, `to_ms` does not; both are append times."""

    topic: str
    key: str
    from_ms: int = 0
    to_ms: int = _NEVER_MS


class Found(NamedTuple):
    """Whole batches in log order, each with at least one message of the key.

    `messages` is their number. `cursor` is None when everything was searched.
    """

    batches: list[bytes]
    messages: int
    cursor: Cursor | None


class _Search:
    """One call: what was found so far, and how much may still be read."""

    def __init__(
        self,
        wanted: LookupQuery,
        starts: Mapping[QueueRef, int] | None,
        messages_max: int,
        bytes_max: int,
    ) -> None:
        self.wanted = wanted
        self._starts = starts
        self.work = FIND_WORK_BYTES
        self.batches: list[bytes] = []
        self.messages = 0
        self._messages_max = messages_max
        self._bytes_left = bytes_max

    @property
    def is_over(self) -> bool:
        """Whether the answer, or the patience, is full."""
        return self.work <= 0 or self.messages >= self._messages_max

    def wants(self, header: BatchHeader) -> bool:
        """Whether a batch may hold what is searched for, by its header."""
        topic, _, from_ms, to_ms = self.wanted
        if header.queue.topic != topic or not from_ms <= header.appended_at_ms < to_ms:
            return False
        starts = self._starts
        return starts is None or header.base_offset >= starts.get(header.queue, _NO_OFFSET)

    def take(self, batch: bytes, matching: int) -> bool:
        """Takes a batch with so many messages of the key; False if it is too large by now."""
        if self.batches and len(batch) > self._bytes_left:
            self.work = 0
            return False
        self.batches.append(batch)
        self.messages += matching
        self._bytes_left -= len(batch)
        return True


class Finder:
    """Searches all logs.

    Args:
        logs: by name, in the order in which they are searched.
        queues: which messages readers see.
    """

    def __init__(self, logs: Mapping[str, CommitLog], queues: Queues) -> None:
        self._logs = logs
        self._queues = queues

    def find(
        self,
        wanted: LookupQuery,
        cursor: Cursor | None = None,
        *,
        starts: Mapping[QueueRef, int] | None = None,
        messages_max: int = FOUND_MAX,
        bytes_max: int = FOUND_BYTES_MAX,
    ) -> Found:
        """Searches on from a cursor, or from the oldest message, for as long as one call may.

        Args:
            wanted: topic, key and times.
            cursor: of the answer before; None begins.
            starts: the queues that count, and from which offset on; all without.
            messages_max: 1 to FOUND_MAX; the last batch may exceed it.
            bytes_max: of all batches; at least one is returned if there is any.

        Raises:
            InvalidArgument: the key is empty, a bound is out of its range, or the cursor is none.
        """
        self._check(wanted, cursor, messages_max, bytes_max)
        search = _Search(wanted, starts, messages_max, bytes_max)
        topic = wanted.topic
        held = {queue.log.name for ref, queue in self._queues if ref.topic == topic}
        names = list(self._logs)
        begins, place = _parsed(cursor)
        if cursor is not None:
            names = names[names.index(begins) :]
        for name in names:
            if name not in held:
                continue
            log = self._logs[name]
            begin = place if name == begins else 0
            if cursor is not None and name == begins and cursor.log != _named(log):
                # A compaction moved what stood there: what the segment holds is looked at again.
                begin = _segment_start(log, begin)
            position = self._search(log, begin, search)
            if position is not None:
                return Found(search.batches, search.messages, Cursor(_named(log), position))
        return Found(search.batches, search.messages, None)

    def _check(
        self, wanted: LookupQuery, cursor: Cursor | None, messages_max: int, bytes_max: int
    ) -> None:
        if not wanted.key:
            raise InvalidArgument("messages without a key cannot be found by it; name a key")
        if not 1 <= messages_max <= FOUND_MAX or bytes_max < 1:
            raise InvalidArgument(
                f"a search returns 1 to {FOUND_MAX} messages and 1 byte or more at a time; go on"
                " with the cursor for others"
            )
        if cursor is not None and (_parsed(cursor)[0] not in self._logs or cursor.position < 0):
            raise InvalidArgument("a search goes on with the cursor of its last answer, unchanged")

    def _search(self, log: CommitLog, position: int, search: _Search) -> int | None:
        """Searches one log; returns where it stopped, or None at its end."""
        if not log.segments:
            return None
        digest = digest_of(search.wanted.topic, search.wanted.key)
        position = max(position, log.segments[0].base)
        while (position := log.past_gap(position)) < log.end:
            if search.is_over:
                return position
            positions, end = log.keys.lookup(
                position, digest, from_ms=search.wanted.from_ms, to_ms=search.wanted.to_ms,
                end=log.end,
            )  # fmt: skip
            search.work -= _LOOKUP_BYTES
            if positions is None:
                position = self._scan(log, position, end, search)
            else:
                position = self._look_into(log, positions, end, search)
        return None

    def _look_into(self, log: CommitLog, positions: list[int], end: int, search: _Search) -> int:
        """Reads candidates; returns where to go on."""
        for position in positions:
            if search.is_over:
                return position
            segment = log.segment_at(position)
            walk = LogWalk(segment, end, window_bytes=_CANDIDATE_WINDOW_BYTES)
            try:
                header = walk.entry(position)
            except (DataCorrupt, FormatTooNew, OSError):
                # A reader of the messages reports it.
                continue
            if isinstance(header, BatchHeader) and not self._take(walk, header, search):
                return position
        return end

    def _scan(self, log: CommitLog, position: int, end: int, search: _Search) -> int:
        """Reads all batches of a range; returns where to go on."""
        walk = LogWalk(log.segment_at(position), end, window_bytes=_WINDOW_BYTES)
        until = min(end, position + max(search.work, 1))
        try:
            for header in walk.batches(position, until):
                search.work -= header.length
                if not self._take(walk, header, search):
                    return header.position
                position = header.position + header.length
                if search.is_over:
                    return position
        except (FormatTooNew, OSError):
            return end
        # Bytes that are no batch cost as much.
        search.work -= max(0, until - position)
        return min(walk.position, end)

    def _take(self, walk: LogWalk, header: BatchHeader, search: _Search) -> bool:
        """Looks into a batch and takes it if it is wanted; False if it comes with the next call."""
        if not search.wants(header):
            return True
        batch = walk.batch(header)
        search.work -= max(header.plain_bytes, header.length)
        matching = keys_of(batch, header).count(search.wanted.key)
        if not matching or not self._is_readable(header):
            return True
        return search.take(batch, matching)

    def _is_readable(self, header: BatchHeader) -> bool:
        """Whether readers of its queue see this batch: whole, committed, and not contradicted."""
        queue = self._queues.get(header.queue)
        if queue is None:
            return False
        found = queue.index.find(header.base_offset, 0)
        return bool(found) and found[0].position == header.position


def _named(log: CommitLog) -> str:
    return f"{log.name}@{log.epoch}.{log.replacements}" if log.name == COMPACT else log.name


def _parsed(cursor: Cursor | None) -> tuple[str, int]:
    return ("", 0) if cursor is None else (cursor.log.partition("@")[0], cursor.position)


def _segment_start(log: CommitLog, position: int) -> int:
    within = log.segments and log.segments[0].base <= position < log.end
    return log.segment_at(position).base if within else position
