"""
Receives the records of some topics as a member of a consumer group.

    group.membership, group.locks    which queues the member owns; keep other members away
    fetch.start_offsets              where each queue begins
    fetch.fetcher, fetch.delivery    fill the assigned queues; empty them
    commits, handover                report what is finished; give revoked queues away
"""

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headrace_mq._net.link import LinkSettings
from headrace_mq._runtime.async_block import AsyncBlock
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.broadcast.local_offsets import LocalOffsets
from headrace_mq.client.broadcast.queues import BroadcastQueues
from headrace_mq.client.consumer.commits import Commits
from headrace_mq.client.consumer.handover import Handover
from headrace_mq.client.fetch.assigned_queues import AssignedQueues, limits_of
from headrace_mq.client.fetch.damage import DamageLog
from headrace_mq.client.fetch.fetcher import Fetcher, GroupFilters
from headrace_mq.client.fetch.queue_priorities import urgency_of
from headrace_mq.client.fetch.record_columns import RecordColumns
from headrace_mq.client.fetch.spread_fetcher import fetcher_for
from headrace_mq.client.fetch.start_offsets import (
    OffsetLoader,
    TopicIdentities,
    find_starts,
    offsets_at,
)  # fmt: skip
from headrace_mq.client.group.allocation import Strategy
from headrace_mq.client.group.contract import check_wanted, contract_of
from headrace_mq.client.group.locks import QueueLocks
from headrace_mq.client.group.membership import Listeners, Membership, Subscription
from headrace_mq.client.group.rebalance import STRATEGIES
from headrace_mq.client.group.rules import CurrentGroupRules
from headrace_mq.client.handlers.attempts import BatchHandler
from headrace_mq.client.handlers.execution import BatchLimits, Handler, HandlerRuns
from headrace_mq.client.handlers.failures import FailurePolicy
from headrace_mq.client.names import client_id_of
from headrace_mq.client.spread.spread_link import link_to
from headrace_mq.client.trace.tracer import delivering_for, policy_for, tracer_of
from headrace_mq.errors import BrokerStopping, ConnectionLost, MessageQueueError, NotLeader
from headrace_mq.filters.filter import filters_of
from headrace_mq.message import QueueRef, Record, check_topic
from headrace_mq.protocol.bodies import GroupChanged, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.settings import ConsumerSettings

__all__ = ["Consumer"]

# Pause before offsets that could not be loaded are asked for again.
LOAD_PAUSE_MS = 1_000
# First and longest pause before a lock that another member holds is asked for again; doubled in
# between. Its owner gives it back when it has finished what it is at.
LOCK_PAUSE_MS_MIN, LOCK_PAUSE_MS_MAX = 20, 500

_log = get_logger(__name__)


