"""
Reads batches from the segments and checks them, without making the event loop wait for the disk.

    the page cache of the file ─────────────▶ the disk, in a thread: "not now"
                     hit                       and a call once it has been read

`message_store` asks for batches by their index entries. This module reads and checks every batch;
`message_store` decides what to do about a damaged one.
"""

import asyncio
import errno
from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import sound_batch
from headrace_mq.store.index.page import IndexEntry
from headrace_mq.store.log.commit_log import CommitLog, SegmentRun
from headrace_mq.store.log.recovery import check_batch

__all__ = ["Batch", "BatchReader", "ReadFigures"]

_log = get_logger(__name__)

# Disks answer a few requests at a time; more threads would only compete for the interpreter.
THREADS_MAX = 2
# Bytes read from the disk that no reader has fetched yet, and bytes being read: eight answers of 4 MiB. If it
# is full, a reader gets a call once something has been read.
HELD_BYTES_MAX = 32 << 20

_UNABLE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

Batch = bytes | memoryview
# A log's name and the position of a run's first batch.
_Key = tuple[str, int]


class ReadFigures(NamedTuple):
    """The reads from the disk since the start, and the bytes held for readers now.

    `disk_reads` counts the runs of batches that the page cache did not hold.
    """

    disk_reads: int
    disk_bytes_held: int


