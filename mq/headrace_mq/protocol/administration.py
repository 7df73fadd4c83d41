"""
The bodies of administration: of queues and their end, and of the offsets of groups.

The rules of `bodies` hold here too: a struct only grows at its end, with defaults.

Sits between: the broker's administrative handlers and `admin`. Pure.
"""

import msgspec

from headrace_mq.protocol.bodies import Body

__all__ = [
    "CloneOffsets",
    "DeleteGroup",
    "DeleteQueues",
    "DescribeQueues",
    "DoomedQueue",
    "DoomedQueues",
    "FreezeQueues",
    "OffsetMove",
    "OffsetMoves",
    "OffsetsAt",
    "QueueDescription",
    "QueuesAnswer",
    "ResetOffsets",
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


class OffsetsAt(Body, frozen=True):
    """Asks for the first offset stored at a time or later, of all queues of the topics."""

    topics: list[str]
    time_ms: int


class ResetOffsets(Body, frozen=True):
    """Moves an idle group: `to` is "earliest", "latest", "offset", "time" or "shift".

    `value` is the offset, the time in milliseconds since 1970 UTC, or how many messages to go
    forward (negative: back). No topics: all that the group committed offsets in. No queue numbers:
    all queues.
    """

    group: str
    to: str
    value: int = 0
    topics: list[str] = msgspec.field(default_factory=list)
    queues: list[int] = msgspec.field(default_factory=list)
    dry_run: bool = False


class CloneOffsets(Body, frozen=True):
    """Lets an idle group stand where another one stands; no topics: all of the source's."""

    source: str
    target: str
    topics: list[str] = msgspec.field(default_factory=list)
    dry_run: bool = False


class DeleteGroup(Body, frozen=True):
    """Drops all offsets of an idle group."""

    group: str
    dry_run: bool = False


class OffsetMove(Body, frozen=True):
    """One offset of a group, before and after; -1 where there is none.

    `redelivered` counts the messages held that the group had passed and would be given again,
    `skipped` those that it had not reached and would never be given.
    """

    topic: str
    queue_id: int
    first: int
    end: int
    before: int
    after: int
    redelivered: int
    skipped: int


class OffsetMoves(Body, frozen=True):
    """The answer to RESET_OFFSETS, CLONE_OFFSETS and DELETE_GROUP; not `moved`: a dry run."""

    moved: bool
    moves: list[OffsetMove]
