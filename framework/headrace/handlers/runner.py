"""
What one processor of event handlers does with events: each at least once, in its aggregate's order.

Once where nothing breaks: versions are stored after the handlers, and a crash may come between.

    poll ─▶ which version is each aggregate at ─▶ handlers, aggregates side by side
      ─▶ versions of all that is done, in one transaction ─▶ ack

    handled before                    acknowledged, handlers are not called
    versions are missing before it    read from the event store and handled first; nothing waits
    a database is away                tried again, with pauses that grow, until it is back
    a handler says so of what it      tried again, with pauses that grow, until it is back; for
    needs                             `handler_outage_ms` where other calls of it succeed
    a handler raises, a message       tried again `error_retries_max` times, then its aggregate is
    does not decode                   parked: what follows waits in the event store for
                                      `headrace parked retry`, everything else flows

Sits between: the reader of the event topic, the handlers and the table of versions. Must never
know a broker.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.tasks import FINISH_MS_MAX
from headrace.domain.stream import EventStream
from headrace.errors import EventHandlerError
from headrace.handlers.call import call_all
from headrace.handlers.claims import Claim, Claims
from headrace.handlers.event_handlers import EventHandler, EventHandlers
from headrace.handlers.progress import HandlerProgress
from headrace.handlers.transactions import ReaderTransactions
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.stores.base import EventStore
from headrace.subscriptions.foreign import stream_or_none
from headrace.subscriptions.outages import claims_outage, is_outage
from headrace.subscriptions.reader import KeyReaction, Reader
from headrace.transports.base import Incoming, Transport

__all__ = ["EventHandlerRunner"]

# Messages being handled or waiting for their turn: enough for handlers that wait for other systems,
# little memory.
_IN_FLIGHT_MAX: Final = 500


class _Standing:
    """Where an aggregate stands while messages of its are under way."""

    __slots__ = ("parked", "pending", "stored", "version")

    def __init__(self, version: int, *, parked: bool, pending: int) -> None:
        self.version = self.stored = version
        self.parked = parked
        self.pending = pending


class EventHandlerRunner(KeyReaction):
    """Feeds the handlers of one processor; any number of runners may, each on its queues.

    Args:
        handlers: the processor.
        app_name: names the event topic and the consumer group.
        read_models: the database that keeps versions and letters.
        store: fills gaps in the versions of an aggregate.
        transport: brings the events.
        serializer: decodes them.
        settings: attempts and pauses.
        clock: dates letters.
    """

    def __init__(  # noqa: PLR0913 - the parts it is put together from, all by name
        self,
        *,
        handlers: EventHandlers,
        app_name: str,
        read_models: ReadModels,
        store: EventStore,
        transport: Transport,
        serializer: Serializer,
        settings: Settings,
        clock: Clock | None = None,
    ) -> None:
        self._handlers = handlers
        self._progress = HandlerProgress(handlers.name)
        self._store = store
        self._serializer = serializer
        self._settings = settings
        self._clock = clock or SystemClock()
        self._claims = Claims(settings.handler_outage_ms)
        self.reader = Reader(
            transport,
            group=f"{app_name}.handlers.{handlers.name}",
            topic=f"{app_name}.events",
            settings=settings,
            about={"processor": handlers.name},
            clock=self._clock,
        )
        self._transactions = ReaderTransactions(self.reader, read_models)
        # Of the aggregates that have messages under way.
        self._under_way: dict[str, _Standing] = {}
        # Messages that are done, but for storing the versions of their aggregates.
        self._done: list[Incoming] = []
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Works until cancelled; a subscription that breaks is made again after a pause."""
        await self.reader.run_by_key(self, in_flight_max=_IN_FLIGHT_MAX)

    async def begin(self) -> None:
        """Forgets what was under way."""
        self._under_way.clear()
        self._done.clear()

    async def select(self, messages: list[Incoming]) -> list[Incoming]:
        """Reads where the aggregates of messages stand; returns those that may have to be handled."""
        news: list[Incoming] = []
        for message in messages:
            if message.headers.get("kind") == "rejection":
                self.reader.ack(message)
            else:
                news.append(message)
        counts = Counter(message.key for message in news)
        for key in counts.keys() & self._under_way.keys():
            self._under_way[key].pending += counts.pop(key)
        if counts:
            versions, parked = await self._transactions.run(
                partial(self._progress.read, aggregate_ids=counts.keys()), "read versions"
            )
            for key, count in counts.items():
                self._under_way[key] = _Standing(
                    versions.get(key, 0), parked=key in parked, pending=count
                )
        return news

    async def react(self, message: Incoming) -> None:
        """Handles a message, lets it wait or parks its aggregate; `alongside` acknowledges it."""
        standing = self._under_way[message.key]
        if not (standing.parked and await self._hold(message, standing)):
            try:
                await self._handle(message, standing)
            except Exception as error:  # noqa: BLE001 - user code raises what it likes; logged, parked
                await self._park(message, standing, error)
        self._done.append(message)
        self._news.set()

    async def _hold(self, message: Incoming, standing: _Standing) -> bool:
        """Adds a message to those that wait; False: its aggregate is no longer parked."""
        hold = partial(self._progress.parked.hold, aggregate_id=message.key)
        if await self._transactions.run(hold, "hold an event"):
            return True
        versions, parked = await self._transactions.run(
            partial(self._progress.read, aggregate_ids=[message.key]), "read a version"
        )
        standing.version = standing.stored = max(standing.version, versions.get(message.key, 0))
        standing.parked = message.key in parked
        return False

    async def _handle(self, message: Incoming, standing: _Standing) -> None:
        """Handles a message, and what is missing before it.

        Raises:
            Exception: what the last of the attempts at one of them, or at reading it, raised.
        """
        streams = await self.reader.attempt(
            partial(self._streams, message, standing),
            "read an event",
            final=self.reader.faults(is_outage),
        )
        for stream in streams:
            assert stream.version is not None, "rejections are passed over"
            if stream.version > standing.version:
                await call_all(self._handlers, stream, self._call)
                standing.version = stream.version

    async def _streams(self, message: Incoming, standing: _Standing) -> Sequence[EventStream]:
        stream = stream_or_none(
            self._serializer.decode_published, message.body, message.queue, message.offset
        )
        if stream is None or stream.version is None or stream.version <= standing.version:
            return []
        if stream.version == standing.version + 1:
            return [stream]
        missing = await self._store.read_stream(
            stream.aggregate_id, after_version=standing.version, to_version=stream.version - 1
        )
        if len(missing) != stream.version - 1 - standing.version:
            raise EventHandlerError(
                f"versions {standing.version + 1} to {stream.version - 1} of"
                f" {stream.aggregate_type} {stream.aggregate_id} did not come and are not all in"
                " the event store"
            )
        return [*missing, stream]

    async def _call(self, handler: EventHandler, call: Callable[[], Awaitable[None]]) -> None:
        """Calls a handler until it succeeds; raises what the last attempt raised."""
        too_many = self.reader.faults()
        claim: Claim | None = None

        def final(error: Exception) -> bool:
            nonlocal claim
            if not claims_outage(error):
                return too_many(error)
            if claim is not None:
                return not claim.again(self._clock.monotonic_ms())
            claim = self._claims.begin(handler, self._clock.monotonic_ms())
            return False

        await self.reader.attempt(call, "handle an event", final=final)
        self._claims.succeeded(handler)

    async def _park(self, message: Incoming, standing: _Standing, error: Exception) -> None:
        park = partial(
            self._progress.park,
            message=message,
            version=standing.version,
            error=error,
            now=self._clock.now(),
            letters_max=self._settings.projection_letters_max,
        )
        await self._transactions.park(message, error, park)
        standing.parked, standing.stored = True, standing.version

    async def alongside(self) -> None:
        """Stores the versions of what is done, as it is done."""
        while True:
            await self._news.wait()
            await self._settle()

    async def end(self) -> None:
        """Stores the versions of what is done, so that the next reader does not do it again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_MS_MAX / 1_000):
                await self._settle()

    async def _settle(self) -> None:
        """Stores the versions of all that is done, then acknowledges it."""
        self._news.clear()
        done, self._done = self._done, []
        standings = {message.key: self._under_way[message.key] for message in done}
        versions = {
            key: each.version for key, each in standings.items() if each.version > each.stored
        }
        if versions:
            await self._transactions.run(
                partial(self._progress.advance, versions=versions), "store versions"
            )
        for key, version in versions.items():
            standings[key].stored = version
        for message in done:
            self.reader.ack(message)
            standing = standings[message.key]
            standing.pending -= 1
            if not standing.pending:
                del self._under_way[message.key]
