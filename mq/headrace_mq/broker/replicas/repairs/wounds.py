"""
One damaged place of a log: which peers were asked for it, and which of them have nothing.

Used by `repairs`, which has all of them. Pure.
"""

from collections.abc import Mapping

from headrace_mq.store.message_store import Damage

__all__ = ["WAIT_MS_MAX", "Place", "Wound"]

# Readers wait this long for a damaged batch: some round trips of a slow network, and half of what a client waits for an
# answer at least.
WAIT_MS_MAX = 2_000

# The name of a log, and a position.
Place = tuple[str, int]


class Wound:
    """One damaged place.

    Attributes:
        damage: what is known of it.
        found_ms: when it was found.
        unindexed: whether the start left it out, so that only another start can take it in again.
        hoped_ms: when each peer was first known to have its log up to here, or was first asked, whichever is later.
        asked_ms: when each peer was asked last.
        empty: the peers that have no sound bytes for it.
        compacted: those of them that compacted the log there, and so have its messages in other bytes.
        queues: of readers that wait for it.
        wakes: whether these readers come back at a set time.
        trouble: why the last bytes were not taken, so that it is said once.
        is_written: whether sound bytes are being written there.
    """

    def __init__(self, damage: Damage, found_ms: int, *, unindexed: bool) -> None:
        self.damage = damage
        self.found_ms = found_ms
        self.unindexed = unindexed
        self.hoped_ms: dict[str, int] = {}
        self.asked_ms: dict[str, int] = {}
        self.empty: set[str] = set()
        self.compacted: set[str] = set()
        self.queues = {damage.queue} if damage.queue is not None else set()
        self.wakes = False
        self.trouble = ""
        self.is_written = False

    def renew(self, now_ms: int) -> None:
        """Forgets all that peers said: they may be others from now on."""
        self.found_ms = now_ms
        self.hoped_ms.clear()
        self.asked_ms.clear()
        self.empty.clear()
        self.compacted.clear()

    def until_ms(self, peers: Mapping[str, int]) -> int:
        """Returns until when one of these peers may bring bytes; 0: all of them are known to have none.

        Args:
            peers: since when each of them is there.
        """
        since = [
            max(self.found_ms, there_ms, self.hoped_ms.get(peer, 0))
            for peer, there_ms in peers.items()
            if peer not in self.empty
        ]
        return max(since) + WAIT_MS_MAX if since else 0
