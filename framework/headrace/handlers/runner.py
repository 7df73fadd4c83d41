"""
What one processor of event handlers does with events: each at least once, in its aggregate's order.

A handler runs twice only after an error or a crash: versions are stored after the handlers.

    poll ─▶ read the version of each aggregate ─▶ call handlers, many aggregates at once
      ─▶ store the versions of all that is done, in one transaction ─▶ acknowledge

    event was handled before          acknowledge it; no handler is called
    versions are missing before it    read them from the event store and handle them first
    a database is away                retry, with pauses that grow, until it is back
    a handler raises an outage        retry, with pauses that grow, until it is over; at most for
                                      `handler_outage_ms` if other calls of the handler succeed
    a handler raises anything else,   retry `error_retries_max` times, then park the aggregate: its
    or a message does not decode      later events wait in the event store for `headrace parked
                                      retry`; all other aggregates go on

Used by `App`; the reader of the event topic calls it with messages. It knows no broker.
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

# Messages that are handled or wait for their turn: enough for handlers that wait for other systems,
# and little memory.
_IN_FLIGHT_MAX: Final = 500


class _AggregateState:
    """The progress of an aggregate that has messages under way."""

    __slots__ = ("parked", "pending", "stored", "version")

    def __init__(self, version: int, *, parked: bool, pending: int) -> None:
        self.version = self.stored = version
        self.parked = parked
        self.pending = pending


class EventHandlerRunner(KeyReaction):
    """Calls the handlers of one processor; several runners share the queues of the topic.

    Args:
        handlers: the processor.
        app_name: the application's name; part of the names of the event topic and the consumer group.
        read_models: the database of versions and letters.
        store: has the versions that are missing in the topic.
        transport: delivers the events.
        serializer: decodes them.
        settings: attempts and pauses.
        clock: gives the time for letters.
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
        # By aggregate, of those that have messages under way.
        self._under_way: dict[str, _AggregateState] = {}
        # Handled messages; the versions of their aggregates are not stored yet.
        self._done: list[Incoming] = []
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled; subscribes again after an error."""
        await self.reader.run_by_key(self, in_flight_max=_IN_FLIGHT_MAX)

    async def begin(self) -> None:
        """Forgets the messages of the last subscription."""
        self._under_way.clear()
        self._done.clear()

    async def select(self, messages: list[Incoming]) -> list[Incoming]:
        """Reads the versions of the messages' aggregates; returns all messages but rejections."""
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
                self._under_way[key] = _AggregateState(
                    versions.get(key, 0), parked=key in parked, pending=count
                )
        return news

    async def react(self, message: Incoming) -> None:
        """Handles a message, or holds it, or parks its aggregate; `alongside` acknowledges it."""
        state = self._under_way[message.key]
        if not (state.parked and await self._hold(message, state)):
            try:
                await self._handle(message, state)
            except Exception as error:  # noqa: BLE001 - user code raises what it likes; logged, parked
                await self._park(message, state, error)
        self._done.append(message)
        self._news.set()

    async def _hold(self, message: Incoming, state: _AggregateState) -> bool:
        """Adds a message to those that wait; returns False if its aggregate is no longer parked."""
        hold = partial(self._progress.parked.hold, aggregate_id=message.key)
        if await self._transactions.run(hold, "hold an event"):
            return True
        versions, parked = await self._transactions.run(
            partial(self._progress.read, aggregate_ids=[message.key]), "read a version"
        )
        state.version = state.stored = max(state.version, versions.get(message.key, 0))
        state.parked = message.key in parked
        return False

    async def _handle(self, message: Incoming, state: _AggregateState) -> None:
        """Handles a message, and before it the versions that are missing.

        Raises:
            Exception: the error of the last attempt to handle or to read one of them.
        """
        streams = await self.reader.attempt(
            partial(self._streams, message, state),
            "read an event",
            final=self.reader.faults(is_outage),
        )
        for stream in streams:
            assert stream.version is not None, "rejections are passed over"
            if stream.version > state.version:
                await call_all(self._handlers, stream, self._call)
                state.version = stream.version

    async def _streams(self, message: Incoming, state: _AggregateState) -> Sequence[EventStream]:
        stream = stream_or_none(
            self._serializer.decode_published, message.body, message.queue, message.offset
        )
        if stream is None or stream.version is None or stream.version <= state.version:
            return []
        if stream.version == state.version + 1:
            return [stream]
        missing = await self._store.read_stream(
            stream.aggregate_id, after_version=state.version, to_version=stream.version - 1
        )
        if len(missing) != stream.version - 1 - state.version:
            raise EventHandlerError(
                f"versions {state.version + 1} to {stream.version - 1} of"
                f" {stream.aggregate_type} {stream.aggregate_id} did not come and are not all in"
                " the event store"
            )
        return [*missing, stream]

    async def _call(self, handler: EventHandler, call: Callable[[], Awaitable[None]]) -> None:
        """Calls a handler until it succeeds; raises the error of the last attempt."""
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

        call = self.reader.measured(getattr(handler, "__qualname__", repr(handler)), call)
        await self.reader.attempt(call, "handle an event", final=final)
        self._claims.succeeded(handler)

    async def _park(self, message: Incoming, state: _AggregateState, error: Exception) -> None:
        park = partial(
            self._progress.park,
            message=message,
            version=state.version,
            error=error,
            now=self._clock.now(),
            letters_max=self._settings.projection_letters_max,
        )
        await self._transactions.park(message, error, park)
        state.parked, state.stored = True, state.version

    async def alongside(self) -> None:
        """Stores versions and acknowledges messages whenever some are done."""
        while True:
            await self._news.wait()
            await self._settle()

    async def end(self) -> None:
        """Stores versions one last time, so that the next reader does not repeat the work."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_MS_MAX / 1_000):
                await self._settle()

    async def _settle(self) -> None:
        """Stores the versions of all messages that are done, then acknowledges these."""
        self._news.clear()
        done, self._done = self._done, []
        states = {message.key: self._under_way[message.key] for message in done}
        versions = {key: each.version for key, each in states.items() if each.version > each.stored}
        if versions:
            await self._transactions.run(
                partial(self._progress.advance, versions=versions), "store versions"
            )
        for key, version in versions.items():
            states[key].stored = version
        for message in done:
            self.reader.ack(message)
            state = states[message.key]
            state.pending -= 1
            if not state.pending:
                del self._under_way[message.key]
