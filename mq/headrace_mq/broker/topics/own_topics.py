"""
The broker's own topics: its two journals and its audit, and what clients may not do to them. PURE.

Used by `topics`, which keeps them like all others.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headrace_mq.access.audit import AUDIT_ALONE, AUDIT_TOPIC, KINDS
from headrace_mq.broker.topics.kept import KeptTopic
from headrace_mq.errors import (
    BrokerError,
    InvalidArgument,
    NotPermitted,
    QueueFrozen,
    TopicInUse,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import CreateTopic
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC
from headrace_mq.protocol.transactions import TRANSACTION_TOPIC

__all__ = [
    "JOURNALS",
    "NOT_BY_NAME",
    "audit_topic",
    "frozen_error",
    "refuse_create",
    "refuse_delete",
    "refuse_freeze",
]

# One order each, and deleted like other short-lived messages.
JOURNALS: Final[Mapping[str, str]] = MappingProxyType(
    {SCHEDULE_TOPIC: "the scheduled messages", TRANSACTION_TOPIC: "undecided transactions"}
)
_JOURNAL_RETENTION = "transient"
# A message does not make these by naming them: what they hold says for how long it is kept.
NOT_BY_NAME: Final = ("%DLQ%", "%MARK%", AUDIT_TOPIC)


def audit_topic(kept: KeptTopic | None, retention: str) -> KeptTopic:
    """Returns the topic of the audit: closed for clients, with a queue for each kind of entry.

    Args:
        kept: as it is; None: it is made.
        retention: for one that is made.
    """
    every = tuple(range(len(KINDS)))
    return KeptTopic(
        len(KINDS), retention if kept is None else kept.retention, unwritable=every, settled=False
    )


def frozen_error(queue: QueueRef) -> BrokerError:
    """Returns the error for a message to a queue that is frozen for writing."""
    if queue.topic == AUDIT_TOPIC:
        return NotPermitted(AUDIT_ALONE)
    return QueueFrozen(
        f"queue {queue.topic}/{queue.queue_id} is frozen for writing; send to another queue"
        " of the topic, or wait until it is thawed"
    )


def refuse_create(request: CreateTopic, kept: KeptTopic | None) -> None:
    """Raises what is wrong with a client's wish for one of these topics.

    Raises:
        InvalidArgument: a journal has one queue and is transient.
        NotPermitted: the broker makes its audit itself.
    """
    topic = request.topic
    if topic in JOURNALS and (request.queues > 1 or request.retention != _JOURNAL_RETENTION):
        raise InvalidArgument(f"{topic} has one queue and is transient; ask for that")
    if topic == AUDIT_TOPIC and (kept is None or request.queues > kept.queues):
        raise NotPermitted(AUDIT_ALONE)


def refuse_freeze(topic: str) -> None:
    """Raises NotPermitted for the audit: to freeze it would hide it, and to thaw it would let clients write."""
    if topic == AUDIT_TOPIC:
        raise NotPermitted(AUDIT_ALONE)


def refuse_delete(topic: str) -> None:
    """Raises TopicInUse for a journal, NotPermitted for the audit."""
    if topic in JOURNALS:
        raise TopicInUse(f"{topic} holds {JOURNALS[topic]}; cancel or decide these instead")
    refuse_freeze(topic)
