"""
CREATE_TOPIC, DESCRIBE_TOPICS, QUEUE_RANGES and DESCRIBE_BROKER.

Sits between: the dispatcher and the broker's topics and store.
"""

from headrace_mq._net.server import Connection
from headrace_mq.broker.quotas.creations import QUEUES
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.topics import QUEUES_PER_REQUEST_MAX
from headrace_mq.errors import InvalidArgument
from headrace_mq.protocol.bodies import (
    BrokerDescription,
    CreateTopic,
    DescribeTopics,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    TopicIdentity,
    TopicsAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.frame import Frame

__all__ = [
    "TOPICS_DESCRIBED_MAX",
    "create_topic",
    "describe_broker",
    "describe_topics",
    "queue_ranges",
]

# By name; some ten milliseconds of the loop's time.
TOPICS_DESCRIBED_MAX = 4_096


def create_topic(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Creates, grows or confirms a topic.

    Raises:
        InvalidArgument: a value is out of its range.
        TopicExists: the topic has another retention policy.
        Throttled: clients of this address made too many queues in the last minute.
        StoreFull: the disk is full.
    """
    may_make = state.may_make(connection, QUEUES)
    created = state.topics.create(decode(CreateTopic, frame.body), may_make=may_make)
    return (encode(TopicsAnswer([created])),)


def describe_topics(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes]:
    """Describes the topics that exist, after creating the missing ones where that is allowed.

    Raises:
        InvalidArgument: a name is not allowed, or they are too many.
        Throttled: clients of this address made too many queues in the last minute.
        StoreFull: the disk is full.
    """
    request = decode(DescribeTopics, frame.body)
    named = dict.fromkeys(request.topics)
    if len(named) > TOPICS_DESCRIBED_MAX:
        raise InvalidArgument(
            f"one request names at most {TOPICS_DESCRIBED_MAX} topics, not {len(named)}; name fewer"
            " at a time, or none for all of them"
        )
    if request.create_missing:
        state.topics.admit(named, may_make=state.may_make(connection, QUEUES))
    if not named:
        return (encode(TopicsAnswer(state.topics.all())),)
    found = (state.topics.find(topic) for topic in named)
    return (encode(TopicsAnswer([topic for topic in found if topic is not None])),)


def queue_ranges(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers what each queue of the topics holds. Raises TopicNotFound, InvalidArgument."""
    request = decode(QueueRanges, frame.body)
    queues = state.topics.queues_of_all(request.topics, at_most=QUEUES_PER_REQUEST_MAX)
    ranges = [QueueRange(*queue, *state.range(queue)) for queue in queues]
    identities = [TopicIdentity(topic, state.topics.identity_of(topic)) for topic in request.topics]
    return (encode(QueueRangesAnswer(ranges, identities)),)


def describe_broker(state: BrokerState, _connection: Connection, _frame: Frame) -> tuple[bytes]:
    """Describes the broker itself."""
    answer = BrokerDescription(
        broker=state.address,
        epoch=state.epoch,
        started_at_ms=state.started_at_ms,
        connections=len(state.server.connections),
        read_only=state.store.read_only is not None,
    )
    return (encode(answer),)
