"""
A durable message queue: topics made of queues, consumer groups, offsets on the broker.

Reads top to bottom: `message` (the values both sides share) -> `protocol` (the wire, no sockets)
-> `_net` (asyncio around the wire) -> `store` (append-only files) -> `broker` (serves) and
`client` (produces, consumes) -> `admin` (asks and changes) -> `spark` (a topic as a DataFrame).

Sits between: applications (or the `headrace` framework) and the disk of a broker.
"""

from headrace_mq.client.blocking_producer import BlockingProducer
from headrace_mq.client.checking import Decision, Undecided
from headrace_mq.client.columns import RecordColumns
from headrace_mq.client.consumer import Consumer
from headrace_mq.client.producer import Producer
from headrace_mq.client.pull_consumer import PullConsumer
from headrace_mq.client.requests import Requester
from headrace_mq.client.retrying_consumer import RetryingConsumer
from headrace_mq.client.transactions import Transaction, TransactionalProducer
from headrace_mq.message import Message, QueueRef, Record, SendResult
from headrace_mq.settings import (
    BrokerSettings,
    ConsumerSettings,
    ProducerSettings,
    RetrySettings,
    TransactionSettings,
)

__all__ = [
    "BlockingProducer",
    "BrokerSettings",
    "Consumer",
    "ConsumerSettings",
    "Decision",
    "Message",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "QueueRef",
    "Record",
    "RecordColumns",
    "Requester",
    "RetrySettings",
    "RetryingConsumer",
    "SendResult",
    "Transaction",
    "TransactionSettings",
    "TransactionalProducer",
    "Undecided",
]
