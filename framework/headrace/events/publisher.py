"""
Stored streams to the event topic: at least once, in the order in which they were stored.

    events, rejections     APP.events
    application messages   APP.messages, each a message of its own, after the events of its command

Used by the workers, which offer stored streams; uses the transport. It never publishes what is not
durable.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from headrace._runtime.backoff import Backoff
from headrace._runtime.log import get_logger
from headrace._runtime.tasks import TaskSet
from headrace.domain.stream import EventStream
from headrace.domain.trace_context import trace_headers
from headrace.serialization import Serializer
from headrace.transports.base import Outgoing, Place, Report, Transport

__all__ = ["HEARTBEAT", "Publisher", "event_topic", "message_topic"]

log = get_logger(__name__)

# Streams of one aggregate handed to the transport together; bounds what a failure sends again.
WAVE_MAX = 100
# The type, and the beginning of the ids, of what goes through the event topic and never happened.
HEARTBEAT: Final = "headrace.heartbeat"


def event_topic(name: str) -> str:
    """The topic of an application's events and rejections."""
    return f"{name}.events"


def message_topic(name: str) -> str:
    """The topic of an application's application messages."""
    return f"{name}.messages"


class _Publication(NamedTuple):
    # The stream first, if it goes to the event topic.
    messages: tuple[Outgoing, ...]
    placed: bool
    published: Callable[[Place | None], None]


class _Line:
    """What an aggregate has to publish, and the wave of it that is under way."""

    __slots__ = ("aggregate_id", "failures", "outcomes", "unknown", "waiting", "wave")

    def __init__(self, aggregate_id: str) -> None:
        self.aggregate_id = aggregate_id
        self.waiting: deque[_Publication] = deque()
        self.wave: list[_Publication] = []
        # Of each message of the wave, once it is known.
        self.outcomes: list[Place | BaseException | None] = []
        self.unknown = 0
        self.failures = 0


class Publisher:
    """Publishes streams, each aggregate's in order and different aggregates' at the same time.

    Args:
        name: the application's name.
        transport: where the topics are.
        serializer: encodes application messages.
        tasks: runs what waits for the transport.
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
        # Aggregates that have something to publish.
        self._lines: dict[str, _Line] = {}
        # Those of them that begin with the next turn of the event loop, which may give them more.
        self._beginning: list[_Line] = []

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
        line = self._lines.get(stream.aggregate_id)
        if line is None:
            line = self._lines[stream.aggregate_id] = _Line(stream.aggregate_id)
            if not self._beginning:
                asyncio.get_running_loop().call_soon(self._begin)
            self._beginning.append(line)
        line.waiting.append(_Publication(messages, placed, published))

    def _application_messages(self, stream: EventStream) -> Iterator[Outgoing]:
        for message, context in stream.message_contexts():
            yield Outgoing(
                topic=self._message_topic,
                key=stream.aggregate_id,
                tag=message.message_name,
                headers={
                    "kind": "message",
                    "command": stream.command_id,
                    **trace_headers(stream.items),
                },
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
                **(trace_headers(stream.items) if stream.items else {}),
            },
            body=body,
        )

    def _begin(self) -> None:
        lines, self._beginning = self._beginning, []
        if self._tasks.closing:
            return
        for line in lines:
            self._send(line)

    def _send(self, line: _Line) -> None:
        """Hands a wave of an aggregate's publications to the transport."""
        line.wave = list(islice(line.waiting, WAVE_MAX))
        messages = [message for each in line.wave for message in each.messages]
        line.outcomes = [None] * len(messages)
        line.unknown = len(messages)
        room = True
        for number, message in enumerate(messages):
            told = partial(self._told, line, number)
            # What follows one that waits for room waits behind it.
            room = room and self._transport.publish_soon(message, told)
            if not room:
                self._tasks.start("publish", self._publish(message, told))

    async def _publish(self, message: Outgoing, told: Report) -> None:
        outcome: Place | BaseException
        try:
            outcome = await self._transport.publish(message)
        except Exception as error:  # noqa: BLE001 - adapters may raise anything; sent again
            outcome = error
        told(outcome)

    def _told(self, line: _Line, number: int, outcome: Place | BaseException) -> None:
        line.outcomes[number] = outcome
        line.unknown -= 1
        if line.unknown or self._tasks.closing:
            return
        try:
            failure = self._settle(line)
            if failure is not None:
                self._tasks.start("publish again", self._send_again(line, failure))
                return
            line.failures = 0
            if line.waiting:
                self._send(line)
            else:
                del self._lines[line.aggregate_id]
        except Exception as error:  # noqa: BLE001 - a defect, which must not pass in silence
            self._tasks.fail("publish", error)

    def _settle(self, line: _Line) -> BaseException | None:
        """Reports the publications from a wave's front that are done; returns what stopped it.

        What was sent after a failed one is sent again after it, so that a reader who skips what it
        has seen and waits at a gap meets every version in order.
        """
        outcomes = iter(line.outcomes)
        for publication in line.wave:
            own = [next(outcomes) for _ in publication.messages]
            for outcome in own:
                if isinstance(outcome, BaseException):
                    return outcome
            line.waiting.popleft()
            first = own[0] if publication.placed else None
            publication.published(first if isinstance(first, Place) else None)
        return None

    async def _send_again(self, line: _Line, failure: BaseException) -> None:
        line.failures += 1
        log.warning(
            "will publish again",
            aggregate_id=line.aggregate_id,
            attempt=line.failures,
            error=repr(failure),
        )
        await self._backoff.pause(line.failures)
        self._send(line)
