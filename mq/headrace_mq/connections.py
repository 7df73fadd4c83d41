"""
How a client calls itself and keeps its connection: what producers and consumers share of their settings.

Values only, as in `settings`.
"""

import string

import msgspec

from headrace_mq._runtime.checks import require, require_pauses, require_vanished

__all__ = ["ConnectionSettings", "require_busy_poll"]

# A client id is a name and a UUID, and has at most 255 bytes.
NAME_CHARACTERS_MAX = 100
# As in the names of topics, but for the sign of those that are the broker's own.
_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
# Who waits longer than this between two messages gains nothing by staying awake.
BUSY_POLL_US_MAX = 100_000


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `ProducerSettings` and `ConsumerSettings` that is about the connection."""

    # What operators and other members know it by: 1 to 100 letters, digits, `.`, `_`, `-`. Empty: a
    # UUID, another one for each start.
    name: str = ""
    # First and longest pause between two connection attempts; doubled in between.
    reconnect_ms_min: int = 50
    reconnect_ms_max: int = 2_000
    # A broker that vanished without a word is noticed after half of this in silence, or after all
    # of it while it acknowledges nothing. Shorter also ends connections to one whose disk stalls.
    vanished_ms_max: int = 10_000
    # How long the event loop looks again and again for the next bytes, in microseconds, instead of going
    # to sleep, while they come no further apart than this: waking up takes longer than the work on a
    # small message. It keeps a processor busy, so 0, never, unless there is one to spare.
    busy_poll_us: int = 0

    def __post_init__(self) -> None:
        require(
            len(self.name) <= NAME_CHARACTERS_MAX and _NAME_CHARACTERS.issuperset(self.name),
            f"name has at most {NAME_CHARACTERS_MAX} letters, digits, '.', '_' and '-', not {self.name!r}",
        )
        require_pauses("reconnect_ms", self.reconnect_ms_min, self.reconnect_ms_max)
        require_vanished(self.vanished_ms_max)
        require_busy_poll(self.busy_poll_us)


def require_busy_poll(busy_poll_us: int) -> None:
    """Raises ValueError for a time that is too long to stay awake."""
    require(0 <= busy_poll_us <= BUSY_POLL_US_MAX, f"busy_poll_us must be 0 to {BUSY_POLL_US_MAX}")
