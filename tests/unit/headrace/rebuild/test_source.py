"""What a rebuild needs is opened, or missed with a sentence, before anything is begun."""

from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.rebuild.source import open_events
from headrace.rebuild.stored_events import STORE

AWAY = "127.0.0.1:1"


@pytest.fixture
def opening(ledger: Any) -> Any:
    def run(source: Any, broker: str | None, store: str | None, **choices: Any) -> Any:
        asked = {"switch": True, "live_wait_ms": 60_000, "messages_max": 5_000, **choices}
        return open_events(ledger.app, source, (broker, store), **asked)

    return run


async def test_the_topic_is_folded_with_or_without_a_store(
    opening: Any, event_broker: Any, event_store: Any, store_url: str, ledger: Any
) -> None:
    await event_store.append([ledger.stream("a", 1, ledger.Ended())])
    for url, found in ((store_url, 1), (None, 0), ("memory://", 0)):
        async with opening("topic", event_broker.address, url) as opened:
            assert opened.events is opened.topic
            assert opened.origin is None
            assert opened.means.live_wait_ms == 60_000
            assert len(await opened.means.missing("a", 0, 1)) == found


async def test_the_store_is_folded_and_the_topics_ends_are_asked(
    opening: Any, event_broker: Any, event_store: Any, store_url: str, ledger: Any
) -> None:
    await event_broker.publish(ledger.stream("a", 1, ledger.Ended()))
    async with opening("store", event_broker.address, store_url) as opened:
        assert list(await opened.events.ranges()) == [STORE]
        assert sum((await opened.origin.ends()).values()) == 1
        # A live generation that stands still is not waited for as long as one that must come.
        assert opened.means.live_wait_ms < 60_000
    async with opening("store", None, store_url, switch=False) as opened:
        assert await opened.origin.ends() == {}
        assert opened.means.live_wait_ms == 60_000


async def test_a_topic_that_was_never_made_has_no_ends(
    opening: Any, event_broker: Any, event_store: Any, store_url: str, ledger: Any
) -> None:
    async with opening("store", event_broker.address, store_url) as opened:
        opened.topic._topic = "never.made"
        assert await opened.origin.ends() == {}


async def test_what_is_missing_is_told_with_what_to_do(
    opening: Any, event_store: Any, store_url: str
) -> None:
    with pytest.raises(ProjectionError, match=r"127\.0\.0\.1:1.*use --no-broker"):
        async with opening("store", AWAY, store_url):
            pass
    # A comparison needs no broker.
    async with opening("store", AWAY, store_url, switch=False):
        pass
    with pytest.raises(ProjectionError, match=r"name the broker, or use the event store"):
        async with opening("topic", None, store_url):
            pass
    with pytest.raises(ProjectionError, match="give the URL of its database"):
        async with opening("store", None, None):
            pass
