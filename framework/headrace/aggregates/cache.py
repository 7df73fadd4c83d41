"""
Live aggregates kept in memory between commands: bounded by count, forgotten when idle.

Used by the workers, which take their aggregates from here and put them back. It never reads the
store.
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

    Attributes:
        hits: how often an aggregate that was asked for was in memory.
        misses: how often it was not.
    """

    def __init__(self, *, aggregates_max: int, idle_ms: int, clock: Clock) -> None:
        self._aggregates_max = aggregates_max
        self._idle_ms = idle_ms
        self._clock = clock
        # Least recently used first, each with the time of its last use.
        self._entries: OrderedDict[str, tuple[LiveAggregate, int]] = OrderedDict()
        self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, aggregate_id: str) -> LiveAggregate | None:
        """Returns the aggregate unless it is unknown or was idle for too long."""
        entry = self._entries.get(aggregate_id)
        if entry is None:
            self.misses += 1
            return None
        live, used_ms = entry
        if used_ms <= self._clock.monotonic_ms() - self._idle_ms:
            del self._entries[aggregate_id]
            self.misses += 1
            return None
        self.hits += 1
        return live

    def put(self, live: LiveAggregate) -> None:
        """Keeps an aggregate as the most recently used one; forgets those idle for too long.

        Its every change must be in the store.
        """
        now_ms = self._clock.monotonic_ms()
        self._entries[live.aggregate.id] = (live, now_ms)
        self._entries.move_to_end(live.aggregate.id)
        # The one just put is never idle, so the loop ends.
        while next(iter(self._entries.values()))[1] <= now_ms - self._idle_ms:
            self._entries.popitem(last=False)
        if len(self._entries) > self._aggregates_max:
            self._entries.popitem(last=False)

    def evict(self, aggregate_id: str) -> None:
        """Forgets an aggregate; an unknown one is fine."""
        self._entries.pop(aggregate_id, None)

    def clear(self) -> None:
        """Forgets everything."""
        self._entries.clear()
