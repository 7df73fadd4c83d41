"""Queues of a topic in use are frozen, drained and deleted; a broker in a process of its own."""

import asyncio
from collections import defaultdict
from typing import Any

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.producer.route import queue_for_key
from headrace_mq.client.transactions.transactional_producer import (
    Decision,
    Transaction,
    TransactionalProducer,
)
from headrace_mq.errors import TopicInUse
from headrace_mq.message import Message, Record, SendResult
from headrace_mq.settings import ConsumerSettings

KEYS = [f"k{n}" for n in range(40)]
# One whose queue goes.
MOVED = next(key for key in KEYS if queue_for_key(key, 4) == 3)


class Traffic:
    """A sender for each key, one message after the other, and who handled what."""

    def __init__(self) -> None:
        self.sent: dict[str, list[SendResult]] = {key: [] for key in KEYS}
        self.handled: dict[str, list[int]] = defaultdict(list)
        self._over = False

    async def send(self, producer: Producer, key: str) -> None:
        while not self._over:
            body = b"%d" % len(self.sent[key])
            self.sent[key].append(await producer.send(Message(topic="t", key=key, body=body)))

    async def handle(self, record: Record) -> None:
        self.handled[record.key].append(int(record.body))

    async def goes_on(self) -> None:
        """Each key is sent to some times more."""
        wanted = {key: len(places) + 5 for key, places in self.sent.items()}
        while any(len(self.sent[key]) < number for key, number in wanted.items()):
            await asyncio.sleep(0)

    async def ends(self, others: int) -> None:
        """The senders stop, and all of theirs and so many others are handled."""
        self._over = True
        while sum(map(len, self.handled.values())) < others + sum(map(len, self.sent.values())):
            await asyncio.sleep(0)


async def commit(_transaction: Transaction) -> Decision:
    return Decision.COMMIT


async def drained(admin: AdminClient) -> None:
    """Deletes the queues as soon as the group is through with them."""
    deleted = False
    while not deleted:
        try:
            deleted = (await admin.delete_queues("t", keep=2)).deleted
        except TopicInUse:
            await asyncio.sleep(0)


async def test_a_queue_drains_and_goes_while_its_keys_are_sent_to(broker: Any) -> None:
    """No sender sees an error, nothing is lost, and each key stays in its order."""
    traffic = Traffic()
    settings = ConsumerSettings(heartbeat_ms=100, commit_interval_ms=20)
    async with (
        AdminClient(broker.address) as admin,
        Producer(broker.address) as one,
        Producer(broker.address) as other,
        TransactionalProducer(broker.address, group="p", checker=commit) as transactional,
    ):
        await admin.create_topic("t", queues=4)
        prepared = await transactional.begin(Message(topic="t", key=MOVED, body=b"-1"))
        consumer = Consumer(broker.address, group="g", topics=["t"], settings=settings)
        async with consumer, asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.run(traffic.handle))
            for number, key in enumerate(KEYS):
                tasks.create_task(traffic.send((one, other)[number % 2], key))
            await traffic.goes_on()
            await admin.freeze("t", [2, 3], writing=True)
            # What is prepared for a frozen queue, was prepared before, or falls due.
            message = Message(topic="t", key=MOVED, body=b"-2")
            await transactional.send_in_transaction(message, commit)
            await one.schedule(Message(topic="t", key=MOVED, body=b"-3"), delay_ms=1)
            await traffic.goes_on()
            await admin.freeze("t", [2, 3], reading=True)
            await drained(admin)
            await prepared.commit()
            await traffic.goes_on()
            await traffic.ends(others=3)
            tasks.create_task(consumer.aclose())
        assert (await admin.topic("t")).queues == 2
        ends = {found.queue_id: found.end for found in await admin.ranges(["t"])}
    for key, places in traffic.sent.items():
        assert sorted(n for n in traffic.handled[key] if n >= 0) == list(range(len(places)))
        before, after = queue_for_key(key, 4), queue_for_key(key, 2)
        queues = [place.queue.queue_id for place in places]
        assert queues == sorted(queues, key=lambda queue: queue != before)
        assert set(queues) == {before, after}
    assert sorted(traffic.handled[MOVED])[:3] == [-3, -2, -1]
    # All but what stood in the queues that are gone.
    gone = sum(place.queue.queue_id > 1 for places in traffic.sent.values() for place in places)
    assert sum(ends.values()) == 3 + sum(map(len, traffic.sent.values())) - gone
