"""
Cuts the end off a log of a closed store, durably: bytes that the leader of a newer epoch does not have.

    keep what may have been acknowledged ─▶ lower the checkpoint ─▶ remove later segments, last to first ─▶
    remove the indexes of the last one ─▶ cut it, sync

Each step is durable before the next. After a crash between two of them the store opens with the whole log, or with
any part of what was to go; then the owner finds the same difference to the leader again, and cuts again.

Used by the owner of a store with replicas, which closes the store before and opens it after: so a start, the most tested
code, decides what the files mean. It cannot know what was committed: its owner says whether to keep what is cut.
"""

from collections.abc import Iterator

from headrace_mq._runtime.files import Files
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.clean_end import LOCK_NAME, CleanEnd, QueueEnd, read_either, write_both
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.replication.lost_messages import LostFile, keep_lost
from headrace_mq.store.segment.log_walk import LogWalk
from headrace_mq.store.segment.segment import SyncFailed

__all__ = ["cut_log"]


def cut_log(
    files: Files, settings: StoreSettings, log: str, position: int, *, keep_from: int | None = None
) -> LostFile | None:
    """Ends a log at a position where an entry begins; the cut is durable on return.

    The ends of queues fall with the log, so that their offsets are given to the leader's messages.

    Args:
        files: the file system.
        settings: of the closed store.
        log: one of its logs.
        position: the new end; a log that ends earlier stays as it is. At 0 the whole log goes, also what was compacted.
        keep_from: messages from this position on are kept in a file first; None: they go.

    Returns the file that keeps the messages; None if there are none, or none is wanted.

    Raises:
        DataCorrupt, FormatTooNew: a file cannot be used.
        MessageQueueError: a broker uses the directory, a compaction has rewritten the bytes at the position, they were
            deleted, or the disk fails; repeat the cut after a crash.
    """
    directory = settings.directory
    lock = files.open(directory / LOCK_NAME, create=True)
    held = CommitLog(files, directory / log, segment_bytes=settings.segment_bytes)
    try:
        if not files.lock(lock):
            raise MessageQueueError(f"a broker uses {directory}; stop it before its log is cut")
        clean_end, _ = read_either(files, directory)
        held.open(clean_end.starts.get(log))
        kept = None
        if held.segments:
            if keep_from is not None:
                kept = keep_lost(files, directory, log, _batches(held, keep_from))
            _cut(files, settings, held, clean_end, position)
        return kept
    except (OSError, SyncFailed) as error:
        raise MessageQueueError(
            f"the log in {directory / log} cannot be cut: {error}; check the disk and try again"
        ) from error
    finally:
        held.close()
        files.close(lock)


def _cut(
    files: Files, settings: StoreSettings, held: CommitLog, clean_end: CleanEnd, position: int
) -> None:
    first = held.segments[0]
    if position < first.base or any(
        segment.compacted is not None and 0 < position < segment.limit for segment in held.segments
    ):
        raise MessageQueueError(
            f"the log {held.name!r} cannot be cut at position {position}: a compaction rewrote these"
            " messages, or they were deleted; build this replica again from an empty directory"
        )
    write_both(files, settings.directory, _lowered(held, clean_end, position))
    # A segment that would be empty goes too, unless it is the only one: the leader may begin none there.
    while held.segments[-1].base >= position and held.segments[-1] is not first:
        held.remove_files([held.segments.pop()])
    if first.compacted is not None and not position:
        held.remove_files([held.segments.pop()])
        return
    last = held.segments[-1]
    if last.held_end <= position:
        return
    held.remove_derived(last)
    last.cut(position)
    last.sync()


def _batches(held: CommitLog, position: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yields the sound batches of a log from a position on."""
    for segment in held.segments:
        if segment.held_end <= position:
            continue
        walk = LogWalk(segment, segment.held_end)
        for header in walk.batches(max(position, segment.base), segment.held_end):
            yield header, walk.batch(header)


def _lowered(held: CommitLog, clean_end: CleanEnd, position: int) -> CleanEnd:
    """Returns the checkpoint with the ends that the log and its queues will have."""
    ends: dict[QueueRef, int] = {}
    for segment in held.segments if position else ():
        if segment.held_end <= position:
            continue
        walk = LogWalk(segment, segment.held_end)
        for batch in walk.batches(max(position, segment.base), segment.held_end):
            ends[batch.queue] = min(ends.get(batch.queue, batch.base_offset), batch.base_offset)
    return CleanEnd(
        logs={
            name: min(end, position) if name == held.name else end
            for name, end in clean_end.logs.items()
        },
        queues=[
            QueueEnd(known.topic, known.queue_id, known.log, min(known.end, _end_of(known, ends)))
            if known.log == held.name
            else known
            for known in clean_end.queues
            if position or known.log != held.name
        ],
        starts=clean_end.starts,
    )


def _end_of(known: QueueEnd, ends: dict[QueueRef, int]) -> int:
    return ends.get(QueueRef(known.topic, known.queue_id), known.end)
