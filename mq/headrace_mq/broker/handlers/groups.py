"""
What goes on here: LIST_GROUPS, DESCRIBE_GROUP, DESCRIBE_LAG, LIST_CONNECTIONS, BROKER_STATUS; and SET_GROUP, NOTE_CHANGE.

Called by the dispatcher; uses the broker's groups, offsets and connections. Lag is counted from the end of
the queue at this moment, never from what a client told.
"""

from collections.abc import Iterable
from heapq import nsmallest
from itertools import islice

from msgspec.structs import replace

from headrace_mq._net.link import software
from headrace_mq._net.server import Connection
from headrace_mq._runtime.files import SystemFiles
from headrace_mq._runtime.usage import usage
from headrace_mq.broker.groups.members import Member
from headrace_mq.broker.handlers.sessions import check_name
from headrace_mq.broker.handlers.topics import QUEUES_DESCRIBED_MAX
from headrace_mq.broker.peers.peers import Peer
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import GroupNotFound, InvalidArgument
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    BrokerStatus,
    CompactionDescription,
    ConnectionDescription,
    ConnectionsAnswer,
    DescribeGroup,
    DescribeLag,
    GroupDescription,
    GroupsAnswer,
    GroupSummary,
    LagAnswer,
    ListConnections,
    ListGroups,
    LogDescription,
    MemberDescription,
    ProcessDescription,
    QueueLag,
    Traffic,
)
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.limits import (
    AS_IT_IS,
    THEIR_OWN,
    GroupRules,
    LeaderDescription,
    NoteChange,
    ReplicaDescription,
    SetGroup,
)
from headrace_mq.store.message_store import RETENTIONS
from headrace_mq.store.replication.lost_messages import count_lost

__all__ = [
    "GROUPS_LISTED_MAX",
    "ROLES",
    "broker_status",
    "describe_group",
    "describe_lag",
    "list_connections",
    "list_groups",
    "note_change",
    "set_group",
]

# Sentences about damage in one answer; each has less than 300 bytes.
DAMAGE_TOLD_MAX = 100
# Names of paused groups in one answer.
PAUSED_TOLD_MAX = 100

ROLES = ("producer", "consumer", "reader")
# Groups in one answer, and queues looked at for it, in all and of one group: some ten milliseconds of
# the loop's time.
GROUPS_LISTED_MAX = 256
QUEUES_COUNTED_MAX = 4_096
# Of one connection; most have one or two.
CONNECTION_GROUPS_MAX = 16


