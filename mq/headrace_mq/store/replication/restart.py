"""
Lets a log of a closed store go on at a later position, durably, without what it held: its leader has deleted that.

    checkpoint: end 0, no beginning, the leader's ends of queues ─▶ make the segment ─▶ checkpoint: the log begins there

Each step is durable before the next. After a crash before the last one, the store opens with what the log held and, once
the segment is there, a gap; its owner then deletes what lies before the segment, as any replica does whose leader
deleted it. The checkpoint names no beginning meanwhile: an empty log would be refused for the segments that it lacks. After
the last step the next start deletes what lies before.

Used by the owner of a store with replicas, which closes the store before and opens it after.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files
from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.clean_end import LOCK_NAME, CleanEnd, QueueEnd, read_either, write_both
from headrace_mq.store.segment.segment import (
    Segment,
    SegmentPlan,
    SyncFailed,
    segment_name,
)

__all__ = ["FirstSegment", "restart_log"]


class FirstSegment(NamedTuple):
    """Where a leader's log begins.

    Attributes:
        log: its name.
        base: log position of its first byte.
        file_bytes: the segment's planned size, with its header.
        epoch: for the header of the segment.
    """

    log: str
    base: int
    file_bytes: int
    epoch: int


def restart_log(
    files: Files,
    settings: StoreSettings,
    first: FirstSegment,
    queues: Iterable[QueueEnd],
    clock: Clock,
) -> None:
    """Makes a log begin where its leader's does, with nothing in it; durable on return.

    Args:
        files: the file system.
        settings: of the closed store.
        first: the leader's first segment, which begins behind the end of this log.
        queues: of the log, each with the first offset that the leader holds, or else its end.
        clock: for the header of the segment.

    Raises:
        DataCorrupt, FormatTooNew: a file cannot be used.
        MessageQueueError: a broker uses the directory, or the disk fails; repeat it after a crash.
    """
    directory = settings.directory
    lock = files.open(directory / LOCK_NAME, create=True)
    try:
        if not files.lock(lock):
            raise MessageQueueError(
                f"a broker uses {directory}; stop it before its log begins again"
            )
        known, _ = read_either(files, directory)
        lowered = CleanEnd(
            logs={**known.logs, first.log: 0},
            queues=[*(one for one in known.queues if one.log != first.log), *queues],
            starts={log: begin for log, begin in known.starts.items() if log != first.log},
        )
        write_both(files, directory, lowered)
        _make_segment(files, settings, first, clock)
        starts = {**lowered.starts, first.log: first.base}
        write_both(files, directory, CleanEnd(lowered.logs, lowered.queues, starts))
    except (OSError, SyncFailed) as error:
        raise MessageQueueError(
            f"the log in {directory / first.log} cannot begin again: {error}; check the disk and try again"
        ) from error
    finally:
        files.close(lock)


def _make_segment(files: Files, settings: StoreSettings, first: FirstSegment, clock: Clock) -> None:
    folder = settings.directory / first.log
    if files.exists(folder / segment_name(first.base)):
        return
    plan = SegmentPlan(
        directory=folder, log=first.log, base=first.base, file_bytes=first.file_bytes,
        epoch=first.epoch, now_ms=clock.now_ms(),
    )  # fmt: skip
    segment = Segment.create(files, plan)
    segment.close()
