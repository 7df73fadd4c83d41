"""
The broker: everything wired together, and the order in which it starts and stops.

    start   lock -> epoch -> store (recovers) -> archive -> topics -> offsets -> schedule
            -> transactions -> listen
    stop    no new connections, no new messages -> the schedule and transactions rest
            -> what is appended becomes durable and is answered
            -> parked fetches are answered -> connections close -> offsets -> archive -> store

Used by the command line and by applications; uses all parts of the broker. It never knows the environment
or who supervises the process.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from headrace_mq._net.server import Connection
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.files import Files, SystemFiles
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.acknowledgements import Acknowledgements
from headrace_mq.broker.assembly import (
    certificates_of,
    connect,
    delete_archived,
    deletion_of,
    warn_of_reach,
)
from headrace_mq.broker.fetch.filter_workers.workers import FilterWorkers
from headrace_mq.broker.groups.locks import Locks
from headrace_mq.broker.groups.members import Groups
from headrace_mq.broker.groups.offsets import Offsets
from headrace_mq.broker.handlers.fetch import answer_nothing
from headrace_mq.broker.metadata import (
    Flushes,
    limits_file,
    offsets_file,
    producers_file,
    releases_file,
    schedule_file,
    timeline_file,
    topics_file,
    transactions_file,
)
from headrace_mq.broker.peers.producers import Producers
from headrace_mq.broker.quotas.limits import Limits
from headrace_mq.broker.quotas.quotas import quotas_of
from headrace_mq.broker.reader_mode import ReaderMode, refusal_of
from headrace_mq.broker.replicas.followers import Followers
from headrace_mq.broker.schedule.scheduler import Scheduler
from headrace_mq.broker.state import BrokerState, check_room
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.storage import Storage
from headrace_mq.broker.topics.deletion import Deletion, delete_released
from headrace_mq.broker.topics.disk import Disk, SystemDisk, Watermarks
from headrace_mq.broker.topics.releases import Releases
from headrace_mq.broker.topics.topics import COMPACT, Topics
from headrace_mq.broker.transactions.coordinator import TransactionCoordinator
from headrace_mq.effective_settings import NO_SOURCES, Sources
from headrace_mq.errors import BrokerStopping, MessageQueueError
from headrace_mq.settings import BrokerSettings
from headrace_mq.store.compaction.plan import WHOLE
from headrace_mq.store.message_store import MessageStore

__all__ = ["Broker"]

# A member is noticed as gone at most a tenth of its expiry too late.
_EXPIRY_SCANS = 10
# A clock that was set is noticed within this time.
_CLOCK_LOOK_S = 1.0
# The audit says what it left out within this time.
_AUDIT_LOOK_S = 1.0
# A stopping broker waits this long for clients to take their last answers.
_CLOSE_GRACE_MS = 5_000
# The key index is read behind the messages for a tenth of the time at most: a search looks itself at
# what is not indexed yet. In steps of a tenth of a millisecond, so that a message that comes meanwhile
# does not wait; where much is left they grow to a millisecond or two.
_KEYS_EVERY_MS, _KEYS_WORK_MS = 100, 10
_KEYS_STEP_BYTES, _KEYS_STEP_BYTES_MAX = 2 << 10, 32 << 10

_log = get_logger(__name__)


class Broker:
    """One broker in this process: for an `async with` block, or from `start` to `aclose`.

    Args:
        settings: where it listens, where it keeps its files, and all its limits.
        clock: the time.
        disk: how full the disk is.
        files: the file system.
        followers: its replicas, while it leads a group.
        listener: the socket to listen on, in place of the settings' address.
        sources: what gave the settings that are no defaults.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        files: Files | None = None,
        followers: Followers | None = None,
        listener: socket.socket | None = None,
        sources: Sources = NO_SOURCES,
    ) -> None:
        self._followers, self._sources = followers, sources
        self._listener, self._settings = listener, settings
        self._clock: Clock = clock or SystemClock()
        self._steady: SteadyClock | None = None
        self._disk = disk or SystemDisk()
        # The disk's own, and what this start uses.
        self._disk_files = self._files = files or SystemFiles()
        self._mode: ReaderMode | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._closing = False
        self._port = settings.port
        self._storage = self._new_storage()
        self._workers: FilterWorkers | None = None
        self._flushes: Flushes | None = None
        self._deletion: Deletion | None = None
        self._state: BrokerState | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()
        self._scanned_at_ms = 0
        self._epoch = 0

    @property
    def state(self) -> BrokerState | None:
        """What it works on; None before `start`, and after a stop."""
        return None if self._stopped.is_set() else self._state

    @property
    def address(self) -> str:
        """The host and port it listens on; empty before `start`."""
        return self._state.address if self._state else ""

    @property
    def read_only(self) -> str:
        """Why the store takes no messages any more; empty where it does."""
        return (self._state.store.read_only or "") if self._state else ""

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Opens the store, recovers what it holds, and listens.

        Raises:
            DataCorrupt, FormatTooNew: a file of the broker cannot be used; the sentence says how
                to go on.
            MessageQueueError: the address cannot be bound, the files cannot be used, or another
                broker uses them.
        """
        if self._state is not None:
            raise ValueError("a broker starts once; make a new one")
        await self._begin()

    async def _begin(self) -> None:
        """Starts for everybody, or for readers where the disk takes no writes."""
        settings, files = self._settings.store, self._disk_files
        self._mode, self._files = None, files
        try:
            await self._open()
        except (OSError, MessageQueueError) as error:
            refusal = refusal_of(error)
            if self._followers is not None:  # a replica takes over
                raise
            if refusal is None or not ReaderMode.is_for(settings.directory, files):
                raise
            look_ms = settings.disk_look_ms
            self._mode = ReaderMode(
                settings.directory, disk=self._disk, files=files, refusal=refusal, look_ms=look_ms
            )
            self._files = self._mode.files
            await self._open()
            self._mode.files.pass_through()

    async def _open(self) -> None:
        self._storage = self._new_storage()
        # They read the machine's own files; other ones no process can open. A program that has Python
        # inside may not say where to find it.
        at_hand = bool(sys.executable) and isinstance(self._files, SystemFiles)
        count = self._settings.filter_processes_max if at_hand else 0
        self._workers = FilterWorkers(count) if count else None
        store = self._storage.open_store()
        self._epoch = store.epoch
        try:
            await self._storage.open_archive()
            state = self._load(store)
            certificates = certificates_of(self._settings)
            state.address = await state.server.listen(
                self._settings.host, self._port, certificates, self._listener
            )
        except BaseException:
            await self._storage.aclose()
            raise
        self._stopped = asyncio.Event()
        self._state = state
        self._begin_work(state)

    def _new_storage(self) -> Storage:
        return Storage(
            self._settings, clock=self._clock, files=self._files, followers=self._followers
        )

    def _begin_work(self, state: BrokerState) -> None:
        flushes = self._flushes = Flushes(state.offsets, state.producers)
        state.scheduler.start()
        state.transactions.start()
        self._scanned_at_ms = self._clock.monotonic_ms()
        expiry_s = self._settings.member_expiry_ms / 1_000 / _EXPIRY_SCANS
        flush_s = self._settings.offsets_flush_ms / 1_000
        look_s = self._settings.store.disk_look_ms / 1_000
        delete_s = self._settings.store.retention_interval_ms / 1_000
        compact_s = self._settings.store.compact_interval_ms / 1_000
        self._tasks = [
            self._every(expiry_s, self._expire_members, name="expire members"),
            self._every(flush_s, flushes.offsets, name="flush offsets"),
            self._every(flush_s, flushes.producers, name="flush producers"),
            self._every(look_s, self._look_at_disk, name="look at the disk"),
            self._every(_CLOCK_LOOK_S, self._keep_time, name="look at the clock"),
            self._every(_AUDIT_LOOK_S, self._look_at_audit, name="look at the audit"),
        ]
        if self._mode is None:
            self._tasks += [
                self._every(_KEYS_EVERY_MS / 1_000, self._index_keys, name="index keys"),
                # At once, before the first message: what is there by now has an age from now on.
                self._every(delete_s, self._delete_segments, name="delete segments", at_once=True),
                self._every(compact_s, self._compact, name="compact"),
            ]
        _log.info("broker started", address=state.address, epoch=state.epoch)
        warn_of_reach(self._settings, state.address)

    async def keep_offsets(self) -> None:
        """Writes committed offsets now, ahead of their time."""
        if self._flushes is not None:
            await self._flushes.offsets()

    def renew_certificates(self) -> None:
        """Takes new certificates from the files now; connections that stand stay as they are."""
        if self._state is not None:
            self._state.server.renew_certificates()

    async def aclose(self) -> None:
        """Stops in order; returns when everything is on disk and closed. Safe to call twice."""
        self._closing = True
        if self._reopening is not None:
            await asyncio.wait([self._reopening])
        await self._stop()

    async def _stop(self) -> None:
        state = self._state
        if state is None or self._stopped.is_set():
            return
        self._stopped.set()
        state.stopping = True
        state.server.stop_accepting()
        try:
            state.throttle.release(
                BrokerStopping("the broker is stopping and takes no requests; try again soon")
            )
            await state.scheduler.aclose()
            await state.transactions.aclose()
            await state.acknowledgements.drain()
            if state.audit is not None:
                await state.audit.drain()
            for parked in state.long_poll.release():
                answer_nothing(parked)
            await state.server.aclose(_CLOSE_GRACE_MS)
            await asyncio.gather(*self._tasks)
            assert self._flushes is not None
            await self._flushes.offsets()
            await self._flushes.producers()
            assert self._steady is not None
            await self._steady.keep(always=True)
        finally:
            if self._workers is not None:
                await self._workers.aclose()
            await self._storage.aclose()
        _log.info("broker stopped", address=state.address)

    def _load(self, store: MessageStore) -> BrokerState:
        settings, directory = self._settings, self._settings.store.directory
        file = timeline_file(directory, self._files)
        clock = self._steady = SteadyClock(self._clock, file, settings.store)
        store.compaction.steady_ms = clock.steady_ms
        topics = Topics(
            topics_file(directory, self._files),
            default_queues=settings.default_queues,
            auto_create=settings.auto_create_topics,
        )
        topics.load((queue, kept, store.range(queue)[1]) for queue, kept in store.queues())
        releases = Releases(releases_file(directory, self._files))
        releases.load(topics.identities, lambda queue: store.range(queue)[1])
        offsets = Offsets(offsets_file(directory, self._files))
        queues = [queue for topic in topics.all() for queue in topics.queues_of(topic.topic)]
        offsets.load({queue: store.range(queue)[1] for queue in queues})
        producers = Producers(producers_file(directory, self._files))
        producers.load()
        limits = Limits(limits_file(directory, self._files))
        limits.load()
        locks = Locks[Connection](expiry_ms=settings.lock_expiry_ms, epoch=self._epoch)
        watermarks = self._watermarks(directory)
        room = partial(check_room, watermarks, self._storage.archive)
        state = BrokerState(
            settings=settings,
            clock=clock,
            store=store,
            topics=topics,
            releases=releases,
            offsets=offsets,
            groups=Groups[Connection](
                member_expiry_ms=settings.member_expiry_ms,
                takeover_ms=settings.lock_expiry_ms,
                bytes_max=settings.memberships_bytes_max,
                session_bytes_max=settings.memberships_bytes_per_connection_max,
                epoch=self._epoch,
                on_left=locks.release,
            ),
            locks=locks,
            producers=producers,
            limits=limits,
            quotas=quotas_of(settings),
            epoch=self._epoch,
            started_at_ms=clock.now_ms(),
            acknowledgements=Acknowledgements(store.durable),
            watermarks=watermarks,
            check_room=room,
            scheduler=self._scheduler(store, topics, room),
            archive=self._storage.archive,
            followers=self._followers,
            sources=self._sources,
            transactions=self._transactions(store, topics, room),
        )
        state.scheduler.load()
        state.transactions.load()
        self._deletion = deletion_of(state)
        connect(state, self._workers, self._files)
        return state

    def _scheduler(
        self, store: MessageStore, topics: Topics, room: Callable[[], None]
    ) -> Scheduler:
        assert self._steady is not None
        return Scheduler(
            store,
            topics,
            clock=self._steady,
            file=schedule_file(self._settings.store.directory, self._files),
            epoch=self._epoch,
            pending_max=self._settings.scheduled_max,
            check_room=room,
        )

    def _transactions(
        self, store: MessageStore, topics: Topics, room: Callable[[], None]
    ) -> TransactionCoordinator[Connection]:
        assert self._steady is not None
        return TransactionCoordinator(
            store,
            topics,
            clock=self._steady,
            file=transactions_file(self._settings.store.directory, self._files),
            epoch=self._epoch,
            settings=self._settings,
            check_room=room,
        )

    def _watermarks(self, directory: Path) -> Watermarks:
        settings = self._settings.store
        watermarks = Watermarks(
            self._disk,
            directory,
            refuse_percent=settings.disk_refuse_percent,
            delete_percent=settings.disk_delete_percent,
            look_ms=settings.disk_look_ms,
            closed=None if self._mode is None else self._mode.sentence,
        )
        watermarks.look()
        return watermarks

    def _every(
        self,
        seconds: float,
        job: Callable[[], Awaitable[None]],
        *,
        name: str,
        at_once: bool = False,
    ) -> asyncio.Task[None]:
        async def repeat() -> None:
            stopping = not at_once and await self._stops_within(seconds)
            while not stopping:
                try:
                    await job()
                except Exception:  # noqa: BLE001 - the next turn may succeed; the broker serves on
                    _log.exception("a background job failed; it will run again", job=name)
                stopping = await self._stops_within(seconds)

        return asyncio.create_task(repeat(), name=name)

    async def _stops_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopped.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _expire_members(self) -> None:
        assert self._state is not None
        state, now_ms = self._state, self._clock.monotonic_ms()
        state.forget_idle(now_ms)
        paused = now_ms - self._scanned_at_ms > self._settings.member_expiry_ms // 2
        self._scanned_at_ms = now_ms
        # After a pause of this process the heartbeats it slept through are still in the sockets.
        if not paused:
            state.tell(state.groups.expire(now_ms))

    async def _look_at_disk(self) -> None:
        assert self._state is not None
        self._state.watermarks.look()
        self._state.server.close_newest(self._state.descriptors.missing())
        if self._storage.archive is not None:
            self._storage.archive.look()
        mode, room = self._mode, False
        if mode is not None and self._reopening is None:
            room = await asyncio.to_thread(mode.has_room)
        if room:
            self._reopening = asyncio.create_task(self._reopen(), name="start for everybody")

    async def _reopen(self) -> None:
        """Starts again at the same address, now that the disk takes writes."""
        _log.info("the disk takes writes again; the broker restarts for readers and writers")
        self._port = int(self.address.rpartition(":")[2])
        await self._stop()
        while not self._closing:
            try:
                await self._begin()
                break
            except Exception:  # noqa: BLE001 - what is in its way may go; readers wait for it
                _log.exception("the broker could not restart; it tries again")
                await asyncio.sleep(self._settings.store.disk_look_ms / 1_000)
        self._reopening = None

    async def _index_keys(self) -> None:
        assert self._state is not None
        end_ms, step = self._clock.monotonic_ms() + _KEYS_WORK_MS, _KEYS_STEP_BYTES
        while not self._stopped.is_set() and self._state.store.index_keys(step):
            step = min(step + step // 4, _KEYS_STEP_BYTES_MAX)
            await asyncio.sleep(0)
            if self._clock.monotonic_ms() >= end_ms:
                return

    async def _delete_segments(self) -> None:
        assert self._deletion is not None
        assert self._state is not None
        assert self._steady is not None
        self._steady.look()
        self._deletion.run()
        count = self._settings.store.segments_deleted_max
        delete_released(self._state.store, self._state.released, count)
        if self._storage.archive is not None:
            delete_archived(self._state, self._storage.archive)

    async def _keep_time(self) -> None:
        assert self._steady is not None
        await self._steady.keep()

    async def _look_at_audit(self) -> None:
        assert self._state is not None
        if self._state.audit is not None:
            self._state.audit.look()

    async def _compact(self) -> None:
        assert self._state is not None
        topics, compaction = self._state.topics, self._state.store.compaction
        floors = {
            queue: topics.start_of(queue)
            for queue, retention in self._state.store.queues()
            if retention == COMPACT
        }
        bounds = WHOLE
        if self._followers is not None:
            bounds = self._followers.bounds(self._settings.store.tombstone_ms)
        running = asyncio.create_task(compaction.run(floors, bounds=bounds), name="compaction")
        stopping = asyncio.create_task(self._stopped.wait(), name="until stopping")
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not running.done():
            await compaction.aclose()
        await running
