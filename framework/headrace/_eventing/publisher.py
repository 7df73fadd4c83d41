"""
Stored streams to the event topic: at least once, in the order in which they were stored.

    events, rejections     APP.events
    application messages   APP.messages, each a message of its own, after the events of its command

Sits between: the lanes, which offer what the store holds, and the transport. Never publishes what
is not durable.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import structlog

from headrace._domain.stream import EventStream
from headrace._runtime.backoff import Backoff
from headrace._runtime.tasks import TaskSet
from headrace.serialization import Serializer
from headrace.transports.base import Outgoing, Place, Transport

__all__ = ["Publisher", "event_topic", "message_topic"]

log = structlog.get_logger(__name__)

# Streams of one aggregate handed to the transport together; bounds what a failure sends again.
WAVE_MAX = 100


def event_topic(name: str) -> str:
    """The topic of an application's events and rejections."""
    return f"{name}.events"


def message_topic(name: str) -> str:
    """The topic of an application's application messages."""
    return f"{name}.messages"


@dataclass(frozen=True, slots=True)
class _Publication:
    # The stream first, if it goes to the event topic.
    messages: tuple[Outgoing, ...]
    placed: bool
    published: Callable[[Place | None], None]


class Publisher:
    """Publishes streams, each aggregate's in order and different aggregates' at the same time.

    Args:
        name: the application's name.
        transport: where the topics are.
        serializer: encodes application messages.
        tasks: runs one task per aggregate that has something to publish.
        backoff: how long to wait before a failed publication is repeated.
    """

    def __init__(
        self,
        *,
        name: str,
        transport: Transport,
        serializer: Serializer,
        tasks: TaskSet,
        backoff: Backoff,
    ) -> None:
        self._topic = event_topic(name)
        self._message_topic = message_topic(name)
        self._transport = transport
        self._serializer = serializer
        self._tasks = tasks
        self._backoff = backoff
        # Waiting publications by aggregate; an aggregate is a key while its task runs.
        self._waiting: dict[str, deque[_Publication]] = {}

    def offer(
        self, stream: EventStream, body: bytes, published: Callable[[Place | None], None]
    ) -> None:
        """Takes a stored stream and its bytes; calls `published` when the topics have it all.

        Its argument is the stream's place in the event topic, None where it has only application
        messages. Streams of one aggregate are published in the order of the calls.
        """
        messages = tuple(self._application_messages(stream)) if stream.messages else ()
        placed = bool(stream.events) or stream.rejection is not None
        if placed:
            messages = (self._message(stream, body), *messages)
        publication = _Publication(messages, placed, published)
        waiting = self._waiting.get(stream.aggregate_id)
        if waiting is not None:
            waiting.append(publication)
            return
        waiting = self._waiting[stream.aggregate_id] = deque([publication])
        self._tasks.start("publish", self._publish(stream.aggregate_id, waiting))

    def _application_messages(self, stream: EventStream) -> Iterator[Outgoing]:
        for message, context in stream.message_contexts():
            yield Outgoing(
                topic=self._message_topic,
                key=stream.aggregate_id,
                tag=message.message_name,
                headers={"kind": "message", "command": stream.command_id},
                body=self._serializer.encode_message(message, context),
            )

    def _message(self, stream: EventStream, body: bytes) -> Outgoing:
        return Outgoing(
            topic=self._topic,
            key=stream.aggregate_id,
            tag=stream.aggregate_type,
            headers={
                "kind": "events" if stream.rejection is None else "rejection",
                "version": "" if stream.version is None else str(stream.version),
                "command": stream.command_id,
            },
            body=body,
        )

    async def _publish(self, aggregate_id: str, waiting: deque[_Publication]) -> None:
        failures = 0
        while waiting:
            places, error = await self._send(list(islice(waiting, WAVE_MAX)))
            for place in places:
                waiting.popleft().published(place)
            if error is None:
                failures = 0
                continue
            failures += 1
            log.warning(
                "will publish again", aggregate_id=aggregate_id, attempt=failures, error=repr(error)
            )
            await self._backoff.pause(failures)
        del self._waiting[aggregate_id]

    async def _send(
        self, wave: list[_Publication]
    ) -> tuple[list[Place | None], BaseException | None]:
        """Sends a wave; returns the places of those from its front, and what stopped it.

        What was sent after a failed one is sent again after it, so that a reader who skips what it
        has seen and waits at a gap meets every version in order.
        """
        if len(wave) == 1 and len(wave[0].messages) == 1:
            try:
                place = await self._transport.publish(wave[0].messages[0])
            except Exception as error:  # noqa: BLE001 - adapters may raise anything; sent again
                return [], error
            return [place if wave[0].placed else None], None
        sending = [
            asyncio.ensure_future(self._transport.publish(message))
            for publication in wave
            for message in publication.messages
        ]
        outcomes = iter(await asyncio.gather(*sending, return_exceptions=True))
        places: list[Place | None] = []
        for publication in wave:
            own = [next(outcomes) for _ in publication.messages]
            for outcome in own:
                if isinstance(outcome, BaseException):
                    return places, outcome
            first = own[0]
            places.append(first if publication.placed and isinstance(first, Place) else None)
        return places, None
