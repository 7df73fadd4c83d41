"""
What went wrong at Kafka, in the framework's errors and in sentences that say what to do.

Used by the modules of the transport. Pure.
"""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import HeadraceError

__all__ = ["failure", "kafka_error"]

# The message itself is the reason, so that no attempt succeeds.
_MALFORMED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_ARG,
    }
)
# Nothing says whether it went through, or it will at another time.
_OUTAGES: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FATAL,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
# Errors of idempotence, after which the producer is replaced.
_SEQUENCES: Final = frozenset(
    {
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_ADVICE: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        "the user may not use the topic; allow it READ, WRITE, DESCRIBE and CREATE on the application's"
        " topics and on the topic of replies"
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (
        "the user may not use the consumer group; allow it READ on the application's groups"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: (
        "the user may not do this in the cluster; allow it CREATE, and IDEMPOTENT_WRITE before Kafka 3"
    ),
    KafkaError._AUTHENTICATION: (
        "the cluster does not accept the login; check security.protocol, sasl.mechanism,"
        " sasl.username and sasl.password"
    ),
    KafkaError.UNKNOWN_TOPIC_OR_PART: "there is no such topic; start the service, which makes it",
    KafkaError._UNKNOWN_TOPIC: "there is no such topic; start the service, which makes it",
    KafkaError.NOT_ENOUGH_REPLICAS: (
        "fewer brokers than min.insync.replicas hold the partition; start the others"
    ),
}


def kafka_error(error: KafkaError | KafkaException) -> KafkaError:
    """Returns the error within an exception of the client."""
    return error.args[0] if isinstance(error, KafkaException) else error


def failure(error: KafkaError | KafkaException, what: str) -> Exception:
    """Returns what to raise.

    Args:
        error: of the client.
        what: was being done, as in "topic bank.events".

    Returns:
        ValueError for a message that no attempt brings through; TimeoutError where nothing is known, and
        sending again is safe; else HeadraceError.
    """
    found = kafka_error(error)
    advice = _ADVICE.get(found.code())
    sentence = f"Kafka, {what}: {found.str()}{f'; {advice}' if advice else ''}"
    if found.code() in _MALFORMED:
        return ValueError(sentence)
    # After a fatal error of idempotence nothing is known, either; see the producer.
    if found.code() in _OUTAGES or found.code() in _SEQUENCES or found.retriable() or found.fatal():
        return TimeoutError(sentence)
    return HeadraceError(sentence)
