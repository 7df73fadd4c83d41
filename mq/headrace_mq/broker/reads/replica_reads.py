"""
What a replica gives clients that only read: messages that are committed, and nothing that it is not sure of.

    HELLO with `reads` ─▶ in sync, heard of its leader a moment ago ─▶ FETCH ─▶ batches below what the leader has committed
                      └─▶ else NOT_LEADER: the client asks another replica, or the leader

What moves state is the leader's: offsets of groups, locks, members, messages that are sent. A read that names a group or a
filter is the leader's too, and so is what a queue holds: a client asks the leader for ends, and a replica for what lies before them.

Used by `replicas.standby`, which has the connections; uses the store of `Replica`, and the documents on its disk.
"""

import asyncio
from contextlib import suppress
from functools import partial
from time import perf_counter

from headrace_mq._net.server import Connection
from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.metadata import topics_file, users_file
from headrace_mq.broker.reads.read_counts import ReadCounts
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.replicas.replica import Replica
from headrace_mq.broker.topics import spread_topics
from headrace_mq.broker.topics.kept import KeptTopics
from headrace_mq.broker.users.replica_door import ReplicaDoor
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.effective_settings import NO_SOURCES, Sources, described
from headrace_mq.errors import InvalidArgument, NotLeader, QueueElsewhere, ResponseCode
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import record_count
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchAnswer,
    FetchedQueue,
    decode,
    encode_fetch_answer,
)
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.limits import SettingsAnswer
from headrace_mq.settings import BrokerSettings
from headrace_mq.store.message_store import MessageStore

__all__ = ["ReplicaReads"]

_log = get_logger(__name__)

# A read waits this long for what is not committed here yet, or comes from the disk; then the client asks the leader.
READ_WAIT_MS_MAX = 500
# What comes from the disk is on its way: far more than a disk takes that works.
DISK_WAIT_MS = 5_000
# Reads of one connection that wait at the same time: one for each of so many queues that are read at once.
READS_PER_CONNECTION_MAX = 16
# Queues of one read: as many as one topic has.
QUEUES_PER_READ_MAX = 1_024
# Of one read: the leader's bytes come over the same loop, and producers wait for them. A larger answer keeps it longer.
READ_BYTES_MAX = 256 << 10
# Of a frame, for what is said of queues; the rest is for batches.
_STATES_PART = 4
_NO_BODY = memoryview(b"")

Parts = tuple[bytes | memoryview, ...]


