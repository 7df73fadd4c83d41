"""Administration of a broker in another process that is killed in between."""

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import QueueFrozen, TopicNotFound
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import BrokerSettings, StoreSettings


async def send(address: str, topic: str, *bodies: bytes) -> None:
    async with Producer(address) as producer:
        await producer.send_many([Message(topic=topic, key="k", body=body) for body in bodies])


async def test_a_freeze_outlives_the_death_of_the_broker(broker: Any) -> None:
    async with AdminClient(broker.address) as admin:
        await admin.create_topic("t", queues=1)
        frozen = await admin.freeze("t", writing=True, reading=True)
    await broker.kill()
    await broker.start()
    async with AdminClient(broker.address) as admin:
        assert await admin.topic("t") == frozen
    with pytest.raises(QueueFrozen):
        await send(broker.address, "t", b"x")


async def test_a_deleted_topic_stays_deleted_when_the_broker_dies_at_once(broker: Any) -> None:
    queue = QueueRef("t", 0)
    async with AdminClient(broker.address) as admin:
        await admin.create_topic("t", queues=1, retention="forever")
        await send(broker.address, "t", b"old", b"old")
        await admin.set_offsets("g", {queue: 2})
        await admin.freeze("t", writing=True, reading=True)
        assert (await admin.delete_queues("t")).deleted
    await broker.kill()
    await broker.start()
    async with AdminClient(broker.address) as admin:
        with pytest.raises(TopicNotFound):
            await admin.topic("t")
        await admin.create_topic("t", queues=1, retention="forever")
        assert await admin.offsets("g", ["t"]) == {queue: -1}
    await send(broker.address, "t", b"new")
    await broker.kill()
    await broker.start()
    async with AdminClient(broker.address) as admin:
        (one,) = await admin.ranges(["t"])
    assert (one.first, one.end) == (2, 3)
    with BlockingReader(broker.address) as reader:
        assert [columns.bodies for _, columns, _, _ in reader.read(queue, 2, 3)] == [[b"new"]]


@pytest.mark.parametrize(
    ("choices", "warnings"),
    [
        ({}, []),
        ({"host": "0.0.0.0", "insecure": True}, ["its login is off"]),
        ({"connections_max": 1 << 21}, ["the system grants too few open files"]),
    ],
)
async def test_a_broker_warns_at_its_start_of_what_its_settings_allow(
    tmp_path: Path, choices: dict[str, Any], warnings: list[str]
) -> None:
    store = StoreSettings(directory=tmp_path / "data", segment_bytes=1 << 20)
    with capture_logs() as logs:
        async with Broker(BrokerSettings(**{"port": 0, "store": store, **choices})):
            pass
    told = [each["event"] for each in logs if each["log_level"] == "warning"]
    assert len(told) == len(warnings)
    assert all(part in said for part, said in zip(warnings, told, strict=True))
