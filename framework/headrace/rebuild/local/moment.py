"""
A past moment of an event topic, as of which a projection is built: a time, or offsets.

Used by the rebuild in this process; asks the event topic. It must not know a projection.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import ProjectionError
from headrace.rebuild.event_topic import EventTopic
from headrace.transports.base import QueueId

__all__ = ["Moment", "ranges_before"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time, or an offset of each queue; what lies before it counts.

    Attributes:
        text: as a person wrote it.
        at_ms: milliseconds since 1970 UTC, by the broker's clock when it stored an event.
        offsets: by number of a queue.
    """

    text: str
    at_ms: int | None = None
    offsets: Mapping[int, int] | None = None


async def ranges_before(
    topic: EventTopic, moment: Moment, ranges: Mapping[QueueId, tuple[int, int]]
) -> dict[QueueId, tuple[int, int]]:
    """Returns what queues hold before a moment, as `EventTopic.ranges`.

    Args:
        topic: knows when events were stored.
        moment: as of which.
        ranges: the first offset held and the next readable one of every queue.

    Raises:
        ProjectionError: a queue is not named, is none of the topic's, or does not reach so far; or the
            broker is away.
    """
    if moment.offsets is None:
        later = await topic.offsets_at(moment.at_ms or 0)
        return {
            queue: (first, max(first, min(end, later.get(queue, end))))
            for queue, (first, end) in ranges.items()
        }
    held = {number: (first, end) for (_, number), (first, end) in ranges.items()}
    if moment.offsets.keys() != held.keys():
        raise ProjectionError(
            f"as of {moment.text}: name an offset of every queue of the event topic; it has the queues"
            f" {', '.join(map(str, sorted(held)))}"
        )
    for number, offset in moment.offsets.items():
        first, end = held[number]
        if not first <= offset <= end:
            raise ProjectionError(
                f"as of {moment.text}: queue {number} has the offsets from {first} to {end}"
            )
    return {
        (name, number): (first, moment.offsets[number])
        for (name, number), (first, _) in ranges.items()
    }
