"""
Results of commands on their way back to the process that waits: a topic that each process reads a part of.

    address    TOPIC/PARTITION/CLIENT     in a command's headers
    reply   ─▶ that partition, with the client's id and the correlation as headers
    process ◀─ its partition, from the end that it had at the start; others' replies are passed over

A reply that is lost is asked for again by the bus. Used by the transport.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import TopicPartition

from headrace._runtime.log import get_logger
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.client import reading
from headrace.transports.kafka.producer import KafkaProducer, partition_of
from headrace.transports.kafka.ranges import Held

__all__ = ["PARTITIONS", "Replies"]

_log = get_logger(__name__)

# Of the topic, where it has to be made: processes that wait for results share them.
PARTITIONS: Final = 8
# Headers of a reply.
_CLIENT: Final = "client"
_CORRELATION: Final = "correlation"
# Replies that are handed to the event loop at a time.
_MESSAGES_MAX: Final = 1_000
# How often the thread looks whether it has to end.
_LOOK_S: Final = 0.1


class Replies:
    """What one process gets and sends as replies; used in one event loop.

    Args:
        address: of the cluster.
        client: the id of this process; no other one has it.
        ranges: of the topic's partitions, at the start.
    """

    def __init__(self, address: KafkaAddress, client: str, ranges: Mapping[int, Held]) -> None:
        self._address = address
        self._client = client
        self._topic = address.replies
        self._partition = partition_of(client, len(ranges))
        self._end = ranges[self._partition].end
        self._loop = asyncio.get_running_loop()
        self._receive: Callable[[str, bytes], None] | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @property
    def reply_address(self) -> str:
        """Where replies to this process go."""
        return f"{self._topic}/{self._partition}/{self._client}"

    def on_reply(self, receive: Callable[[str, bytes], None]) -> None:
        """Sets the function that takes replies, and begins to read them."""
        self._receive = receive
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="kafka replies", daemon=True)
            self._thread.start()

    def send(self, producer: KafkaProducer, to: str, correlation: str, body: bytes) -> None:
        """Sends a reply; one to an address that is none is dropped."""
        topic, _, rest = to.partition("/")
        partition, _, client = rest.partition("/")
        # The sender of a command says where its result goes: into no other topic than this one.
        if topic != self._topic or not client or not partition.isdecimal():
            _log.debug("reply not delivered", address=to, correlation=correlation)
            return
        headers = {_CLIENT: client, _CORRELATION: correlation}
        if not producer.send(topic, int(partition), headers, body):
            _log.debug("reply not delivered", address=to, correlation=correlation)

    async def aclose(self) -> None:
        """Ends reading."""
        self._ended.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _follow(self) -> None:
        with reading(self._address, f"{self._client}.replies") as consumer:
            consumer.assign([TopicPartition(self._topic, self._partition, self._end)])
            while not self._ended.is_set():
                first = consumer.poll(_LOOK_S)
                if first is not None:
                    self._hand([first, *consumer.consume(_MESSAGES_MAX, 0)])

    def _hand(self, messages: list[Any]) -> None:
        mine = []
        for each in messages:
            if each.error() is None:
                headers = dict(each.headers() or ())
                if headers.get(_CLIENT) == self._client.encode():
                    mine.append((headers.get(_CORRELATION, b"").decode(), each.value() or b""))
        if mine:
            try:
                self._loop.call_soon_threadsafe(self._pass_on, mine)
            except RuntimeError:
                # The loop is closed, and nothing waits any more.
                self._ended.set()

    def _pass_on(self, replies: list[tuple[str, bytes]]) -> None:
        for correlation, body in replies:
            if self._receive is not None:
                self._receive(correlation, body)
