"""
Publishes stored streams to the event topic: at least once, in the order in which they were stored.

    events, rejections     APP.events
    application messages   APP.messages, each a message of its own, after the events of its command

Used by the workers, which offer streams only after these are durable; writes to the transport.
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

# Streams of one aggregate that are sent together; after a failure, at most so many are sent again.
WAVE_MAX = 100
# Aggregate type, and start of the ids, of messages in the event topic that hold no event of yours.
HEARTBEAT: Final = "headrace.heartbeat"


def event_topic(name: str) -> str:
    """Returns the topic of an application's events and rejections."""
    return f"{name}.events"


def message_topic(name: str) -> str:
    """Returns the topic of an application's messages."""
    return f"{name}.messages"


class _Publication(NamedTuple):
    # The stream comes first, if it goes to the event topic.
    messages: tuple[Outgoing, ...]
    placed: bool
    published: Callable[[Place | None], None]


class _Line:
    """The publications of an aggregate that wait, and the wave that is under way."""

    __slots__ = ("aggregate_id", "failures", "outcomes", "unknown", "waiting", "wave")

    def __init__(self, aggregate_id: str) -> None:
        self.aggregate_id = aggregate_id
        self.waiting: deque[_Publication] = deque()
        self.wave: list[_Publication] = []
        # By message of the wave; None: not known yet.
        self.outcomes: list[Place | BaseException | None] = []
        self.unknown = 0
        self.failures = 0


class Publisher:
    """Publishes streams, each aggregate's in order and different aggregates' at the same time.

    Args:
        name: the application's name.
        transport: where the topics are.
        serializer: encodes application messages.
        tasks: runs the tasks that wait for the transport.
        backoff: how long to wait before a retry.
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
        # Those that send at the next turn of the event loop; until then they may get more streams.
        self._new_lines: list[_Line] = []

    def offer(
        self, stream: EventStream, body: bytes, published: Callable[[Place | None], None]
    ) -> None:
        """Takes a stored stream and its bytes; calls `published` when all of it is in the topics.

        `published` gets the stream's place in the event topic, or None if the stream has only application
        messages. Streams of one aggregate are published in the order of the calls.
        """
        messages = tuple(self._application_messages(stream)) if stream.messages else ()
        placed = bool(stream.events) or stream.rejection is not None
        if placed:
            messages = (self._message(stream, body), *messages)
        line = self._lines.get(stream.aggregate_id)
        if line is None:
            line = self._lines[stream.aggregate_id] = _Line(stream.aggregate_id)
            if not self._new_lines:
                asyncio.get_running_loop().call_soon(self._send_new)
            self._new_lines.append(line)
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

    def _send_new(self) -> None:
        lines, self._new_lines = self._new_lines, []
        if self._tasks.closing:
            return
        for line in lines:
            self._send(line)

    def _send(self, line: _Line) -> None:
        """Gives the next wave of an aggregate's publications to the transport."""
        line.wave = list(islice(line.waiting, WAVE_MAX))
        messages = [message for each in line.wave for message in each.messages]
        line.outcomes = [None] * len(messages)
        line.unknown = len(messages)
        room = True
        for number, message in enumerate(messages):
            report = partial(self._on_outcome, line, number)
            # If a message waits for room, those after it wait, too.
            room = room and self._transport.publish_soon(message, report)
            if not room:
                self._tasks.start("publish", self._publish(message, report))

    async def _publish(self, message: Outgoing, report: Report) -> None:
        outcome: Place | BaseException
        try:
            outcome = await self._transport.publish(message)
        except Exception as error:  # noqa: BLE001 - adapters may raise anything; sent again
            outcome = error
        report(outcome)

    def _on_outcome(self, line: _Line, number: int, outcome: Place | BaseException) -> None:
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
        except Exception as error:  # noqa: BLE001 - a bug, which must not stay unnoticed
            self._tasks.fail("publish", error)

    def _settle(self, line: _Line) -> BaseException | None:
        """Reports the wave's publications up to the first that failed; returns its error.

        The failed one and all after it are sent again. So readers, which skip versions that they have
        seen, get every version in order.
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
