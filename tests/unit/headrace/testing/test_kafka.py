"""The mock cluster: real sockets, topics as they were asked for."""

import pytest
from confluent_kafka.admin import AdminClient

from headrace.errors import DefinitionError, HeadraceError
from headrace.testing.kafka import MockKafka


def test_a_topic_has_its_partitions() -> None:
    with MockKafka(brokers=2) as cluster:
        made = cluster.topics.ensure("t", queues=3, forever=True)
        assert cluster.topics.facts("t") == made
        assert cluster.topics.facts("other") is None
        address = cluster.address()
        told = AdminClient({"bootstrap.servers": address.bootstrap}).list_topics("t", timeout=10)
        assert len(told.brokers) == cluster.topics.brokers() == 2
        assert len(told.topics["t"].partitions) == made.partitions == 3
        with pytest.raises(DefinitionError):
            cluster.topics.ensure("t", queues=4, forever=True)
        with pytest.raises(HeadraceError):
            cluster.topics.ensure("t", queues=3, forever=False)
