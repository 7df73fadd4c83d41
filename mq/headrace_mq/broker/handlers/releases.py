"""
RELEASE_MESSAGES: messages of a topic kept forever that may go, because they are kept elsewhere.

    every group is past them ─▶ its offsets are on disk ─▶ the mark is on disk ─▶ whole segments go

All topics kept forever share one log. So a segment goes once each topic has released what it has in it;
the broker's timer looks again later.

Called by the dispatcher; uses the broker's releases, offsets and store.
"""

from functools import partial

from headrace_mq._net.server import Connection
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.deletion import FOREVER, delete_released, holding
from headrace_mq.errors import (
    InvalidArgument,
    OffsetOutOfRange,
    StoreFull,
    StoreReadOnly,
    TopicInUse,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.releases import ReleaseAnswer, ReleasedQueue, ReleaseMessages

__all__ = ["release_messages"]


def release_messages(
    state: BrokerState, connection: Connection, frame: Frame
) -> tuple[bytes] | None:
    """Lets messages go, or tells with `dry_run` what hinders; answers when it is on disk.

    Raises:
        TopicNotFound, QueueNotFound: an entry names what does not exist.
        InvalidArgument: the topic is not kept forever, or the broker has an archive.
        OffsetOutOfRange: an offset is beyond its queue's end.
        TopicInUse: a group has not consumed the messages; nothing was released.
    """
    request = decode(ReleaseMessages, frame.body)
    _check(state, request)
    if request.dry_run:
        return (_answer(state, request),)
    # A crash must not take a group back to before what is gone.
    state.offsets.when_durable(partial(_release_later, state, connection, frame, request))
    return None


def _release_later(
    state: BrokerState,
    connection: Connection,
    frame: Frame,
    request: ReleaseMessages,
    error: OSError | None,
) -> None:
    if error is not None:
        sentence = (
            f"nothing was released: the groups' offsets are not on disk ({error}); free some space, then"
            " try again"
        )
        state.answer_later(connection, frame, StoreFull(sentence))
        return
    try:
        answer = _release(state, request)
    except Exception as failure:  # noqa: BLE001 - as in the dispatcher: a failure becomes an answer
        state.answer_later(connection, frame, failure)
    else:
        state.answer_later(connection, frame, answer)


def _release(state: BrokerState, request: ReleaseMessages) -> bytes:
    if state.store.read_only is not None:
        raise StoreReadOnly(state.store.read_only)
    # A group may have been moved back meanwhile.
    _check(state, request)
    identity = state.topics.identity_of(request.topic)
    before = {each.queue_id: each.before for each in request.queues}
    state.releases.release(request.topic, identity, before)
    held = sum(segment.bytes for segment in state.store.segments(FOREVER))
    segments_max = state.settings.store.segments_deleted_max
    deleted = delete_released(state.store, state.released, segments_max)
    left = sum(segment.bytes for segment in state.store.segments(FOREVER))
    return _answer(state, request, segments=deleted, size=held - left)


def _check(state: BrokerState, request: ReleaseMessages) -> None:
    queues = state.topics.queues_of(request.topic)
    known = state.topics.find(request.topic)
    assert known is not None, "its queues are known"
    if known.retention != FOREVER:
        raise InvalidArgument(
            f"topic {request.topic!r} is {known.retention}: its messages go by other rules; only those of"
            " topics kept forever are released"
        )
    if state.archive is not None:
        raise InvalidArgument(
            "this broker has an archive, which keeps all messages; there is nothing to release"
        )
    if len(request.queues) > len(queues):
        raise InvalidArgument(f"topic {request.topic!r} has {len(queues)} queues; name each once")
    for each in request.queues:
        queue = QueueRef(request.topic, each.queue_id)
        state.topics.check(queue)
        first, end = state.range(queue)
        if not 0 <= each.before <= end:
            raise OffsetOutOfRange(
                f"queue {queue.topic}/{queue.queue_id} holds offsets from {first} to {end}, not"
                f" {each.before}"
            )
        if behind := sorted(state.offsets.behind(queue, each.before)):
            group, offset = behind[0]
            raise TopicInUse(
                f"group {group!r} is at offset {offset} of {queue.topic}/{queue.queue_id}, before"
                f" {each.before}: let it consume these messages, or delete the group"
            )


def _answer(
    state: BrokerState, request: ReleaseMessages, *, segments: int = 0, size: int = 0
) -> bytes:
    queues = [
        ReleasedQueue(*queue, *state.range(queue), state.released(queue))
        for queue in state.topics.queues_of(request.topic)
    ]
    topics = holding(state.store.segments(FOREVER), state.released)
    return encode(ReleaseAnswer(queues, segments, size, topics))
