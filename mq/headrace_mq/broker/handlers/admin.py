"""
What administration asks of topics, of the broker and of messages.

CREATE_TOPIC, DESCRIBE_TOPICS, QUEUE_RANGES, DESCRIBE_BROKER, FIND_MESSAGES and DESCRIBE_PRODUCERS. FIND_MESSAGES searches for a few milliseconds. The client asks again until everything was searched, so a long
search does not hold up other clients.
"""

from headrace_mq._net.server import Connection
from headrace_mq.access.heads import HEAD_RECORDS_MAX, head_of
from headrace_mq.access.resources import Action, Ask, ResourceKind
from headrace_mq.broker.quotas.creations import QUEUES
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.topics import QUEUES_PER_REQUEST_MAX
from headrace_mq.errors import InvalidArgument
from headrace_mq.message import KEY_BYTES_MAX, QueueRef
from headrace_mq.protocol.administration import (
    DescribeProducers,
    FindAnswer,
    FindMessages,
    ProducersAnswer,
    encode_find_answer,
)
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
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.store.log.lookup import Cursor, LookupQuery

__all__ = [
    "PRODUCERS_PER_REQUEST_MAX",
    "TOPICS_DESCRIBED_MAX",
    "create_topic",
    "describe_broker",
    "describe_producers",
    "describe_topics",
    "find_messages",
    "queue_ranges",
]

# Messages of one answer that has heads alone: the batch of each is decoded and made again.
HEADS_FOUND_MAX = 8
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
    known = {QueueRef(one.topic, one.queue_id): one.epoch for one in request.known}
    ranges = [
        QueueRange(
            *queue,
            *state.range(queue),
            state.topics.start_of(queue),
            state.epoch,
            state.changed_from(queue, known[queue]) if queue in known else -1,
        )
        for queue in queues
    ]
    identities = [
        TopicIdentity(
            topic,
            state.topics.identity_of(topic),
            state.topics.is_settled(topic),
            state.topics.total_of(topic),
        )
        for topic in request.topics
    ]
    lossy = 0 if state.followers is None else state.followers.last_loss
    return (encode(QueueRangesAnswer(ranges, identities, state.epoch, lossy)),)


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


# As many as the messages of one answer of FIND_MESSAGES can have.
PRODUCERS_PER_REQUEST_MAX = 1_000


def find_messages(
    state: BrokerState, connection: Connection, frame: Frame
) -> tuple[bytes | memoryview, ...]:
    """Searches on from where the last answer stopped.

    Raises:
        InvalidArgument: a value is out of its range.
        NotPermitted: the user may not consume the topic; for heads, not read it.
        TopicNotFound: no such topic.
    """
    asked = decode(FindMessages, frame.body)
    hidden = _is_hidden(state, connection, asked)
    if len(asked.key.encode()) > KEY_BYTES_MAX:
        raise InvalidArgument(f"a key has at most {KEY_BYTES_MAX} bytes; search for a shorter one")
    # Below its start stand the messages of a deleted queue of the same name.
    queues = state.topics.queues_of(asked.topic)
    starts = {queue: state.topics.start_of(queue) for queue in queues}
    found = state.store.find(
        LookupQuery(asked.topic, asked.key, asked.from_ms, asked.to_ms),
        Cursor(asked.log, asked.position) if asked.log else None,
        starts=starts,
        messages_max=min(asked.messages_max, HEADS_FOUND_MAX) if hidden else asked.messages_max,
        bytes_max=min(asked.bytes_max, state.batch_bytes_max),
        records_max=HEAD_RECORDS_MAX if hidden else None,
    )
    log, position = found.cursor or ("", 0)
    answer = encode_find_answer(FindAnswer(found.messages, log, position))
    if hidden:
        return (answer, *(memoryview(head_of(one, asked.key)) for one in found.batches))
    return (answer, *found.batches)


def _is_hidden(state: BrokerState, connection: Connection, asked: FindMessages) -> bool:
    """Whether heads are answered alone; refuses who may not even see those."""
    guard = state.guard
    if guard is None:
        return False
    if asked.heads:
        guard.require_heads(connection, [asked.topic], RequestCode.FIND_MESSAGES)
        return guard.hides(connection, asked.topic)
    ask = Ask(Action.CONSUME, ResourceKind.TOPIC, asked.topic)
    guard.require(connection, ask, RequestCode.FIND_MESSAGES)
    return False


def describe_producers(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Tells who sends, or sent, under some producer ids. Raises InvalidArgument: too many."""
    asked = decode(DescribeProducers, frame.body)
    if len(asked.producer_ids) > PRODUCERS_PER_REQUEST_MAX:
        raise InvalidArgument(
            f"ask for at most {PRODUCERS_PER_REQUEST_MAX} producers at a time, not"
            f" {len(asked.producer_ids)}"
        )
    return (encode(ProducersAnswer(state.producers.describe(asked.producer_ids))),)
