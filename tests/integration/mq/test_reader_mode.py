"""A killed broker starts on a disk with 0 bytes left, or a read-only one: everything can be read."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message
from headrace_mq.settings import ConsumerSettings, ProducerSettings

PATIENT = ProducerSettings(send_timeout_ms=60_000, reconnect_ms_max=100)
READER = ConsumerSettings(commit_interval_ms=50)
SENT_MIN = 2_000
BODY = b"x" * 200


@pytest.fixture
async def sent(small_disk: Any, start_broker: Any) -> tuple[Any, list[str]]:
    """A broker that was killed while it was sent to, and the keys that it had acknowledged."""
    broker = await start_broker(small_disk.path / "data")
    acknowledged: list[str] = []

    async def send(producer: Producer, number: int) -> None:
        with suppress(MessageQueueError):
            await producer.send(Message(topic="t", key=str(number), body=BODY))
            acknowledged.append(str(number))

    async def keep_sending(producer: Producer) -> None:
        number = 0
        async with asyncio.TaskGroup() as tasks:
            while not broker.ended:
                await asyncio.gather(*(send(producer, number + one) for one in range(50)))
                number += 50
                if number == SENT_MIN:
                    tasks.create_task(broker.kill())

    impatient = ProducerSettings(send_timeout_ms=1_000, reconnect_ms_max=100)
    async with Producer(broker.address, impatient) as producer:
        await producer.create_topic("t", queues=2)
        await keep_sending(producer)
    assert len(acknowledged) >= SENT_MIN
    return broker, acknowledged


async def read(address: str, group: str, wanted: int) -> list[str]:
    keys: list[str] = []
    async with Consumer(address, group=group, topics=["t"], settings=READER) as consumer:
        while len(keys) < wanted:
            records = await consumer.poll()
            keys += [record.key for record in records]
            consumer.ack_all(records)
    return keys


@pytest.mark.timeout(120)
@pytest.mark.parametrize("trouble", ["full", "read-only"])
async def test_readers_get_all_that_was_acknowledged_and_senders_wait_until_the_disk_takes_it(
    sent: tuple[Any, list[str]], small_disk: Any, trouble: str
) -> None:
    broker, acknowledged = sent
    before, after = {
        "full": (small_disk.fill, small_disk.free),
        "read-only": (small_disk.forbid, small_disk.allow),
    }[trouble]
    before()
    await broker.start()
    read_by_one = await read(broker.address, "one", len(acknowledged))
    assert set(acknowledged) <= set(read_by_one)
    async with Producer(broker.address, PATIENT) as producer, AdminClient(broker.address) as admin:
        assert "serves readers only" in (await admin.status()).refuses
        sending = asyncio.create_task(producer.send(Message(topic="t", key="new", body=BODY)))
        # A refused message waits in its producer; it is acknowledged when the disk takes it.
        assert set(acknowledged) <= set(await read(broker.address, "two", len(acknowledged)))
        assert not sending.done()
        after()
        await sending
        assert not (await admin.status()).refuses
    # The group goes on where it stood before the broker started for everybody.
    assert "new" in await read(broker.address, "one", 1)
    await broker.kill()
    await broker.start()
    everything = await read(broker.address, "three", len(read_by_one) + 1)
    assert set(everything) == {*read_by_one, "new"}