def list_groups(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers the next groups by name, with their lag over all queues."""
    after = decode(ListGroups, frame.body).after
    names = (name for name in state.group_names() if name > after)
    # The first by name are found without sorting them all.
    ahead = nsmallest(GROUPS_LISTED_MAX + 1, names)
    groups: list[GroupSummary] = []
    counted = 0
    for name in ahead[:GROUPS_LISTED_MAX]:
        queues = state.queues_of_group(name, at_most=QUEUES_COUNTED_MAX)
        counted += len(queues)
        # At least one, so that a client that asks on comes to an end.
        if groups and counted > QUEUES_COUNTED_MAX:
            break
        groups.append(_summary(state, name, queues))
    return (encode(GroupsAnswer(groups, more=len(groups) < len(ahead))),)


def describe_group(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers a group's members and topics. Raises GroupNotFound."""
    name = decode(DescribeGroup, frame.body).group
    members, now_ms = state.groups.members(name), state.clock.monotonic_ms()
    topics = sorted(state.topics_of_group(name))
    if not members and not topics and name not in state.limits.groups:
        raise GroupNotFound(
            f"group {name!r} has neither members nor offsets here; correct the name"
        )
    described = [_described(state, member, now_ms) for member in members]
    generation = state.groups.view(name).generation
    rules = [state.limits.rules(name)]
    return (encode(GroupDescription(name, generation, described, topics, rules)),)


def set_group(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Pauses a group or lets it go on, or says how often its members retry; answers what holds now.

    Raises:
        InvalidArgument: a value is out of its range, or there are too many limits.
        StoreFull: the disk is full; all stays as it was.
    """
    request = decode(SetGroup, frame.body)
    check_name("group", request.group)
    before = state.limits.rules(request.group)
    if request.consume not in {"on", "off", ""}:
        raise InvalidArgument(f"a group consumes 'on' or 'off', not {request.consume!r}")
    if request.retries < AS_IT_IS:
        raise InvalidArgument(
            f"members retry 0 times or more, or as each has it with {THEIR_OWN}, not"
            f" {request.retries} times"
        )
    consume = request.consume == "on" or (before.consume and not request.consume)
    retries = before.retries if request.retries == AS_IT_IS else request.retries
    paused_at_ms = 0 if consume else before.paused_at_ms or state.clock.now_ms()
    rules = GroupRules(request.group, consume, retries, paused_at_ms)
    if rules != before:
        state.limits.set_group(rules)
    if rules.consume and not before.consume:
        state.long_poll.wake_group(request.group)
    return (encode(rules),)


def note_change(_state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers once the guard has noted what an operator changes outside of the broker.

    Raises:
        InvalidArgument: it does not say what is changed, or the group's name is too long.
    """
    request = decode(NoteChange, frame.body)
    if not request.what.strip():
        raise InvalidArgument("say what is changed, such as 'projection pause balances'")
    if request.group:
        check_name("group", request.group)
    return (encode(request),)


def describe_lag(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers how far behind a group is in each queue of the topics, and whose the queue is.

    A lock tells that for sure; members that need none say which queues they hold.

    Raises:
        TopicNotFound: there is no such topic.
        InvalidArgument: the topics have too many queues for one answer.
    """
    request = decode(DescribeLag, frame.body)
    check_name("group", request.group)
    queues = state.topics.queues_of_all(request.topics, at_most=QUEUES_DESCRIBED_MAX)
    said = state.groups.said(request.group, set(request.topics))
    lags = [_lag(state, request.group, queue, said.get(queue)) for queue in queues]
    return (encode(LagAnswer(state.clock.now_ms(), lags)),)


def list_connections(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers who is connected, the oldest first. Raises InvalidArgument: no such role."""
    role = decode(ListConnections, frame.body).role
    if role and role not in ROLES:
        raise InvalidArgument(f"{role!r} is no role; use one of {', '.join(ROLES)}, or none")
    found = []
    for connection, peer in state.peers.items():
        groups = state.groups.groups_of(connection)
        roles = peer.roles(member=bool(groups))
        if not role or role in roles:
            found.append(_connected(connection, peer, roles, groups))
    return (encode(ConnectionsAnswer(found)),)


def broker_status(state: BrokerState, _connection: Connection, _frame: Frame) -> tuple[bytes]:
    """Answers what the broker holds and does as a whole."""
    now_ms = state.clock.monotonic_ms()
    state.look_at_backlogs()
    logs = []
    for log in RETENTIONS:
        segments = state.store.segments(log)
        size = sum(segment.bytes for segment in segments)
        first, end = (segments[0].base, segments[-1].end) if segments else (0, 0)
        logs.append(LogDescription(log, len(segments), size, first, end))
    status = BrokerStatus(
        now_ms=state.clock.now_ms(),
        topics=len(state.topics),
        queues=state.topics.queues,
        groups=sum(1 for _ in state.group_names()),
        connections=len(state.server.connections),
        refuses=state.store.read_only or state.refusal,
        produced=state.produced.total(now_ms),
        fetched=state.fetched.total(now_ms),
        logs=logs,
        throttled=state.throttle.requests,
        held=len(state.throttle),
        archive=[] if state.archive is None else [state.archive.describe()],
        compaction=CompactionDescription(*state.store.compaction.figures),
        alarms=state.backlogs.alarms,
        clock_alarm=state.clock.alarm,
        damaged=len(state.store.damage),
        damage=[one.sentence for one in state.store.damage[-DAMAGE_TOLD_MAX:]],
        paused=len(state.limits.paused),
        paused_groups=nsmallest(PAUSED_TOLD_MAX, state.limits.paused),
        process=[_process(state)],
    )
    return (encode(_of_group(state, status)),)


def _of_group(state: BrokerState, status: BrokerStatus) -> BrokerStatus:
    """Returns a status with what a leader knows of its group of brokers."""
    if state.followers is None:
        return status
    repairs, loss = state.followers.repairs, state.followers.may_lose()
    leads = LeaderDescription(
        state.followers.ack,
        loss.bytes,
        loss.ms,
        count_lost(SystemFiles(), state.settings.store.directory),
        [ReplicaDescription(*one) for one in state.followers.figures()],
    )
    return replace(
        status,
        repaired=repairs.repaired,
        unrepaired=repairs.hopeless,
        shortage=state.followers.leadership.shortage,
        leads=[leads],
    )


def _process(state: BrokerState) -> ProcessDescription:
    store = state.settings.store
    return ProcessDescription(software(), *usage(store.directory), store.disk_refuse_percent)


def _summary(state: BrokerState, group: str, queues: Iterable[QueueRef]) -> GroupSummary:
    now_ms, looked_at = state.clock.monotonic_ms(), list(queues)
    ahead = [_ahead(state, group, queue) for queue in looked_at]
    lag = sum(each[3] for each in ahead)
    commits = any(each[2] >= 0 for each in ahead)
    fetched = _sum(state.fetched_by.read((group, queue), now_ms) for queue in looked_at)
    members = len(state.groups.members(group))
    rules = state.limits.rules(group)
    return GroupSummary(
        group, members, len(looked_at), lag, fetched, commits, rules.consume, rules.retries
    )


def _ahead(state: BrokerState, group: str, queue: QueueRef) -> tuple[int, int, int, int]:
    """First, end, committed offset, and how many messages are held from there to the end."""
    first, end = state.range(queue)
    committed = state.offsets.get(group, queue)
    return first, end, committed, end - max(committed, first)


def _lag(state: BrokerState, group: str, queue: QueueRef, said: tuple[str, int] | None) -> QueueLag:
    now_ms = state.clock.monotonic_ms()
    first, end, committed, lag = _ahead(state, group, queue)
    oldest = state.store.stored_at(queue, max(committed, first)) if lag else None
    fetched = state.fetched_by.read((group, queue), now_ms)
    member, since_ms = state.locks.holder(group, queue) or said or ("", now_ms)
    held_ms = max(0, now_ms - since_ms)
    return QueueLag(*queue, first, end, committed, lag, oldest or 0, fetched, member, held_ms)


def _connected(
    connection: Connection, peer: Peer, roles: list[str], groups: list[str]
) -> ConnectionDescription:
    return ConnectionDescription(
        client_id=connection.client_id,
        address=connection.peer,
        software=peer.software,
        since_ms=peer.since_ms,
        roles=roles,
        groups=list(islice(groups, CONNECTION_GROUPS_MAX)),
        received_bytes=connection.received_bytes,
        sent_bytes=connection.sent_bytes,
        produced=peer.produced,
        throttled_ms=peer.throttled_ms,
        user=connection.user or connection.principal,
    )


def _described(state: BrokerState, member: Member[Connection], now_ms: int) -> MemberDescription:
    connection = member.session
    peer = state.peers.get(connection) if connection is not None else None
    peer = peer or Peer(software="", since_ms=0)
    return MemberDescription(
        member.name,
        "" if connection is None else connection.peer,
        peer.software,
        peer.since_ms,
        max(0, now_ms - member.heard_at_ms),
        list(member.topics),
        peer.throttled_ms,
        max(1, member.kept_until_ms - now_ms) if connection is None else 0,
    )


def _sum(traffic: Iterable[Traffic]) -> Traffic:
    one_messages = one_bytes = ten_messages = ten_bytes = 0
    for part in traffic:
        one_messages += part.messages_1s
        one_bytes += part.bytes_1s
        ten_messages += part.messages_10s
        ten_bytes += part.bytes_10s
    return Traffic(one_messages, one_bytes, ten_messages, ten_bytes)
