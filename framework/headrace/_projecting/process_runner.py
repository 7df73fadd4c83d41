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

from functools import partial
from typing import Final, Protocol

import structlog

from headrace._domain.stream import EventStream
from headrace._projecting.foreign import stream_or_none
from headrace._projecting.outages import is_outage
from headrace._projecting.workflows import ProcessManager
from headrace._runtime.backoff import Backoff
from headrace._runtime.turns import Turns
from headrace.serialization import CommandEnvelope, Serializer
from headrace.settings import Settings
from headrace.transports.base import Incoming, Subscription, Transport
from headrace.transports.following import Following

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
        self._bus = bus
        self._serializer = serializer
        self._faults_max = settings.error_retries_max
        self._backoff = Backoff(ms_min=settings.retry_ms_min, ms_max=settings.retry_ms_max)
        self._following = Following(
            transport,
            group=f"{app_name}.process.{manager.name}",
            topic=f"{app_name}.events",
            backoff=self._backoff,
        )
        self._held: set[str] = set()

    @property
    def held(self) -> frozenset[str]:
        """The aggregates whose events wait because reacting to one of them failed."""
        return frozenset(self._held)

    async def run(self) -> None:
        """Works until cancelled; a subscription that breaks is made anew after a pause."""
        await self._following.run(self._follow)

    async def _follow(self, subscription: Subscription) -> None:
        # Whatever was held is delivered again to a new subscription.
        self._held.clear()
        async with Turns(
            partial(self._take, subscription),
            in_flight_max=_STREAMS_IN_FLIGHT_MAX,
            name=self._manager.name,
        ) as turns:
            while True:
                for message in await self._following.poll(subscription):
                    if message.key not in turns and self._is_no_concern(message):
                        subscription.ack(message)
                    else:
                        await turns.put(message.key, message)

    def _is_no_concern(self, message: Incoming) -> bool:
        """Whether a message causes nothing and nothing before it is in its way."""
        if message.key in self._held:
            return False
        try:
            stream = self._stream_in(message)
            return stream is None or not self._manager.concerns(stream)
        except Exception:  # noqa: BLE001 - met again where it is tried again, logged and held
            return False

    def _stream_in(self, message: Incoming) -> EventStream | None:
        decode = self._serializer.decode_published
        return stream_or_none(decode, message.body, message.queue, message.offset)

    async def _take(self, subscription: Subscription, message: Incoming) -> None:
        if message.key not in self._held and await self._react(message):
            subscription.ack(message)

    async def _react(self, message: Incoming) -> bool:
        """Sends what a message causes; False: it is held."""
        attempt = faults = 0
        while True:
            try:
                stream = self._stream_in(message)
                for envelope in () if stream is None else self._manager.react(stream):
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
