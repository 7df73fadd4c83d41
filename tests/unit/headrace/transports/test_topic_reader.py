"""An address decides which reader there is; what it does: tests/conformance/test_topic_reader.py."""

import pytest

from headrace.transports.kafka.topic_reader import KafkaTopicReader
from headrace.transports.topic_reader import check_address, open_topic_reader, topic_identity
from headrace_mq.errors import ConnectionLost, MessageQueueError


def test_an_address_of_kafka_opens_its_reader() -> None:
    with open_topic_reader("kafka://h:1") as reader:
        assert isinstance(reader, KafkaTopicReader)
    with pytest.raises(ValueError, match="acks"):
        open_topic_reader("kafka://h:1?acks=1")


def test_an_address_is_checked_without_a_connection() -> None:
    check_address("kafka://h:1")
    check_address("127.0.0.1:1")
    for wrong in ("kafka://h:1?acks=1", "nowhere"):
        with pytest.raises(ValueError, match=r"acks|looks like"):
            check_address(wrong)


def test_a_broker_that_is_away_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost):
        open_topic_reader("127.0.0.1:1", 100)


async def test_the_identity_of_a_topic_is_the_queues() -> None:
    with pytest.raises(MessageQueueError):
        await topic_identity("127.0.0.1:1", "t")
