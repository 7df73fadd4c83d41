"""
The bodies of administration: queues to freeze and to delete, and what they hold.

The rules of `bodies` hold here too: a struct only grows at its end, with defaults.

Sits between: the broker's administrative handlers and `admin`. Pure.
"""

from headrace_mq.protocol.bodies import Body

__all__ = [
    "DeleteQueues",
    "DescribeQueues",
    "DoomedQueue",
    "DoomedQueues",
    "FreezeQueues",
    "QueueDescription",
    "QueuesAnswer",
]


class DescribeQueues(Body, frozen=True):
    """Asks for the state of all queues of the topics."""

    topics: list[str]


class QueueDescription(Body, frozen=True):
    """One queue: its range, whether it is open, and when its first and last message were stored.

    The times are 0 where the queue holds nothing.
    """

    topic: str
    queue_id: int
    first: int
    end: int
    writable: bool
    readable: bool
    first_stored_at_ms: int
    last_stored_at_ms: int


class QueuesAnswer(Body, frozen=True):
    """The answer to DESCRIBE_QUEUES."""

    queues: list[QueueDescription]


class FreezeQueues(Body, frozen=True):
    """Freezes queues of a topic, or opens them again with `frozen` false; no numbers: all.

    Asked for neither `writing` nor `reading`, it is refused.
    """

    topic: str
    queues: list[int]
    writing: bool
    reading: bool
    frozen: bool


class DeleteQueues(Body, frozen=True):
    """Deletes a topic's queues from number `keep` on: all of the topic with 0."""

    topic: str
    keep: int = 0
    dry_run: bool = False


class DoomedQueue(Body, frozen=True):
    """A queue that DELETE_QUEUES names: what goes with it, and why it cannot go yet."""

    topic: str
    queue_id: int
    first: int
    end: int
    obstacles: list[str]


class DoomedQueues(Body, frozen=True):
    """The answer to DELETE_QUEUES; `deleted` is false after a dry run."""

    deleted: bool
    queues: list[DoomedQueue]
