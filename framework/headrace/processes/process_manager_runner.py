"""
The loop of one process manager: events and rejections in, commands out, at least once.

What it sends has ids derived from what caused it, so a stream that comes twice sends nothing twice.
The streams of one aggregate are reacted to one after another, those of many aggregates at once; a
stream is acknowledged when all its commands are durable in the queue.

    the queue or the database is away   tried again until it is back, with pauses
    a handler raises, or a stream       tried again `error_retries_max` times, then its aggregate is
    does not decode                     parked: what follows of it waits for `headrace process
                                        retry`, everything else flows

Sits between: a subscription to the event topic and the command bus. Must never know a broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace._runtime.tasks import finish
from headrace._runtime.turns import Turns
from headrace.domain.stream import EventStream
from headrace.processes.letters import reactions
from headrace.processes.outbox import EnvelopeSender, Outbox
from headrace.processes.process_manager import ProcessManager
from headrace.processes.progress import ProcessStandings, is_rejection, version_before
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.subscriptions.foreign import stream_or_none
from headrace.subscriptions.outages import is_outage
from headrace.transports.base import Incoming, Subscription, Transport
from headrace.transports.subscription import Following

__all__ = ["ProcessManagerRunner"]

log = get_logger(__name__)

# Streams being reacted to at once: enough to fill the queue's group commits, little memory.
_STREAMS_IN_FLIGHT_MAX: Final = 500
# Between two looks for commands that have come near; they are due in months.
_SWEEP_MS: Final = 60_000


class ProcessManagerRunner:
    """Feeds one process manager.

    Args:
        manager: what reacts.
        app_name: names the event topic and the consumer group.
        read_models: the database that keeps what is parked.
        transport: brings the events.
        bus: takes the commands.
        serializer: decodes the events.
        settings: attempts and pauses.
        clock: dates letters.
        sweep_ms: how often it looks for commands that have come near.
    """

    def __init__(  # noqa: PLR0913 - the parts it is put together from, all by name
        self,
        *,
        manager: ProcessManager,
        app_name: str,
        read_models: ReadModels,
        transport: Transport,
        bus: EnvelopeSender,
        serializer: Serializer,
        settings: Settings,
        clock: Clock | None = None,
        sweep_ms: int = _SWEEP_MS,
    ) -> None:
        self._manager = manager
        self._standings = ProcessStandings(manager.name)
        self._read_models = read_models
        self._serializer = serializer
        self._settings = settings
        self._clock = clock or SystemClock()
        self._outbox = Outbox(manager.name, bus, read_models, serializer, self._clock)
        self._sweep_ms = sweep_ms
        self._backoff = Backoff(ms_min=settings.retry_ms_min, ms_max=settings.retry_ms_max)
        self._following = Following(
            transport,
            group=f"{app_name}.process.{manager.name}",
            topic=f"{app_name}.events",
            backoff=self._backoff,
        )
        # Of the aggregates that have come since the subscription began.
        self._parked: set[str] = set()

    async def run(self) -> None:
        """Works until cancelled; a subscription that breaks is made anew after a pause."""
        await self._following.run(self._follow)

    async def _follow(self, subscription: Subscription) -> None:
        self._parked.clear()
        sweeping = asyncio.create_task(self._sweep_for_ever(), name=f"{self._manager.name}: sweep")
        try:
            async with Turns(
                partial(self._take, subscription),
                in_flight_max=_STREAMS_IN_FLIGHT_MAX,
                name=self._manager.name,
            ) as turns:
                while True:
                    messages = await self._following.poll(subscription)
                    for message in await self._sort(subscription, messages, turns):
                        await turns.put(message.key, message)
        finally:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)

    async def _sort(
        self, subscription: Subscription, messages: Sequence[Incoming], turns: Turns[Incoming]
    ) -> list[Incoming]:
        """Acknowledges what causes nothing; learns which aggregates of the others are parked."""
        rest: list[Incoming] = []
        keys: set[str] = set()
        for message in messages:
            behind = message.key in turns or message.key in keys
            if not behind and self._is_no_concern(message):
                subscription.ack(message)
            else:
                rest.append(message)
                keys.add(message.key)
        if keys:
            self._parked |= await self._persist(
                partial(self._standings.parked, aggregate_ids=keys), "read what is parked"
            )
        return rest

    def _is_no_concern(self, message: Incoming) -> bool:
        """Whether a message causes nothing, whatever came before it."""
        try:
            stream = self._stream_in(message)
            return stream is None or not self._manager.concerns(stream)
        except Exception:  # noqa: BLE001 - met again where it is tried again, logged and parked
            return False

    def _stream_in(self, message: Incoming) -> EventStream | None:
        decode = self._serializer.decode_published
        return stream_or_none(decode, message.body, message.queue, message.offset)

    async def _take(self, subscription: Subscription, message: Incoming) -> None:
        if not (message.key in self._parked and await self._wait(message)):
            await self._react(message)
        subscription.ack(message)

    async def _wait(self, message: Incoming) -> bool:
        """Lets a message wait behind its aggregate's letter; False: it is no longer parked."""
        if self._is_no_concern(message):
            return True
        kept: bool = await self._persist(
            partial(self._standings.keep, message=message), "let an event wait"
        )
        if not kept:
            self._parked.discard(message.key)
        return kept

    async def _react(self, message: Incoming) -> None:
        """Sends what a message causes, or parks its aggregate."""
        faults = 0
        while True:
            try:
                stream = self._stream_in(message)
                for envelope in () if stream is None else reactions(self._manager, stream):
                    await self._waiting_out(
                        partial(self._outbox.send_envelope, envelope), "send a command"
                    )
                return
            except Exception as error:  # noqa: BLE001 - user code raises what it likes; logged, parked
                faults += 1
                if faults > self._settings.error_retries_max:
                    await self._park(message, error)
                    return
                self._say_retry("react", faults, error)
            await self._backoff.pause(faults)

    async def _park(self, message: Incoming, error: Exception) -> None:
        attempt = 0
        while not await self._persist(
            partial(
                self._standings.park_at,
                message=message,
                version=None if is_rejection(message) else version_before(message),
                error=error,
                now=self._clock.now(),
                letters_max=self._settings.projection_letters_max,
            ),
            "park an aggregate",
        ):
            attempt += 1
            log.error(
                "as many aggregates as may be are parked; the process manager waits for room",
                process_manager=self._manager.name,
                aggregate_id=message.key,
                letters_max=self._settings.projection_letters_max,
            )
            await self._backoff.pause(attempt)
        self._parked.add(message.key)
        log.error(
            "process manager cannot react to an event; its aggregate waits until it is retried or"
            " skipped",
            process_manager=self._manager.name,
            aggregate_id=message.key,
            queue=message.queue,
            offset=message.offset,
            error=str(error),
            exc_info=error,
        )

    async def _sweep_for_ever(self) -> None:
        """Sends what was due in years, when it has come near."""
        await self._backoff.persist(self._outbox.try_again, what="begin", unless=())
        while True:
            await self._backoff.persist(
                lambda: finish(self._outbox.sweep()), what="send what has come near", unless=()
            )
            await asyncio.sleep(self._sweep_ms / 1_000)

    async def _persist(self, work: Callable[[Connection], Any], what: str) -> Any:
        """Runs a transaction; an outage is waited out."""
        return await self._backoff.persist(
            lambda: finish(self._read_models.transact(work)), what=what, unless=()
        )

    async def _waiting_out(self, action: Callable[[], Awaitable[None]], what: str) -> None:
        """Makes attempts until one succeeds; raises what is no outage."""
        attempt = 0
        while True:
            try:
                return await action()
            except Exception as error:
                if not is_outage(error):
                    raise
                attempt += 1
                self._say_retry(what, attempt, error)
            await self._backoff.pause(attempt)

    def _say_retry(self, what: str, attempt: int, error: Exception) -> None:
        # At 1, 2, 4, 8, …: in an outage hundreds of streams try again side by side.
        if attempt & (attempt - 1) == 0:
            log.warning(
                "process manager will try again",
                process_manager=self._manager.name,
                what=what,
                attempt=attempt,
                error=repr(error),
            )
