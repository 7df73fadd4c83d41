"""
What the group would lose if a replica led now: what was acknowledged, and its disk does not have, and since when.

    acknowledged ───────────────────────────────▶│        the replica lacks these bytes; the clock runs since the moment
    on the replica's disk ──────────────▶│       │        at which it last had everything that was acknowledged

Where each message is acknowledged by all in sync, those lack nothing. Where the leader acknowledges alone, this is the price.

Used by `followers`, for one epoch: it looks whenever an end moves.
"""

from collections.abc import Collection
from typing import NamedTuple

from headrace_mq._runtime.clock import Clock
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.record import Identity

__all__ = ["NO_LOSS", "PossibleLoss", "PossibleLosses"]


class PossibleLoss(NamedTuple):
    """What a replica lacks of what was acknowledged: bytes of the logs, and for how many ms it has lacked some."""

    bytes: int
    ms: int


NO_LOSS = PossibleLoss(0, 0)


class _Behind(NamedTuple):
    """Since when a replica lacks something; once it has the ends of a later moment, it lacks nothing older than that."""

    since_ms: int
    ends: tuple[int, ...]
    ends_ms: int


class PossibleLosses:
    """What each replica lacks.

    Args:
        leadership: of the epoch.
        logs: the names of those that hold messages.
        clock: the time.
    """

    def __init__(self, leadership: Leadership, logs: Collection[str], clock: Clock) -> None:
        self._leadership = leadership
        self._logs = tuple(logs)
        self._clock = clock
        self._behind: dict[Identity, _Behind] = {}

    def look(self) -> None:
        """Notes who lacks something from now on, and who does no longer."""
        acknowledged = self._acknowledged()
        for member in self._leadership.confirmed | self._leadership.durable.keys():
            has = self._has(member)
            before = self._behind.get(member)
            if _reaches(has, acknowledged):
                if before is not None:
                    del self._behind[member]
            elif before is None:
                now_ms = self._clock.monotonic_ms()
                self._behind[member] = _Behind(now_ms, acknowledged, now_ms)
            elif _reaches(has, before.ends):
                now_ms = self._clock.monotonic_ms()
                self._behind[member] = _Behind(before.ends_ms, acknowledged, now_ms)

    def of(self, member: Identity) -> PossibleLoss:
        """Returns what the group would lose if this member led now.

        Of one that was not heard yet, it is what was acknowledged in this epoch.
        """
        pairs = zip(self._acknowledged(), self._has(member), strict=True)
        lacked = sum(max(0, end - own) for end, own in pairs)
        if not lacked:
            return NO_LOSS
        behind = self._behind.get(member)
        return PossibleLoss(
            lacked, 0 if behind is None else self._clock.monotonic_ms() - behind.since_ms
        )

    def worst(self) -> PossibleLoss:
        """Returns what a failover may lose now: the most that a member lacks which may be elected.

        Any member of the set may be the first that stands, also one that lacks more than another. Bytes and time may be of
        two members. If the leader is alone in the set, no other is elected, so nothing is lost.
        """
        others = self._leadership.confirmed - {self._leadership.me}
        found = [self.of(member) for member in others]
        return PossibleLoss(
            max((one.bytes for one in found), default=0), max((one.ms for one in found), default=0)
        )

    def _acknowledged(self) -> tuple[int, ...]:
        return tuple(map(self._leadership.committed, self._logs))

    def _has(self, member: Identity) -> tuple[int, ...]:
        ends = self._leadership.durable.get(member, self._leadership.begins)
        return tuple(ends.get(log, 0) for log in self._logs)


def _reaches(has: tuple[int, ...], ends: tuple[int, ...]) -> bool:
    return all(own >= end for own, end in zip(has, ends, strict=True))
