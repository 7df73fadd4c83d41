"""
Topics with what they hold: the rows of `headrace topic list`, and of the console's list of topics.

Used by the command line and the console; uses `AdminClient`, with one request for a few hundred topics.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the help text must not wait for the queue
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.protocol.administration import QueueDescription, Traffic
    from headrace_mq.protocol.bodies import TopicDescription

__all__ = ["frozen_queues", "frozen_sides", "topic_rows"]


async def topic_rows(
    admin: "AdminClient", topics: "Sequence[TopicDescription]"
) -> list[dict[str, Any]]:
    """Returns a row for each topic: its queues, the messages that they hold, and how fast they come and go.

    Args:
        admin: a connection to the broker.
        topics: which.

    Raises:
        TopicNotFound: one was deleted meanwhile.
        NotPermitted: this user may not read one of them.
    """
    held: dict[str, list[QueueDescription]] = {topic.topic: [] for topic in topics}
    for queue in await admin.queues(topics):
        held[queue.topic].append(queue)
    return [
        {
            "topic": topic.topic,
            "queues": topic.queues,
            "retention": topic.retention,
            "messages": sum(one.end - one.first for one in held[topic.topic]),
            "unwritable": topic.unwritable,
            "unreadable": topic.unreadable,
            "produced": _total(one.produced for one in held[topic.topic]),
            "fetched": _total(one.fetched for one in held[topic.topic]),
        }
        for topic in topics
    ]


def frozen_queues(unwritable: Sequence[int], unreadable: Sequence[int]) -> str:
    """Writes which queues are frozen, for what; empty for none."""
    sides = (("writing", unwritable), ("reading", unreadable))
    return ", ".join(f"{side}: {' '.join(map(str, queues))}" for side, queues in sides if queues)


def frozen_sides(*, writing: bool, reading: bool) -> str:
    """Writes what one queue is frozen for; empty for nothing."""
    return ", ".join(side for side, is_so in (("writing", writing), ("reading", reading)) if is_so)


def _total(parts: "Iterable[Traffic]") -> "Traffic":
    from headrace_mq.protocol.administration import Traffic

    held = list(parts)
    sums = (sum(getattr(part, name) for part in held) for name in Traffic.__struct_fields__)
    return Traffic(*sums)
