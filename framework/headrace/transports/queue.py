"""
The transport over the broker: the only module of the live path that knows `headrace_mq`.

Implements the transport port with the queue's producer and consumer. Knows nothing of commands,
events or projections.
"""

import asyncio
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace

from headrace._runtime.log import get_logger
from headrace.errors import BrokerUnreachable, HeadraceError
from headrace.transports.base import (
    DAMAGED,
    Incoming,
    OffsetLoader,
    Outgoing,
    Place,
    QueueId,
    Report,
    Subscription,
    TopicLineage,
    Waiting,
)
from headrace.transports.queue_lineage import QueueLineage
from headrace_mq._net.address import BrokerAddress
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.fetch.damage import FIRST_HEADER, Damaged, is_marker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import (
    BrokerError,
    BrokerStopping,
    BufferFull,
    ConnectionLost,
    FrameTooLarge,
    GroupNotFound,
    InvalidArgument,
    MessageQueueError,
    NotLeader,
    OffsetOutOfRange,
    SendTimeout,
)
from headrace_mq.message import Message, QueueRef, Record, SendResult
from headrace_mq.protocol.batch import BatchHeader, Columns
from headrace_mq.settings import ConsumerSettings, ProducerSettings

__all__ = ["QueueTransport"]

log = get_logger(__name__)

# A subscriber with its own offsets works in transactions, with a pause after a small one. Then one fetch
# gets all messages that came meanwhile. Longer than such a pause; if a transaction takes even longer,
# the next fetch runs at the same time.
_GATHER_MS: Final = 50
# Asked for to see when one message was stored; a batch that is larger comes whole.
_LOOK_BYTES: Final = 65_536
# Asked for at a time by who reads much.
_READ_BYTES: Final = 2 << 20
# What a reader raises when its broker leads its group no longer. What is stored is the same at the next leader.
_LEADER_LOST: Final = (BrokerStopping, ConnectionLost, NotLeader)
# Between two tries to read. A leader that hands over is replaced within some milliseconds.
_LEADER_PAUSE_MS: Final = 100
# Longer than a leader whose network was cut is missed.
_LEADER_TRIES_MAX: Final = 60
# An offset has 63 bits.
_OFFSET_DIGITS_MAX: Final = 20


