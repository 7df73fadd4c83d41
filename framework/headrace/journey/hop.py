"""
A journey as hops: each follows an earlier one, and says when it was and whether the way goes on behind it.

    sent ─▶ queued ─▶ handled ─▶ stored ─▶ published ─┬▶ applied by balances
                                                      └▶ reacted to by transfers ─▶ commanded

Used by the parts that read the broker and the databases, which add hops, and by the console and the command line, which
show them. Pure.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import urlencode

__all__ = ["CAUSES", "LANES", "STEPS", "Hop", "HopLane", "Journey", "page_of"]

HopLane = Literal["sender", "queue", "handler", "store", "topic", "reader"]
HopState = Literal["done", "waits", "stopped", "unknown"]

# From left to right, as a picture has them.
LANES: Final[tuple[HopLane, ...]] = ("sender", "queue", "handler", "store", "topic", "reader")
# What a hop may be; of those from "delivered" to "dead letter" consumers tell that trace.
STEPS: Final = (
    "sent", "queued", "read", "handled", "rejected", "unchanged", "stored", "published", "answered", "announced",
    "applied", "reacted", "commanded", "parked", "damaged",
    "delivered", "begun", "acknowledged", "failed", "retried", "dead letter",
)  # fmt: skip
# Why a journey stands somewhere; empty: it does not.
CAUSES: Final = (
    "no consumer", "group paused", "projection paused", "projection waits", "waits its turn", "parked", "held",
    "retrying", "dead letter", "not published", "not sent", "not due", "not kept", "not permitted",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One step of a journey.

    Attributes:
        number: its place in the list, from 1.
        after: the number of the hop that it follows; None: it begins the journey.
        lane: where it happens, one of `LANES`.
        step: what happens, one of `STEPS`.
        name: of what it happens to or who does it, such as a message id or a group.
        at_ms: when, in ms since 1970 UTC, by the clock of who did it; None: nothing says when.
        took_ms: since the last hop before it that has a time; may be below 0 where two clocks differ. None: not known.
        state: "done"; "waits": it goes on by itself; "stopped": it does not; "unknown".
        cause: why it is not done, one of `CAUSES`; empty: it is, or nothing says why.
        detail: more, in a sentence.
        page: the path of the console's page about it; empty: there is none.
    """

    number: int
    after: int | None
    lane: HopLane
    step: str
    name: str
    at_ms: int | None = None
    took_ms: int | None = None
    state: HopState = "done"
    cause: str = ""
    detail: str = ""
    page: str = ""


class Journey:
    """The hops of one journey, as they are found.

    Attributes:
        hops: in their order: each after the one that it follows.
    """

    def __init__(self) -> None:
        self.hops: list[Hop] = []

    def add(self, after: int | None, lane: HopLane, step: str, name: str, **more: Any) -> int:
        """Adds a hop, and returns its number.

        Args:
            after: the number of the hop that it follows; None: it begins the journey.
            lane: where it happens.
            step: what happens.
            name: of what it happens to or who does it.
            more: other attributes of `Hop`.
        """
        number, at_ms = len(self.hops) + 1, more.get("at_ms")
        before_ms = self._time_before(after)
        took_ms = None if at_ms is None or before_ms is None else at_ms - before_ms
        self.hops.append(
            Hop(
                number=number, after=after, lane=lane, step=step, name=name, took_ms=took_ms, **more
            )
        )
        return number

    def arranged(self) -> list[Hop]:
        """Returns the hops with new numbers, each with all that follows from it right behind it."""
        following: dict[int | None, list[Hop]] = defaultdict(list)
        for one in self.hops:
            following[one.after].append(one)
        found: list[Hop] = []
        # A list of what is still to place, the next one last: a journey may have more hops than calls may be nested.
        left: list[tuple[Hop, int | None]] = [(one, None) for one in reversed(following[None])]
        while left:
            one, placed = left.pop()
            found.append(replace(one, number=len(found) + 1, after=placed))
            left += [(each, len(found)) for each in reversed(following[one.number])]
        return found

    def plain(self) -> list[dict[str, Any]]:
        """Returns the hops as JSON values, arranged."""
        return [asdict(one) for one in self.arranged()]

    def _time_before(self, after: int | None) -> int | None:
        while after is not None:
            hop = self.hops[after - 1]
            if hop.at_ms is not None:
                return hop.at_ms
            after = hop.after
        return None


def page_of(path: str, query: Mapping[str, object]) -> str:
    """Returns the address of a page of the console.

    Args:
        path: such as `/group`.
        query: its fields.
    """
    return f"{path}?{urlencode(query)}" if query else path
