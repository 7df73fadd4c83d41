"""
One look at a broker: its status, the states of queues, groups and connections.

    sample ── a second later ── sample  ─▶  `rates`

Used by `headrace top` and the console; it uses requests that only read, and leaves out what this user may not read.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.figures.questions import Questions

if TYPE_CHECKING:  # the help text must not wait for the queue
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.protocol.administration import (
        BrokerStatus,
        ConnectionDescription,
        GroupSummary,
        QueueDescription,
    )

__all__ = ["GROUPS_AGED_MAX", "TopSample", "take_sample"]

# Groups whose oldest message is asked for at each look, those with the most messages first: three requests each.
GROUPS_AGED_MAX: Final = 20


class TopSample(NamedTuple):
    """One look at a broker.

    Attributes:
        at_ms: when, by a clock that is never set.
        status: of the broker; None: it may not be read.
        queues: states of the queues of all topics.
        groups: all groups.
        oldest_ms: for how long the oldest message waits for a group, by name, where it was asked.
        connections: all connections.
        denied: sentences about what this user may not read.
    """

    at_ms: int
    status: "BrokerStatus | None"
    queues: "Sequence[QueueDescription]"
    groups: "Sequence[GroupSummary]"
    oldest_ms: Mapping[str, int]
    connections: "Sequence[ConnectionDescription]"
    denied: Sequence[str] = ()


async def take_sample(
    admin: "AdminClient", *, aged: int = GROUPS_AGED_MAX, with_queues: bool = True
) -> TopSample:
    """Returns what a broker holds and does at this moment.

    Args:
        admin: a connection to the broker.
        aged: groups whose oldest message is asked for at most.
        with_queues: whether to ask for the states of all queues, which is most of the work.

    Raises:
        MessageQueueError: the broker does not answer.
    """
    questions = Questions(admin)
    status: BrokerStatus | None = await questions.may(admin.status(), None)
    at_ms = time.monotonic_ns() // 1_000_000
    queues: Sequence[QueueDescription] = []
    if with_queues:
        _, queues = await questions.queues(lambda _: True)
    groups: list[GroupSummary] = await questions.may(admin.groups(), [])
    connections: list[ConnectionDescription] = await questions.may(admin.connections(), [])
    oldest = await questions.oldest(groups, aged)
    return TopSample(at_ms, status, queues, groups, oldest, connections, questions.denied)
