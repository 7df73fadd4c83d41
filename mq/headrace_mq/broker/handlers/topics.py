"""
DESCRIBE_QUEUES, FREEZE_QUEUES and DELETE_QUEUES: what queues hold, and the way they end.

A queue ends in steps, so that no message is lost by accident: frozen for writing, consumed by every
group, frozen for reading, deleted. Queue numbers stay without gaps, because a key's queue is its
hash modulo their count: only the highest go.

Called by the dispatcher; uses the broker's topics, offsets and store.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from headrace_mq._net.server import Connection
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.groups.offsets import NEVER
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import InvalidArgument, StoreReadOnly, TopicInUse
from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef
from headrace_mq.protocol.administration import (
    DeleteQueues,
    DescribeQueues,
    FreezeQueues,
    QueueDeletion,
    QueueDeletions,
    QueueDescription,
    QueuesAnswer,
)
from headrace_mq.protocol.bodies import TopicsAnswer, decode, encode
from headrace_mq.protocol.frame import Frame

__all__ = [
    "OBSTACLES_MAX",
    "QUEUES_DESCRIBED_MAX",
    "delete_queues",
    "describe_queues",
    "freeze_queues",
]

# As many as one topic has: each may read two pages of an index, and the loop waits for that.
QUEUES_DESCRIBED_MAX = QUEUES_PER_TOPIC_MAX
# Per queue, in an answer and in a refusal's sentence: a client that has solved these asks again.
OBSTACLES_MAX = 8

_log = get_logger(__name__)


def describe_queues(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers the state of each queue of the topics.

    Raises:
        TopicNotFound: there is no such topic.
        InvalidArgument: the topics have too many queues for one answer.
    """
    request = decode(DescribeQueues, frame.body)
    queues = state.topics.queues_of_all(request.topics, at_most=QUEUES_DESCRIBED_MAX)
    return (encode(QueuesAnswer([_described(state, queue) for queue in queues])),)


def freeze_queues(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Freezes queues, or thaws them; fetches that waited for a thawed queue look again.

    Raises:
        TopicNotFound, QueueNotFound: an entry names what does not exist.
        InvalidArgument: neither writing nor reading is meant.
        StoreFull: the disk is full.
    """
    topic, queues = state.topics.freeze(decode(FreezeQueues, frame.body))
    state.long_poll.wake(queues)
    return (encode(TopicsAnswer([topic])),)


def delete_queues(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes] | None:
    """Deletes a topic or its last queues, or tells with `dry_run` what would go and what hinders.

    Raises:
        TopicNotFound: there is no such topic.
        InvalidArgument: it has not that many queues.
        TopicInUse: a queue is not frozen, or not consumed; nothing was deleted.
        StoreFull: the disk is full; nothing was deleted.
    """
    request = decode(DeleteQueues, frame.body)
    doomed = _doomed(state, request)
    if request.dry_run:
        return (encode(QueueDeletions(deleted=False, queues=doomed)),)
    # What was accepted before the freeze may still be on its way to the disk: it counts.
    on_its_way = state.store.durable()
    if on_its_way.done():
        return _delete(state, request)
    on_its_way.add_done_callback(partial(_delete_later, state, connection, frame, request))
    return None


def _delete_later(
    state: BrokerState,
    connection: Connection,
    frame: Frame,
    request: DeleteQueues,
    written: asyncio.Future[None],
) -> None:
    # A write that failed was either taken back or has made the store read-only, which is asked.
    written.cancelled() or written.exception()
    try:
        (answer,) = _delete(state, request)
    except Exception as error:  # noqa: BLE001 - as in the dispatcher: a failure becomes an answer
        state.answer_later(connection, frame, error)
    else:
        state.answer_later(connection, frame, answer)


def _delete(state: BrokerState, request: DeleteQueues) -> tuple[bytes]:
    if state.store.read_only is not None:
        raise StoreReadOnly(state.store.read_only)
    doomed = _doomed(state, request)
    hindered = [queue for queue in doomed if queue.obstacles]
    if hindered:
        first = hindered[0]
        raise TopicInUse(
            f"{len(hindered)} of {len(doomed)} queues cannot be deleted yet:"
            f" {first.topic}/{first.queue_id} {'; '.join(first.obstacles)}"
        )
    queues = [QueueRef(queue.topic, queue.queue_id) for queue in doomed]
    ends = {queue.queue_id: queue.end for queue in doomed}
    state.topics.delete(request.topic, request.keep, ends)
    state.offsets.forget(queues)
    state.forget_traffic(queues)
    # Their answer is that the queue is gone.
    state.long_poll.wake(queues)
    _log.info("queues deleted", topic=request.topic, kept=request.keep, deleted=len(queues))
    return (encode(QueueDeletions(deleted=True, queues=doomed)),)


def _doomed(state: BrokerState, request: DeleteQueues) -> list[QueueDeletion]:
    queues = state.topics.queues_of(request.topic)
    if request.keep:
        state.topics.require_whole([request.topic])
    if not 0 <= request.keep < len(queues):
        raise InvalidArgument(
            f"topic {request.topic!r} has {len(queues)} queues; 0 to {len(queues) - 1} of them can"
            f" stay, not {request.keep}"
        )
    # More than one answer holds of a queue need not be looked at for each of them.
    at_work = state.groups.subscribed(request.topic)[: OBSTACLES_MAX + 1]
    return [
        QueueDeletion(*queue, *state.range(queue), _obstacles(state, queue, at_work))
        for queue in queues[request.keep :]
    ]


def _obstacles(state: BrokerState, queue: QueueRef, at_work: Sequence[str]) -> list[str]:
    """Says what must happen before a queue can go; nothing where it can."""
    first, end = state.range(queue)
    found = []
    if state.topics.is_writable(queue):
        found.append("takes messages: freeze it for writing")
    if state.topics.is_readable(queue):
        found.append("gives messages: freeze it for reading once it is consumed")
    if first < end:
        behind = state.offsets.behind(queue, end)
        some = sorted(behind[:OBSTACLES_MAX])
        left = {group: end - max(offset, first) for group, offset in some}
        new = [group for group in at_work if state.offsets.get(group, queue) == NEVER]
        left |= dict.fromkeys(new, end - first)
        more = len(behind) + len(new) + len(found) - OBSTACLES_MAX
        found += [
            f"has {messages} messages that group {group!r} has not consumed"
            for group, messages in left.items()
        ]
        if more > 0:
            found[OBSTACLES_MAX - 1 :] = [f"and {more + 1} more reasons"]
    return found


def _described(state: BrokerState, queue: QueueRef) -> QueueDescription:
    first, end = state.range(queue)
    holds, now_ms = first < end, state.clock.monotonic_ms()
    return QueueDescription(
        *queue,
        first,
        end,
        writable=state.topics.is_writable(queue),
        readable=state.topics.is_readable(queue),
        first_stored_at_ms=(state.store.stored_at(queue, first) or 0) if holds else 0,
        last_stored_at_ms=(state.store.stored_at(queue, end - 1) or 0) if holds else 0,
        produced=state.produced.read(queue, now_ms),
        fetched=state.fetched.read(queue, now_ms),
    )
