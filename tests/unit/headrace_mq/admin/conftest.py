"""A broker in this process, and a client that administers it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.settings import BrokerSettings, StoreSettings


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0, offsets_flush_ms=20))
    await broker.start()
    yield broker
    await broker.aclose()


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[AdminClient]:
    async with AdminClient(broker.address) as admin:
        yield admin


@pytest.fixture
def send(broker: Broker) -> Callable[[str, int], Awaitable[None]]:
    """Sends messages without a key to a topic, one queue after the other."""

    async def send(topic: str, count: int) -> None:
        async with Producer(broker.address) as producer:
            await producer.send_many([Message(topic=topic, body=b"x")] * count)

    return send
