"""
How long a runner waits when a handler says that a system it needs is away.

    every call of the handler fails       wait as long as it takes: the system is away
    this call fails, while other calls    the time since the last such failure counts, but at most a
    of the handler succeed                fifth of `ms_max` each time, because a long outage may just
                                          have ended; at `ms_max` the event has failed

Used by the runner of event handlers. Pure.
"""

from collections import Counter
from typing import Final

from headrace.handlers.event_handlers import EventHandler

__all__ = ["Claim", "Claims"]

# Failed attempts before an event's time is used up, at least.
_CHARGES_MIN: Final = 5


class Claims:
    """Counts the successful calls of one processor's handlers.

    Args:
        ms_max: how long one call may fail with outages while other calls succeed, in milliseconds.
    """

    def __init__(self, ms_max: int) -> None:
        self._ms_max = ms_max
        self._successes: Counter[EventHandler] = Counter()

    def succeeded(self, handler: EventHandler) -> None:
        """Notes a successful call of a handler."""
        self._successes[handler] += 1

    def successes(self, handler: EventHandler) -> int:
        """Returns how many calls of a handler have succeeded."""
        return self._successes[handler]

    def begin(self, handler: EventHandler, now_ms: int) -> "Claim":
        """Returns the claim of a call that has failed with an outage for the first time."""
        return Claim(self, handler, now_ms, self._ms_max)


class Claim:
    """One call that has failed with an outage, and is retried."""

    __slots__ = ("_at_ms", "_charge_ms_max", "_claims", "_handler", "_left_ms", "_seen")

    def __init__(self, claims: Claims, handler: EventHandler, now_ms: int, ms_max: int) -> None:
        self._claims = claims
        self._handler = handler
        self._at_ms = now_ms
        self._left_ms: float = ms_max
        self._charge_ms_max = ms_max / _CHARGES_MIN
        self._seen = claims.successes(handler)

    def again(self, now_ms: int) -> bool:
        """Notes another failure with an outage; returns whether to retry once more."""
        seen = self._claims.successes(self._handler)
        if seen > self._seen:
            self._left_ms -= min(now_ms - self._at_ms, self._charge_ms_max)
            self._seen, self._at_ms = seen, now_ms
        return self._left_ms > 0
