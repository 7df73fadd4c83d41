"""
LOCK_QUEUES and UNLOCK_QUEUES: who handles a queue.

Called by the dispatcher; uses the broker's `locks`.
"""

from headrace_mq._net.server import Connection
from headrace_mq.broker.groups.locks import Owner
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import InvalidArgument
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    LockQueues,
    LocksAnswer,
    QueueLock,
    QueueName,
    UnlockQueues,
    decode,
    encode,
)
from headrace_mq.protocol.frame import Frame

__all__ = ["LOCKS_PER_REQUEST_MAX", "lock_queues", "unlock_queues"]

# As many as the queues of one fetch.
LOCKS_PER_REQUEST_MAX = 1_024


def lock_queues(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Grants the locks that are free, and answers which.

    Raises:
        NotGroupMember: the member must join first, on this connection.
        TopicNotFound, QueueNotFound: a queue does not exist; nothing was granted.
        InvalidArgument: too many queues.
    """
    request = decode(LockQueues, frame.body)
    _check_count(request.queues)
    state.groups.require_member(request.group, request.member, session=connection)
    queues = [QueueRef(queue.topic, queue.queue_id) for queue in request.queues]
    for queue in queues:
        # Frozen or not: the question is whether it exists.
        state.topics.is_readable(queue)
    owner = Owner(request.group, request.member, connection)
    granted = state.locks.lock(owner, queues, now_ms=state.clock.monotonic_ms())
    locks = [QueueLock(*queue, epoch) for queue, epoch in granted.items()]
    return (encode(LocksAnswer(locks, state.settings.lock_expiry_ms)),)


def unlock_queues(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Frees the member's locks; without locks, or with lost ones, nothing changes.

    Raises:
        InvalidArgument: too many queues.
    """
    request = decode(UnlockQueues, frame.body)
    _check_count(request.queues)
    owner = Owner(request.group, request.member, connection)
    state.locks.unlock(owner, [QueueRef(item.topic, item.queue_id) for item in request.queues])
    return (b"",)


def _check_count(queues: list[QueueName]) -> None:
    if len(queues) > LOCKS_PER_REQUEST_MAX:
        raise InvalidArgument(
            f"a request names at most {LOCKS_PER_REQUEST_MAX} queues, not {len(queues)}; ask in parts"
        )