class BatchReader:
    """Reads batches that an index names; used on the event loop only.

    Args:
        arrived: called on the loop with the queues of which batches have been read from the disk.
    """

    def __init__(self, arrived: Callable[[Collection[QueueRef]], None]) -> None:
        self._arrived = arrived
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="headrace-read")
        self._jobs: dict[_Key, Future[bytes | bytearray]] = {}
        self._loading_bytes = 0
        self._held: OrderedDict[_Key, bytes | bytearray] = OrderedDict()
        self._held_bytes = 0
        self._put_off: set[QueueRef] = set()
        self._can_tell = True
        self._disk_reads = 0

    @property
    def figures(self) -> ReadFigures:
        """Returns the figures since the start."""
        return ReadFigures(self._disk_reads, self._held_bytes)

    def fetch(
        self, queue: QueueRef, log: CommitLog, entries: list[IndexEntry]
    ) -> list[Batch | str]:
        """Returns batches; in place of a damaged batch, its damage. Waits for the disk if necessary."""
        found, _ = self._fetch(queue, log, entries, wait=True)
        return found

    def fetch_now(
        self, queue: QueueRef, log: CommitLog, entries: list[IndexEntry]
    ) -> list[Batch | str] | None:
        """Does the same without waiting: returns the first batches, as far as memory holds them.

        Returns None if memory does not hold the first batch: then a thread reads it, and `arrived` will be
        called with the queue. If the machine cannot say what memory holds, this call does wait.
        """
        found, cold = self._fetch(queue, log, entries, wait=not self._can_tell)
        if found or cold is None:
            return found
        self._load(queue, log, cold)
        return None

    def _fetch(
        self, queue: QueueRef, log: CommitLog, entries: list[IndexEntry], *, wait: bool
    ) -> tuple[list[Batch | str], SegmentRun | None]:
        found: list[Batch | str] = []
        topic = queue.topic.encode()
        for run in log.runs(entries):
            data = self._read(log, run, wait=wait)
            if data is None:
                return found, run
            view, start = memoryview(data), run.position
            read_end = start + len(data)
            for entry in entries[len(found) : len(found) + len(run.places)]:
                if entry.position > start and entry.position + entry.length > read_end:
                    # The read began before these batches were appended: they are next.
                    return found, None
                found.append(_checked(view, start, queue, topic, entry))
        return found, None

    def _read(self, log: CommitLog, run: SegmentRun, *, wait: bool) -> bytes | bytearray | None:
        """Returns the bytes of a run, or of its beginning; None if that would mean waiting."""
        held = self._held.pop((log.name, run.position), None)
        if held is not None:
            self._held_bytes -= len(held)
            return held
        if not wait and self._can_tell:
            try:
                return run.segment.read_cached(run.position, run.length)
            except OSError as error:
                if error.errno in _UNABLE:
                    self._can_tell = False
                    _log.warning(
                        "this system cannot say what is in memory, so reads of old messages block the broker",
                        error=str(error),
                    )
        return _read_from_disk(run)

    def _load(self, queue: QueueRef, log: CommitLog, run: SegmentRun) -> None:
        """Reads a run in a thread, unless it is being read already or too many bytes are."""
        key = (log.name, run.position)
        if key in self._jobs:
            return
        self._make_room(run.length)
        if self._jobs and self._loading_bytes + self._held_bytes + run.length > HELD_BYTES_MAX:
            self._put_off.add(queue)
            return
        self._disk_reads += 1
        self._loading_bytes += run.length
        job = self._jobs[key] = self._threads.submit(_read_from_disk, run)
        asyncio.wrap_future(job).add_done_callback(
            lambda done: self._loaded(queue, key, (job, run.length), done)
        )

    def _make_room(self, length: int) -> None:
        room = HELD_BYTES_MAX - self._loading_bytes - length
        while self._held and self._held_bytes > room:
            # Drop the oldest run: its reader has not come back.
            self._held_bytes -= len(self._held.popitem(last=False)[1])

    def _loaded(
        self,
        queue: QueueRef,
        key: _Key,
        job: tuple[Future[bytes | bytearray], int],
        done: "asyncio.Future[bytes | bytearray]",
    ) -> None:
        is_wanted = self._jobs.get(key) is job[0]
        if is_wanted:
            del self._jobs[key]
        self._loading_bytes -= job[1]
        if done.cancelled():
            return
        if is_wanted:
            data = done.result()
            self._held[key] = data
            self._held_bytes += len(data)
        waiting, self._put_off = {queue, *self._put_off}, set()
        self._arrived(waiting)

    def forget(self, log: str) -> None:
        """Drops all bytes read from a log, because its positions have changed.

        This includes runs that are being read: `arrived` is still called, and the reader tries again.
        """
        for key in [key for key in self._held if key[0] == log]:
            self._held_bytes -= len(self._held.pop(key))
        for key in [key for key in self._jobs if key[0] == log]:
            del self._jobs[key]

    def wait(self) -> None:
        """Returns when no thread is reading, so that files can be closed."""
        for job in self._jobs.values():
            job.exception()

    def stop(self) -> None:
        """Ends the threads after their current reads."""
        self._threads.shutdown(cancel_futures=True)


def _read_from_disk(run: SegmentRun) -> bytes | bytearray:
    """Returns the bytes of a run, with zeros for batches that cannot be read."""
    try:
        return run.segment.read(run.position, run.length)
    except OSError as error:
        _log.error(
            "a segment cannot be read; check the disk",
            path=str(run.segment.path),
            position=run.position,
            error=str(error),
        )
    data = bytearray(run.length)
    # One bad sector must not make its neighbours unreadable.
    for place in run.places:
        with suppress(OSError):
            batch = run.segment.read(place.position, place.length)
            at = place.position - run.position
            data[at : at + len(batch)] = batch
    return data


def _checked(
    run: memoryview, start: int, queue: QueueRef, topic: bytes, entry: IndexEntry
) -> Batch | str:
    """Returns an entry's batch from a run that begins at `start`, or its damage."""
    position, length, base, _, _ = entry
    at = position - start
    batch = run[at : at + length]
    if sound_batch(batch) == (length, base, position, queue.queue_id, topic):
        return batch
    # This call names the flaw, and recognises batches of newer versions.
    try:
        check_batch(batch, queue, entry)
    except (DataCorrupt, FormatTooNew) as error:
        return str(error)
    return batch
