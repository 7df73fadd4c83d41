"""
The unacknowledged messages of a producer: one sender per queue, and a line that waits for room.

A message gets its place in its queue's order when it is handed over. It waits in a line until the route of
its topic is known and the buffer has room. One request carries a batch of each queue that may send.

Used by `Producer`, whose callers wait for a place and then for their batch.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from headrace_mq._net.client_connection import Answer
from headrace_mq._net.link import Link
from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.batch.batch import Batch, Place
from headrace_mq.client.batch.message_columns import (
    KEY_SURELY_SHORT,
    MESSAGE_OVERHEAD_BYTES,
    MessageColumns,
)
from headrace_mq.client.batch.message_size import FRAME_OVERHEAD_BYTES, measure, message_bytes_max
from headrace_mq.client.producer.queue_sender import FOLLOW_BYTES, QueueSender, new_producer_id
from headrace_mq.client.producer.reroute import PausedSenders, RouteFacts
from headrace_mq.client.producer.route import Route, Selector
from headrace_mq.client.producer.send_results import BatchRun, outcomes, too_late
from headrace_mq.client.producer.wait_line import InLine, Line
from headrace_mq.errors import (
    BrokerError,
    BufferFull,
    ConnectionLost,
    MessageQueueError,
    QueueFrozen,
    QueueNotFound,
    SendTimeout,
    SequenceGap,
    TopicNotFound,
)
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import BATCH_RECORDS_MAX
from headrace_mq.protocol.bodies import Produced, TopicDescription
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ProducerSettings

__all__ = ["SendBuffer"]

# Deadlines are looked at this often: a twentieth of the timeout, within these bounds.
SWEEP_MS_MIN, SWEEP_MS_MAX = 5, 250
# A queue with so much to send departs at once instead of at the end of the tick: the broker works on
# it while the other callers of the tick prepare theirs. Smaller batches cost it more than that saves.
# While the broker has requests to work on already, a queue gathers until it may follow.
DEPART_BYTES = 16 << 10
# After so many requests of a single message the caller sends one by one: the next leaves at once.
ALONE_REQUESTS = 4
# A broker works on this many for some milliseconds, and on no request of others meanwhile.
BATCHES_PER_REQUEST = 1_024

_log = get_logger(__name__)


class SendBuffer:
    """The unacknowledged messages of one producer.

    Args:
        link: the connection to the broker.
        settings: limits of batches, buffer and time.
        clock: tells born times and deadlines.
        selector: chooses queues instead of the routing rule.
        want_route: called with a topic whose route is not known.

    Attributes:
        loop: the event loop all of it runs on.
    """

    def __init__(
        self,
        link: Link,
        settings: ProducerSettings,
        clock: Clock,
        *,
        selector: Selector | None,
        want_route: Callable[[str], None],
    ) -> None:
        self._link = link
        self._settings = settings
        self._clock = clock
        self._selector = selector
        self._want_route = want_route
        self.loop = asyncio.get_running_loop()
        self._producer_id = new_producer_id()
        self._routes: dict[str, Route] = {}
        self._senders: dict[tuple[str, int], QueueSender] = {}
        self._shut = PausedSenders(self._senders, finish=self._finish)
        self._free: dict[QueueSender, None] = {}  # With a batch to send, oldest first.
        self._line = Line()
        self._buffered = 0
        self._timeout_ms = settings.send_timeout_ms
        self._buffer_bytes_max = settings.buffer_bytes_max
        self._message_bytes_max = message_bytes_max(link.frame_bytes_max)
        # Whether batches leave at the end of this tick, and when that became known: then all that comes
        # in this tick is born. To ask the clock for each message takes 7 % of what sending it does.
        self._departing, self._tick_ms = False, 0
        # Requests on their way, from which size a batch leaves within the tick, and how many requests
        # in a row held a single message.
        self._unanswered, self._depart_bytes, self._alone = 0, DEPART_BYTES, 0
        self._connection = link.connections
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_ms = min(max(self._timeout_ms // 20, SWEEP_MS_MIN), SWEEP_MS_MAX)
        self._empty = asyncio.Event()

    @property
    def topics(self) -> list[str]:
        """The topics whose routes are known."""
        return list(self._routes)

    def place(self, message: Message) -> Place | asyncio.Future[Place]:
        """Gives a message its place, or a place in the line that becomes one.

        Raises:
            ValueError, TypeError: it cannot be sent; the sentence says what to change.
        """
        body, key = message.body, message.key
        route = self._routes.get(message.topic)
        if (
            route is not None
            and type(key) is str
            and key.isascii()
            and len(key) <= KEY_SURELY_SHORT
            and type(body) is bytes
            and message.tag == ""
            and not message.headers
            and not self._line.waiting
        ):
            # What `measure` says of most messages, without its call.
            size = len(body) + len(key) + MESSAGE_OVERHEAD_BYTES
            buffered = self._buffered + size
            if size <= self._message_bytes_max and buffered <= self._buffer_bytes_max:
                born_ms = self._tick_ms if self._departing else self._clock.now_ms()
                place = (message.topic, route.choose(message))
                sender = self._senders.get(place) or self._sender(*place)
                waiting = sender.waiting
                batch = waiting[-1] if waiting else None
                if (
                    batch is None
                    or (number := batch.count) >= sender.messages_max
                    or (grown := batch.size + size) > sender.bytes_max
                ):
                    return self._add(sender, message, size, born_ms)
                # `_add` without three calls, which every message would pay for; the batch stays bare.
                self._buffered = buffered
                batch.fresh.append(message)
                batch.born_ms.append(born_ms)
                batch.size, batch.count = grown, number + 1
                if grown >= self._depart_bytes:
                    self._grown(sender, batch, number)
                return batch, number
        size = measure(message, self._message_bytes_max, routed=route is not None)
        if route is None or self._line.waiting or not self._has_room(size):
            return self._line_up(message, size)
        return self._put(route, message, size, self._clock.now_ms())

    def _line_up(self, message: Message, size: int) -> asyncio.Future[Place]:
        if self._sweeper is None:
            self._sweep_later()
        future: asyncio.Future[Place] = self.loop.create_future()
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        self._line.join(InLine(message, size, self._clock.now_ms(), deadline_ms, future))
        if message.topic not in self._routes:
            self._want_route(message.topic)
        self.admit()
        return future

    def check_room(self) -> None:
        """Raises BufferFull where the next message would have to wait for room."""
        if self._buffered + self._line.size >= self._buffer_bytes_max:
            raise BufferFull(
                f"{self._buffered + self._line.size} bytes wait for their acknowledgement, as many"
                " as may; await some of them first, or raise buffer_bytes_max"
            )

    def place_part(self, topic: str, part: MessageColumns) -> list[BatchRun] | None:
        """Gives many messages of one topic their places; None where some would have to wait.

        Args:
            topic: theirs.
            part: checked by `check_part`; there is at least one message.
        """
        route = self._routes.get(topic)
        if route is None or self._line.waiting or not self._has_room(part.size):
            return None
        divided = route.divide(part)
        now_ms, deadline_ms = self._clock.now_ms(), self._clock.monotonic_ms() + self._timeout_ms
        if self._sweeper is None:
            self._sweep_later()
        runs, large = list[BatchRun](), False
        for number, places in divided:
            sender = self._sender(topic, number)
            mine = part if len(places) == len(part) else part.pick(places)
            at = 0
            for batch, first, count in sender.extend(mine, now_ms):
                if first == 0:
                    batch.deadline_ms = deadline_ms
                runs.append(BatchRun(batch, first, places[at : at + count]))
                at += count
            self._buffered += mine.size
            if sender.has_work:
                self._free[sender] = None
                large = large or sender.waits_bytes >= self._depart_bytes
        if large:
            self._depart()
        elif self._free:
            self._depart_soon()
        return runs

    def check_part(self, topic: str, part: MessageColumns) -> None:
        """Checks many messages; raises what `measure` raises for the first that cannot be sent."""
        if topic not in self._routes or not part.surely_fits(self._message_bytes_max):
            for message in part.messages(topic):
                self.measure(message)

    def measure(self, message: Message) -> int:
        """Checks a message and returns the most bytes it can take on the wire.

        Raises:
            ValueError, TypeError: it cannot be sent; the sentence says what to change.
        """
        return measure(message, self._message_bytes_max)

    def open_route(
        self, topic: str, queues: int, closed: Collection[int] = (), *, compact: bool = False
    ) -> None:
        """Takes over what the broker says of a topic's queues, as soon as its order allows."""
        route = self._routes.get(topic) or Route(topic, queues, self._selector)
        if not self._shut.may_change(route, RouteFacts(queues, frozenset(closed), compact)):
            return
        self._routes[topic] = route
        route.update(queues, closed, compact=compact)
        moved, grown = self._shut.move(route)
        self._buffered += grown
        for batch in moved:
            sender = self._sender(*batch.queue)
            sender.adopt(batch)
            self._free[sender] = None
        self._depart_soon()
        self.admit()

    def describe_route(self, found: TopicDescription) -> None:
        """The same, as the broker puts it."""
        compact = found.retention == "compact"
        self.open_route(found.topic, found.queues, found.unwritable, compact=compact)

    def route(self, topic: str) -> Route | None:
        """The way into a topic, where it is known."""
        return self._routes.get(topic)

    def refuse_route(self, topic: str, error: MessageQueueError) -> None:
        """Fails the messages that wait for a topic's route."""
        self._line.refuse(topic, error)
        if isinstance(error, TopicNotFound):
            self._shut.fail(topic, error)
            self._routes.pop(topic, None)
        self.admit()

    def resume(self) -> None:
        """Sends what is ready: the link can be written to again."""
        self._message_bytes_max = message_bytes_max(self._link.frame_bytes_max)
        if self._connection != self._link.connections:
            self._connection = self._link.connections
            for sender in self._senders.values():
                sender.confirmed = False
        if self._free:
            self._depart_soon()

    async def drained(self) -> None:
        """Waits until nothing is left to acknowledge; the send timeout bounds it."""
        while self._line.waiting or self._buffered:
            self._empty.clear()
            await self._empty.wait()

    def abandon(self, error: MessageQueueError) -> None:
        """Gives up everything that is left."""
        for sender in self._senders.values():
            for batch in sender.abandoned():
                self._finish(batch, error)
        self._line.abandon(error)
        self._free.clear()
        self._shut.senders.clear()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._empty.set()

    def _has_room(self, size: int) -> bool:
        # A message that is larger than the whole buffer passes when nothing else is there.
        return not self._buffered or self._buffered + size <= self._buffer_bytes_max

    def _put(
        self, route: Route, message: Message, size: int, born_ms: int, deadline_ms: int = 0
    ) -> Place:
        sender = self._sender(route.topic, route.choose(message))
        return self._add(sender, message, size, born_ms, deadline_ms)

    def _add(
        self, sender: QueueSender, message: Message, size: int, born_ms: int, deadline_ms: int = 0
    ) -> Place:
        batch, number = place = sender.add(message, size, born_ms)
        self._buffered += size
        self._grown(sender, batch, number, deadline_ms)
        return place

    def _grown(self, sender: QueueSender, batch: Batch, number: int, deadline_ms: int = 0) -> None:
        """Notes the first message of a batch, and departs with a large one."""
        if number == 0:
            if self._sweeper is None:
                self._sweep_later()
            batch.deadline_ms = deadline_ms or self._clock.monotonic_ms() + self._timeout_ms
        if batch.size >= self._depart_bytes and sender.has_work:
            self._free[sender] = None
            self._depart()
        elif number == 0 and not sender.flight:
            # Those that follow find it here, or their sender gets free when an answer comes.
            self._free[sender] = None
            if self._alone >= ALONE_REQUESTS and not self._unanswered:
                self._depart()
            else:
                self._depart_soon()

    def _sender(self, topic: str, number: int) -> QueueSender:
        sender = self._senders.get((topic, number))
        if sender is None:
            queue = QueueRef(topic, number)
            sender = self._senders[queue] = QueueSender(
                queue,
                self._producer_id,
                messages_max=min(self._settings.batch_messages_max, BATCH_RECORDS_MAX),
                bytes_max=min(self._settings.batch_bytes_max, self._message_bytes_max),
                codec=self._settings.codec,
            )
        return sender

    def _sweep_later(self) -> None:
        self._sweeper = self.loop.call_later(self._sweep_ms / 1_000, self._sweep)

    def admit(self) -> None:
        """Gives places to the first in line for whom there is a route and room."""
        while (head := self._line.head()) is not None:
            self._alone = 0  # Those in line go together.
            route = self._routes.get(head.message.topic)
            if route is None:
                self._want_route(head.message.topic)  # Again, where it could not be had in time.
            if route is None or not self._has_room(head.size):
                return
            self._line.leave()
            try:
                place = self._put(route, *head[:4])
            except Exception as error:  # noqa: BLE001 - a selector's defect goes to its caller
                head.place.set_exception(error)
            else:
                head.place.set_result(place)

    def _depart_soon(self) -> None:
        if not self._departing:
            self._departing, self._tick_ms = True, self._clock.now_ms()
            self.loop.call_soon(self._depart_at_end)

    def _depart_at_end(self) -> None:
        self._departing = False
        self._depart()

    def _depart(self) -> None:
        limit = self._link.frame_bytes_max
        load, parts = list[tuple[QueueSender, Batch]](), list[bytearray]()
        size = FRAME_OVERHEAD_BYTES
        while self._free and self._link.is_ready:
            sender = next(iter(self._free))
            if not sender.has_work:
                del self._free[sender]
                continue
            batch, encoded = sender.depart()
            if parts and (size + len(encoded) > limit or len(parts) >= BATCHES_PER_REQUEST):
                self._send(load, parts)
                load, parts, size = [], [], FRAME_OVERHEAD_BYTES
            load.append((sender, batch))
            parts.append(encoded)
            size += len(encoded)
        if parts:
            self._send(load, parts)

    def _send(self, load: list[tuple[QueueSender, Batch]], parts: list[bytearray]) -> None:
        alone = not self._unanswered and len(load) == 1 and load[0][1].count == 1
        self._alone = self._alone + 1 if alone else 0
        self._unanswered += 1
        self._depart_bytes = FOLLOW_BYTES
        receive = partial(self._answered, load)
        try:
            # Not at the end of the tick: a socket that is full must be noticed before the next one.
            self._link.submit(RequestCode.PRODUCE, *parts, receive=receive, at_once=True)
        except ConnectionLost as error:
            self._answered(load, error)

    def _answered(self, load: list[tuple[QueueSender, Batch]], answer: Answer) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._depart_bytes = DEPART_BYTES
        for (sender, batch), outcome in zip(load, outcomes(answer, len(load)), strict=True):
            # A batch that was given up meanwhile has reported it to its callers.
            if batch.settled:
                continue
            if isinstance(outcome, Produced):
                sender.arrived(batch)
                self._buffered -= batch.size
                batch.stored(outcome.base_offset, duplicate=outcome.duplicate)
            else:
                self._refused(sender, batch, outcome)
            if sender.has_work:
                self._free[sender] = None
        if self._shut.senders:
            self._look_at_shut()
        # Before the callers that were just answered: what they send next goes together meanwhile.
        if self._free:
            self._depart()
        if self._line.waiting:
            self.admit()
        if not self._buffered and not self._line.waiting:
            self._empty.set()

    def _refused(self, sender: QueueSender, batch: Batch, error: MessageQueueError) -> None:
        """Sends a batch that was not stored again, there or to other queues, or gives it up."""
        if isinstance(error, ConnectionLost):
            sender.returned(batch)
        elif isinstance(error, SequenceGap) and sender.gapped(batch):
            return
        elif isinstance(error, BrokerError) and error.retriable:
            self._resend_later(sender, batch, error)
        elif not isinstance(error, QueueFrozen | QueueNotFound) or not self._shut.refuse(
            self._routes.get(batch.queue.topic), sender, batch, error
        ):
            # Behind one that was given up as late, this one is late as well.
            late = isinstance(error, SequenceGap) and sender.late
            sender.lost(batch)
            self._finish(batch, self._late(batch) if late else error)
            if isinstance(error, TopicNotFound | QueueNotFound):
                self._routes.pop(batch.queue.topic, None)

    def _look_at_shut(self) -> None:
        for topic, facts in self._shut.ready():
            if facts is None:
                self._want_route(topic)
            else:
                self.open_route(topic, facts.queues, facts.closed, compact=facts.compact)

    def _resend_later(self, sender: QueueSender, batch: Batch, error: BrokerError) -> None:
        batch.refusals.append(str(error))
        sender.returned(batch)
        if not sender.paused:
            _log.warning(
                "the broker refused a batch; the producer sends it again", topic=sender.queue.topic,
                queue_id=sender.queue.queue_id, reason=str(error), pause_ms=self._pause(sender, batch),
            )  # fmt: skip

    def _pause(self, sender: QueueSender, batch: Batch) -> int:
        pause_ms = sender.pause(batch.attempts, self._settings)
        self.loop.call_later(pause_ms / 1_000, self._resend, sender)
        return pause_ms

    def _resend(self, sender: QueueSender) -> None:
        sender.paused = False
        self._free[sender] = None
        self._depart_soon()

    def _finish(self, batch: Batch, error: MessageQueueError) -> None:
        self._buffered -= batch.size
        batch.failed(error)

    def _sweep(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for sender in self._senders.values():
            for batch in sender.expired(now_ms):
                self._finish(batch, self._late(batch))
            sender.rest()
            if sender.has_work:
                self._free[sender] = None
            else:
                self._free.pop(sender, None)
        for one in self._line.expired(now_ms):
            one.place.set_exception(self._late(None))
        if self._shut.senders:
            self._look_at_shut()
        self.admit()
        self.resume()
        self._sweeper = None
        if self._line.waiting or self._buffered:
            self._sweep_later()
        else:
            self._empty.set()

    def _late(self, batch: Batch | None) -> SendTimeout:
        return too_late(self._link.address, self._timeout_ms, batch)
