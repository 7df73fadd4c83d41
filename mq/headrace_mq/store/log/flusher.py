"""
Makes staged batches durable in groups, and then resolves their futures: group commit.

    stage ──▶ group being collected ──▶ cycle: write, sync ──▶ committed   (visible, acknowledged)
                       ▲                      │
                       └── collects on ◀──────┴──▶ withdrawn   (disk full, or a sync failed)

With a gate, groups that are written and synced wait in it until the log is committed up to their end.

One cycle runs at a time: on the event loop while a sync is quick, in one thread when it is not. A
thread needs two wake-ups and shares the interpreter with the loop; measured, this costs more than the work that
the loop could do meanwhile. During a sync on the loop, requests wait in the sockets and then join the next group.
Used by `message_store`; writes to the logs. It knows bytes and positions, not the meaning of a batch.
"""

import asyncio
import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Literal

from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import MessageQueueError, StoreFull, StoreReadOnly
from headrace_mq.metrics.histogram import Histogram
from headrace_mq.store.log.commit_gate import CommitGate, Durable
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.log.write_group import Group, Staged
from headrace_mq.store.segment.segment import (
    MARK_BYTES,
    NO_DESCRIPTORS,
    Segment,
    SegmentPlan,
    encode_mark,
)

__all__ = ["READERS_FIRST_BATCHES_MAX", "STAGED_BYTES_MAX", "Flusher"]

_log = get_logger(__name__)