class QueueTransport:
    """Commands, events and replies through one broker.

    Args:
        address: the broker's `host:port`.
        producer: settings of the one producer that publishes and replies.
        consumer: settings of every subscription.
        name: what this process is called at the broker, where no settings are given.
        trace_share: share of the messages, 0 to 1, that subscriptions trace, where no settings are given.
    """

    def __init__(
        self,
        address: str,
        *,
        producer: ProducerSettings | None = None,
        consumer: ConsumerSettings | None = None,
        name: str = "",
        trace_share: float = 0.0,
    ) -> None:
        self._address = address
        # Opened by the first who asks for offsets; guarded, so that there is one.
        self._admin: AdminClient | None = None
        self._asking = asyncio.Lock()
        self._lineage = QueueLineage(address, self._ask)
        self._producer = Producer(address, producer or ProducerSettings(name=name))
        self._consumer_settings = consumer or ConsumerSettings(name=name, trace_share=trace_share)
        self._damaged: Counter[str] = Counter()
        self._groups: set[str] = set()
        # Topics whose readers hear of damage by a message.
        self._marked: set[str] = set()
        self._closed = False

    async def start(self, *, within_ms: int | None = None) -> None:
        """Connects to the broker.

        Args:
            within_ms: how long to wait for it; None: the producer's send timeout.

        Raises:
            BrokerUnreachable: no broker answered in time.
        """
        try:
            await self._producer.start(within_ms=within_ms)
        except ConnectionLost as error:
            raise BrokerUnreachable(str(error)) from error

    @property
    def reply_address(self) -> str:
        """The producer's client id: the broker forwards replies to its connection."""
        return self._producer.client_id

    async def ensure_topic(self, topic: str, *, queues: int, forever: bool) -> None:
        """Creates the topic unless it exists; one that has fewer queues gets more.

        Raises:
            MessageQueueError: it exists, and is kept for ever where this one should pass, or the reverse.
        """
        await self._producer.create_topic(
            topic, queues=queues, retention="forever" if forever else "transient"
        )

    async def publish(self, message: Outgoing) -> Place:
        """Returns its place when the broker has made the message durable.

        Raises:
            TimeoutError: the broker did not say whether it has; sending again is safe.
            ValueError: it is too large, or malformed otherwise, and no attempt will succeed.
            MessageQueueError: the broker refused it.
        """
        try:
            sent = await self._producer.send(_to_send(message))
        except (InvalidArgument, FrameTooLarge) as error:
            raise ValueError(str(error)) from error
        except (SendTimeout, ConnectionLost) as error:
            raise TimeoutError(str(error)) from error
        return Place(sent.queue.queue_id, sent.offset)

    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        """Hands the message to the producer, unless its buffer is full."""
        try:
            sending = self._producer.send_soon(_to_send(message))
        except BufferFull:
            return False
        except Exception as error:  # noqa: BLE001 - told, as everything that `publish` raises
            asyncio.get_running_loop().call_soon(told, error)
            return True
        sending.add_done_callback(partial(_tell, told))
        return True

    async def schedule(self, message: Outgoing, due: datetime | timedelta) -> None:
        """Returns when the broker holds the message durably until it is due.

        Raises:
            TimeoutError, MessageQueueError: as `publish`.
            HeadraceError: the moment is more than a year ahead.
        """
        try:
            if isinstance(due, timedelta):
                # Not a moment that this machine's clock would have to know.
                delay_ms = max(0, due // timedelta(milliseconds=1))
                await self._producer.schedule(_to_send(message), delay_ms=delay_ms)
            else:
                at_ms = int(due.timestamp() * 1_000)
                await self._producer.schedule(_to_send(message), at_ms=at_ms)
        except (InvalidArgument, ValueError) as error:
            # A wish that no attempt fulfils; to the bus any other refusal is an outage.
            raise HeadraceError(str(error)) from error
        except (SendTimeout, ConnectionLost) as error:
            raise TimeoutError(str(error)) from error

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> Subscription:
        """Joins a consumer group of the broker.

        Raises:
            HeadraceError: the transport is closed.
            MessageQueueError: the broker is away, or refuses the member.
        """
        if self._closed:
            raise HeadraceError("the transport is closed")
        self._groups.add(group)
        load, settings = None, self._consumer_settings
        if offsets is not None:
            load = _queue_offsets(offsets)
            settings = replace(settings, fetch_gather_ms=settings.fetch_gather_ms or _GATHER_MS)
        consumer = Consumer(
            self._address,
            group=group,
            topics=topics,
            settings=settings,
            load_offsets=load,
        )
        consumer.damage.listen(self._note_damage)
        # Who keeps its own offsets learns from a message alone that a queue has gone on.
        consumer.damage.marks = offsets is not None or not self._marked.isdisjoint(topics)
        await consumer.start()
        return _QueueSubscription(consumer)

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        """Returns the next offset of a group in each queue where it has acknowledged anything."""
        admin = await self._ask()
        offsets = await admin.offsets(group, [topic])
        return {queue.queue_id: offset for queue, offset in offsets.items() if offset >= 0}

    async def waiting(self, topic: str, offsets: Mapping[int, int]) -> list[Waiting]:
        """Returns what waits in each queue from an offset on.

        Raises:
            MessageQueueError: the broker is away, or there is no such topic.
        """
        admin = await self._ask()
        ranges = await admin.ranges([topic])
        firsts = {each.queue_id: max(offsets.get(each.queue_id, 0), each.first) for each in ranges}
        behind = {
            QueueRef(topic, each.queue_id): firsts[each.queue_id]
            for each in ranges
            if each.end > firsts[each.queue_id]
        }
        since = await asyncio.to_thread(_stored_at, self._address, behind) if behind else {}
        return [
            Waiting(
                queue=(topic, each.queue_id),
                end=each.end,
                count=max(0, each.end - firsts[each.queue_id]),
                since=since.get(each.queue_id),
            )
            for each in ranges
        ]

    async def topic_lineage(
        self, topic: str, known: Mapping[int, int] | None = None
    ) -> TopicLineage:
        """Returns a topic's identity and ranges, and what has changed since known epochs; see `QueueLineage.whole`."""
        return await self._lineage.whole(topic, known)

    async def lineage_there(self, topic: str) -> TopicLineage:
        """Returns the same of the queues whose broker groups are there; see `QueueLineage.there`."""
        return await self._lineage.there(topic)

    def contested(self, topic: str) -> bool:
        """Whether groups of brokers contradicted each other about a topic when it was looked at last."""
        return topic in self._lineage.contested

    async def read(self, queue: QueueId, first: int, end: int) -> AsyncIterator[list[Incoming]]:
        """Yields the messages of a queue, a batch at a time, over a connection of its own.

        Raises:
            MessageQueueError: the broker is away, or a batch is damaged.
        """
        pages = _pages(self._address, QueueRef(*queue), first, end)
        try:
            while page := await asyncio.to_thread(next, pages, None):
                yield page
        except OffsetOutOfRange as error:
            # As where the last batch of a queue is damaged on the broker's disk.
            log.warning("messages are not held any more", queue=queue, end=end, error=str(error))
        finally:
            await asyncio.to_thread(pages.close)

    def mark_damage(self, topic: str) -> None:
        """Lets subscriptions to a topic bring a message in place of damaged ones, from now on."""
        self._marked.add(topic)

    def damaged(self) -> Mapping[str, int]:
        """Returns, by topic, how many messages could not be read and were left out since the start.

        Of several subscriptions to a topic, each counts what it left out.
        """
        return dict(self._damaged)

    async def paused(self, groups: Collection[str] | None = None, /) -> Collection[str]:
        """Returns which groups an operator has paused; raises MessageQueueError where the broker is away."""
        admin, found = await self._ask(), []
        for group in sorted(self._groups if groups is None else groups):
            with suppress(GroupNotFound):
                rules = (await admin.group(group)).rules
                found += [group] if rules and not rules[0].consume else []
        return found

    def _note_damage(self, damaged: Damaged) -> None:
        self._damaged[damaged.queue.topic] += damaged.messages

    async def _ask(self) -> AdminClient:
        async with self._asking:
            if self._admin is None:
                admin = AdminClient(self._address)
                await admin.start()
                self._admin = admin
            return self._admin

    async def reply(self, address: str, correlation: str, body: bytes) -> None:
        """Sends a reply through the broker to the connection that waits for it.

        Waits only while the broker's connection is down or full.
        """
        try:
            if self._producer.reply_soon(address, correlation, body):
                return
            await self._producer.reply(address, correlation, body)
        except MessageQueueError as error:
            # The caller is gone or has given up; a duplicate of the command answers again.
            code = error.code.name if isinstance(error, BrokerError) else type(error).__name__
            log.debug("reply not delivered", code=code, correlation=correlation)

    def on_reply(self, receive: Callable[[str, bytes], None]) -> None:
        """Sets the function that takes (correlation, body) of replies to this process."""
        self._producer.on_reply(receive)

    async def aclose(self) -> None:
        """Flushes what was handed over and closes the connections, but not those of subscriptions."""
        self._closed = True
        await self._lineage.aclose()
        if self._admin is not None:
            await self._admin.aclose()
        await self._producer.aclose()


def _tell(told: Report, sending: asyncio.Future[SendResult]) -> None:
    """Passes on what became of a message."""
    try:
        sent = sending.result()
    except (SendTimeout, ConnectionLost) as error:
        timeout = TimeoutError(str(error))
        timeout.__cause__ = error
        told(timeout)
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the publisher judges it
        told(error)
    else:
        told(Place(sent.queue.queue_id, sent.offset))


def _to_send(message: Outgoing) -> Message:
    return Message(
        topic=message.topic,
        key=message.key,
        tag=message.tag,
        headers=message.headers,
        body=message.body,
    )


def _queue_offsets(
    load: OffsetLoader,
) -> Callable[[Sequence[QueueRef]], Awaitable[Mapping[QueueRef, int]]]:
    async def load_offsets(queues: Sequence[QueueRef]) -> Mapping[QueueRef, int]:
        found = await load([(queue.topic, queue.queue_id) for queue in queues])
        return {QueueRef(*queue): offset for queue, offset in found.items()}

    return load_offsets


class _LeaderChanges:
    """How often one read was disturbed; a lone broker is not waited for."""

    def __init__(self, address: str) -> None:
        self._left = _LEADER_TRIES_MAX if BrokerAddress.parse(address).may_move else 0

    def passed(self, error: MessageQueueError) -> None:
        """Returns when the read may be tried again. Raises the error: it was tried often enough."""
        if self._left == 0:
            raise error
        self._left -= 1
        time.sleep(_LEADER_PAUSE_MS / 1_000)


def _stored_at(address: str, places: Mapping[QueueRef, int]) -> dict[int, datetime]:
    """Returns when the message at each of these places was stored."""
    changes = _LeaderChanges(address)
    while True:
        try:
            with BlockingReader(address) as reader:
                return dict(_times(reader, places))
        except _LEADER_LOST as error:
            changes.passed(error)


def _times(
    reader: BlockingReader, places: Mapping[QueueRef, int]
) -> Iterator[tuple[int, datetime]]:
    for queue, offset in places.items():
        for header, _, _, _ in reader.read(queue, offset, offset + 1, bytes_max=_LOOK_BYTES):
            yield queue.queue_id, datetime.fromtimestamp(header.appended_at_ms / 1_000, UTC)


def _pages(
    address: str, queue: QueueRef, first: int, end: int
) -> Generator[list[Incoming], None, None]:
    bytes_max = _LOOK_BYTES if end - first == 1 else _READ_BYTES
    at, changes = first, _LeaderChanges(address)
    while True:
        try:
            with BlockingReader(address) as reader:
                for part in reader.read(queue, at, end, bytes_max=bytes_max):
                    yield _page(queue, part)
                    header, _, _, stop = part
                    at = header.base_offset + stop
            return
        except _LEADER_LOST as error:
            changes.passed(error)


def _page(queue: QueueRef, part: tuple[BatchHeader, Columns, int, int]) -> list[Incoming]:
    header, columns, begin, stop = part
    keys, tags, headers = columns.keys, columns.tags, columns.headers
    return [
        Incoming(
            (queue.topic, queue.queue_id),
            header.base_offset + place,
            keys[place] if keys else "",
            tags[place] if tags else "",
            headers[place] if headers else {},
            columns.bodies[place],
        )
        for place in range(begin, stop)
    ]


class _QueueSubscription:
    """One consumer, in the words of the transport's port."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def poll(self) -> list[Incoming]:
        """Waits for records of the assigned queues."""
        records = await self._consumer.poll()
        if self._consumer.damage.batches:
            return [_passed_by(one) if is_marker(one) else _incoming(one) for one in records]
        return [_incoming(record) for record in records]

    def ack(self, message: Incoming) -> None:
        """Moves the sliding door of the message's queue."""
        self._consumer.ack_offset(QueueRef(*message.queue), message.offset)

    def seek(self, queue: QueueId, offset: int) -> None:
        """Continues at an offset of an assigned queue."""
        self._consumer.seek(QueueRef(*queue), offset)

    async def aclose(self) -> None:
        """Commits what is done and leaves the group."""
        await self._consumer.aclose()


def _passed_by(marker: Record) -> Incoming:
    """What stands for messages that cannot be read: as a rejection, it is no event."""
    first = marker.headers.get(FIRST_HEADER, "")
    # Any client can write what looks like a marker: it then stands for itself.
    known = first.isdecimal() and len(first) < _OFFSET_DIGITS_MAX and int(first) <= marker.offset
    headers = {"kind": "rejection", DAMAGED: first if known else str(marker.offset)}
    return _incoming(replace(marker, headers=headers))


def _incoming(record: Record) -> Incoming:
    queue = (record.queue.topic, record.queue.queue_id)
    return Incoming(
        queue,
        record.offset,
        record.key,
        record.tag,
        record.headers,
        record.body,
        record.stored_at_ms,
    )
