"""Sends messages, each acknowledged by the broker, in order per queue; those on their way are in `send_buffer`."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from headrace_mq._net.client_connection import Answer
from headrace_mq._net.link import LinkSettings
from headrace_mq._runtime.async_block import AsyncBlock
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.client.names import client_id_of
from headrace_mq.client.producer.oneway import Oneway
from headrace_mq.client.producer.route import Selector
from headrace_mq.client.producer.scheduled import Scheduled, When, envelope
from headrace_mq.client.producer.send_buffer import SendBuffer
from headrace_mq.client.producer.send_results import SendResults, all_placed, report, settled
from headrace_mq.client.producer.spread_buffer import buffer_for
from headrace_mq.client.spread.spread_link import link_to
from headrace_mq.client.spread.topic_map import require_whole
from headrace_mq.errors import (
    Closed,
    ConnectionLost,
    MessageQueueError,
    RequestTimeout,
    TopicNotFound,
)
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import (
    CreateTopic,
    DescribeTopics,
    Reply,
    ReplyPush,
    TopicDescription,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC, CancelledScheduled, CancelScheduled
from headrace_mq.settings import ProducerSettings

__all__ = ["Producer"]

# A reply that is not delivered within this time is of no use to the caller that waits for it.
REPLY_TIMEOUT_MS = 10_000
# How soon a running producer uses queues that were added to a topic (RocketMQ: 30 s); it notices at
# once that one takes nothing any more.
ROUTE_REFRESH_MS = 5_000
# Topics of one request, which are those of one turn of the loop: the broker writes one file for them.
TOPICS_RESOLVED_MAX = 256

_log = get_logger(__name__)


class Producer(AsyncBlock):
    """Sends messages to one broker and takes the replies addressed to it.

    Safe to use from many tasks of one event loop; concurrent sends go together in batches.

    Args:
        address: the broker's `host:port`.
        settings: limits of batches, buffer and time.
        clock: gives born times and deadlines.
        selector: given a message and the topic's queue count, returns a queue number; without it
            keys are hashed, and messages without a key go round robin.
    """

    def __init__(
        self,
        address: str,
        settings: ProducerSettings | None = None,
        *,
        clock: Clock | None = None,
        selector: Selector | None = None,
    ) -> None:
        self._settings = settings or ProducerSettings()
        self._clock = clock or SystemClock()
        self._selector = selector
        self._client_id = client_id_of(self._settings.name)
        self._link = link_to(
            address,
            client_id=self._client_id,
            settings=LinkSettings.of(self._settings),
            on_push=self._pushed,
            on_ready=self._ready,
        )
        self._buffer: SendBuffer | None = None
        # The same from the end of `start` to the begin of `aclose`.
        self._open: SendBuffer | None = None
        self._oneway: Oneway | None = None
        self._receive_reply: Callable[[str, bytes], None] | None = None
        self._resolving: dict[str, asyncio.Task[None]] = {}
        self._wanted: list[str] = []
        # Those that it created and that are kept, and the connection over which it said so last.
        self._created: dict[str, CreateTopic] = {}
        self._said_over = 0
        self._refresher: asyncio.Task[None] | None = None
        self._schedule_is_there = False

    @property
    def client_id(self) -> str:
        """The address for replies: the same on every reconnection."""
        return self._client_id

    async def start(self, *, within_ms: int | None = None) -> None:
        """Connects; waits for the broker for the given milliseconds at most, or for the send timeout.

        Raises:
            ConnectionLost: no broker answered in time; the sentence says what to check.
            ValueError: the codec of the settings is not installed.
        """
        _check_codec(self._settings.codec)
        self._buffer = buffer_for(self._link)(
            self._link,
            self._settings,
            self._clock,
            selector=self._selector,
            want_route=self._want_route,
        )
        self._oneway = Oneway(self._link, self._settings, self._clock)
        try:
            await self._link.start(within_ms or self._settings.send_timeout_ms)
        except BaseException:
            self._buffer = None
            raise
        self._refresher = asyncio.create_task(self._refresh_routes(), name="producer routes")
        self._open = self._buffer

    async def aclose(self) -> None:
        """Sends the messages that wait, for the send timeout at most, and then closes."""
        buffer, refresher, self._open = self._buffer, self._refresher, None
        if buffer is None or refresher is None:
            return
        try:
            await buffer.drained()
        finally:
            if self._oneway is not None:
                self._oneway.flush()
            tasks = [*self._resolving.values(), refresher]
            for task in tasks:
                task.cancel()
            buffer.abandon(Closed("the producer was closed"))
            await self._link.aclose()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, message: Message) -> SendResult:
        """Sends one message and returns its queue and offset once it is durable.

        The message takes its place in the order of its queue before the first suspension. Cancelling
        a send does not take back a message that has already reached the buffer.

        Raises:
            ValueError, TypeError: the message cannot be sent; the sentence says what to change.
            SendTimeout: no acknowledgement in time; the message may or may not be stored, unless the
                sentence says that it is not.
            TopicNotFound: no such topic, and the broker creates none.
            BrokerError: the broker refused it; it is not stored.
            Closed: the producer is not open.
        """
        buffer = self._open or self._open_buffer()
        place = buffer.place(message)
        batch, number = place if isinstance(place, tuple) else await place
        waiter = batch.waiter
        if waiter is None and not batch.settled:
            waiter = batch.waiter = buffer.loop.create_future()
        if waiter is not None:
            # As `settled` does, without a coroutine of its own for each caller.
            # Asking for the running loop is a system call (of `getpid`), so it is handed down.
            task = asyncio.current_task(buffer.loop)
            before = 0 if task is None else task.cancelling()
            try:
                await waiter
            except asyncio.CancelledError:
                if task is None or task.cancelling() > before:
                    raise
                await settled(batch, buffer.loop)
        base_offset = batch.base_offset
        if base_offset < 0:
            return batch.result(number)
        # `Batch.result` without its call, the named tuple built as a tuple: half the time.
        return tuple.__new__(SendResult, (batch.queue, base_offset + number, batch.duplicate))

    def send_soon(self, message: Message) -> asyncio.Future[SendResult]:
        """Like `send`, but returns a future at once; the future ends as `send` would.

        The message has its place in the order of its queue when this returns. Cancelling the future
        does not take it back.

        Raises:
            ValueError, TypeError, Closed: as `send`; nothing was sent.
            BufferFull: `buffer_bytes_max` bytes wait for acknowledgement; await some futures first.
        """
        buffer = self._open_buffer()
        buffer.check_room()
        place = buffer.place(message)
        result: asyncio.Future[SendResult] = buffer.loop.create_future()
        if isinstance(place, tuple):
            batch, number = place
            batch.report(number, result)
        else:
            place.add_done_callback(partial(report, result))
        return result

    async def send_oneway(self, message: Message) -> bool:
        """Sends one message without an acknowledgement, for messages that may get lost.

        Returns False if there is no connection now, or the broker reads too slowly; nothing was sent.
        After True the message is lost if the connection ends or the broker refuses it. It may
        overtake messages of `send`, or fall behind them.

        Raises:
            ValueError, TypeError, TopicNotFound, Closed: as `send`.
            ConnectionLost, RequestTimeout: the topic could not be looked up.
        """
        buffer = self._open_buffer()
        size = buffer.measure(message)
        route = buffer.route(message.topic)
        if route is None:
            found = await self._describe([message.topic], create_missing=True)
            if message.topic not in found:
                raise _no_topic(message.topic)
            buffer = self._open_buffer()
            buffer.describe_route(found[message.topic])
            route = buffer.route(message.topic)
        assert route is not None
        assert self._oneway is not None
        return self._oneway.take(QueueRef(message.topic, route.choose(message)), message, size)

    async def send_many(self, messages: Iterable[Message]) -> Sequence[SendResult]:
        """Sends messages, in order per queue, and returns their places in the same order.

        If one of them cannot be sent, none is. If batches fail, the first failure is raised;
        the other messages may be stored.

        Raises:
            ValueError, TypeError, SendTimeout, TopicNotFound, BrokerError, Closed: as `send`.
        """
        self._open_buffer()
        if not isinstance(messages, list | tuple):
            messages = list(messages)
        if len({message.topic for message in messages}) != 1:
            return await self._send_each(messages)
        topic = messages[0].topic
        return await self._send_part(topic, MessageColumns.of(messages), messages)

    async def send_columns(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[str] = (),
        tags: Sequence[str] = (),
        headers: Sequence[Mapping[str, str]] = (),
    ) -> Sequence[SendResult]:
        """Like `send_many`, for content in columns: it makes no `Message` objects.

        `keys`, `tags` and `headers` are empty or have one entry for each body.

        Raises:
            ValueError, TypeError, SendTimeout, TopicNotFound, BrokerError, Closed: as `send`.
        """
        self._open_buffer()
        if not bodies:
            return []
        return await self._send_part(topic, MessageColumns(bodies, keys, tags, headers))

    async def schedule(
        self,
        message: Message,
        *,
        at_ms: int | None = None,
        delay_ms: int | None = None,
        level: str | None = None,
    ) -> Scheduled:
        """Sends a message that the broker delivers later, once; durable on return.

        Give one of `at_ms`, `delay_ms` and `level`. The queue is chosen when the message is due.

        Args:
            message: with at most 62 headers.
            at_ms: a time, in ms since 1970 UTC, at most 366 days ahead; a past time means now.
            delay_ms: a delay after the broker has stored the message, by the broker's clock.
            level: a delay by RocketMQ's names, from "1s" to "2h".

        Raises:
            ScheduleFull: as many messages wait as the broker allows.
            ValueError, TypeError, SendTimeout, BrokerError, Closed: as `send`.
        """
        when = When.of(at_ms=at_ms, delay_ms=delay_ms, level=level)
        sealed, due_at_ms = envelope(message, when), when.due_at_ms(self._clock.now_ms())
        await self._link.require_first(message.topic)
        if not self._schedule_is_there:
            await self.create_topic(SCHEDULE_TOPIC, 1)
            self._schedule_is_there = True
        return Scheduled((await self.send(sealed)).offset, due_at_ms)

    async def cancel(self, scheduled_id: int) -> bool:
        """Cancels a scheduled message, durably; False: it is delivered or was cancelled before.

        Raises:
            BrokerError: the broker refused; nothing was changed.
            ConnectionLost, RequestTimeout: the outcome is unknown; asking again is safe.
        """
        self._open_buffer()
        answer = await self._link.request(
            RequestCode.CANCEL_SCHEDULED,
            encode(CancelScheduled(scheduled_id)),
            timeout_ms=self._settings.send_timeout_ms,
        )
        return decode(CancelledScheduled, answer).cancelled

    async def create_topic(self, topic: str, queues: int = 0, retention: str = "transient") -> None:
        """Creates a topic, or confirms that it exists with at least these settings.

        The producer repeats this over each new connection, unless the topic is "transient". A broker
        that lost its directory would otherwise make the topic as a transient one, and delete messages.

        Args:
            topic: its name.
            queues: how many queues; 0 for the broker's choice.
            retention: "forever", "transient" (deleted by age), or "compact" (the last message of
                each key is kept).

        Raises:
            TopicExists: it exists with other settings.
            RequestTimeout: no answer within the send timeout.
        """
        self._open_buffer()
        asked = CreateTopic(topic=topic, queues=queues, retention=retention)
        await self._link.ask(
            TopicsAnswer,
            RequestCode.CREATE_TOPIC,
            asked,
            timeout_ms=self._settings.send_timeout_ms,
        )
        if retention != "transient":
            self._created[topic] = asked

    async def reply(self, client_id: str, correlation: str, body: bytes) -> None:
        """Sends a reply to the producer with that client id; at most once, never stored.

        Raises:
            ReplyUndeliverable: no such producer is connected.
            ConnectionLost: the connection ended before the broker confirmed.
            RequestTimeout: the broker did not answer in time.
        """
        self._open_buffer()
        await self._link.request(
            RequestCode.REPLY,
            encode(Reply(client_id=client_id, correlation=correlation, body=body)),
            timeout_ms=REPLY_TIMEOUT_MS,
        )

    def reply_soon(self, client_id: str, correlation: str, body: bytes) -> bool:
        """Like `reply`, without waiting for the answer: you do not learn whether the reply is lost.

        Returns False if the connection cannot take it now; nothing was sent then.
        """
        self._open_buffer()
        request = Reply(client_id=client_id, correlation=correlation, body=body)
        return self._link.tell(RequestCode.REPLY, encode(request))

    def on_reply(self, receive: Callable[[str, bytes], None]) -> None:
        """Sets the function that takes (correlation, body) of each reply to this producer."""
        self._receive_reply = receive

    async def _send_part(
        self, topic: str, part: MessageColumns, messages: Sequence[Message] | None = None
    ) -> Sequence[SendResult]:
        buffer = self._open_buffer()
        buffer.check_part(topic, part)
        runs = buffer.place_part(topic, part)
        if runs is None:
            return await self._send_each(messages or list(part.messages(topic)))
        for batch in dict.fromkeys(run.batch for run in runs):
            if not batch.settled:
                await settled(batch, buffer.loop)
        for run in sorted(runs, key=lambda run: run.places[0]):
            run.batch.check(run.first, len(run.places))
        return SendResults(runs)

    async def _send_each(self, messages: Sequence[Message]) -> list[SendResult]:
        buffer = self._open_buffer()
        for message in messages:
            buffer.measure(message)
        placed = [buffer.place(message) for message in messages]
        places = await all_placed(placed)
        for batch in dict.fromkeys(batch for batch, _ in places):
            if not batch.settled:
                await settled(batch, buffer.loop)
        return [batch.result(number) for batch, number in places]

    def _open_buffer(self) -> SendBuffer:
        if self._open is None:
            raise Closed("the producer is not open: start it first, and do not use it once closed")
        return self._open

    def _ready(self) -> None:
        if self._said_over != self._link.connections:
            self._said_over = self._link.connections
            for asked in self._created.values():
                # Ahead of all messages: the broker serves what comes over a connection in turn.
                with suppress(ConnectionLost):
                    self._link.submit(RequestCode.CREATE_TOPIC, encode(asked), receive=_note)
        if self._buffer is not None:
            self._buffer.resume()

    def _pushed(self, frame: Frame) -> None:
        if frame.code == RequestCode.PUSHED_REPLY and self._receive_reply is not None:
            push = decode(ReplyPush, frame.body)
            self._receive_reply(push.correlation, push.body)

    def _want_route(self, topic: str) -> None:
        if topic in self._resolving:
            return
        if not self._wanted or len(self._wanted) == TOPICS_RESOLVED_MAX:
            # It begins in the loop's next turn, and takes all that this turn has named.
            self._wanted = [topic]
            task = asyncio.create_task(self._resolve(self._wanted), name="routes")
        else:
            task = self._resolving[self._wanted[0]]
            self._wanted.append(topic)
        self._resolving[topic] = task

    async def _resolve(self, topics: list[str]) -> None:
        if self._wanted is topics:
            self._wanted = []
        assert self._buffer is not None
        found: dict[str, TopicDescription] = {}
        failure: MessageQueueError | None = None
        try:
            found = await self._describe(topics, create_missing=True)
        except MessageQueueError as error:
            if len(topics) > 1 and not isinstance(error, ConnectionLost | RequestTimeout):
                # It may be about one of them.
                await asyncio.gather(*(self._resolve([topic]) for topic in topics))
                return
            failure = error
        for topic in topics:
            del self._resolving[topic]
        if isinstance(failure, RequestTimeout):
            # Each message has its own deadline; those that came later want the route still.
            self._buffer.admit()
            return
        for topic in topics:
            if topic in found:
                self._buffer.describe_route(found[topic])
            else:
                self._buffer.refuse_route(topic, failure or _no_topic(topic))

    async def _refresh_routes(self) -> None:
        assert self._buffer is not None
        while True:
            await asyncio.sleep(ROUTE_REFRESH_MS / 1_000)
            known = self._buffer.topics
            if not known:
                continue
            try:
                for found in (await self._describe(known, create_missing=False)).values():
                    self._buffer.describe_route(found)
            except MessageQueueError as error:
                _log.warning("routes not refreshed; retrying", reason=str(error))

    async def _describe(
        self, topics: list[str], *, create_missing: bool
    ) -> dict[str, TopicDescription]:
        answer = await self._link.ask(
            TopicsAnswer,
            RequestCode.DESCRIBE_TOPICS,
            DescribeTopics(topics=topics, create_missing=create_missing),
            timeout_ms=self._settings.send_timeout_ms,
        )
        return require_whole(answer.topics)


def _no_topic(topic: str) -> TopicNotFound:
    return TopicNotFound(
        f"topic {topic!r} does not exist and the broker does not create topics by itself;"
        " create it first"
    )


def _note(answer: Answer) -> None:
    if isinstance(answer, MessageQueueError) and not isinstance(answer, ConnectionLost):
        _log.warning("a topic was not created as asked", reason=str(answer))


def _check_codec(codec: str) -> None:
    try:
        encode_batch(QueueRef("t", 0), Columns([], [], [], [b""], []), born_first_ms=0, codec=codec)
    except ImportError as error:
        raise ValueError(
            f"codec {codec!r} needs a package that is not installed: pip install"
            " 'headrace[compression]'"
        ) from error
