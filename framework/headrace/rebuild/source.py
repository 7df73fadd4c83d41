"""
What a rebuild folds, opened: the event topic or the event store, with the means of catching up.

Used by every engine; reads the event topic or the event store. It must not know a projection.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from headrace.app import App
from headrace.errors import ProjectionError
from headrace.events.publisher import event_topic
from headrace.events.seals import Seal
from headrace.lineage.generation_epochs import GenerationEpochs
from headrace.rebuild.event_topic import EventTopic, ReadBatches
from headrace.rebuild.level import Origin
from headrace.rebuild.shadow import open_truth
from headrace.rebuild.stored_events import StoredEvents, open_stored_events
from headrace.rebuild.switch import Means
from headrace.transports.base import QueueId

__all__ = ["Events", "Opened", "Source", "open_events"]

Source = Literal["topic", "store"]
Events = EventTopic | StoredEvents

# How long a rebuild from the store waits for a live generation that stands still: rows that lack events
# are left out of its comparison.
_STILL_MS: Final = 10_000
# Streams applied per transaction while catching up from the store; the live runner's own default.
_APPLIED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What is folded.

    Attributes:
        events: the topic or the store.
        topic: None without a broker.
        means: of catching up, and of filling gaps.
        origin: the store, if that is folded.
        broker: `host:port`; None: there is none.
        event_store: its URL; None: there is none that another process can read.
        seal: what messages of the event store carry; None without one.
    """

    events: Events
    topic: EventTopic | None
    means: Means
    origin: Origin | None
    broker: str | None
    event_store: str | None
    seal: Seal | None


@asynccontextmanager
async def open_events(
    application: App,
    source: Source,
    urls: tuple[str | None, str | None],
    *,
    switch: bool,
    live_wait_ms: int,
    messages_max: int,
    read: ReadBatches | None = None,
) -> AsyncIterator[Opened]:
    """Opens what a rebuild folds.

    Args:
        application: whose events.
        source: the one or the other.
        urls: `host:port` of the broker, None if there is none; and the event store's, without which
            gaps of the topic are not filled.
        switch: the result is to go live.
        live_wait_ms: how long to wait for a live generation that is behind.
        messages_max: messages that are read together.
        read: reads batches of the topic; as `EventTopic`.

    Raises:
        ProjectionError: what is needed is not there; says what to do.
        SchemaOutOfDate: there is no event store, or its schema is not this version's.
    """
    broker, event_store_url = urls
    # What another process has in memory cannot be read here.
    store_url = None if event_store_url == "memory://" else event_store_url
    async with AsyncExitStack() as opened:
        serializer = application.serializer_at(store_url)
        opened.callback(serializer.close)
        truth = await opened.enter_async_context(open_truth(store_url, serializer))
        topic, origin = None, None
        if broker is not None:
            name = event_topic(application.name)
            topic = EventTopic(
                broker, name, messages_max=messages_max, read=read, belief=truth.belief
            )
        events: Events | None = topic
        if source == "store":
            events = await opened.enter_async_context(
                open_stored_events(store_url, messages_max=min(messages_max, _APPLIED_MAX))
            )
            origin = Origin(store=events, ends=partial(_ends_of, topic))
            live_wait_ms = min(live_wait_ms, _STILL_MS) if switch else live_wait_ms
            if switch:
                # Before hours of folding, and not after them.
                await origin.ends()
        if events is None:
            raise ProjectionError(
                "the event topic is the broker's: name the broker, or use the event store"
                " (--from store)"
            )
        means = Means(
            feed=events.read,
            serializer=serializer,
            missing=truth.missing,
            live_wait_ms=live_wait_ms,
            starts=events.starts,
            belief=truth.belief,
            epochs=None
            if topic is None
            else GenerationEpochs(topic=event_topic(application.name), ask=topic.lineage),
        )
        yield Opened(
            events=events,
            topic=topic,
            means=means,
            origin=origin,
            broker=broker,
            event_store=store_url,
            seal=truth.seal,
        )


async def _ends_of(topic: EventTopic | None) -> dict[QueueId, int]:
    """Returns the offsets with which rows from the event store go live.

    Raises:
        ProjectionError: the broker is away; says what can be done without it.
    """
    if topic is None:
        return {}
    try:
        return await topic.ends()
    except ProjectionError as error:
        raise ProjectionError(
            f"{error}; start the broker, which tells where the event topic ends; or use --no-broker"
            " (broker=None): the projection then reads the topic from its beginning, and passes over"
            " what its rows have"
        ) from error
