"""
COMMIT_OFFSETS, GET_OFFSETS and OFFSETS_AT: where a group stands, and what stood where when.

Called by the dispatcher; uses the broker's `offsets`.
"""

from headrace_mq._net.server import Connection
from headrace_mq.broker.groups.locks import Owner
from headrace_mq.broker.handlers.sessions import check_name
from headrace_mq.broker.quotas.creations import OFFSETS
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.topics import QUEUES_PER_REQUEST_MAX
from headrace_mq.errors import InvalidArgument, NotGroupMember, OffsetOutOfRange
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import OffsetsAt
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    GetOffsets,
    OffsetsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.frame import Frame

__all__ = ["commit_offsets", "get_offsets", "offsets_at"]


def commit_offsets(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Stores offsets, all of them or none.

    Raises:
        NotGroupMember: the member must join again.
        GroupNotEmpty: administration of a group that has members.
        StaleLock: a queue's lock was lost, or another member holds it.
        TopicNotFound, QueueNotFound, OffsetOutOfRange: an entry names what does not exist.
        InvalidArgument: there are too many offsets.
        Throttled: clients of this address made too many new ones in the last minute.
    """
    request = decode(CommitOffsets, frame.body)
    check_name("group", request.group)
    if len(request.offsets) > QUEUES_PER_REQUEST_MAX:
        raise InvalidArgument(
            f"one request commits at most {QUEUES_PER_REQUEST_MAX} offsets, not"
            f" {len(request.offsets)}; commit in parts"
        )
    administration = not request.member
    if administration:
        state.groups.require_idle(request.group)
    else:
        _check_member(state, connection, request)
        _check_locks(state, connection, request)
    offsets = [(QueueRef(item.topic, item.queue_id), item.offset) for item in request.offsets]
    for queue, offset in offsets:
        _check_offset(state, queue, offset)
    state.offsets.commit(
        request.group,
        offsets,
        backwards=administration,
        may_make=state.may_make(connection, OFFSETS),
    )
    if state.limited:
        state.look_at_backlogs()
    return (b"",)


def get_offsets(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers one offset per queue of the topics. Raises TopicNotFound, InvalidArgument."""
    request = decode(GetOffsets, frame.body)
    queues = state.topics.queues_of_all(request.topics, at_most=QUEUES_PER_REQUEST_MAX)
    found = [CommittedOffset(*queue, state.offsets.get(request.group, queue)) for queue in queues]
    return (encode(OffsetsAnswer(found)),)


def offsets_at(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers for each queue the first offset stored at a time or later.

    Raises:
        TopicNotFound: there is no such topic.
        InvalidArgument: the topics have too many queues for one answer.
    """
    request = decode(OffsetsAt, frame.body)
    queues = state.topics.queues_of_all(request.topics, at_most=QUEUES_PER_REQUEST_MAX)
    found = [CommittedOffset(*queue, state.offset_at(queue, request.time_ms)) for queue in queues]
    return (encode(OffsetsAnswer(found)),)


def _check_member(state: BrokerState, connection: Connection, request: CommitOffsets) -> None:
    state.groups.require_member(request.group, request.member, session=connection)
    # A member that has not heard of the newest generation yet may still report what it finished.
    if request.generation > state.groups.view(request.group).generation:
        raise NotGroupMember(
            f"group {request.group!r} has not reached generation {request.generation}; join again"
        )


def _check_locks(state: BrokerState, connection: Connection, request: CommitOffsets) -> None:
    owner = Owner(request.group, request.member, connection)
    now_ms = state.clock.monotonic_ms()
    for item in request.offsets:
        queue = QueueRef(item.topic, item.queue_id)
        state.locks.check(owner, queue, item.lock_epoch, now_ms=now_ms)


def _check_offset(state: BrokerState, queue: QueueRef, offset: int) -> None:
    state.topics.check(queue)
    _, end = state.range(queue)
    if not 0 <= offset <= end:
        raise OffsetOutOfRange(
            f"queue {queue.topic}/{queue.queue_id} ends at offset {end}; a group can stand at 0 to"
            f" {end}, not at {offset}"
        )
