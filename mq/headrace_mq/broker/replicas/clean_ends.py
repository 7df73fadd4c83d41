"""
Which tombstones of compacted topics may go: a leader decides, so that no reader misses one because the leader changed.

    every broker in sync says how far its log is clean ─▶ the lowest end ─(tombstone age later)─▶ tombstones below it may go

Below a broker's clean end no message is left that a tombstone deleted. If all brokers in sync have been clean up to there for as
long as a tombstone stays, no reader of any of them has seen such a message since. A new leader counts that time from its own
beginning. A broker outside the set may still have such messages; it enters once its log is clean up to there, too.

Used by `followers`. It knows positions, and no files.
"""

from collections.abc import Collection

from headrace_mq._runtime.clock import Clock
from headrace_mq.broker.replicas.bodies import LogEnd
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.record import Identity
from headrace_mq.store.compaction.plan import Bounds
from headrace_mq.store.log.commit_log import COMPACT

__all__ = ["CleanEnds"]


class CleanEnds:
    """How far the compacted log of each broker is clean, for the epoch of one leader.

    Args:
        logs: of the leader; they keep the position below which tombstones may go.
        me: the leader.
        clock: measures how long all have been clean.
    """

    def __init__(self, logs: StoreLogs, me: Identity, clock: Clock) -> None:
        self._logs = logs
        self._me = me
        self._clock = clock
        self._told: dict[Identity, int] = {}
        # Since when all are clean up to a position; both grow.
        self._marks: list[tuple[int, int]] = []
        # If messages were lost with a promotion, other messages may stand there.
        logs.tombstones = min(logs.tombstones, logs.end(COMPACT))

    def heard(self, member: Identity, log: LogEnd) -> None:
        """Notes how far a replica's log is clean, and where it has removed tombstones itself."""
        if log.log == COMPACT:
            self._told[member] = log.clean
            removed = min(log.forgotten, self._logs.end(COMPACT))
            self._logs.tombstones = max(self._logs.tombstones, removed)

    def may_enter(self, member: Identity) -> bool:
        """Whether a replica has no message whose tombstone another broker may have removed."""
        return self._told.get(member, 0) >= self._logs.tombstones

    def bounds(self, committed: int, required: Collection[Identity], tombstone_ms: int) -> Bounds:
        """Returns how far the leader may compact its log.

        Args:
            committed: end of its log.
            required: the members of the set, or about to be.
            tombstone_ms: how long a tombstone stays after its key's messages are gone.
        """
        now_ms = self._clock.monotonic_ms()
        own = self._logs.store.raw.compacted(COMPACT).clean
        clean = min([own, *(self._told.get(one, 0) for one in required if one != self._me)])
        marks = self._marks
        while marks and marks[-1][1] > clean:
            marks.pop()
        if clean > (marks[-1][1] if marks else 0):
            marks.append((now_ms, clean))
        old = [position for since_ms, position in marks if since_ms + tombstone_ms <= now_ms]
        if old:
            del marks[: len(old) - 1]
            self._logs.tombstones = max(self._logs.tombstones, old[-1])
        return Bounds(committed, self._logs.tombstones)
