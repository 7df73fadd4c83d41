"""
The bodies of LOCK_QUEUES and UNLOCK_QUEUES.

Sits between: frames, and the broker's and the consumer's side of queue locks. Pure.
"""

from headrace_mq.protocol.bodies import Body

__all__ = ["LockQueues", "LocksAnswer", "QueueLock", "QueueName", "UnlockQueues"]


class QueueName(Body, frozen=True):
    """One queue."""

    topic: str
    queue_id: int


class LockQueues(Body, frozen=True):
    """Asks for the locks on some queues; what the member holds already is granted again."""

    group: str
    member: str
    queues: list[QueueName]


class QueueLock(Body, frozen=True):
    """A granted lock; commits name its epoch."""

    topic: str
    queue_id: int
    epoch: int


class LocksAnswer(Body, frozen=True):
    """The locks that were granted; the others are held by somebody else.

    A member that sent no heartbeat for `expiry_ms` may have lost them to others.
    """

    locks: list[QueueLock]
    expiry_ms: int


class UnlockQueues(Body, frozen=True):
    """Gives locks back; locks of others stay as they are."""

    group: str
    member: str
    queues: list[QueueName]
