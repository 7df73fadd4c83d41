"""
Outages that handlers claim: waited out while they are everybody's, and not for ever where they are one's.

    every call of a handler fails         nothing is charged: what it needs is away, and it waits
    a call fails, others of the handler   the time since the last charge is charged, of which a fifth
    succeed meanwhile                     of `ms_max` at most, lest the end of a long outage be taken
                                          for health; when `ms_max` is charged, it is no outage but a
                                          failure of its event

Sits between: the loop of event handlers, which makes the attempts, and what came of them. Pure.
"""

from collections import Counter
from typing import Final

from headrace.handlers.event_handlers import EventHandler

__all__ = ["Claim", "Claims"]

# Attempts that an event has at least before its time of outage is used up, however long each took.
_CHARGES_MIN: Final = 5


class Claims:
    """What the handlers of one processor have met.

    Args:
        ms_max: how long one call may claim an outage that others do not meet.
    """

    def __init__(self, ms_max: int) -> None:
        self._ms_max = ms_max
        self._successes: Counter[EventHandler] = Counter()

    def succeeded(self, handler: EventHandler) -> None:
        """Notes that what a handler needs is there."""
        self._successes[handler] += 1

    def successes(self, handler: EventHandler) -> int:
        """Returns how many calls of a handler have succeeded."""
        return self._successes[handler]

    def begin(self, handler: EventHandler, now_ms: int) -> "Claim":
        """Returns the claim of a call whose attempt has met an outage."""
        return Claim(self, handler, now_ms, self._ms_max)


class Claim:
    """One call that has claimed an outage, and may again."""

    __slots__ = ("_at_ms", "_charge_ms_max", "_claims", "_handler", "_left_ms", "_seen")

    def __init__(self, claims: Claims, handler: EventHandler, now_ms: int, ms_max: int) -> None:
        self._claims = claims
        self._handler = handler
        self._at_ms = now_ms
        self._left_ms: float = ms_max
        self._charge_ms_max = ms_max / _CHARGES_MIN
        self._seen = claims.successes(handler)

    def again(self, now_ms: int) -> bool:
        """Notes that another attempt has met an outage; returns whether it may be waited out."""
        seen = self._claims.successes(self._handler)
        if seen > self._seen:
            self._left_ms -= min(now_ms - self._at_ms, self._charge_ms_max)
            self._seen, self._at_ms = seen, now_ms
        return self._left_ms > 0
