"""
FIND_MESSAGES: a few milliseconds of a search for messages by key; DESCRIBE_PRODUCERS: who sent.

Sits between: the dispatcher and the store, or the remembered producers. The client asks again until everything was searched, so
that a long search holds up nobody else.
"""

from headrace_mq._net.server import Connection
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import InvalidArgument
from headrace_mq.message import KEY_BYTES_MAX
from headrace_mq.protocol.administration import (
    DescribeProducers,
    FindAnswer,
    FindMessages,
    ProducersAnswer,
    encode_find_answer,
)
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.frame import Frame
from headrace_mq.store.log.lookup import Cursor, LookupQuery

__all__ = ["PRODUCERS_PER_REQUEST_MAX", "describe_producers", "find_messages"]

# As many as the messages of one answer of FIND_MESSAGES can have.
PRODUCERS_PER_REQUEST_MAX = 1_000


def find_messages(
    state: BrokerState, _connection: Connection, frame: Frame
) -> tuple[bytes | memoryview, ...]:
    """Searches on from where the last answer stopped.

    Raises:
        InvalidArgument: a value is out of its range.
        TopicNotFound: no such topic.
    """
    asked = decode(FindMessages, frame.body)
    if len(asked.key.encode()) > KEY_BYTES_MAX:
        raise InvalidArgument(f"a key has at most {KEY_BYTES_MAX} bytes")
    # Below its start stand the messages of a deleted queue of the same name.
    queues = state.topics.queues_of(asked.topic)
    starts = {queue: state.topics.start_of(queue) for queue in queues}
    found = state.store.find(
        LookupQuery(asked.topic, asked.key, asked.from_ms, asked.to_ms),
        Cursor(asked.log, asked.position) if asked.log else None,
        starts=starts,
        messages_max=asked.messages_max,
        bytes_max=min(asked.bytes_max, state.batch_bytes_max),
    )
    log, position = found.cursor or ("", 0)
    answer = encode_find_answer(FindAnswer(found.messages, log, position))
    return (answer, *found.batches)


def describe_producers(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes]:
    """Tells who sends, or sent, under some producer ids. Raises InvalidArgument: too many."""
    asked = decode(DescribeProducers, frame.body)
    if len(asked.producer_ids) > PRODUCERS_PER_REQUEST_MAX:
        raise InvalidArgument(
            f"ask for at most {PRODUCERS_PER_REQUEST_MAX} producers at a time, not"
            f" {len(asked.producer_ids)}"
        )
    return (encode(ProducersAnswer(state.producers.describe(asked.producer_ids))),)