# Bytes accepted and not yet written, over all logs: several seconds of a slow disk. A larger limit would only
# lengthen the queue of a disk that does not keep up.
STAGED_BYTES_MAX = 256 << 20
# A sync on the loop blocks everything else. With several producers, syncs on the loop gave more throughput than
# a thread at 0.3 and 1.3 ms per sync, and as much at 3.3 ms. To return to the loop, syncs must be clearly faster.
SYNC_INLINE_US_MAX = 2_000
SYNC_INLINE_AGAIN_US = 1_500
# Readers get groups of up to this many batches before the acknowledgements: a message arrives up to a third
# sooner, and its acknowledgement later by the time to serve a reader. For larger groups the producers come first,
# so that they can work while the group is committed.
READERS_FIRST_BATCHES_MAX = 2
# Weight of the newest sync in the moving average, which covers about the last eight.
_NEWEST = 1 / 8

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Flusher:
    """Collects batches into groups and makes them durable; used on the event loop only.

    Args:
        flush: "always" syncs every group before it is committed; "interval" commits written groups and
            syncs on a timer.
        interval_ms: the timer's interval.
        committed: called with the groups that become visible to readers.
        withdrawn: called with groups that will never be written, latest first.
        gate: holds written groups until they may be committed; None: a synced group is committed at once.

    Attributes:
        read_only: why the store accepts no batches any more, or None.
        staged_bytes: bytes accepted and not yet committed.
        sync_times: how long each sync of a group took.
    """

    def __init__(
        self,
        *,
        flush: Literal["always", "interval"],
        interval_ms: int,
        committed: Callable[[Sequence[Group]], None],
        withdrawn: Callable[[Sequence[Group]], None],
        gate: CommitGate | None = None,
    ) -> None:
        self._always = flush == "always"
        self._interval_ms = interval_ms
        self._committed = committed
        self._withdrawn = withdrawn
        self._gate = gate
        if gate is not None:
            if flush != "always":
                raise ValueError('only flush="always" can hold messages until replicas have them')
            gate.attach(self._commit_held)
        self._groups: list[Group] = []
        self._open_groups: dict[str, Group] = {}
        # Whether a group begins a new segment; making one takes too long for the loop.
        self._planned = False
        self._running: list[Group] = []
        self._running_done: Durable | None = None
        self._collecting_done: Durable | None = None
        self._scheduled = False
        self._inline = True
        self._sync_us = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-sync")
        self._timer: asyncio.TimerHandle | None = None
        self._timed_sync: asyncio.Future[None] | None = None
        self._unsynced: dict[str, CommitLog] = {}
        self._refusing = False
        self.sync_times = Histogram()
        self.read_only: str | None = None
        self.staged_bytes = 0

    def group_for(self, log: CommitLog, length: int, now_ms: int) -> Group:
        """Returns the group whose `end` is the position of the log's next batch."""
        group = self._open_groups.get(log.name)
        if group is not None and group.end + length <= group.limit:
            return group
        plan = None
        if log.tail + MARK_BYTES + length > log.tail_limit:
            plan = log.plan_segment(length, now_ms)
            self._planned = True
        group = Group(log, log.tail_limit, plan)
        self._groups.append(group)
        self._open_groups[log.name] = group
        return group

    def new_group(self, log: CommitLog, plan: SegmentPlan | None, *, marked: bool = True) -> Group:
        """Begins a replica's group at the log's tail; `plan`: it begins this segment, too; see `Group` for `marked`."""
        if plan is not None:
            self._planned = True
        group = Group(log, log.tail_limit, plan, marked=marked)
        self._groups.append(group)
        self._open_groups[log.name] = group
        return group

    def stage(self, group: Group, staged: Staged, batch: bytes) -> None:
        """Adds a batch to the group that `group_for` returned for it."""
        group.add(staged, batch)
        group.log.tail = group.end
        self.staged_bytes += len(batch)
        if not self._scheduled and not self._running:
            self._scheduled = True
            self._loop.call_soon(self._run_cycle)

    def when_closed(self, call: Callable[[], None]) -> None:
        """Sets what is called when the gate is closed; without a gate, nothing is."""
        if self._gate is not None:
            self._gate.on_closed = call

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room for the last groups."""
        return self._refusing

    def durable(self) -> Durable:
        """Returns a future that ends when all appended batches are as durable as `flush` promises.

        All waiters of one write share it; cancelling it has no effect. It fails with StoreFull if the disk was
        full: the write was undone, and the batches may be sent again. It fails with StoreReadOnly if the
        disk failed: the outcome is unknown.
        """
        if self._groups:
            if self._collecting_done is None:
                self._collecting_done = Durable(loop=self._loop)
            return self._collecting_done
        if self._running:
            if self._running_done is None:
                self._running_done = Durable(loop=self._loop)
            return self._running_done
        if self._gate is not None and (held := self._gate.last(self._loop)) is not None:
            return held
        done = Durable(loop=self._loop)
        done.settle(None if self.read_only is None else StoreReadOnly(self.read_only))
        return done

    async def aclose(self) -> None:
        """Writes and syncs all staged batches, then ends the thread; waiters of held ones get an error."""
        if self._gate is not None:
            self._gate.close()
        while self._groups or self._running:
            await asyncio.wait([self.durable()])
        while self._timed_sync is not None or (self._unsynced and self.read_only is None):
            self._start_timed_sync()
            if self._timed_sync is not None:
                await asyncio.wait([self._timed_sync])
        self._thread.shutdown()

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        # This makes a system call (`getpid`), so call it only once.
        return asyncio.get_running_loop()

    def _run_cycle(self) -> None:
        self._scheduled = False
        if self._running or not self._groups:
            return
        inline = self._inline and not self._planned
        planned = self._planned
        groups, self._groups, self._planned = self._groups, [], False
        self._running = groups
        self._open_groups.clear()
        self._running_done, self._collecting_done = self._collecting_done, None
        # The log does not have a segment that the cycle makes yet.
        early = self._gate is not None and not planned
        # A mark says what was on the disk before its group was written: all before it only if each group is synced apart.
        each_synced = self._always and not early
        for group in groups:
            group.synced = group.start if each_synced or group.plan else group.log.synced
        if inline:
            note = self._note_written if early else None
            self._end_cycle(_write_groups(groups, sync=self._always, on_written=note))
        else:
            soon = self._note_written_soon if early else None
            cycle = self._loop.run_in_executor(
                self._thread, lambda: _write_groups(groups, sync=self._always, on_written=soon)
            )
            cycle.add_done_callback(lambda written: self._end_cycle(written.result()))

    def _note_written(self, groups: list[Group]) -> None:
        """Notes what is in the files before it is synced, so that the disks of replicas work at the same time."""
        for group in groups:
            if group.failure is None:
                group.log.written = group.end
        if self._gate is not None:
            self._gate.note_written()

    def _note_written_soon(self, groups: list[Group]) -> None:
        self._loop.call_soon_threadsafe(self._note_written, groups)

    def _end_cycle(self, sync_us: list[int]) -> None:
        groups, self._running = self._running, []
        done, self._running_done = self._running_done, None
        for microseconds in sync_us:
            self._note_sync(microseconds)
        for group in groups:
            self._close(group)
        failures = [group.failure for group in groups if group.failure is not None]
        # A failed disk is worse than a full one.
        failure = max(failures, key=lambda one: isinstance(one, StoreReadOnly), default=None)
        if failure is not None:
            self._fail(groups, failure)
        elif self._refusing:
            self._refusing = False
            _log.info("the disk has room again; messages are accepted")
        if self._groups and (self._planned or not self._inline):
            # First of all, so that the disk does not wait for the loop.
            self._run_cycle()
        try:
            if self._gate is not None:
                held, waiting = groups, done
                groups, done = [], None
                self._hold(self._gate, held, waiting, failure)
            batches = sum(len(group.staged) for group in groups)
            if done is not None and batches > READERS_FIRST_BATCHES_MAX:
                done.settle(failure)
                done = None
            committed = [group for group in groups if group.failure is None]
            if committed:
                self._committed(committed)
        finally:
            if done is not None:
                done.settle(failure)
            if self._groups and not (self._running or self._scheduled):
                self._scheduled = True
                self._loop.call_soon(self._run_cycle)

    @staticmethod
    def _hold(
        gate: CommitGate,
        groups: list[Group],
        done: Durable | None,
        failure: MessageQueueError | None,
    ) -> None:
        """Leaves the groups that were written to the gate; the waiters too, unless a group failed."""
        if done is not None and failure is not None:
            done.settle(failure)
            done = None
        gate.hold([group for group in groups if group.failure is None], done)

    def _commit_held(self, groups: list[Group], done: Durable | None) -> None:
        self.staged_bytes -= sum(group.batch_bytes for group in groups)
        try:
            self._committed(groups)
        finally:
            if done is not None:
                done.settle(None)

    def _close(self, group: Group) -> None:
        if group.segment is not None:
            group.log.adopt(group.segment)
        if group.failure is None and self.read_only is not None:
            group.failure = StoreReadOnly(self.read_only)
        if group.failure is not None:
            return
        if self._gate is None:
            self.staged_bytes -= group.batch_bytes
        group.log.end = group.log.written = group.end
        if self._always:
            group.log.synced = group.end
            return
        group.log.synced = max(group.log.synced, group.synced)
        self._unsynced[group.log.name] = group.log
        if self._timer is None and self._timed_sync is None:
            self._timer = self._loop.call_later(self._interval_ms / 1_000, self._start_timed_sync)

    def _fail(self, ran: list[Group], failure: MessageQueueError) -> None:
        if isinstance(failure, StoreReadOnly):
            if self.read_only is None:
                self.read_only = str(failure)
                _log.critical("the store is read-only until a restart", reason=self.read_only)
        elif not self._refusing:
            # Log it once per full disk: producers repeat the request, and log lines need room too.
            self._refusing = True
            _log.error(
                "the disk is full; messages are refused until there is room", reason=str(failure)
            )
        broken = {group.log.name for group in ran if group.failure is not None}
        if self.read_only is not None:
            broken |= self._open_groups.keys()
        lost = [group for group in ran if group.failure is not None]
        lost += [group for group in self._groups if group.log.name in broken]
        self._groups = [group for group in self._groups if group.log.name not in broken]
        for group in lost:
            self._open_groups.pop(group.log.name, None)
            self.staged_bytes -= group.batch_bytes
            group.log.forget_staged()
        waiting, self._collecting_done = self._collecting_done, None
        if waiting is not None:
            waiting.settle(failure)
        self._withdrawn(lost[::-1])

    def _note_sync(self, microseconds: int) -> None:
        self.sync_times.add(microseconds / 1_000_000)
        self._sync_us += (microseconds - self._sync_us) * _NEWEST
        if self._sync_us > SYNC_INLINE_US_MAX:
            self._inline = False
        elif self._sync_us < SYNC_INLINE_AGAIN_US:
            self._inline = True

    def _start_timed_sync(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._timed_sync is not None or self.read_only is not None:
            return
        logs, self._unsynced = self._unsynced, {}
        targets = [(log, log.active, log.end) for log in logs.values() if log.active is not None]
        self._timed_sync = self._loop.run_in_executor(
            self._thread, lambda: _sync_segments([segment for _, segment, _ in targets])
        )
        self._timed_sync.add_done_callback(lambda synced: self._end_timed_sync(synced, targets))

    def _end_timed_sync(
        self, synced: asyncio.Future[None], targets: list[tuple[CommitLog, Segment, int]]
    ) -> None:
        self._timed_sync = None
        error = synced.exception()
        if error is not None:
            self._fail([], StoreReadOnly(_read_only_reason(error)))
            return
        for log, _, end in targets:
            log.synced = max(log.synced, end)
        if self._unsynced and self._timer is None:
            self._timer = self._loop.call_later(self._interval_ms / 1_000, self._start_timed_sync)


def _read_only_reason(error: BaseException) -> str:
    return (
        f"the disk failed ({error}): what it holds is unknown, so nothing is accepted any more;"
        " check the disk and restart the broker, which then recovers what was acknowledged"
    )


def _sync_segments(segments: list[Segment]) -> None:
    for segment in segments:
        segment.sync()


def _write_groups(
    groups: list[Group], *, sync: bool, on_written: Callable[[list[Group]], object] | None = None
) -> list[int]:
    """Writes groups in order, each one whole or not at all; runs on the loop or in the thread.

    Sets `failure` of every group that was not written, and `segment` if it made one. Returns the time
    of each sync, in microseconds. With `on_written`, which is called with the groups that are in the files, all are
    written before the first one is synced.
    """
    failures: dict[str, MessageQueueError] = {}
    made: dict[str, Segment] = {}
    sync_us: list[int] = []
    for group in groups:
        name = group.log.name
        group.failure = failures.get(name)
        if group.failure is not None:
            continue
        try:
            if group.plan is not None:
                made[name] = _make_segment(group, group.plan, made.get(name) or group.log.active)
            segment = made[name] if name in made else group.log.segments[-1]
            _write(group, segment)
            if sync and on_written is None:
                sync_us.append(segment.sync())
        except StoreFull as full:
            group.failure = failures[name] = full
        except Exception as error:  # noqa: BLE001 - every failure must reach the waiting tasks
            group.failure = StoreReadOnly(_read_only_reason(error))
            # The other logs share the disk, so they must not acknowledge anything either.
            failures = dict.fromkeys([other.log.name for other in groups], group.failure)
    if on_written is not None:
        written = [group for group in groups if group.failure is None]
        on_written(written)
        sync_us = _sync_groups(written)
    return sync_us


def _sync_groups(groups: list[Group]) -> list[int]:
    """Syncs the logs of written groups, each once; sets `failure` of groups that may not be on the disk."""
    failures: dict[str, StoreReadOnly] = {}
    sync_us: list[int] = []
    logs = {group.log.name: group.log for group in groups}
    for log in logs.values():
        try:
            sync_us.append(log.segments[-1].sync())
        except Exception as error:  # noqa: BLE001 - every failure must reach the waiting tasks
            # The logs share the disk, so those that are left must not acknowledge anything either.
            rest = list(logs)[list(logs).index(log.name) :]
            failures = dict.fromkeys(rest, StoreReadOnly(_read_only_reason(error)))
            break
    for group in groups:
        group.failure = failures.get(group.log.name)
    return sync_us


def _make_segment(group: Group, plan: SegmentPlan, active: Segment | None) -> Segment:
    if active is not None:
        # Recovery relies on this: every segment but the last is durable as a whole.
        active.sync()
    try:
        group.segment = group.log.make_segment(plan)
    except OSError as error:
        remedy = "make room on the disk"
        if error.errno in NO_DESCRIPTORS:
            remedy = "close connections, or raise the limit on open files (LimitNOFILE, ulimit -n)"
        raise StoreFull(f"no new segment can be made: {error}; {remedy}") from error
    return group.segment


def _write(group: Group, segment: Segment) -> None:
    group.close_block()
    # A replica's mark is its own, too: its "synced" is what this disk has, not the leader's.
    marks = [encode_mark((group.start, group.synced))] if group.marked else []
    try:
        segment.write(group.start, [*marks, *group.blocks])
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        # The next group here may be shorter; no bytes of this one may follow it.
        segment.cut(group.start)
        raise StoreFull(f"the disk is full: {error}; make room on it") from error
