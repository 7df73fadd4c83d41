"""Scheduled messages in a broker process that is killed in the middle of delivering them."""

import asyncio
import random
from collections import Counter
from typing import Any

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ProducerSettings

COUNT, KILLS = 2_000, 4
QUICK = ProducerSettings(reconnect_ms_max=50)


async def delivered(address: str) -> int:
    """How many messages both topics hold."""
    async with AdminClient(address) as admin:
        return sum(queue.end - queue.first for queue in await admin.ranges(["t", "kept"]))


def stored(address: str) -> Counter[bytes]:
    """The bodies in both topics."""
    bodies: Counter[bytes] = Counter()
    with BlockingReader(address) as reader:
        for held in reader.ranges(["t", "kept"]):
            queue = QueueRef(held.topic, held.queue_id)
            for _, columns, first, last in reader.read(queue, held.first, held.end):
                bodies.update(columns.bodies[first:last])
    return bodies


async def test_every_message_is_delivered_once_however_often_the_broker_is_killed(
    broker: Any,
) -> None:
    chosen = random.Random(7)
    async with Producer(broker.address, QUICK) as producer:
        await producer.create_topic("t", 2)
        await producer.create_topic("kept", 2, "forever")
        scheduled = await asyncio.gather(
            *(
                producer.schedule(
                    Message(topic=chosen.choice(["t", "kept"]), key=f"{n % 7}", body=b"%d" % n),
                    delay_ms=chosen.randrange(1_500),
                )
                for n in range(COUNT)
            )
        )
        far = await producer.schedule(Message(topic="t", body=b"far"), level="2h")
        cancelled = await producer.schedule(Message(topic="t", body=b"never"), level="1h")
        assert await producer.cancel(cancelled.id)
    assert len({one.id for one in scheduled}) == COUNT
    seen = 0
    for kill in range(KILLS):
        # In the middle of the next deliveries, or at once where all were made.
        wanted = min(COUNT, seen + COUNT // (2 * KILLS) * (kill > 0))
        while seen < wanted:
            seen = await delivered(broker.address)
        await broker.kill()
        await broker.start()
        seen = await delivered(broker.address)
    while await delivered(broker.address) < COUNT:
        await asyncio.sleep(0)
    async with AdminClient(broker.address) as admin:
        while (waiting := await admin.scheduled()).pending > 1:
            await asyncio.sleep(0)
    assert waiting.next_due_at_ms >= far.due_at_ms - 60_000
    assert stored(broker.address) == Counter(b"%d" % n for n in range(COUNT))
