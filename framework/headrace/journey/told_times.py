"""
When the consumers of groups got a message and were done with it, as those told that trace.

    orders:3:1042  ─▶  shop.commands  got it at 12:00:00.120, was done at 12:00:00.131

Used by the parts that add an application's own readers; those of other groups are added with each step by `groups`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.figures.records import id_of
from headrace.journey.groups import NO_ANSWER, steps_of
from headrace.journey.hop import HopLane, Journey, page_of
from headrace_mq.admin.client import AdminClient
from headrace_mq.message import Record

__all__ = ["NOT_TOLD", "ToldTimes", "add_delivered", "told_times"]


class ToldTimes(NamedTuple):
    """When a group's consumer got a message, and was done with it.

    Attributes:
        delivered_ms: in ms since 1970 UTC, by the consumer's clock; of several times the last one before it was done, or of
            all if it was not. None: it is not told.
        done_ms: when it was acknowledged; None: it was not, or that is not told.
    """

    delivered_ms: int | None = None
    done_ms: int | None = None


NOT_TOLD = ToldTimes()


async def told_times(admin: AdminClient, record: Record | None) -> Mapping[str, ToldTimes]:
    """Returns the times of a message by group; none where nothing tells, or the broker does not say.

    Args:
        admin: asks the broker.
        record: the message; None: it is not kept.
    """
    if record is None:
        return {}
    try:
        told = await steps_of(admin, id_of(record))
    except NO_ANSWER:
        return {}
    found = {}
    for group, steps in told.items():
        done = next((one.at_ms for one in reversed(steps) if one.kind == "acknowledged"), None)
        delivered = [
            one.at_ms
            for one in steps
            if one.kind == "delivered" and (done is None or one.at_ms <= done)
        ]
        found[group] = ToldTimes(delivered[-1] if delivered else None, done)
    return found


def add_delivered(
    journey: Journey, after: int, lane: HopLane, group: str, times: Mapping[str, ToldTimes]
) -> int:
    """Adds when a group's consumer got a message, if it told; returns the hop that the next one follows.

    Args:
        journey: gets the hop.
        after: the hop that says where the message is.
        lane: of the hop.
        group: of the consumer.
        times: of `told_times`.
    """
    at_ms = times.get(group, NOT_TOLD).delivered_ms
    if at_ms is None:
        return after
    page = page_of("/group", {"group": group})
    return journey.add(after, lane, "delivered", group, at_ms=at_ms, page=page)
