"""The cache: bounded by count and by idle time."""

import pytest

from headrace.aggregates.cache import AggregateCache, LiveAggregate
from headrace.domain.aggregate import Aggregate
from headrace.testing.history import FakeClock


def live(aggregate_id: str) -> LiveAggregate:
    return LiveAggregate(Aggregate(aggregate_id))


@pytest.fixture
def clock() -> FakeClock:
    """Moved by hand."""
    return FakeClock()


@pytest.fixture
def cache(clock) -> AggregateCache:
    """For two aggregates and a thousand milliseconds."""
    return AggregateCache(aggregates_max=2, idle_ms=1_000, clock=clock)


def test_what_was_put_is_found_until_it_is_evicted(cache):
    account = live("a")
    cache.put(account)
    assert cache.get("a") is account
    cache.evict("a")
    cache.evict("a")
    assert cache.get("a") is None


def test_over_the_limit_the_least_recently_used_goes(cache):
    for aggregate_id in ("a", "b", "a", "c"):
        cache.put(live(aggregate_id))
    assert len(cache) == 2
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert cache.get("c") is not None


def test_what_is_idle_for_too_long_is_forgotten_and_what_is_used_stays(cache, clock):
    cache.put(live("a"))
    cache.put(live("b"))
    clock.advance(999)
    cache.put(live("a"))
    clock.advance(1)
    assert cache.get("b") is None
    assert cache.get("a") is not None
    clock.advance(999)
    assert cache.get("a") is None
    assert len(cache) == 0


def test_clear_forgets_everything(cache):
    cache.put(live("a"))
    cache.clear()
    assert (cache.get("a"), len(cache)) == (None, 0)


def test_lookups_are_counted_as_hits_and_misses(cache, clock):
    cache.put(live("a"))
    cache.get("a")
    cache.get("b")
    clock.advance(1_000)
    cache.get("a")
    assert (cache.hits, cache.misses) == (1, 2)
