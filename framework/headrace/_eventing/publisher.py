"""
Stored streams to the event topic: at least once, in the order in which they were stored.

Sits between: the lanes, which offer what the store holds, and the transport. Never publishes what
is not durable.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import structlog

from headrace._domain.stream import EventStream
from headrace._runtime.backoff import Backoff
from headrace._runtime.tasks import TaskSet
from headrace.transports.base import Outgoing, Place, Transport

__all__ = ["Publisher", "event_topic"]

log = structlog.get_logger(__name__)

# Streams of one aggregate handed to the transport together; bounds what a failure sends again.
WAVE_MAX = 100


def event_topic(name: str) -> str:
    """The topic of an application's events and rejections."""
    return f"{name}.events"


@dataclass(frozen=True, slots=True)
class _Publication:
    message: Outgoing
    published: Callable[[Place], None]


class Publisher:
    """Publishes streams, each aggregate's in order and different aggregates' at the same time.

    Args:
        name: the application's name.
        transport: where the event topic is.
        tasks: runs one task per aggregate that has something to publish.
        backoff: how long to wait before a failed publication is repeated.
    """

    def __init__(
        self, *, name: str, transport: Transport, tasks: TaskSet, backoff: Backoff
    ) -> None:
        self._topic = event_topic(name)
        self._transport = transport
        self._tasks = tasks
        self._backoff = backoff
        # Waiting publications by aggregate; an aggregate is a key while its task runs.
        self._waiting: dict[str, deque[_Publication]] = {}

    def offer(self, stream: EventStream, body: bytes, published: Callable[[Place], None]) -> None:
        """Takes a stored stream and its bytes; calls `published` with its place in the topic.

        Streams of one aggregate are published in the order of the calls.
        """
        publication = _Publication(self._message(stream, body), published)
        waiting = self._waiting.get(stream.aggregate_id)
        if waiting is not None:
            waiting.append(publication)
            return
        waiting = self._waiting[stream.aggregate_id] = deque([publication])
        self._tasks.start("publish", self._publish(stream.aggregate_id, waiting))

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

    async def _send(self, wave: list[_Publication]) -> tuple[list[Place], BaseException | None]:
        """Sends a wave; returns the places of those from its front, and what stopped it.

        What was sent after a failed one is sent again after it, so that a reader who skips what it
        has seen and waits at a gap meets every version in order.
        """
        if len(wave) == 1:
            try:
                return [await self._transport.publish(wave[0].message)], None
            except Exception as error:  # noqa: BLE001 - adapters may raise anything; sent again
                return [], error
        sending = [
            asyncio.ensure_future(self._transport.publish(publication.message))
            for publication in wave
        ]
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        places: list[Place] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                return places, outcome
            places.append(outcome)
        return places, None
