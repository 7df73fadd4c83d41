"""
CREATE_TOPIC, DESCRIBE_TOPICS, QUEUE_RANGES and DESCRIBE_BROKER.

Sits between: the dispatcher and the broker's topics and store.
"""

from headrace_mq._net.server import Connection
from headrace_mq.broker.state import BrokerState
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

__all__ = ["create_topic", "describe_broker", "describe_topics", "queue_ranges"]


def create_topic(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Creates, grows or confirms a topic.

    Raises:
        InvalidArgument: a value is out of its range.
        TopicExists: the topic has another retention policy.
        StoreFull: the disk is full.
    """
    created = state.topics.create(decode(CreateTopic, frame.body))
    return (encode(TopicsAnswer([created])),)


def describe_topics(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Describes the topics that exist, after creating the missing ones where that is allowed."""
    request = decode(DescribeTopics, frame.body)
    if request.create_missing:
        state.topics.admit(request.topics)
    if not request.topics:
        return (encode(TopicsAnswer(state.topics.all())),)
    found = (state.topics.find(topic) for topic in request.topics)
    return (encode(TopicsAnswer([topic for topic in found if topic is not None])),)


def queue_ranges(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Answers what each queue of the topics holds. Raises TopicNotFound."""
    request = decode(QueueRanges, frame.body)
    queues = [queue for topic in request.topics for queue in state.topics.queues_of(topic)]
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
