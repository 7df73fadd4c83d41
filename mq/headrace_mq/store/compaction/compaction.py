"""
Keeps the last record of each key of a log, one segment after the other, while the broker runs.

    is due? ─▶ note the keys of dirty segments ─▶ rewrite each segment from the oldest on
    (loop)     (thread)                           (thread: file in place) ─▶ (loop: readers see it)

Used by the broker's timer; works on the log, its queues and its readers. Everything runs on the event
loop, except `rewrite`. One step on the loop exchanges a segment for all readers; until then they read the
old file.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.message import QueueRef
from headrace_mq.settings import StoreSettings
from headrace_mq.store.compaction.latest_keys import LatestKeys
from headrace_mq.store.compaction.plan import (
    WHOLE,
    Bounds,
    CompactionRules,
    Plan,
    expired,
    planned,
)
from headrace_mq.store.compaction.rewrite import (
    RewriteContext,
    Rewriter,
    RewriteRate,
    Rewritten,
    SegmentUnusable,
    Source,
    Stopped,
)
from headrace_mq.store.log.commit_log import CommitLog, SegmentInfo
from headrace_mq.store.log.queues import Queues
from headrace_mq.store.segment.segment import Segment, SyncFailed

__all__ = ["PARTS_MAX", "Compaction", "CompactionFigures"]

_log = get_logger(__name__)

# Parts of the keys, if the keys of one segment do not fit into memory. Each part reads the whole log.
PARTS_MAX = 256

T = TypeVar("T")


class CompactionFigures(NamedTuple):
    """The work of all compactions since the start, and the work that waits.

    Attributes:
        dirty_bytes, clean_bytes: sealed segments not compacted yet, and all other sealed ones.
        runs: the number of compactions; `last_run_ms`: the end of the last one, in ms since 1970, or 0.
        kept, removed: records of the last compaction.
        freed_bytes: disk space that all of them freed.
        trouble: why the last compaction is incomplete, or empty.
    """

    dirty_bytes: int = 0
    clean_bytes: int = 0
    runs: int = 0
    last_run_ms: int = 0
    kept: int = 0
    removed: int = 0
    freed_bytes: int = 0
    trouble: str = ""


class Compaction:
    """Compacts one log; used on the event loop only.

    Args:
        files: the file system.
        directory: of the log.
        log: the log to compact.
        queues: the queues of the log.
        settings: when, how fast, and with how much memory.
        clock: the time.
        exchange: makes readers and index writers finish with a segment's files and discard its
            positions; closes the files of replaced segments.

    Attributes:
        steady_ms: returns the time that decides when tombstones are removed; the broker sets a clock
            without jumps.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        log: CommitLog,
        queues: Queues,
        settings: StoreSettings,
        *,
        clock: Clock,
        exchange: Callable[[Callable[[], Sequence[Segment]]], None],
    ) -> None:  # fmt: skip
        self._files = files
        self._directory = directory
        self._log = log
        self._queues = queues
        self._settings = settings
        self._rules = CompactionRules(
            dirty_percent=settings.compact_dirty_percent,
            lag_ms=settings.compact_lag_ms,
            tombstone_ms=settings.tombstone_ms,
            segment_bytes=settings.compact_segment_bytes,
        )
        self._clock = clock
        self.steady_ms: Callable[[], int] = clock.now_ms
        self._exchange = exchange
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-compact")
        self._pace = RewriteRate(0, clock)
        self._run: asyncio.Task[None] | None = None
        self._closed = False
        self._bounds = WHOLE
        self._figures = CompactionFigures()

    @property
    def figures(self) -> CompactionFigures:
        """Returns the work done, and the work that waits."""
        plan = self._plan()
        return self._figures._replace(dirty_bytes=plan.dirty_bytes, clean_bytes=plan.clean_bytes)

    async def run(
        self, floors: Mapping[QueueRef, int], *, force: bool = False, bounds: Bounds = WHOLE
    ) -> bool:
        """Compacts the log if it is due, or with `force` if any segment is dirty; returns whether it did.

        After a failure `figures.trouble` says why. No record is lost, and the next call goes on.

        Args:
            floors: offsets below which a queue's messages belong to a deleted queue of its name.
            force: compact even if little would be removed.
            bounds: how far.
        """
        if self._closed or (self._run is not None and not self._run.done()):
            return False
        self._bounds = bounds
        plan = self._plan()
        if not plan.is_due and not (force and plan.groups):
            return False
        self._run = asyncio.create_task(self._compact(plan, floors), name="compact")
        # Only `aclose` interrupts a compaction, not a caller that is cancelled.
        await asyncio.shield(self._run)
        return True

    async def aclose(self) -> None:
        """Interrupts a running compaction, even within a segment; returns when it has ended."""
        self._closed = True
        self._pace.stop.set()
        if self._run is not None:
            await asyncio.wait([self._run])
        self._thread.shutdown()

    def _plan(self) -> Plan:
        now_ms, steady_ms = self._clock.now_ms(), self.steady_ms()
        return planned(self._log.infos(), self._rules, now_ms, steady_ms, self._bounds)

    async def _compact(self, plan: Plan, floors: Mapping[QueueRef, int]) -> None:
        if self._closed:
            return
        self._pace = RewriteRate(self._settings.compact_bytes_per_s, self._clock)
        rewriter = Rewriter(self._files, self._directory, self._pace)
        self._figures = self._figures._replace(kept=0, removed=0, trouble="")
        try:
            await self._rewrite_all(rewriter, plan, floors)
        except Stopped:
            return
        except (SegmentUnusable, OSError, SyncFailed) as error:
            # Segments rewritten earlier stay. If a sync failed, a start may find either of two files: both have the
            # same effective content, and readers keep the old one.
            self._figures = self._figures._replace(trouble=str(error))
            self._closed = self._closed or isinstance(error, SyncFailed)
            _log.warning(
                "a compaction ended early; the next one goes on", log=self._log.name, why=str(error)
            )
        figures = self._figures
        self._figures = figures._replace(runs=figures.runs + 1, last_run_ms=self._clock.now_ms())
        _log.info(
            "the log was compacted",
            log=self._log.name, kept=figures.kept, removed=figures.removed,
            freed_bytes=figures.freed_bytes,
        )  # fmt: skip

    async def _rewrite_all(
        self, rewriter: Rewriter, plan: Plan, floors: Mapping[QueueRef, int]
    ) -> None:
        dirty = [_source(info) for (info,) in plan.groups[len(plan.groups) - plan.dirty :]]
        keys, read = await self._collect(rewriter, dirty)
        parts = 1
        while dirty and not read:
            # The keys of one segment do not fit: compact for one part of the keys after the other.
            parts *= 2
            if parts > PARTS_MAX:
                raise SegmentUnusable(
                    "the keys of one segment do not fit into memory, not even in parts; raise"
                    " compact_memory_bytes"
                )
            keys, read = await self._collect(rewriter, dirty[:1], parts=parts)
        groups = plan.groups[: len(plan.groups) - len(dirty) + read]
        for part in range(parts):
            if part:
                keys, read = await self._collect(rewriter, dirty[:1], part=part, parts=parts)
                if not read:
                    raise SegmentUnusable(
                        "a part of the keys does not fit into memory; raise compact_memory_bytes"
                    )
            for group in groups:
                await self._rewrite(rewriter, group, keys, floors, is_last=part == parts - 1)
            groups = [[info] for info in self._current(groups)]

    async def _collect(
        self, rewriter: Rewriter, dirty: Sequence[Source], *, part: int = 0, parts: int = 1
    ) -> tuple[LatestKeys, int]:
        """Collects the keys of segments; returns them, and the number of segments read as a whole."""
        keys = LatestKeys(self._settings.compact_memory_bytes, part=part, parts=parts)
        read = await self._in_thread(lambda: rewriter.collect(dirty, keys))
        return keys, read

    async def _rewrite(
        self,
        rewriter: Rewriter,
        group: Sequence[SegmentInfo],
        keys: LatestKeys,
        floors: Mapping[QueueRef, int],
        *,
        is_last: bool,
    ) -> None:
        now_ms, steady_ms = self._clock.now_ms(), self.steady_ms()
        sources = [_source(info) for info in group]
        cleaned = [info.compacted.cleaned_ms if info.compacted else 0 for info in group]
        needed = RewriteContext(
            floors=floors,
            remembered=self._queues.remembered(),
            # Tombstones stay until the records that they delete are gone from all earlier segments.
            drop_tombstones=is_last
            and all(expired(info, self._rules, steady_ms, self._bounds) for info in group),
            cleaned_ms=max(cleaned) if all(cleaned) else (steady_ms if is_last else 0),
            epoch=self._log.epoch,
            now_ms=now_ms,
        )
        if len(group) == 1 and all(cleaned):
            worth_it = await self._in_thread(lambda: rewriter.is_worth_it(sources[0], keys, needed))
            if not worth_it:
                return
        rewritten = await self._in_thread(lambda: rewriter.rewrite(sources, keys, needed))
        self._put_in_place(rewritten, sum(info.bytes for info in group))
        await self._in_thread(lambda: rewriter.remove_others(sources))

    def _put_in_place(self, rewritten: Rewritten, bytes_before: int) -> None:
        segment = rewritten.segment

        def replace() -> Sequence[Segment]:
            gone = self._log.replace(segment, rewritten.written)
            self._queues.replace(self._log.name, segment, rewritten.rows)
            return gone

        self._exchange(replace)
        figures = self._figures
        self._figures = figures._replace(
            kept=figures.kept + rewritten.kept,
            removed=figures.removed + rewritten.removed,
            freed_bytes=figures.freed_bytes + bytes_before - segment.file_bytes,
        )

    def _current(self, groups: Sequence[Sequence[SegmentInfo]]) -> list[SegmentInfo]:
        """Returns the segments that replaced the groups."""
        bases = {group[0].base for group in groups}
        return [info for info in self._log.infos() if info.base in bases]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _source(info: SegmentInfo) -> Source:
    return Source(info.base, info.end, info.compacted, info.next_offsets)
