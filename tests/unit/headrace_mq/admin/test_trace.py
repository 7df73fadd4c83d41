"""Following a message with a client."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.trace.trace_events import TRACE_TOPIC, Kind, TraceStep, encode_step
from headrace_mq.message import Message
from headrace_mq.settings import BrokerSettings, StoreSettings


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(BrokerSettings(store=StoreSettings(directory=tmp_path), port=0))
    await broker.start()
    yield broker
    await broker.aclose()


def step(kind: Kind, at_ms: int) -> TraceStep:
    return TraceStep(kind=kind, at_ms=at_ms, group="g", client_id="c")


async def test_steps_are_told_in_the_order_of_their_times(broker: Broker) -> None:
    bodies = [encode_step(step("acknowledged", 2)), b"not a step", encode_step(step("begun", 1))]
    async with Producer(broker.address) as producer, AdminClient(broker.address) as admin:
        assert await admin.steps("orders:0:1") == []
        await producer.send_many(
            [Message(topic=TRACE_TOPIC, body=body, key="orders:0:1") for body in bodies]
        )
        assert [found.kind for found in await admin.steps("orders:0:1")] == [
            "begun",
            "acknowledged",
        ]
        assert await admin.steps("orders:0:2") == []


async def test_what_is_no_id_is_said_to_be_none(broker: Broker) -> None:
    async with AdminClient(broker.address) as admin:
        with pytest.raises(ValueError, match="is no message id"):
            await admin.steps("orders")
