"""
HELLO, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP and REPLY: the clients and what is pushed to them.

Called by the dispatcher; uses the broker's clients and groups.
"""

from headrace_mq._net.server import Connection
from headrace_mq.broker.groups.locks import Owner
from headrace_mq.broker.peers.peers import Peer
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import (
    InvalidArgument,
    MalformedRequest,
    NameTaken,
    ReplyUndeliverable,
    UnsupportedVersion,
)
from headrace_mq.message import check_topic
from headrace_mq.protocol.access import ED25519, SCRAM
from headrace_mq.protocol.bodies import (
    GroupAnswer,
    Heartbeat,
    HeldQueues,
    Hello,
    HelloAnswer,
    JoinGroup,
    LeaveGroup,
    Reply,
    ReplyPush,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import PROTOCOL_VERSION, Frame
from headrace_mq.protocol.transactions import TRANSACTION_TOPIC

__all__ = [
    "HELD_QUEUES_MAX",
    "NAME_BYTES_MAX",
    "TOPICS_PER_MEMBER_MAX",
    "check_name",
    "enter",
    "heartbeat",
    "hello",
    "join_group",
    "leave_group",
    "reply",
]

# Names of clients, groups and members: as long as a file name may be.
NAME_BYTES_MAX = 255
# The topics of every member are part of every push to all of them.
TOPICS_PER_MEMBER_MAX = 256
# What a member says it holds is part of every push too, at about 2 bytes a queue.
HELD_QUEUES_MAX = 1_024


def check_name(what: str, name: str) -> None:
    """Raises InvalidArgument unless the name of a client, group or member has a fair length."""
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise InvalidArgument(
            f"the name of a {what} has 1 to {NAME_BYTES_MAX} bytes, not {len(name.encode())}"
        )


def hello(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Agrees on a version, and lets the client in unless it must log in first.

    A certificate that is a user is a login.

    Raises:
        MalformedRequest: the connection has said hello before.
        UnsupportedVersion: the client does not speak this broker's version.
    """
    if connection.client_id:
        raise MalformedRequest("a connection says HELLO once; open another one")
    request = decode(Hello, frame.body)
    check_name("client", request.client_id)
    if not request.version_min <= PROTOCOL_VERSION <= request.version_max:
        raise UnsupportedVersion(
            f"this broker speaks protocol version {PROTOCOL_VERSION}, the client"
            f" {request.version_min} to {request.version_max}; update the older of the two"
        )
    connection.greet(request.client_id, PROTOCOL_VERSION)
    software = request.software.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
    state.strangers[connection] = software
    subject = connection.principal if state.users is not None else ""
    login: list[str] = []
    if state.users is None:
        enter(state, connection, "")
    elif subject and state.users.is_certified(subject):
        enter(state, connection, subject)
        assert state.audit is not None
        state.audit.note(
            connection, "login", "done", resource=f"user:{subject}", detail="with a certificate"
        )
    else:
        login = [SCRAM, ED25519]
    limit = state.settings.frame_bytes_max
    return (encode(HelloAnswer(state.address, PROTOCOL_VERSION, state.epoch, limit, login)),)


def enter(state: BrokerState, connection: Connection, user: str) -> None:
    """Lets a client in that has said HELLO, and raises its limits.

    A second connection with the same client id takes over the replies of the first.

    Args:
        state: of the broker.
        connection: of the client.
        user: who has logged in; empty where there is no login.

    Raises:
        NameTaken: another user is connected under the client id, and would lose its replies.
    """
    holder = state.clients.get(connection.client_id)
    if holder is not None and holder.user != user:
        raise NameTaken("another user is connected with this client id; choose a random UUID")
    connection.user = user
    connection.admit(state.settings.frame_bytes_max)
    state.clients[connection.client_id] = connection
    state.peers[connection] = Peer(
        client_id=connection.client_id,
        address=connection.peer,
        software=state.strangers.pop(connection, ""),
        since_ms=state.clock.now_ms(),
    )


def heartbeat(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Keeps a member and its locks alive, and answers the group's view.

    Raises:
        NotGroupMember: the member must join again.
        InvalidArgument: it holds too much.
    """
    request = decode(Heartbeat, frame.body)
    if not request.group:
        return (encode(GroupAnswer(0, [])),)
    _check_held(request.held)
    now_ms = state.clock.monotonic_ms()
    view = state.groups.heartbeat(request, session=connection, now_ms=now_ms)
    state.locks.renew(Owner(request.group, request.member, connection), now_ms=now_ms)
    return _told(state, request.group, view)


def join_group(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Enters a group and tells the other members.

    Raises:
        InvalidArgument: a name is not allowed, or the group or connection is full.
        InconsistentGroup: the member would do otherwise what all members have to do alike.
        NameTaken: another client is at work under the name.
    """
    request = decode(JoinGroup, frame.body)
    check_name("group", request.group)
    check_name("member", request.member)
    if not 1 <= len(request.topics) <= TOPICS_PER_MEMBER_MAX:
        raise InvalidArgument(
            f"a member subscribes to 1 to {TOPICS_PER_MEMBER_MAX} topics, not {len(request.topics)}"
        )
    for topic in request.topics:
        try:
            check_topic(topic)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        if topic == TRANSACTION_TOPIC:
            raise InvalidArgument(
                f"{topic} cannot be consumed: its transactions are not decided yet; subscribe to their topics"
            )
    _check_held(request.held)
    now_ms = state.clock.monotonic_ms()
    change = state.groups.join(
        request, session=connection, client=connection.client_id, now_ms=now_ms
    )
    if change is not None:
        state.tell([change])
    return _told(state, request.group, state.groups.view(request.group))


def _told(state: BrokerState, group: str, view: GroupAnswer) -> tuple[bytes]:
    """The view of a group with what an operator said of it, so that every member hears of that."""
    rules = state.limits.groups.get(group)
    if rules is not None:
        view = GroupAnswer(view.generation, view.members, rules.consume, rules.retries)
    return (encode(view),)


def _check_held(held: list[HeldQueues]) -> None:
    count = sum(len(queues.queue_ids) for queues in held)
    if count > HELD_QUEUES_MAX or len(held) > TOPICS_PER_MEMBER_MAX:
        raise InvalidArgument(
            f"a member says of at most {HELD_QUEUES_MAX} queues in {TOPICS_PER_MEMBER_MAX} topics"
            f" that it holds them, not of {count} in {len(held)}; leave the rest out"
        )


def leave_group(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Leaves a group and tells the other members, or goes away. Raises NotGroupMember."""
    request, now_ms = decode(LeaveGroup, frame.body), state.clock.monotonic_ms()
    change = state.groups.leave(request, session=connection, now_ms=now_ms)
    if change is not None:
        state.tell([change])
    return (b"",)


def reply(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Passes a reply on to the client that waits for it, at most once.

    Raises:
        ReplyUndeliverable: the client is not connected, or does not read what it is sent.
    """
    request = decode(Reply, frame.body)
    receiver = state.clients.get(request.client_id)
    if receiver is None or receiver.congested:
        why = "is not connected" if receiver is None else "does not read its replies"
        raise ReplyUndeliverable(
            f"client {request.client_id!r} {why}; it must request its result again"
        )
    push = ReplyPush(request.correlation, request.body)
    receiver.push(RequestCode.PUSHED_REPLY, encode(push))
    return (b"",)
