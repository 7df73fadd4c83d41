"""
Opens by its address what reads a topic by offsets, outside of consumer groups: a `TopicReader`.

    ranges ─▶ what each queue holds      offsets_at ─▶ where a moment begins
    read   ─▶ batches of columns         is_settled ─▶ whether each key has had one queue
    identity ─▶ which of all topics that have had its name

Used by rebuilds, by Spark's driver and executors, which have no event loop, and by the command line. The
port is the built-in queue's, next to its own adapter `BlockingReader`; the other one is `kafka.topic_reader`. Both
speak in the queue's values, and raise its errors. A reader is used by one thread at a time.
"""

import asyncio
from contextlib import AbstractContextManager
from typing import Final

from headrace.transports.kafka.address import KafkaAddress, is_kafka
from headrace_mq._net.address import BrokerAddress
from headrace_mq.client.sync.reader import BlockingReader, Part, TopicReader

__all__ = ["Part", "TopicReader", "check_address", "open_topic_reader", "topic_identity"]

# The longest silence of a broker that works, several times over.
_TIMEOUT_MS: Final = 10_000


def check_address(address: str) -> None:
    """Raises ValueError where an address is neither of a broker nor of a Kafka cluster."""
    if is_kafka(address):
        KafkaAddress.parse(address)
    else:
        BrokerAddress.parse(address)


def open_topic_reader(
    address: str, timeout_ms: int = _TIMEOUT_MS
) -> AbstractContextManager[TopicReader]:
    """Opens a reader; closed with its block.

    Args:
        address: of a broker, or of a Kafka cluster.
        timeout_ms: the longest silence.

    Raises:
        ConnectionLost: nothing answers there.
        ValueError: the address is none.
    """
    if not is_kafka(address):
        return BlockingReader(address, timeout_ms=timeout_ms)
    from headrace.transports.kafka.topic_reader import KafkaTopicReader

    return KafkaTopicReader(KafkaAddress.parse(address))


async def topic_identity(address: str, topic: str) -> str:
    """Returns the UUID that a topic got when it was made; empty: the queue does not know.

    Raises:
        MessageQueueError: the queue is away, or there is no such topic.
    """

    def ask() -> str:
        with open_topic_reader(address) as reader:
            return reader.identity(topic)

    return await asyncio.to_thread(ask)
