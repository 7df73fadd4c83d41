"""
The producer at Kafka: idempotent, every message acknowledged by all in-sync replicas.

    publish ─▶ its partition by its key ─▶ librdkafka ─▶ a thread hears what became of messages
                                                          └─ once per burst ─▶ the event loop

Used by the transport. A producer that has met a fatal error of idempotence is replaced: what was under way
fails as unknown, and what is sent again is recognised by its command or its version.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import google_crc32c
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from headrace._runtime.log import get_logger
from headrace.errors import HeadraceError
from headrace.transports.base import Outgoing, Place, Report
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.client import make_client, producing_config
from headrace.transports.kafka.failures import failure

__all__ = ["TAG_HEADER", "KafkaProducer", "partition_of"]

_log = get_logger(__name__)

# The header that carries the tag, which Kafka has no place for.
TAG_HEADER: Final = "headrace-tag"
# How often the thread looks whether it has to end.
_LOOK_S: Final = 0.1
# Of a client that ends, of which nothing is under way or nothing can be known.
_FLUSH_S: Final = 1.0
# Messages that wait for their topic to become known, or for room; `publish_soon` takes no more then.
_BACKLOG_MAX: Final = 10_000


def partition_of(key: str, partitions: int) -> int:
    """Returns the partition of a key: the queue that the built-in queue puts it into."""
    found: int = google_crc32c.value(key.encode()) % partitions
    return found


class KafkaProducer:
    """One producer of a process; used in one event loop.

    Args:
        address: of the cluster.
        name: of the client.
        partitions: asks how many a topic has; None: there is no such topic. It blocks.
    """

    def __init__(
        self, address: KafkaAddress, name: str, partitions: Callable[[str], int | None]
    ) -> None:
        self._config = {
            **producing_config(address, name),
            # A message waits for no other one; those that come while one is on its way go together.
            "linger.ms": 0,
            **{key: value for key, value in address.client.items() if key == "linger.ms"},
        }
        self._ask = partitions
        self._partitions: dict[str, int] = {}
        self._backlog: deque[tuple[Outgoing, Report]] = deque()
        self._filling: asyncio.Task[None] | None = None
        self._told: deque[tuple[Report, Place | BaseException]] = deque()
        self._loop = asyncio.get_running_loop()
        self._waking = threading.Lock()
        self._woken = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ended = threading.Event()
        self._replaced = threading.Event()
        self._closed = False
        self._client = make_client(Client, self._config)
        self._thread = threading.Thread(
            target=self._poll, name=f"kafka producer {name}", daemon=True
        )
        self._thread.start()

    def learn(self, topic: str, partitions: int) -> None:
        """Notes how many partitions a topic has: it is not asked for then."""
        self._partitions[topic] = partitions

    async def publish(self, message: Outgoing) -> Place:
        """Returns the message's place when all in-sync replicas have it.

        Raises:
            TimeoutError: nothing says whether they have; sending again is safe.
            ValueError: no attempt will succeed.
            HeadraceError: the cluster refuses it, or the producer is closed.
        """
        waiting: asyncio.Future[Place] = self._loop.create_future()

        def told(outcome: Place | BaseException) -> None:
            if waiting.done():
                return
            if isinstance(outcome, BaseException):
                waiting.set_exception(outcome)
            else:
                waiting.set_result(outcome)

        self._take(message, told)
        return await waiting

    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        """Takes a message if there is room; `told` hears later what became of it."""
        if len(self._backlog) >= _BACKLOG_MAX:
            return False
        self._take(message, told)
        return True

    def send(self, topic: str, partition: int, headers: Mapping[str, str], body: bytes) -> bool:
        """Sends a message into a partition, and asks nothing of it; returns whether there was room."""
        try:
            self._client.produce(topic, body, partition=partition, headers=[*headers.items()])
        except (BufferError, KafkaException):
            return False
        return True

    async def flush(self) -> None:
        """Waits until it is known of every message what became of it."""
        await self._idle.wait()

    async def aclose(self) -> None:
        """Flushes and ends; closing twice is closing."""
        self._closed = True
        await self.flush()
        self._ended.set()
        await asyncio.to_thread(self._thread.join)

    # Handing over.

    def _take(self, message: Outgoing, told: Report) -> None:
        if self._closed:
            self._loop.call_soon(told, HeadraceError("the transport is closed"))
            return
        self._under_way += 1
        self._idle.clear()
        if self._backlog or not self._produce(message, told):
            self._backlog.append((message, told))
            if self._filling is None:
                self._filling = asyncio.create_task(self._fill(), name="kafka backlog")

    def _produce(self, message: Outgoing, told: Report) -> bool:
        """Hands a message to the client; returns False where it has to wait."""
        partitions = self._partitions.get(message.topic)
        if partitions is None:
            return False
        number = partition_of(message.key, partitions)
        headers: list[tuple[str, str | bytes | None]] = [*message.headers.items()]
        if message.tag:
            headers.append((TAG_HEADER, message.tag))
        try:
            self._client.produce(
                message.topic,
                message.body,
                message.key.encode(),
                number,
                lambda error, sent: self._hear(told, error, sent),
                headers=headers,
            )
        except BufferError:
            return False
        except KafkaException as error:
            if _is_fatal(error.args[0]):
                self._replace(self._client)
                return False
            self._outcome(told, failure(error, f"topic {message.topic}"))
        return True

    async def _fill(self) -> None:
        """Hands over what waits, in its order."""
        try:
            while self._backlog:
                message, told = self._backlog[0]
                if message.topic not in self._partitions and not await self._find(message.topic):
                    continue
                if self._produce(message, told):
                    self._backlog.popleft()
                else:
                    await asyncio.sleep(0.01)
        finally:
            self._filling = None

    async def _find(self, topic: str) -> bool:
        """Asks for a topic; where there is none, its messages fail."""
        why: Exception | None = None
        try:
            found = await asyncio.to_thread(self._ask, topic)
        except (TimeoutError, HeadraceError) as error:
            found, why = None, error
        if found is not None:
            self._partitions[topic] = found
            return True
        lacking = f"there is no topic {topic!r}; start the service, which makes it"
        waiting, self._backlog = self._backlog, deque()
        for message, told in waiting:
            if message.topic == topic:
                self._outcome(told, why or HeadraceError(lacking))
            else:
                self._backlog.append((message, told))
        return False

    # What became of messages; the client calls in the thread.

    def _hear(self, told: Report, error: Any, sent: Any) -> None:
        if error is None:
            self._outcome(told, Place(sent.partition(), sent.offset()))
        else:
            self._outcome(told, failure(error, f"topic {sent.topic()}"))

    def _outcome(self, told: Report, outcome: Place | BaseException) -> None:
        with self._waking:
            self._told.append((told, outcome))
            if self._woken:
                return
            self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            # The loop is closed: nothing waits any more.
            return

    def _tell(self) -> None:
        with self._waking:
            self._woken = False
            told, self._told = self._told, deque()
        for report, outcome in told:
            self._under_way -= 1
            report(outcome)
        if not self._under_way:
            self._idle.set()

    def _poll(self) -> None:
        while not self._ended.is_set():
            client = self._client
            try:
                client.poll(_LOOK_S)
            except KafkaException as error:
                if not _is_fatal(error.args[0]):
                    raise
                self._loop.call_soon_threadsafe(self._replace, client)
                self._replaced.wait(_LOOK_S)
                self._replaced.clear()
        self._client.flush(_FLUSH_S)

    def _replace(self, failed: Client) -> None:
        """Takes another client in place of one that does nothing any more."""
        if failed is not self._client:
            return
        _log.warning("the producer has met a fatal error and is replaced")
        self._client = make_client(Client, self._config)
        self._replaced.set()
        # Of what was under way nothing is known.
        failed.purge()
        threading.Thread(target=failed.flush, args=(_FLUSH_S,), daemon=True).start()


def _is_fatal(error: KafkaError) -> bool:
    # The client names either itself, or what led to it.
    return error.fatal() or error.code() == KafkaError._FATAL
