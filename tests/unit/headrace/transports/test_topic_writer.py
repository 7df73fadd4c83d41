"""What is written into a queue of a real broker stands there, and a group goes on where it was told to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.transports.kafka.topic_writer import KafkaTopicWriter
from headrace.transports.topic_writer import BlockingWriter, open_topic_writer
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import ConnectionLost, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns
from headrace_mq.settings import BrokerSettings, StoreSettings

MESSAGES = Columns(
    ["k", "", "ü"], ["t", "", ""], [{"a": "1"}, {}, {"b": "ß"}], [b"1", b"", b"3"], []
)
QUEUE = QueueRef("shop.events", 1)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path / "mq", segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    yield broker
    await broker.aclose()


def read_all(address: str) -> list[Any]:
    with BlockingReader(address) as reader:
        (held,) = [each for each in reader.ranges([QUEUE.topic]) if each.queue_id == QUEUE.queue_id]
        return [
            (
                columns.keys[number] if columns.keys else "",
                columns.tags[number] if columns.tags else "",
                columns.headers[number] if columns.headers else {},
                bytes(columns.bodies[number]),
            )
            for _, columns, first, last in reader.read(QUEUE, held.first, held.end)
            for number in range(first, last)
        ]


async def test_messages_come_back_as_they_were_written(broker: Broker) -> None:
    def write() -> list[Any]:
        with BlockingWriter(broker.address) as writer:
            writer.ensure(QUEUE.topic, queues=2, forever=True)
            assert writer.write(QUEUE, MESSAGES) == range(3)
            assert writer.write(QUEUE, Columns([], [], [], [b"4"], [])) == range(3, 4)
        return read_all(broker.address)

    assert await asyncio.to_thread(write) == [
        ("k", "t", {"a": "1"}, b"1"),
        ("", "", {}, b""),
        ("ü", "", {"b": "ß"}, b"3"),
        ("", "", {}, b"4"),
    ]


async def test_a_group_goes_on_at_its_offsets(broker: Broker) -> None:
    def write() -> None:
        with BlockingWriter(broker.address) as writer:
            writer.ensure(QUEUE.topic, queues=2, forever=True)
            writer.write(QUEUE, MESSAGES)
            assert writer.committed("g", QUEUE.topic) == {}
            writer.commit("g", QUEUE.topic, {1: 2})
            assert writer.committed("g", QUEUE.topic) == {1: 2}
            with pytest.raises(MessageQueueError):
                writer.commit("g", QUEUE.topic, {1: 9})

    await asyncio.to_thread(write)


async def test_a_frozen_queue_is_refused_and_others_get_nothing_of_it(broker: Broker) -> None:
    async with AdminClient(broker.address) as admin:
        await admin.create_topic(QUEUE.topic, 2, "forever")
        await admin.freeze(QUEUE.topic, [1], writing=True)

    def write() -> None:
        with BlockingWriter(broker.address) as writer:
            writer.write(QUEUE, MESSAGES)

    with pytest.raises((HeadraceError, MessageQueueError)):
        await asyncio.to_thread(write)


def test_an_address_decides_which_writer_there_is() -> None:
    with open_topic_writer("kafka://127.0.0.1:1") as writer:
        assert isinstance(writer, KafkaTopicWriter)
    with pytest.raises(ValueError, match="acks"):
        open_topic_writer("kafka://h:1?acks=1")


def test_a_broker_that_is_away_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost):
        open_topic_writer("127.0.0.1:1")
