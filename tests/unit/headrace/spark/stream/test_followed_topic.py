"""The event topic's data sources take the addresses of every queue; integration/spark reads by them."""

import pickle
from typing import Any

import pytest

from headrace.spark.stream.followed_topic import FollowedTopic, WholeTopic
from headrace.transports.kafka.topic_reader import KafkaTopicReader
from headrace_mq.errors import ConnectionLost
from headrace_mq.spark.source import SCHEMA

SOURCES = [FollowedTopic, WholeTopic]


def stream(source: type[FollowedTopic], broker: str) -> Any:
    made = source({"broker": broker, "topic": "bank.events"}).streamReader(SCHEMA)
    # Spark sends it to executors.
    return pickle.loads(pickle.dumps(made))


@pytest.mark.parametrize("source", SOURCES)
def test_the_address_decides_how_a_stream_connects(source: type[FollowedTopic]) -> None:
    made = stream(source, "kafka://h:9092")
    with made.connect("kafka://h:9092", 100) as reader:
        assert isinstance(reader, KafkaTopicReader)
    with pytest.raises(ConnectionLost):
        made.connect("127.0.0.1:1", 100)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("broker", ["kafka://h:9092?acks=1", "nowhere"])
def test_an_address_that_cannot_be_used_is_refused_before_anything_is_read(
    source: type[FollowedTopic], broker: str
) -> None:
    with pytest.raises(ValueError, match="option 'broker'"):
        stream(source, broker)


def test_neither_takes_the_name_of_the_public_source() -> None:
    assert [each.name() for each in SOURCES] == ["headrace_followed", "headrace_whole"]