class ReplicaReads:
    """Serves reads while this broker is a replica in sync.

    Args:
        replica: has the store.
        member: knows what is committed, and the set.
        settings: of the broker, with those of its group.
        clock: the time.
        sources: what gave the settings that are no defaults.

    Attributes:
        counts: of what was read since it began as a replica, for quotas and metrics.
    """

    def __init__(
        self,
        replica: Replica,
        member: ClusterMember,
        settings: BrokerSettings,
        clock: Clock,
        sources: Sources = NO_SOURCES,
    ) -> None:
        assert settings.group is not None
        self._settings, self._sources = settings, sources
        self._replica = replica
        self._member = member
        self._clock = clock
        self._stale_ms_max = settings.group.replica_stale_ms_max
        self._directory = settings.store.directory
        self._batch_bytes_max = settings.frame_bytes_max - settings.frame_bytes_max // _STATES_PART
        self._topics: KeptTopics | None = None
        self.counts = ReadCounts(settings, clock)
        self._book: UserBook | None = None
        self._door: ReplicaDoor | None = None
        if settings.login:
            self._book = UserBook(users_file(self._directory))
            self._door = ReplicaDoor(
                self._book,
                clock,
                settings.audit_per_second_max,
                settings.audit_refusals_per_minute_max,
            )
        self._has_users = False
        # So that it is said once.
        self._has_served = False
        self._waiting: dict[Connection, set[asyncio.Task[None]]] = {}
        self._news = asyncio.Event()
        replica.on_visible = self.look_again
        replica.on_document = self._replaced

    def begin(self) -> None:
        """Counts from zero: as a leader the process had other counts of the same names."""
        self.counts = ReadCounts(self._settings, self._clock)

    @property
    def door(self) -> ReplicaDoor | None:
        """Lets users in; None: there is no login."""
        return self._door

    @property
    def epoch(self) -> int:
        """The one that this replica follows."""
        return self._member.epoch

    def require_current(self) -> None:
        """Raises NotLeader where this broker cannot be sure of what it has; the sentence says why."""
        member, seen = self._member, self._member.seen
        if seen is None or member.is_frozen or member.me not in seen.in_sync:
            raise NotLeader("this broker is no replica in sync; read from another one of its group")
        heard_ms = self._replica.heard_ms
        if heard_ms is None or self._clock.monotonic_ms() - heard_ms > self._stale_ms_max:
            raise NotLeader(
                f"this replica has not heard of its leader for {self._stale_ms_max} ms, so it serves no reads; read from"
                " another broker of its group"
            )
        if not self._replica.shows_committed(member):
            raise NotLeader(
                "this replica does not know yet how much of its log is committed; read from another broker of its group"
            )

    def greet(self, connection: Connection) -> list[str]:
        """Takes a certificate for a login, or returns how to log in; nothing: there is no login.

        Raises:
            DataCorrupt, FormatTooNew: the file of users cannot be used.
        """
        if not self._has_served:
            self._has_served = True
            _log.info("this replica serves reads", epoch=self.epoch)
        if self._door is None:
            return []
        self._load_users()
        return self._door.greet(connection)

    def settings(self, connection: Connection, frame: Frame) -> SettingsAnswer:
        """Returns this broker's settings.

        Raises:
            LoginFailed, NotPermitted: the user may not read the cluster.
        """
        if self._door is not None:
            self._load_users()
            self._door.check(connection, frame)
        return described(self._settings, self._sources)

    def fetch(self, connection: Connection, frame: Frame) -> None:
        """Answers a read, now or as soon as there is something.

        Raises:
            NotLeader: this broker does not serve reads now.
            InvalidArgument: it is one for the leader, or a value is out of its range.
            LoginFailed, NotPermitted: the user may not read these topics.
            MalformedRequest: the body is none.
            Throttled: a quota is used up, and too many reads wait for it already.
        """
        self.require_current()
        request = decode(Fetch, frame.body)
        _check(request)
        if self._door is not None:
            self._load_users()
            self._door.check_read(connection, {one.topic for one in request.queues})
        bare = frame._replace(body=_NO_BODY)
        held = self.counts.hold(
            connection, frame.correlation, self._known(request),
            partial(self._serve_held, connection, bare, request), partial(refuse, connection, bare),
        )  # fmt: skip
        if not held:
            self._serve(connection, bare, request)

    def _serve_held(self, connection: Connection, frame: Frame, request: Fetch) -> None:
        """Serves a read that has waited for a quota."""
        try:
            self.require_current()
            self._serve(connection, frame, request)
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer
            refuse(connection, frame, error)

    def _serve(self, connection: Connection, frame: Frame, request: Fetch) -> None:
        waiting = self._waiting.setdefault(connection, set())
        if len(waiting) >= READS_PER_CONNECTION_MAX:
            raise InvalidArgument(
                f"a connection to a replica has at most {READS_PER_CONNECTION_MAX} reads at the same time; wait for answers"
            )
        found, coming = self._look(connection, request)
        if found is not None:
            connection.answer(ResponseCode.OK, frame.correlation, *found)
            return
        wait_ms = DISK_WAIT_MS if coming else min(max(request.wait_ms, 0), READ_WAIT_MS_MAX)
        task = asyncio.create_task(
            self._answer_later(connection, frame, request, self._news, wait_ms),
            name="a read of a replica",
        )
        waiting.add(task)
        task.add_done_callback(waiting.discard)

    def look_again(self) -> None:
        """Has reads that wait look again: there is more to see, or a client has taken its answers."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def forget(self, connection: Connection) -> None:
        """Forgets a closed connection, and its reads."""
        for task in self._waiting.pop(connection, ()):
            task.cancel()
        self.counts.forget(connection)
        if self._door is not None:
            self._door.forget(connection)

    async def _answer_later(
        self,
        connection: Connection,
        frame: Frame,
        request: Fetch,
        news: asyncio.Event,
        wait_ms: int,
    ) -> None:
        found: Parts | None = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1_000):
                    while found is None:
                        await news.wait()
                        news = self._news
                        self.require_current()
                        found, _ = self._look(connection, request)
            if found is None:
                found = (encode_fetch_answer(FetchAnswer([])),)
            connection.answer(ResponseCode.OK, frame.correlation, *found)
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer
            refuse(connection, frame, error)

    def _look(self, connection: Connection, request: Fetch) -> tuple[Parts | None, bool]:
        """Returns an answer, or None where nothing is there yet, and whether something comes from the disk."""
        if connection.congested:
            return None, False
        since_s = perf_counter()
        store, coming = self._replica.store, False
        room = self.counts.room(connection, self._known(request))
        answer, batches = FetchAnswer([], []), list[bytes | memoryview]()
        used, bytes_max = 0, min(request.bytes_max, READ_BYTES_MAX)
        if room is not None:
            bytes_max = min(bytes_max, max(1, room.size))
        for one in request.queues:
            queue = QueueRef(one.topic, one.queue_id)
            state = self._state_of(store, queue, one.offset)
            if state is None:
                continue
            if state.code == ResponseCode.OK:
                found = store.read_now(queue, one.offset, bytes_max - used)
                # The read itself may have met the damage.
                _require_whole(store, self._log_of(queue.topic))
                if found and room is not None:
                    found = room.take(found, map(record_count, found), one=not used)
                size = sum(map(len, found or ()))
                coming |= found is None
                # At least one batch came, which may be larger than what is left.
                if not found or (used and used + size > self._batch_bytes_max):
                    continue
                batches += found
                used += size
                messages = sum(map(record_count, found))
                self.counts.note(connection, queue, messages, size)
                room = None if room is None else room.without(messages, size)
            answer.queues.append(state)
            if used >= bytes_max:
                break
        if batches:
            self.counts.fetch_times.add(perf_counter() - since_s)
        return ((encode_fetch_answer(answer), *batches) if answer.queues else None), coming

    def _state_of(self, store: MessageStore, queue: QueueRef, offset: int) -> FetchedQueue | None:
        """Returns what there is to say of a queue; None: what is asked for may come."""
        name = f"queue {queue.topic}/{queue.queue_id}"
        topics = self._kept_topics()
        kept = topics.topics.get(queue.topic)
        if kept is None or not 0 <= queue.queue_id < kept.queues:
            sentence = f"this replica knows no {name}; ask the leader"
            return FetchedQueue(*queue, 0, 0, ResponseCode.QUEUE_NOT_FOUND, sentence)
        try:
            spread_topics.require_own(queue, kept)
        except QueueElsewhere as error:
            return FetchedQueue(*queue, 0, 0, ResponseCode.QUEUE_ELSEWHERE, str(error))
        first, end = store.range(queue)
        if queue.queue_id in kept.unreadable:
            sentence = f"{name} is frozen for reading; thaw it first"
            return FetchedQueue(*queue, first, end, ResponseCode.QUEUE_FROZEN, sentence)
        grave = topics.graves.get(queue.topic)
        first = max(first, grave.ends.get(queue.queue_id, 0) if grave else 0)
        if offset < first:
            sentence = (
                f"{name} can be read from offset {first} here, not from {offset}; ask the leader"
            )
            return FetchedQueue(*queue, first, end, ResponseCode.OFFSET_OUT_OF_RANGE, sentence)
        return None if offset >= end else FetchedQueue(*queue, first, end)

    def _kept_topics(self) -> KeptTopics:
        if self._topics is None:
            self._topics = topics_file(self._directory).read() or KeptTopics({})
            self.counts.forget_topics(self._topics.topics.__contains__)
        return self._topics

    def _known(self, request: Fetch) -> list[str]:
        """The topics of a read that are there: clients could invent any number."""
        topics = self._kept_topics().topics
        return [name for name in {one.topic for one in request.queues} if name in topics]

    def _log_of(self, topic: str) -> str:
        return self._kept_topics().topics[topic].retention

    def _load_users(self) -> None:
        if self._book is not None and not self._has_users:
            self._book.load()
            self._has_users = True

    def _replaced(self, name: str) -> None:
        """Takes over that the leader has replaced a document."""
        if name == "topics.json":
            self._topics = None
        elif name == "limits.json":
            self.counts.changed()
        elif name == "users.json":
            self._has_users = False


def _require_whole(store: MessageStore, log: str) -> None:
    """Raises NotLeader where readers of a log would miss messages, because this broker's copy of it is damaged."""
    left_out = [one for one in store.damage if one.log == log and one.length > 0]
    if not left_out:
        return
    first = store.segments(log)[0].base
    if any(one.position + one.length > first for one in left_out):
        raise NotLeader(
            f"the {log} log of this replica is damaged, and not repaired yet; read from another broker of its group"
        )


def _check(request: Fetch) -> None:
    if request.group or request.filters:
        raise InvalidArgument(
            "a replica serves reads without a group and without filters; send this one to the leader"
        )
    if not 1 <= len(request.queues) <= QUEUES_PER_READ_MAX or request.bytes_max < 1:
        raise InvalidArgument(
            f"a read names 1 to {QUEUES_PER_READ_MAX} queues, and asks for at least 1 byte"
        )
