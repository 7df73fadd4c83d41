"""
The bodies of RELEASE_MESSAGES: messages of a topic kept forever that may go after all.

The rules of `bodies` hold here too: a struct only grows at its end, with defaults.

Used by the broker's handler and by `admin`. Pure.
"""

import msgspec

from headrace_mq.protocol.bodies import Body

__all__ = ["QueueRelease", "ReleaseAnswer", "ReleaseMessages", "ReleasedQueue"]


class QueueRelease(Body, frozen=True):
    """The messages of a queue below an offset may go."""

    queue_id: int
    before: int


class ReleaseMessages(Body, frozen=True):
    """Lets the broker delete messages of a topic; `dry_run` only tells what hinders."""

    topic: str
    queues: list[QueueRelease]
    dry_run: bool = False


class ReleasedQueue(Body, frozen=True):
    """A queue of the topic: what it holds, and below which offset it may go."""

    topic: str
    queue_id: int
    first: int
    end: int
    released: int


class ReleaseAnswer(Body, frozen=True):
    """The answer to RELEASE_MESSAGES.

    `segments` and `bytes` went with this request. `holding` names some of the topics of which the
    oldest segment that is left holds messages that may not go; it is empty where that is the active one.
    """

    queues: list[ReleasedQueue]
    segments: int = 0
    bytes: int = 0
    holding: list[str] = msgspec.field(default_factory=list)
