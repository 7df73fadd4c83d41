"""A broker in this process that holds the ledger's event topic."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace._domain.stream import EventStream
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer import Producer
from headrace_mq.message import Message
from headrace_mq.settings import BrokerSettings, StoreSettings


@dataclass
class EventBroker:
    """The broker and a producer of event messages."""

    broker: Broker
    producer: Producer
    ledger: Any

    @property
    def address(self) -> str:
        return self.broker.address

    async def publish(self, *streams: EventStream) -> None:
        await self.producer.send_many(
            [
                Message(
                    topic=self.ledger.topic_name,
                    key=stream.aggregate_id,
                    headers={"kind": "events" if stream.rejection is None else "rejection"},
                    body=self.ledger.serializer.encode_stream(stream),
                )
                for stream in streams
            ]
        )


@pytest.fixture
async def event_broker(tmp_path: Path, ledger: Any) -> AsyncIterator[EventBroker]:
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    async with Producer(broker.address) as producer:
        await producer.create_topic(ledger.topic_name, queues=2, retention="forever")
        yield EventBroker(broker, producer, ledger)
    await broker.aclose()
