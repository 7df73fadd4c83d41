"""
The transport over a Kafka cluster.

    producer        commands, events, replies: in the order of each key
    subscriptions   members of consumer groups
    replies         results on their way back
    schedule        messages for later, in the event store's database

Implements the transport's port. Knows nothing of commands, events or projections.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.ids import new_id
from headrace._runtime.log import get_logger
from headrace.errors import BrokerUnreachable, HeadraceError
from headrace.transports.base import (
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
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.client import REQUEST_S, reading
from headrace.transports.kafka.failures import failure
from headrace.transports.kafka.producer import KafkaProducer
from headrace.transports.kafka.ranges import Held, find_ranges, read_range
from headrace.transports.kafka.replies import PARTITIONS, Replies
from headrace.transports.kafka.schedule import Dispatcher, Schedule
from headrace.transports.kafka.subscription import KafkaSubscription, group_config, incoming
from headrace.transports.kafka.topics import ClusterTopics, Topics

__all__ = ["KafkaTransport"]

_log = get_logger(__name__)

# How long a start waits for the cluster where nothing else is said, between two attempts, and in each.
_START_MS: Final = 30_000
_ATTEMPT_S: Final = 0.25
_LOOK_S: Final = 1.0


class KafkaTransport:
    """Commands, events and replies through one cluster.

    Args:
        address: of the cluster.
        name: under which this process gets its queues back when it returns within 30 s; empty: a new one
            at each start.
        topics: makes topics; None: at the cluster itself.
        schedule: keeps messages for later; None: there are none, and scheduling is an error.
        dispatches: whether this process publishes what is due.
        clock: tells when something is due.
    """

    def __init__(
        self,
        address: KafkaAddress,
        *,
        name: str = "",
        topics: Topics | None = None,
        schedule: Schedule | None = None,
        dispatches: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._address = address
        self._member = name
        self._client = f"{name or 'headrace'}.{new_id()}"
        self._topics = topics or ClusterTopics(address, self._client)
        self._producer = KafkaProducer(address, self._client, self._partitions)
        self._replies: Replies | None = None
        self._receive: Callable[[str, bytes], None] | None = None
        self._closed = False
        self._dispatcher: Dispatcher | None = None
        if schedule is not None:
            self._dispatcher = Dispatcher(schedule, self._publish_all, clock or SystemClock())
            if dispatches:
                self._dispatcher.start()

    async def start(self, *, within_ms: int | None = None) -> None:
        """Finds the cluster, and the topic of replies.

        Args:
            within_ms: how long to try; None: 30 s.

        Raises:
            BrokerUnreachable: no broker answered in time.
            HeadraceError: the cluster does not let this process in.
        """
        limit_s = (_START_MS if within_ms is None else within_ms) / 1_000
        try:
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        return await self._begin()
                    except TimeoutError:
                        await asyncio.sleep(_ATTEMPT_S)
        except TimeoutError as error:
            raise BrokerUnreachable(
                f"no Kafka broker answers at {self._address} within {limit_s:g} s; check that the"
                " cluster runs, the addresses, and security.protocol"
            ) from error

    async def _begin(self) -> None:
        topic = self._address.replies
        await asyncio.to_thread(self._topics.brokers, _LOOK_S)
        facts = await asyncio.to_thread(self._topics.facts, topic)
        if facts is None:
            facts = await asyncio.to_thread(
                self._topics.ensure, topic, queues=PARTITIONS, forever=False
            )
        ranges = await self._ranges(topic, facts.partitions)
        self._replies = Replies(self._address, self._client, ranges)
        if self._receive is not None:
            self._replies.on_reply(self._receive)

    @property
    def reply_address(self) -> str:
        """The topic and partition of replies to this process, and its id."""
        assert self._replies is not None, "started before"
        return self._replies.reply_address

    async def ensure_topic(self, topic: str, *, queues: int, forever: bool) -> None:
        """Makes the topic unless it exists.

        Raises:
            DefinitionError: it has fewer partitions.
            HeadraceError: it is kept for ever where this one should pass, or the reverse; or the user may
                not make it.
            TimeoutError: the cluster is away.
        """
        facts = await asyncio.to_thread(self._topics.ensure, topic, queues=queues, forever=forever)
        self._producer.learn(topic, facts.partitions)

    async def publish(self, message: Outgoing) -> Place:
        """Returns its place when all in-sync replicas have it; raises as `KafkaProducer.publish`."""
        return await self._producer.publish(message)

    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        """Hands the message to the producer, unless too many wait."""
        return self._producer.publish_soon(message, told)

    async def schedule(self, message: Outgoing, due: datetime | timedelta) -> None:
        """Returns when the message is in the event store's database, until it is due.

        Raises:
            TimeoutError: the database is away; scheduling again is safe.
            HeadraceError: there is no database to keep it in, or the transport is closed.
        """
        if self._closed:
            raise HeadraceError("the transport is closed")
        if self._dispatcher is None:
            raise HeadraceError(
                "over Kafka, messages for later are kept in the event store's database; name it:"
                " Settings(event_store=…)"
            )
        await self._dispatcher.add(message, due)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> Subscription:
        """Joins a consumer group of the cluster.

        Raises:
            HeadraceError: the transport is closed, or a topic is missing.
            TimeoutError: the cluster is away.
        """
        if self._closed:
            raise HeadraceError("the transport is closed")
        for topic in topics:
            if await asyncio.to_thread(self._topics.facts, topic) is None:
                raise HeadraceError(f"there is no topic {topic!r}; ensure_topic makes it")
        config = group_config(self._address, self._client, group, self._member)
        return KafkaSubscription(config, topics, offsets)

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Returns the next offset of a group in each queue where it has acknowledged anything."""
        count = await self._count(topic)
        parts = [TopicPartition(topic, number) for number in range(count)]
        found = await self._ask(_committed, parts, **{"group.id": group})
        return {part.partition: part.offset for part in found if part.offset >= 0}

    async def waiting(self, topic: str, offsets: Mapping[int, int]) -> Sequence[Waiting]:
        """Returns what waits in each queue from an offset on.

        Raises:
            TimeoutError, HeadraceError: the cluster is away, or there is no such topic.
        """
        ranges = await self._ranges(topic, await self._count(topic))
        firsts = {
            number: max(offsets.get(number, 0), held.first) for number, held in ranges.items()
        }
        behind = {
            number: firsts[number] for number, held in ranges.items() if held.end > firsts[number]
        }
        since = await self._ask(_stored_at, topic, behind) if behind else {}
        return [
            Waiting(
                queue=(topic, number),
                end=held.end,
                count=max(0, held.end - firsts[number]),
                since=since.get(number),
            )
            for number, held in sorted(ranges.items())
        ]

    async def topic_lineage(
        self,
        topic: str,
        known: Mapping[int, int] | None = None,  # noqa: ARG002 - Kafka tells no epochs
    ) -> TopicLineage:
        """Returns a topic's identity, which Kafka gave it when it was made, and its ranges.

        Raises:
            TimeoutError, HeadraceError: the cluster is away, or there is no such topic.
        """
        facts = await asyncio.to_thread(self._topics.facts, topic)
        if facts is None:
            raise HeadraceError(f"there is no topic {topic!r}; ensure_topic makes it")
        ranges = await self._ranges(topic, facts.partitions)
        return TopicLineage(
            identity=facts.identity,
            ranges={number: (held.first, held.end) for number, held in ranges.items()},
        )

    async def read(self, queue: QueueId, first: int, end: int) -> AsyncIterator[list[Incoming]]:
        """Yields the messages of a queue, some at a time, over a connection of its own.

        Raises:
            TimeoutError, HeadraceError: the cluster is away, or there is no such topic.
        """
        pages = read_range(self._address, self._client, queue, first, end)
        try:
            while page := await asyncio.to_thread(next, pages, None):
                yield [incoming(each) for each in page]
        finally:
            await asyncio.to_thread(pages.close)

    def mark_damage(self, topic: str) -> None:
        """Changes nothing: Kafka repairs a damaged replica from another one."""

    def damaged(self) -> Mapping[str, int]:
        """Returns nothing, as `mark_damage` says."""
        return {}

    async def paused(self, groups: Collection[str] | None = None, /) -> Collection[str]:  # noqa: ARG002 - the port's
        """Returns nothing: at Kafka no group is paused."""
        return ()

    async def reply(self, address: str, correlation: str, body: bytes) -> None:
        """Sends a reply; at most once, dropped without a word if no caller waits any more."""
        if self._replies is not None and not self._closed:
            self._replies.send(self._producer, address, correlation, body)

    def on_reply(self, receive: Callable[[str, bytes], None]) -> None:
        """Sets the function that takes (correlation, body) of replies to this process."""
        self._receive = receive
        if self._replies is not None:
            self._replies.on_reply(receive)

    async def aclose(self) -> None:
        """Flushes what was handed over and closes, but not the subscriptions."""
        self._closed = True
        if self._dispatcher is not None:
            await self._dispatcher.aclose()
            self._dispatcher = None
        await self._producer.aclose()
        if self._replies is not None:
            await self._replies.aclose()

    async def _publish_all(self, messages: Sequence[Outgoing]) -> list[bool | None]:
        return list(await asyncio.gather(*[self._publish_due(each) for each in messages]))

    async def _publish_due(self, message: Outgoing) -> bool | None:
        try:
            await self._producer.publish(message)
        except TimeoutError:
            return None
        except (ValueError, HeadraceError):
            _log.exception("a message for later is refused", topic=message.topic, key=message.key)
            return False
        return True

    def _partitions(self, topic: str) -> int | None:
        facts = self._topics.facts(topic)
        return None if facts is None else facts.partitions

    async def _count(self, topic: str) -> int:
        found = await asyncio.to_thread(self._partitions, topic)
        if found is None:
            raise HeadraceError(f"there is no topic {topic!r}; ensure_topic makes it")
        return found

    async def _ranges(self, topic: str, partitions: int) -> dict[int, Held]:
        found: dict[int, Held] = await self._ask(find_ranges, topic, partitions)
        return found

    async def _ask(self, question: Callable[..., Any], *of: Any, **choices: Any) -> Any:
        """Asks a consumer that joins no group; `choices` are of its configuration."""

        def ask() -> Any:
            with reading(self._address, self._client, **choices) as consumer:
                return question(consumer, *of)

        return await asyncio.to_thread(ask)


def _committed(consumer: Consumer, parts: list[TopicPartition]) -> list[TopicPartition]:
    try:
        return consumer.committed(parts, timeout=REQUEST_S)
    except KafkaException as error:
        raise failure(error, "offsets of a group") from error


def _stored_at(consumer: Consumer, topic: str, places: Mapping[int, int]) -> dict[int, datetime]:
    """Returns when the message at each of these places was stored."""
    found: dict[int, datetime] = {}
    for number, offset in places.items():
        consumer.assign([TopicPartition(topic, number, offset)])
        message = consumer.poll(REQUEST_S)
        if message is not None and message.error() is None:
            _, at_ms = message.timestamp()
            found[number] = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return found
