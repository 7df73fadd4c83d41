"""
Live aggregates kept in memory between commands: bounded by count, forgotten when idle.

Used by `repository` alone. It never reads the store.
"""

from collections import OrderedDict

from headrace._runtime.clock import Clock
from headrace.domain.aggregate import Aggregate

__all__ = ["AggregateCache", "LiveAggregate"]


class LiveAggregate:
    """An aggregate in memory.

    Attributes:
        aggregate: itself.
        events_unsaved: how many of its events are in no snapshot.
    """

    __slots__ = ("aggregate", "events_unsaved")

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate
        self.events_unsaved = 0


class AggregateCache:
    """Least recently used live aggregates go first.

    Args:
        aggregates_max: most aggregates kept.
        idle_ms: how long an unused one stays.
        clock: tells the time.
    """

    def __init__(self, *, aggregates_max: int, idle_ms: int, clock: Clock) -> None:
        self._aggregates_max = aggregates_max
        self._idle_ms = idle_ms
        self._clock = clock
        # Least recently used first, each with the time of its last use.
        self._entries: OrderedDict[str, tuple[LiveAggregate, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, aggregate_id: str) -> LiveAggregate | None:
        """Returns the aggregate unless it is unknown or was idle for too long."""
        self._forget_idle()
        entry = self._entries.get(aggregate_id)
        return None if entry is None else entry[0]

    def put(self, live: LiveAggregate) -> None:
        """Keeps an aggregate as the most recently used one."""
        self._entries[live.aggregate.id] = (live, self._clock.monotonic_ms())
        self._entries.move_to_end(live.aggregate.id)
        self._forget_idle()
        if len(self._entries) > self._aggregates_max:
            self._entries.popitem(last=False)

    def evict(self, aggregate_id: str) -> None:
        """Forgets an aggregate; an unknown one is fine."""
        self._entries.pop(aggregate_id, None)

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()

    def _forget_idle(self) -> None:
        oldest_ms = self._clock.monotonic_ms() - self._idle_ms
        while self._entries:
            _, used_ms = next(iter(self._entries.values()))
            if used_ms > oldest_ms:
                return
            self._entries.popitem(last=False)
