"""Errors of the client become the framework's, with what to do."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import HeadraceError
from headrace.transports.kafka.failures import failure, kafka_error


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, ValueError, "topic t"),
        (KafkaError._MSG_TIMED_OUT, TimeoutError, "topic t"),
        (KafkaError.NOT_ENOUGH_REPLICAS, TimeoutError, "start the others"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, HeadraceError, "allow it READ"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, HeadraceError, "consumer group"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, HeadraceError, "start the service"),
        (KafkaError._AUTHENTICATION, HeadraceError, "sasl.mechanism"),
    ],
)
def test_an_error_has_a_kind_and_advice(code: int, kind: type[Exception], says: str) -> None:
    for error in (KafkaError(code), KafkaException(KafkaError(code))):
        found = failure(error, "topic t")
        assert isinstance(found, kind)
        assert says in str(found)
        assert kafka_error(error).code() == code
