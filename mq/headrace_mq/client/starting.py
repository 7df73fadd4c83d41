"""
Finds where newly assigned queues begin.

The group's committed offsets decide, or those the application keeps itself (`load_offsets`); a
queue without one begins where the settings say, except that queues which appeared after the
consumer looked first always begin at their first offset: all they hold is new.

Sits between: `consumer` and the broker's GET_OFFSETS and QUEUE_RANGES.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from headrace_mq._net.link import Link
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    GetOffsets,
    OffsetsAnswer,
    QueueRanges,
    QueueRangesAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

__all__ = ["OffsetLoader", "Start", "find_starts"]

# Given queues, returns the offset to begin with for each; queues may be left out.
OffsetLoader = Callable[[Sequence[QueueRef]], Awaitable[Mapping[QueueRef, int]]]


class Start(NamedTuple):
    """Where a queue begins, whether the group had an offset for it, and what the broker holds."""

    offset: int
    known: bool
    committed: int


async def find_starts(
    link: Link,
    queues: Sequence[QueueRef],
    *,
    group: str,
    settings: ConsumerSettings,
    first_seen: frozenset[QueueRef],
    load_offsets: OffsetLoader | None,
) -> dict[QueueRef, Start]:
    """Looks up where queues begin.

    Args:
        link: the connection.
        queues: queues of existing topics.
        group: whose committed offsets are asked for.
        settings: say where a queue without an offset begins.
        first_seen: the queues that were there when the consumer first looked.
        load_offsets: the application's own offsets instead of the broker's.

    Raises:
        BrokerError, ConnectionLost, RequestTimeout: the broker could not be asked.
        Exception: whatever `load_offsets` raises.
    """
    if load_offsets is None:
        kept: Mapping[QueueRef, int] = await _committed(link, queues, group, settings)
    else:
        kept = await load_offsets(queues)
    starts = {
        queue: Start(kept[queue], known=True, committed=kept[queue])
        for queue in queues
        if kept.get(queue, -1) >= 0
    }
    missing = [queue for queue in queues if queue not in starts]
    if missing:
        ranges = await _ranges(link, missing, settings)
        for queue in missing:
            first, end = ranges[queue]
            latest = settings.start == "latest" and queue in first_seen
            starts[queue] = Start(end if latest else first, known=False, committed=-1)
    return starts


def _topics(queues: Sequence[QueueRef]) -> list[str]:
    return sorted({queue.topic for queue in queues})


async def _committed(
    link: Link, queues: Sequence[QueueRef], group: str, settings: ConsumerSettings
) -> dict[QueueRef, int]:
    body = encode(GetOffsets(group=group, topics=_topics(queues)))
    answer = await link.request(
        RequestCode.GET_OFFSETS, body, timeout_ms=settings.request_timeout_ms
    )
    offsets = decode(OffsetsAnswer, answer).offsets
    return {QueueRef(item.topic, item.queue_id): item.offset for item in offsets}


async def _ranges(
    link: Link, queues: Sequence[QueueRef], settings: ConsumerSettings
) -> dict[QueueRef, tuple[int, int]]:
    body = encode(QueueRanges(topics=_topics(queues)))
    answer = await link.request(
        RequestCode.QUEUE_RANGES, body, timeout_ms=settings.request_timeout_ms
    )
    ranges = decode(QueueRangesAnswer, answer).ranges
    return {QueueRef(item.topic, item.queue_id): (item.first, item.end) for item in ranges}
