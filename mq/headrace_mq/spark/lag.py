"""
How far a streaming query is behind the topics that it reads.

Used by programs that watch their queries; uses what Spark tells of a query's last micro-batch. Pure: it asks
neither the broker nor Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from headrace_mq.message import QueueRef

__all__ = ["Lag", "lag"]


class Query(Protocol):
    """A streaming query, as far as this module knows it."""

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
        """What its last micro-batch did; None before the first one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Messages that a query has not read.

    Attributes:
        messages: in all queues together.
        queues: in each queue.
    """

    messages: int = 0
    queues: Mapping[QueueRef, int] = field(default_factory=dict)


def lag(query: Query) -> Lag | None:
    """Returns how many messages were behind what a query has read when it last looked for new ones.

    The count is as old as `query.lastProgress["timestamp"]`.

    Args:
        query: reads topics by `format("headrace")`, in a session of any kind.

    Returns:
        The messages; None before the query's first micro-batch.
    """
    progress = query.lastProgress
    if progress is None:
        return None
    queues: dict[QueueRef, int] = {}
    for source in progress["sources"]:
        read, there = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for queue, end in there.items():
            # Of a queue that was added since, all messages are new.
            queues[queue] = max(0, end - read.get(queue, 0))
    return Lag(messages=sum(queues.values()), queues=queues)


def _offsets(told: Any) -> dict[QueueRef, int]:
    """Returns offsets by queue, of a place as the stream writes it; nothing for another source's."""
    try:
        topics = msgspec.json.decode(told) if isinstance(told, str) else told
        places = msgspec.convert(topics, dict[str, dict[str, int]])
        return {
            QueueRef(topic, int(number)): offset
            for topic, each in places.items()
            for number, offset in each.items()
        }
    except (msgspec.MsgspecError, ValueError):
        return {}
