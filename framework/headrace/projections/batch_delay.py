"""
How long the live runner waits after a small batch, so that one transaction serves what comes meanwhile.

Pure.
"""

from typing import Final

__all__ = ["BATCH_INTERVAL_MS", "is_small", "pause_s"]

# A small batch begins at the earliest this long after the one before. What an event costs alone, a
# transaction and its flush, then serves all that came meanwhile; below what a person notices, and an
# event after a silence does not wait at all.
BATCH_INTERVAL_MS: Final = 8
# A batch of so many messages is not small: its transaction costs little compared with them.
_SMALL_MAX: Final = 250


def is_small(messages: int, batch_max: int) -> bool:
    """Whether a batch is worth waiting after, where `batch_max` messages are as many as there can be."""
    return messages < min(_SMALL_MAX, batch_max)


def pause_s(took_s: float, interval_ms: int) -> float:
    """Returns the seconds from the end of a small batch, which took so long, to the next one's begin.

    None after one that took long: messages have gathered meanwhile, and are late already.
    """
    return max(0.0, interval_ms / 1_000 - took_s)
