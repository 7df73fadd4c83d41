"""
A durable message queue: topics made of queues, consumer groups, offsets on the broker.

Reads top to bottom: `message` (the values both sides share) -> `protocol` (the wire, no sockets)
-> `_net` (asyncio around the wire) -> `store` (append-only files) -> `broker` (serves) and
`client` (produces, consumes) -> `admin` (asks and changes) -> `spark` (a topic as a DataFrame).

Used by applications, and by the `headrace` framework.
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.consumer.retrying_consumer import RetryingConsumer
from headrace_mq.client.fetch.damage import Damaged
from headrace_mq.client.fetch.record_columns import RecordColumns
from headrace_mq.client.fetch.start_offsets import KeptOffset
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.requester import Requester
from headrace_mq.client.sync.producer import BlockingProducer
from headrace_mq.client.transactions.checks import Decision, Undecided
from headrace_mq.client.transactions.transactional_producer import (
    Transaction,
    TransactionalProducer,
)
from headrace_mq.message import Message, QueueRef, Record, SendResult
from headrace_mq.settings import (
    BrokerSettings,
    ConsumerSettings,
    ProducerSettings,
    RetrySettings,
    StoreSettings,
    TransactionSettings,
)

if TYPE_CHECKING:  # loaded when a name is first used: who only sends and receives needs neither
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.admin.dead_letters import ResendSettings
    from headrace_mq.broker.server import Broker
    from headrace_mq.client.fetch.queue_priorities import Priorities, prioritized
    from headrace_mq.client.requester import answering
    from headrace_mq.client.retries.expiry import Expiry, expiring
    from headrace_mq.client.retries.retries import GiveUp, RetryAfter
    from headrace_mq.client.retry_headers import origin_of
    from headrace_mq.client.sync.reader import BlockingReader

__all__ = [
    "AdminClient",
    "BlockingProducer",
    "BlockingReader",
    "Broker",
    "BrokerSettings",
    "Consumer",
    "ConsumerSettings",
    "Damaged",
    "Decision",
    "Expiry",
    "GiveUp",
    "KeptOffset",
    "Message",
    "Priorities",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "QueueRef",
    "Record",
    "RecordColumns",
    "Requester",
    "ResendSettings",
    "RetryAfter",
    "RetrySettings",
    "RetryingConsumer",
    "SendResult",
    "StoreSettings",
    "Transaction",
    "TransactionSettings",
    "TransactionalProducer",
    "Undecided",
    "answering",
    "expiring",
    "origin_of",
    "prioritized",
]

_HOMES = MappingProxyType(
    {
        "AdminClient": "headrace_mq.admin.client",
        "BlockingReader": "headrace_mq.client.sync.reader",
        "Broker": "headrace_mq.broker.server",
        "Expiry": "headrace_mq.client.retries.expiry",
        "GiveUp": "headrace_mq.client.retries.retries",
        "Priorities": "headrace_mq.client.fetch.queue_priorities",
        "ResendSettings": "headrace_mq.admin.dead_letters",
        "RetryAfter": "headrace_mq.client.retries.retries",
        "answering": "headrace_mq.client.requester",
        "expiring": "headrace_mq.client.retries.expiry",
        "origin_of": "headrace_mq.client.retry_headers",
        "prioritized": "headrace_mq.client.fetch.queue_priorities",
    }
)


def __getattr__(name: str) -> Any:
    """Loads a name of the face from its home."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names every export, loaded or not."""
    return sorted({*globals(), *__all__})
