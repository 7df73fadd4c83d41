"""A setting decides whether messages leave the process."""

import sys

import pytest

from headrace.app import App
from headrace.errors import BrokerUnreachable, DefinitionError, ExtraMissing, HeadraceError
from headrace.settings import Settings
from headrace.testing.kafka import MockKafka
from headrace.transports.base import Outgoing
from headrace.transports.kafka import transport as kafka_transport
from headrace.transports.kafka.schedule import MemorySchedule
from headrace.transports.kafka.transport import KafkaTransport
from headrace.transports.local import LocalTransport
from headrace.transports.open import open_transport, require_broker
from headrace_mq.errors import MessageQueueError


async def test_without_a_broker_messages_stay_in_this_process_until_the_block_ends() -> None:
    async with open_transport(None) as transport:
        assert isinstance(transport, LocalTransport)
        await transport.ensure_topic("t", queues=1, forever=False)
    with pytest.raises(HeadraceError, match="closed"):
        await transport.publish(Outgoing(topic="t", key="k", body=b""))


async def test_a_broker_that_is_not_there_is_an_error_before_anything_runs() -> None:
    with pytest.raises(BrokerUnreachable, match=r"no broker answers at 127.0.0.1:1 .*check"):
        async with open_transport("127.0.0.1:1", within_ms=20):
            pass


async def test_a_client_waits_for_its_broker_no_longer_than_its_setting_says() -> None:
    settings = Settings(broker="127.0.0.1:1", connect_ms=20)
    with pytest.raises(BrokerUnreachable, match="no broker answers"):
        async with App("shop").client(settings):
            pass


async def test_an_address_of_kafka_opens_a_transport_over_it() -> None:
    with MockKafka() as cluster:
        cluster.topics.ensure("headrace.replies", queues=2, forever=False)
        await require_broker(cluster.text, within_ms=10_000)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kafka_transport, "ClusterTopics", lambda *_: cluster.topics)
            async with open_transport(cluster.text) as transport:
                assert isinstance(transport, KafkaTransport)
                assert transport.reply_address.startswith("headrace.replies/")


async def test_a_trace_that_kafka_cannot_keep_is_refused_before_anything_runs() -> None:
    with pytest.raises(DefinitionError, match="leave trace_share at 0, or use Headrace's own"):
        async with open_transport("kafka://127.0.0.1:1", trace_share=0.5):
            pass


class Kept(MemorySchedule):
    closed = False

    async def open(self) -> "Kept":
        return self

    async def aclose(self) -> None:
        self.closed = True


async def test_a_wrong_address_of_kafka_says_what_to_write() -> None:
    kept = Kept()
    with pytest.raises(DefinitionError, match="broker: acks cannot be set"):
        async with open_transport("kafka://h:1?acks=0"):
            pass
    with pytest.raises(DefinitionError, match=r"broker: .*sasl\.pasword"):
        async with open_transport("kafka://h:1?sasl.pasword=geheim", schedule=kept.open):
            pass
    assert kept.closed


async def test_a_cluster_that_is_not_there_does_not_answer() -> None:
    with pytest.raises(TimeoutError, match=r"127\.0\.0\.1:1"):
        await require_broker("kafka://127.0.0.1:1", within_ms=100)
    with pytest.raises(MessageQueueError):
        await require_broker("127.0.0.1:1", within_ms=100)


async def test_without_the_client_of_kafka_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "headrace.transports.kafka.transport", None)
    with pytest.raises(ExtraMissing, match=r"headrace\[kafka\]"):
        async with open_transport("kafka://h:1"):
            pass
