"""
The loop of one process manager: events and rejections in, commands out, at least once.

What it sends has ids derived from what caused it, so a stream that comes twice sends nothing twice.
The streams of one aggregate are reacted to one after another, those of many aggregates at once; a
stream is acknowledged when all its commands are durable in the queue.

    the queue does not take a command   tried again until it does, with pauses
    a handler raises, or a stream       tried again `error_retries_max` times, then HELD: the stream
    does not decode                     and its aggregate's later ones wait, unacknowledged, for a
                                        restart with repaired code

Sits between: a subscription to the event topic and the command bus. Must never know a broker.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

import structlog

from headrace._projecting.outages import is_outage
from headrace._projecting.workflows import ProcessManager
from headrace._runtime.backoff import Backoff
from headrace.serialization import CommandEnvelope, Serializer
from headrace.settings import Settings
from headrace.transports.base import Incoming, Subscription, Transport

__all__ = ["EnvelopeSender", "ProcessManagerRunner"]

log = structlog.get_logger(__name__)

# Streams being reacted to at once: enough to fill the queue's group commits, little memory.
_STREAMS_IN_FLIGHT_MAX: Final = 500


class EnvelopeSender(Protocol):
    """What a process manager needs of the command bus."""

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        """Hands over a command; durable in the queue on return."""
        ...


class ProcessManagerRunner:
    """Feeds one process manager.

    Args:
        manager: what reacts.
        app_name: names the event topic and the consumer group.
        transport: brings the events.
        bus: takes the commands.
        serializer: decodes the events.
        settings: attempts and pauses.
    """

    def __init__(
        self,
        *,
        manager: ProcessManager,
        app_name: str,
        transport: Transport,
        bus: EnvelopeSender,
        serializer: Serializer,
        settings: Settings,
    ) -> None:
        self._manager = manager
        self._topic = f"{app_name}.events"
        self._group = f"{app_name}.process.{manager.name}"
        self._transport = transport
        self._bus = bus
        self._serializer = serializer
        self._faults_max = settings.error_retries_max
        self._backoff = Backoff(ms_min=settings.retry_ms_min, ms_max=settings.retry_ms_max)
        self._room = asyncio.Semaphore(_STREAMS_IN_FLIGHT_MAX)
        # The waiting messages of each aggregate that is being reacted to.
        self._waiting: dict[str, deque[Incoming]] = {}
        self._held: set[str] = set()
        self._lapses = 0

    @property
    def held(self) -> frozenset[str]:
        """The aggregates whose events wait because reacting to one of them failed."""
        return frozenset(self._held)

    async def run(self) -> None:
        """Works until cancelled; a subscription that breaks is made anew after a pause."""
        while True:
            try:
                subscription = await self._transport.subscribe(self._group, [self._topic])
                try:
                    await self._follow(subscription)
                finally:
                    await subscription.aclose()
            except Exception as error:  # noqa: BLE001 - adapters raise what they like; logged, repeated
                self._lapses += 1
                log.warning(
                    "process manager will subscribe again",
                    process_manager=self._manager.name,
                    attempt=self._lapses,
                    error=repr(error),
                )
            await self._backoff.pause(max(1, self._lapses))

    async def _follow(self, subscription: Subscription) -> None:
        self._room = asyncio.Semaphore(_STREAMS_IN_FLIGHT_MAX)
        self._waiting.clear()
        # Whatever was held is delivered again to a new subscription.
        self._held.clear()
        async with asyncio.TaskGroup() as reactions:
            while True:
                messages = await subscription.poll()
                self._lapses = 0
                for message in messages:
                    if self._is_no_concern(message):
                        subscription.ack(message)
                        continue
                    await self._room.acquire()
                    if message.key in self._waiting:
                        self._waiting[message.key].append(message)
                        continue
                    self._waiting[message.key] = deque([message])
                    reactions.create_task(
                        self._react_in_order(subscription, message.key),
                        name=f"{self._manager.name}: {message.key}",
                    )

    def _is_no_concern(self, message: Incoming) -> bool:
        """Whether a message causes nothing and nothing before it is in its way."""
        if message.key in self._waiting or message.key in self._held:
            return False
        try:
            return not self._manager.concerns(self._serializer.decode_published(message.body))
        except Exception:  # noqa: BLE001 - met again where it is tried again, logged and held
            return False

    async def _react_in_order(self, subscription: Subscription, key: str) -> None:
        waiting = self._waiting[key]
        while waiting:
            message = waiting.popleft()
            if key not in self._held and await self._react(message):
                subscription.ack(message)
            self._room.release()
        del self._waiting[key]

    async def _react(self, message: Incoming) -> bool:
        """Sends what a message causes; False: it is held."""
        attempt = faults = 0
        while True:
            try:
                stream = self._serializer.decode_published(message.body)
                for envelope in self._manager.react(stream):
                    await self._bus.send_envelope(envelope)
                return True
            except Exception as error:  # noqa: BLE001 - user code raises what it likes; logged, held
                attempt += 1
                faults += not is_outage(error)
                if faults > self._faults_max:
                    self._hold(message, error)
                    return False
                self._say_retry(message, attempt, error)
            await self._backoff.pause(attempt)

    def _hold(self, message: Incoming, error: Exception) -> None:
        self._held.add(message.key)
        log.error(
            "process manager holds the events of an aggregate; repair it and restart",
            process_manager=self._manager.name,
            aggregate_id=message.key,
            queue=message.queue,
            offset=message.offset,
            error=repr(error),
        )

    def _say_retry(self, message: Incoming, attempt: int, error: Exception) -> None:
        # At 1, 2, 4, 8, …: in an outage hundreds of streams try again side by side.
        if attempt & (attempt - 1) == 0:
            log.warning(
                "process manager will try again",
                process_manager=self._manager.name,
                aggregate_id=message.key,
                queue=message.queue,
                offset=message.offset,
                attempt=attempt,
                error=repr(error),
            )
