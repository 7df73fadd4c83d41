"""
How long small batches are put off, so that one transaction serves all that comes meanwhile.

Sits between: the live runner, which waits, and nothing else. Pure.
"""

from typing import Final

__all__ = ["BATCH_INTERVAL_MS", "interval_s", "is_small"]

# A small batch begins at the earliest this long after the one before. What an event costs alone, a
# transaction and its flush, then serves all that came meanwhile; below what a person notices, and an
# event after a silence does not wait at all.
BATCH_INTERVAL_MS: Final = 10
# Where a transaction takes long, small batches take at most one part in so many of the time …
_SHARE: Final = 2
# … and an event waits at most this many intervals for them.
_INTERVALS_MAX: Final = 4
# A batch of so many messages is not small: its transaction costs little beside them.
_SMALL_MAX: Final = 250


def is_small(messages: int, batch_max: int) -> bool:
    """Whether a batch is worth waiting after, where `batch_max` messages are as many as there can be."""
    return messages < min(_SMALL_MAX, batch_max)


def interval_s(took_s: float, least_ms: int) -> float:
    """Returns the seconds from the begin of a small batch, which took so long, to the next one's."""
    least_s = least_ms / 1_000
    return max(least_s, min(_SHARE * took_s, _INTERVALS_MAX * least_s))
