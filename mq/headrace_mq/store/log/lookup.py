"""
Finds messages by their key: gets candidate batches from the key index, and reads them.

    cursor ─▶ block of keys? ─▶ its candidates are read       ─▶ found, and the cursor to go on
              none yet?      ─▶ the log itself is read there

One call does a bounded amount of work, so it can run on an event loop. It finds the same messages as a reader of
the whole log. Used by `message_store`; reads the logs. Keeps no state.
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

# One call reads at most this, besides one batch: milliseconds, even if every batch is one message.
FIND_WORK_BYTES = 256 << 10
# Most messages that one call returns, unless one batch holds more.
FOUND_MAX = 1_000
# Most bytes that one call returns, unless one batch is larger: a quarter of a frame.
FOUND_BYTES_MAX = 1 << 20
# A search of one block makes two reads of about 4 KiB each.
_LOOKUP_BYTES = 8 << 10
_WINDOW_BYTES = 128 << 10
_CANDIDATE_WINDOW_BYTES = 4 << 10
_NEVER_MS = _NO_OFFSET = (1 << 63) - 1


class Cursor(NamedTuple):
    """Where a search goes on: a log and a position in it.

    For a compacted log, `@` and a number follow its name; the number shows whether positions have
    changed since.
    """

    log: str
    position: int


class LookupQuery(NamedTuple):
    """A search: append times from `from_ms` to before `to_ms`."""

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
    """One call: the batches found so far, and the bytes it may still read."""

    def __init__(
        self,
        wanted: LookupQuery,
        starts: Mapping[QueueRef, int] | None,
        messages_max: int,
        bytes_max: int,
        records_max: int | None,
    ) -> None:
        self.wanted = wanted
        self._starts = starts
        self.work = FIND_WORK_BYTES
        self.batches: list[bytes] = []
        self.messages = 0
        self._messages_max = messages_max
        self._bytes_left = bytes_max
        self._records_left = records_max

    @property
    def is_over(self) -> bool:
        """Whether the answer is full, or the call has read enough."""
        return self.work <= 0 or self.messages >= self._messages_max

    def wants(self, header: BatchHeader) -> bool:
        """Whether a batch may match, by its header."""
        topic, _, from_ms, to_ms = self.wanted
        if header.queue.topic != topic or not from_ms <= header.appended_at_ms < to_ms:
            return False
        starts = self._starts
        return starts is None or header.base_offset >= starts.get(header.queue, _NO_OFFSET)

    def take(self, batch: bytes, header: BatchHeader, matching: int) -> bool:
        """Adds a batch with `matching` messages of the key; returns False if it does not fit any more."""
        left = self._records_left
        if self.batches and (
            len(batch) > self._bytes_left or (left is not None and header.count > left)
        ):
            self.work = 0
            return False
        if left is not None:
            self._records_left = left - header.count
        self.batches.append(batch)
        self.messages += matching
        self._bytes_left -= len(batch)
        return True


class Finder:
    """Searches all logs.

    Args:
        logs: by name, in the order in which they are searched.
        queues: say which messages readers can see.
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
        records_max: int | None = None,
    ) -> Found:
        """Continues a search at a cursor, or begins at the oldest message; returns after a bounded time.

        Args:
            wanted: topic, key and times.
            cursor: of the previous answer; None to begin.
            starts: search only these queues, each from its offset on; None for all.
            messages_max: 1 to FOUND_MAX; the last batch may exceed it.
            bytes_max: of all batches; at least one is returned if there is any.
            records_max: of all batches, those of other keys too, for a caller that decodes each; None: no bound.

        Raises:
            InvalidArgument: the key is empty, a bound is out of its range, or the cursor is invalid.
        """
        self._check(wanted, cursor, messages_max, bytes_max)
        search = _Search(wanted, starts, messages_max, bytes_max, records_max)
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
                # A compaction has moved the batches: search this segment again from its beginning.
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
        """Reads candidates; returns the position at which to go on."""
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
        """Reads all batches of a range; returns the position at which to go on."""
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
        # Bytes that are not a batch cost as much.
        search.work -= max(0, until - position)
        return min(walk.position, end)

    def _take(self, walk: LogWalk, header: BatchHeader, search: _Search) -> bool:
        """Reads a batch and adds it if it matches; returns False if it must wait for the next call."""
        if not search.wants(header):
            return True
        batch = walk.batch(header)
        search.work -= max(header.plain_bytes, header.length)
        matching = keys_of(batch, header).count(search.wanted.key)
        if not matching or not self._is_readable(header):
            return True
        return search.take(batch, header, matching)

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
