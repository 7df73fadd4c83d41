"""
What the handlers share: settings, store, topics, offsets, groups, and who is connected.

Used by `handlers`, which read and change it; `server` fills it. All of it belongs to the event loop's
thread, so nothing here is locked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain, filterfalse

from headrace_mq._net.server import Connection, FrameServer
from headrace_mq._runtime.descriptors import Descriptors
from headrace_mq.archive.archive import Archive
from headrace_mq.broker.acknowledgements import Acknowledgements
from headrace_mq.broker.fetch.filter_workers.read_ahead import ReadAhead
from headrace_mq.broker.fetch.long_poll import LongPoll
from headrace_mq.broker.groups.backlogs import Backlogs
from headrace_mq.broker.groups.locks import Locks
from headrace_mq.broker.groups.members import GroupChange, Groups
from headrace_mq.broker.groups.offsets import Offsets
from headrace_mq.broker.peers.peers import Peer
from headrace_mq.broker.peers.producers import Producers
from headrace_mq.broker.quotas.creations import OFFSETS, QUEUES, Creations
from headrace_mq.broker.quotas.limits import Limits
from headrace_mq.broker.quotas.quotas import Quotas
from headrace_mq.broker.quotas.throttle import Throttle
from headrace_mq.broker.quotas.traffic import Meters
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.replicas.followers import Followers
from headrace_mq.broker.schedule.scheduler import Scheduler
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.topics.disk import Watermarks
from headrace_mq.broker.topics.releases import Releases
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.broker.transactions.coordinator import TransactionCoordinator
from headrace_mq.broker.users.audit import Audit
from headrace_mq.broker.users.guard import Guard
from headrace_mq.broker.users.logins import Logins
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.effective_settings import Sources
from headrace_mq.errors import ResponseCode, StoreFull
from headrace_mq.message import QueueRef
from headrace_mq.metrics.histogram import Histogram
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.filter.batch_filter import BatchFilter
from headrace_mq.protocol.frame import FRAME_HEADER_BYTES, Frame
from headrace_mq.settings import BrokerSettings
from headrace_mq.store.message_store import MessageStore

__all__ = ["BrokerState", "check_room"]

# What a FETCH answer may need besides its batches: the states of about 100 queues.
_STATES_BYTES_MAX = 16 << 10
# Conditions kept compiled, and what they said of up to 1,024 values and as many encoded headers: one
# for each group that filters, more than a broker has, and 120 MB at the worst.
_BATCH_FILTERS_MAX = 256
_TURN_STEP = 0x9E37_79B9_7F4A_7C15  # 2^64 / golden ratio
_TURN_BITS = 64


def check_room(watermarks: Watermarks, archive: Archive | None) -> None:
    """Raises StoreFull while new messages are refused, for the disk's or the archive's sake."""
    refusal = watermarks.refusal or (archive is not None and archive.refusal)
    if refusal:
        raise StoreFull(refusal)


def _topic_of(queue: QueueRef) -> str:
    return queue.topic


@dataclass(slots=True, kw_only=True)
class BrokerState:
    """The state of one running broker.

    Attributes:
        archive: behind the store, if there is one.
        followers: the replicas of this broker, if it leads a group.
        ahead: what other processes look through for readers that are far behind, if there are any.
        check_room: raises StoreFull while new messages are refused, for the disk's or the archive's sake.
        users: who may log in, and their rules; None: without a login, and everyone may do everything.
        logins: those that have begun; None likewise.
        audit: what is written of changes, logins and refusals; None: nothing is.
        guard: asks the rules, and tells the audit; None where there is neither of them.
        strangers: what clients call themselves that have said HELLO and have not been let in yet.
        clients: the connection that replies to a client go to.
        peers: who is connected, from the handshake on.
        produced: what producers sent, by queue.
        fetched: what readers were given, by queue.
        fetched_by: what groups were given, by group and queue.
        fetch_times: how long the broker worked on each answer with messages.
        batch_filters: compiles a condition, and keeps those that are asked for again and again.
        sources: what gave the settings that are no defaults.
        limited: whether there is any limit; all that requests pay where there is none.
        stopping: whether new messages are refused.
        body_bytes_max: the largest body of a frame after the handshake.
        states_bytes_max: what the queue states of one FETCH answer may take.
        batch_bytes_max: the largest batch that is taken, so that every FETCH answer can carry it.
    """

    settings: BrokerSettings
    clock: SteadyClock
    store: MessageStore
    topics: Topics
    releases: Releases
    offsets: Offsets
    groups: Groups[Connection]
    locks: Locks[Connection]
    producers: Producers
    limits: Limits
    quotas: Quotas
    epoch: int
    started_at_ms: int
    acknowledgements: Acknowledgements
    watermarks: Watermarks
    check_room: Callable[[], None]
    scheduler: Scheduler
    transactions: TransactionCoordinator[Connection]
    archive: Archive | None = None
    followers: Followers | None = None
    users: UserBook | None = None
    audit: Audit | None = None
    guard: Guard | None = None
    logins: Logins[Connection] | None = None
    ahead: ReadAhead | None = None
    server: FrameServer = field(init=False)
    long_poll: LongPoll = field(init=False)
    throttle: Throttle = field(init=False)
    backlogs: Backlogs = field(init=False)
    creations: Creations = field(init=False)
    descriptors: Descriptors = field(init=False)
    sources: Sources = field(default_factory=dict)
    limited: bool = False
    address: str = ""
    strangers: dict[Connection, str] = field(default_factory=dict)
    clients: dict[str, Connection] = field(default_factory=dict)
    peers: dict[Connection, Peer] = field(default_factory=dict)
    produced: Meters[QueueRef] = field(default_factory=lambda: Meters(name_of=_topic_of))
    fetched: Meters[QueueRef] = field(default_factory=lambda: Meters(name_of=_topic_of))
    fetched_by: Meters[tuple[str, QueueRef]] = field(default_factory=Meters)
    fetch_times: Histogram = field(default_factory=Histogram)
    stopping: bool = False
    body_bytes_max: int = field(init=False)
    states_bytes_max: int = field(init=False)
    batch_bytes_max: int = field(init=False)
    batch_filters: Callable[[str], BatchFilter] = field(
        default_factory=lambda: lru_cache(_BATCH_FILTERS_MAX)(BatchFilter)
    )
    _turn: int = 0

    def __post_init__(self) -> None:
        # Asked for with every request, so not worked out again each time.
        frame_bytes_max = self.settings.frame_bytes_max
        self.body_bytes_max = frame_bytes_max - (FRAME_HEADER_BYTES - 4)
        self.states_bytes_max = min(_STATES_BYTES_MAX, frame_bytes_max // 4)
        self.batch_bytes_max = self.body_bytes_max - self.states_bytes_max
        self.descriptors = Descriptors.divided(self.settings.descriptors_reserved)
        self.creations = Creations(
            {
                QUEUES: self.settings.address_queues_per_minute,
                OFFSETS: self.settings.address_offsets_per_minute,
            }
        )
        self.backlogs = Backlogs(self, alarm_percent=self.settings.backlog_alarm_percent)

    def range(self, queue: QueueRef) -> tuple[int, int]:
        """The first offset of a queue that may be read, and the next one to become readable.

        What stands below it in the store was deleted with an earlier queue of that name.
        """
        first, end = self.store.range(queue)
        return max(first, self.topics.start_of(queue)), end

    def changed_from(self, queue: QueueRef, epoch: int) -> int:
        """The lowest offset at which another message may stand than in an epoch; -1: the group lost nothing since."""
        if self.followers is None or not 0 < epoch < self.followers.last_loss:
            return -1
        kept = self.store.end_below(queue, self.followers.logs.common_ends(epoch))
        first, _ = self.range(queue)
        # If nothing is held of what it was then, what was deleted may have changed as well.
        return first if kept is None else max(first, kept)

    def offset_at(self, queue: QueueRef, time_ms: int) -> int:
        """The first readable offset stored at a time or later, or the end."""
        return max(self.store.offset_at(queue, time_ms), self.range(queue)[0])

    def consumed(self, queue: QueueRef) -> int:
        """The offset below which nothing will be read: every group is past it, or it was deleted."""
        return max(self.offsets.consumed(queue), self.topics.start_of(queue))

    def released(self, queue: QueueRef) -> int:
        """The offset below which a queue's messages may go, although their topic is kept forever."""
        start, known = self.topics.start_of(queue), queue.topic in self.topics
        identity = self.topics.identity_of(queue.topic) if known else ""
        return max(start, self.releases.before(queue, identity))

    def look_at_backlogs(self) -> None:
        """Raises and ends alarms of groups with a limit, and moves on those that shall skip."""
        self.backlogs.look(self.clock.monotonic_ms())

    def group_names(self) -> Iterator[str]:
        """Every group once, in no certain order; one of which something was said is known, too."""
        with_offsets, with_members = self.offsets.names(), self.groups.names()
        said = (name for name in self.limits.groups if name not in with_members)
        names = chain(with_members, said)
        return chain(with_offsets, filterfalse(with_offsets.__contains__, names))

    def topics_of_group(self, group: str) -> set[str]:
        """The topics in which a group has an offset, or that its members subscribed to."""
        subscribed = self.groups.topics_of(group)
        return self.offsets.topics_of(group).union(filter(self.topics.__contains__, subscribed))

    def queues_of_group(self, group: str, *, at_most: int | None = None) -> list[QueueRef]:
        """The queues in which a group has an offset, or that its members subscribed to.

        Those with offsets come first where only some are asked for.
        """
        queues = set(self.offsets.of(group))
        for topic in self.groups.topics_of(group):
            if at_most is not None and len(queues) >= at_most:
                break
            if topic in self.topics:
                queues.update(self.topics.queues_of(topic))
        return sorted(queues)[:at_most]

    def lags(self, group: str) -> Mapping[QueueRef, int]:
        """How many messages are ahead of a group, by queue."""
        found = {}
        for queue in self.queues_of_group(group):
            first, end = self.range(queue)
            found[queue] = end - max(self.offsets.get(group, queue), first)
        return found

    def skip(self, group: str, counts: Mapping[QueueRef, int]) -> None:
        """Moves a group forward in queues, by so many messages in each."""
        moved = [
            (queue, max(self.offsets.get(group, queue), self.range(queue)[0]) + count)
            for queue, count in counts.items()
        ]
        self.offsets.commit(group, moved)

    def may_make(self, connection: Connection, kind: str) -> Callable[[int], None]:
        """What a client asks before it makes queues or offsets; raises Throttled when called."""
        peer = self.peers.get(connection)
        host = "" if peer is None else peer.host
        return partial(self.creations.take, kind, host, self.clock.monotonic_ms())

    def apply_limits(self) -> None:
        """Lets the limits of this moment be kept from now on."""
        self.quotas.replace(self.limits.quotas)
        self.backlogs.replace(self.limits.backlogs)
        self.limited = self.quotas.active or bool(self.limits.backlogs)
        self.look_at_backlogs()
        # What waits for a limit that is gone need not wait any more.
        self.throttle.look()

    @property
    def refusal(self) -> str:
        """Why new messages are refused, or an empty text."""
        archive = self.archive.refusal if self.archive is not None else ""
        return self.watermarks.refusal or archive

    def note_fetched(self, group: str, queue: QueueRef, messages: int, size: int) -> None:
        """Counts what a reader is given of one queue."""
        now_ms = self.clock.monotonic_ms()
        self.fetched.add(queue, now_ms, messages, size)
        if group:
            self.fetched_by.add((group, queue), now_ms, messages, size)

    def forget_traffic(self, queues: Iterable[QueueRef]) -> None:
        """Drops the counts of deleted queues, and of topics that are deleted: if they are made again, they begin at 0."""
        gone = frozenset(queues)
        self.fetched_by.forget(lambda key: key[1] in gone)
        for meters in (self.produced, self.fetched):
            meters.forget(gone.__contains__)
            meters.forget_names(self.topics.__contains__)

    def forget_idle(self, now_ms: int) -> None:
        """Drops counts that are too old to be told, and those of deleted topics."""
        for meters in (self.produced, self.fetched, self.fetched_by):
            meters.forget_idle(now_ms)
            # A request that was under way when its topic was deleted was counted after that.
            meters.forget_names(self.topics.__contains__)
        self.quotas.forget_idle(now_ms)
        self.creations.forget_idle(now_ms)

    def next_turn(self, count: int) -> int:
        """Returns where among `count` queues a fetch begins, so that each comes first as often.

        Steps of the golden ratio stay evenly spread for every subset of the callers; a plain
        counter would give two alternating consumers the same first queue every time.
        """
        self._turn = (self._turn + _TURN_STEP) & ((1 << _TURN_BITS) - 1)
        return (self._turn * count) >> _TURN_BITS

    def tell(self, changes: Iterable[GroupChange[Connection]]) -> None:
        """Pushes new views of groups to the members' connections.

        A connection that does not read its answers learns of the change by its next heartbeat.
        """
        for view, connections in changes:
            body = encode(view)
            for connection in connections:
                if not connection.congested:
                    connection.push(RequestCode.PUSHED_GROUP_CHANGE, body)

    def answer_later(
        self, connection: Connection, frame: Frame, outcome: bytes | Exception
    ) -> None:
        """Answers a change that took its time, or says why it failed; the audit has it first."""
        audit = self.audit
        if audit is not None:
            failure = outcome if isinstance(outcome, Exception) else None
            audit.finish(connection, (frame.code, frame.correlation), failure)
        if isinstance(outcome, Exception):
            refuse(connection, frame, outcome)
        elif not frame.is_oneway:
            self.answer_held(connection, frame, (outcome,))

    def answer_held(
        self,
        connection: Connection,
        frame: Frame,
        parts: tuple[bytes | memoryview, ...],
        *,
        documents: int = -1,
        changes: int = -1,
    ) -> None:
        """Answers a change once its entry in the audit is durable and, in a group, all required members have it.

        Args:
            connection: of the client.
            frame: its request.
            parts: of the answer.
            documents: where the documents of the group ended before the change; an answer waits only for what is new.
            changes: which the audit had then.
        """
        followers, audit = self.followers, self.audit
        answer = partial(connection.answer, ResponseCode.OK, frame.correlation, *parts)
        if followers is not None and followers.documents.end != documents:
            answer = partial(followers.hold, answer)
        if audit is not None and audit.changes != changes:
            audit.hold(answer, partial(refuse, connection, frame))
        else:
            answer()

    def forget(self, connection: Connection) -> None:
        """Takes out everything that hung on a connection."""
        if self.clients.get(connection.client_id) is connection:
            del self.clients[connection.client_id]
        self.peers.pop(connection, None)
        self.strangers.pop(connection, None)
        if self.logins is not None:
            self.logins.forget(connection)
        if self.guard is not None:
            self.guard.forget(connection)
        self.long_poll.drop(connection)
        self.throttle.drop(connection)
        self.transactions.forget(connection)
        self.tell(self.groups.disconnect(connection, now_ms=self.clock.monotonic_ms()))