class Consumer(AsyncBlock):
    """A member of a consumer group.

    Records are delivered at least once, in offset order per queue. The group's offset of a queue
    is the lowest one not acknowledged. When another member takes a queue over, this member
    delivers no more of its buffered records and ignores acknowledgements for it, except for
    the record that `run` is handling.

    Unless `handling` is "parallel" and the address names one broker group, a consumer reads a queue under a lock of the broker, so that one
    member has it at a time: a new owner waits until the old one has finished, committed and unlocked,
    or is gone. If the consumer cannot be sure of its locks (the connection is lost, or the process
    was stopped for a while), it handles nothing new until it is. The broker refuses its commits if
    another member went on. A handler that is running at that moment runs to its end.

    Args:
        address: the broker's `host:port`.
        group: the group; its members share the queues.
        topics: one or more; the consumer waits for topics that do not exist yet. A mapping gives a
            condition for each topic: `{"orders": "price > 10"}` (`filters.filter.Filter`).
        settings: limits and times.
        load_offsets: given queues, returns where to begin; for applications that keep offsets
            with their own data. Nothing is then committed to the broker.
        strategy: how a topic's queues are divided, instead of `ConsumerSettings.allocation`; must
            give all members of the group the same answer. `poll` raises what it raises.
        clock: the time.

    Attributes:
        contract: what all members must do alike; sent when the member joins.
        rules: the operator's settings of the group.
        epochs: by queue, what a `KeptOffset` needs, so that a loss is noticed after a restart, too; take it when messages come.
    """

    def __init__(
        self,
        address: str,
        *,
        group: str,
        topics: Sequence[str] | Mapping[str, str],
        settings: ConsumerSettings | None = None,
        load_offsets: OffsetLoader | None = None,
        strategy: Strategy | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_wanted(group, topics, settings, keeps_offsets=load_offsets is not None)
        self._group = group
        self._topics = [check_topic(topic) for topic in topics]
        self._asking = GroupFilters(group, filters_of(topics))
        self._settings = settings or ConsumerSettings()
        self.contract = contract_of(topics, settings=self._settings, strategy=strategy)
        self.rules = CurrentGroupRules(group)
        self._load_offsets = load_offsets
        self._clock = clock or SystemClock()
        self._client_id = client_id_of(self._settings.name)
        self._link = link_to(
            address,
            client_id=self._client_id,
            settings=LinkSettings.of(self._settings),
            on_push=self._pushed,
            on_ready=self._pull_soon,
            on_down=lambda: self._membership.lost(),  # noqa: PLW0108 - it is made below
            patient=True,
        )
        self._shares = AssignedQueues(limits_of(self._settings), urgency_of(self._settings))
        self._identities = TopicIdentities(self._link, timeout_ms=self._settings.request_timeout_ms)
        self.epochs: Mapping[QueueRef, int] = self._identities.epochs
        self._locks = QueueLocks(
            self._link, group=group, settings=self._settings, clock=self._clock
        )
        self._tracer = tracer_of(
            address, self._settings, group=group, client_id=self._client_id, clock=self._clock
        )
        self._delivering = delivering_for(self._tracer)(
            self._shares, self._locks, on_room=self._room, on_stale=self._lock_again
        )
        self._handler_runs = HandlerRuns(self._delivering, self._settings)
        self._local: LocalOffsets | None = None
        self._membership: Membership | BroadcastQueues
        self._commits: Commits | LocalOffsets | None
        self._load_wanted = asyncio.Event()
        if self._settings.broadcast_file is None:
            self._join_group(strategy or STRATEGIES[self._settings.allocation])
        else:
            self._listen_alone(self._settings.broadcast_file)
        self._handing_over = Handover(
            self._shares, self._locks, commit=self.commit, on_back=self._load_wanted.set
        )
        self._fetcher: Fetcher | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = False

    def _join_group(self, strategy: Strategy) -> None:
        self._membership = membership = Membership(
            self._link,
            Subscription(self._group, self._topics, strategy, self.contract, self.rules),
            settings=self._settings,
            clock=self._clock,
            listeners=self._listeners(),
        )
        self._commits = None
        if self._load_offsets is None:
            self._commits = Commits(
                self._link,
                self._shares,
                group=self._group,
                settings=self._settings,
                generation=lambda: membership.generation,
                locks=self._locks,
                on_stale=self._lock_again,
            )

    def _listen_alone(self, file: Path) -> None:
        self._local = self._commits = LocalOffsets(
            file, self._shares, group=self._group, settings=self._settings, epochs=self.epochs
        )
        self._load_offsets = self._local.load
        self._membership = BroadcastQueues(
            self._link, self._topics, settings=self._settings, listeners=self._listeners()
        )

    def _listeners(self) -> Listeners:
        return Listeners(
            on_change=self._assigned,
            on_lost=self._suspended,
            on_error=self._delivering.fail,
            on_beat=self._locks.renewed,
        )

    async def start(self) -> None:
        """Connects and joins the group; when it returns, `assignment` is known.

        Raises:
            DataCorrupt, FormatTooNew, MessageQueueError: the file of a broadcast consumer cannot be
                used; the sentence says what to do.
            ConnectionLost: no broker answered in time; the sentence says what to check.
            BrokerError: the broker refuses the member.
        """
        self._fetcher = fetcher_for(self._link)(
            self._link,
            self._shares,
            settings=self._settings,
            clock=self._clock,
            asking=self._asking,
            on_records=self._delivering.wake,
            on_error=self._delivering.fail,
        )
        self._delivering.open(self._fetcher.want)
        if self._local is not None:
            self._local.open()
        try:
            await self._link.start(self._settings.request_timeout_ms)
            if self._tracer is not None:
                await self._tracer.start()
            # Where the connection or the broker's lead is lost meanwhile, it joins again by itself.
            with suppress(ConnectionLost, BrokerStopping, NotLeader):
                await self._membership.join()
        except BaseException:
            await self._end()
            raise
        self._spawn(self._membership.stay(), "membership")
        self._spawn(self._keep_loading(), "offsets")
        self._spawn(self._handing_over.keep_handing_over(), "hand over")
        if self._commits is not None:
            self._spawn(self._commits.keep_committing(), "commits")

    async def aclose(self) -> None:
        """Stops fetching, lets `run` finish its current records, commits, and leaves the group."""
        closed, self._closed = self._closed, True
        if closed or self._fetcher is None:
            return
        self._delivering.close()
        self._fetcher.stop()
        try:
            await self._handler_runs.finish(self._settings.request_timeout_ms)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._say_goodbye()
        finally:
            for task in self._tasks:
                task.cancel()
            await self._end()

    @property
    def assignment(self) -> frozenset[QueueRef]:
        """The queues that this member has now."""
        return self._shares.assigned

    @property
    def damage(self) -> DamageLog:
        """Messages that could not be read and were left out; `damage.listen` reports them at once."""
        return self._shares.damage

    async def poll(self) -> list[Record]:
        """Waits for records and returns all that are there, in offset order per queue.

        Raises:
            Closed: the consumer was closed.
            DataCorrupt, FormatTooNew: a queue cannot be read any further; raised once, and other queues
                go on. Messages that no reader can decode are left out instead: see `damage`.
            Exception: what `load_offsets` raised; it is called again.
        """
        return await self._delivering.poll()

    async def poll_columns(self) -> list[RecordColumns]:
        """Like `poll`, with one list per field: no object is made for each record.

        Each `RecordColumns` is a run of neighbours of one queue. Raises what `poll` raises.
        """
        return await self._delivering.poll_columns()

    def ack(self, record: Record) -> None:
        """Marks a record as done, in any order; ignored if the queue was revoked."""
        self.ack_offset(record.queue, record.offset)

    def ack_all(self, records: Iterable[Record]) -> None:
        """Like `ack` for many records, at a fraction of the cost."""
        self._delivering.ack_all(records)

    def ack_columns(self, columns: RecordColumns) -> None:
        """Like `ack`, for all records of a run from `poll_columns`."""
        self._delivering.ack_columns(columns)

    def ack_offset(self, queue: QueueRef, offset: int) -> None:
        """Like `ack`, for callers that kept only the record's place."""
        self._delivering.ack(queue, offset)

    def holds(self, record: Record) -> bool:
        """Whether this member may still acknowledge a delivered record."""
        return self._shares.holds(record.queue, record.offset)

    def seek(self, queue: QueueRef, offset: int) -> None:
        """Goes on at an offset of an assigned queue; drops records that are buffered or in flight.

        Ignored if the queue was revoked. Does not move the group's offset back.
        """
        if offset < 0:
            raise ValueError(f"an offset is 0 or more, not {offset}")
        if self._shares.seek(queue, offset):
            self._pull_soon()

    async def seek_to_time(self, queues: Collection[QueueRef], time_ms: int) -> None:
        """Goes on at the first records stored at a time (milliseconds since 1970 UTC) or later.

        Like `seek`: ignored for queues that are not assigned, and the group's offset stays.

        Raises:
            BrokerError, ConnectionLost, RequestTimeout: the broker could not be asked.
        """
        found = await offsets_at(self._link, queues, time_ms, settings=self._settings)
        for queue, offset in found.items():
            self.seek(queue, offset)

    def pause(self, queues: Collection[QueueRef]) -> None:
        """Neither fetches nor delivers records of these queues until they are resumed.

        Delivered records are still handled. Revoking a queue ends its pause.
        """
        self._shares.pause(queues)

    def resume(self, queues: Collection[QueueRef]) -> None:
        """Goes on with paused queues where they stopped."""
        self._shares.resume(queues)
        self._delivering.wake()
        self._pull_soon()

    async def commit(self) -> None:
        """Reports finished offsets now; does nothing if the application keeps them.

        The broker has them on disk within a second (`offsets_flush_ms`), a broadcast consumer in its file.

        Raises:
            NotGroupMember: the broker no longer knows the member; it joins again by itself.
            ConnectionLost, RequestTimeout: the outcome is unknown; the next commit repeats it.
        """
        if self._commits is not None:
            await self._commits.commit()

    async def run(self, handler: Handler, *, on_failure: FailurePolicy | None = None) -> None:
        """Handles records until the consumer is closed: in order per key, many keys at once.

        `ConsumerSettings.handling` says what is in order, and `handlers_max` how many run at a time.
        A record is acknowledged when the handler returns. If the handler raises, or takes longer than
        `handler_timeout_ms`, `on_failure` decides. Without `on_failure` the record is handled again
        after a pause, and its key waits.

        Raises what `poll` raises, other than Closed.
        """
        policy = policy_for(self._tracer, on_failure, self._settings)
        await self._handler_runs.run(handler, policy)

    async def run_batches(
        self,
        handler: BatchHandler,
        *,
        records_max: int,
        wait_ms: int,
        on_failure: FailurePolicy | None = None,
    ) -> None:
        """Like `run`, with several records of one queue at a time, in offset order.

        Args:
            handler: handles 1 to `records_max` records; returning means that all of them are done.
            records_max: the handler gets a batch as soon as it has this many records.
            wait_ms: after this time the handler gets a smaller batch.
            on_failure: decides on each record of a batch that failed.
        """
        policy = policy_for(self._tracer, on_failure, self._settings)
        await self._handler_runs.run_batches(handler, BatchLimits(records_max, wait_ms), policy)

    async def _end(self) -> None:
        if self._tracer is not None:
            await self._tracer.aclose()
        await self._link.aclose()
        if self._local is not None:
            self._local.close()

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"consumer {self._group}: {name}")
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of the consumer failed", part=task.get_name(), exc_info=error)
            failure = error if isinstance(error, Exception) else RuntimeError(str(error))
            self._delivering.fail(failure)

    def _pushed(self, frame: Frame) -> None:
        if frame.code == RequestCode.PUSHED_GROUP_CHANGE:
            self._membership.changed(decode(GroupChanged, frame.body))

    def _pull_soon(self) -> None:
        if self._fetcher is not None:
            self._fetcher.pull_soon()

    def _room(self) -> None:
        self._pull_soon()
        self._handing_over.soon()

    def _suspended(self) -> None:
        self._locks.lost()
        self._pause()

    def _pause(self) -> None:
        self._shares.suspend()
        # Their new owners may be at work on these queues already.
        if self._locks.wanted:
            self._shares.forget_revoked()

    def _lock_again(self) -> None:
        """Stops until the broker has said which queues are still this member's."""
        _log.warning("locks may be lost; asking for them again", group=self._group)
        self._locks.doubt()
        self._pause()
        self._load_wanted.set()
        # Those of revoked queues are asked for no more, and heartbeats keep them.
        self._handing_over.soon()

    def _assigned(self, queues: frozenset[QueueRef]) -> None:
        before = self._shares.assigned
        revoked = self._shares.assign(queues)
        self._handing_over.soon()
        # A poll that waits for a revoked queue need not wait any more.
        self._delivering.wake()
        if before != queues:
            _log.info(
                "queues assigned", group=self._group, queues=len(queues), revoked=len(revoked)
            )
        self._load_wanted.set()

    async def _keep_loading(self) -> None:
        pause_ms = LOCK_PAUSE_MS_MIN
        while True:
            # Queues that another member still holds are asked for again; others do not wait for them.
            waiting = self._membership.generation >= 0 and bool(self._shares.to_start())
            pause_ms = min(2 * pause_ms, LOCK_PAUSE_MS_MAX)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_ms / 1_000 if waiting else None):
                    await self._load_wanted.wait()
                pause_ms = LOCK_PAUSE_MS_MIN
            self._load_wanted.clear()
            if self._locks.stale:
                self._lock_again()
            queues = self._shares.to_start()
            # Without membership the group may count on another member; joining asks again.
            if not queues or self._membership.generation < 0:
                continue
            try:
                await self._load(queues)
            except ConnectionLost:
                # After it has joined again, the member asks for them again.
                continue
            except Exception as error:  # noqa: BLE001 - `load_offsets` is the application's
                _log.warning("offsets not loaded; retrying", group=self._group, reason=str(error))
                if not isinstance(error, MessageQueueError):
                    self._delivering.fail(error)
                self._load_wanted.set()
                await asyncio.sleep(LOAD_PAUSE_MS / 1_000)

    async def _load(self, queues: Sequence[QueueRef]) -> None:
        generation = self._membership.generation
        queues = await self._locks.acquire(queues)
        # Some may have been revoked while the broker granted them.
        self._handing_over.soon()
        if not queues:
            return
        self._shares.forget(await self._identities.ended(queues))
        starts = await find_starts(
            self._link, queues, group=self._group, settings=self._settings,
            first_seen=self._membership.first_seen, load_offsets=self._load_offsets,
            changed=self._identities.changed,
        )  # fmt: skip
        if generation != self._membership.generation:
            # Another member may have had the queue in between.
            self._load_wanted.set()
            return
        for queue, start in starts.items():
            if not self._locks.wanted or self._locks.epoch(queue):
                self._shares.start(
                    queue, start.offset, known=start.known, committed=start.committed
                )
                self._identities.changed.pop(queue, None)
        self._delivering.wake()
        self._pull_soon()

    async def _say_goodbye(self) -> None:
        if not self._link.is_up and self._local is None:
            _log.warning("closed without a connection or a last commit", group=self._group)
            return
        try:
            await self.commit()
            await self._membership.leave()
        except MessageQueueError as error:
            # The next owner starts at the last commit: records come again, none is lost.
            _log.warning("left without a last commit", group=self._group, reason=str(error))
