"""
Promises to producers: messages are stored whole, once, in order, for good.

Used by `queue`, which puts the suite together. Knows no deployment.
"""

import asyncio
from collections import defaultdict

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.producer.queue_sender import new_producer_id
from headrace_mq.client.producer.route import queue_for_key
from headrace_mq.client.requester import Requester, answering
from headrace_mq.errors import QueueFrozen
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.message_id import MessageId
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import ProduceAnswer, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.testing.arrivals import take
from headrace_mq.testing.conformance.deployment import QUICK, Deployment, fresh, refused

__all__ = ["ProducerConformance"]


class ProducerConformance:
    """Producers; needs the fixture `deployment`."""

    async def test_what_was_sent_is_received_whole(self, deployment: Deployment) -> None:
        """Every field survives, and the record says who sent it, when, and where it stands."""
        topic = fresh("whole")
        sent = Message(
            topic=topic, body=b"\x00\xff", key="k", tag="a tag", headers={"n": "v", "ä": ""}
        )
        async with Producer(deployment.address) as producer:
            result = await producer.send(sent)
        async with Consumer(deployment.address, group="g", topics=[topic], settings=QUICK) as one:
            (record,) = await take(one, 1)
        told = (record.body, record.key, record.tag, record.headers)
        assert told == (sent.body, sent.key, sent.tag, sent.headers)
        assert (record.queue, record.offset) == (result.queue, result.offset)
        assert record.born_at_ms > 0
        assert record.stored_at_ms > 0
        assert record.producer_id > 1
        async with AdminClient(deployment.address) as admin:
            assert (await admin.producers([record])).keys() == {record.producer_id}

    async def test_the_messages_of_a_key_keep_their_order_in_one_queue(
        self, deployment: Deployment
    ) -> None:
        """In any way they are sent, and by any producer."""
        topic = fresh("order")
        async with Producer(deployment.address) as one, Producer(deployment.address) as other:
            await one.create_topic(topic, queues=4)
            mine = [Message(topic=topic, key=f"k{n % 7}", body=b"%d" % n) for n in range(210)]
            places = list(await one.send_many(mine[:70]))
            places += await asyncio.gather(*(other.send(message) for message in mine[70:140]))
            places += await asyncio.gather(*(one.send_soon(message) for message in mine[140:]))
        by_key = defaultdict(list)
        for message, place in zip(mine, places, strict=True):
            by_key[message.key].append(place)
        for key, stored in by_key.items():
            assert {place.queue for place in stored} == {QueueRef(topic, queue_for_key(key, 4))}
            assert stored == sorted(stored)

    async def test_messages_without_a_key_use_every_queue(self, deployment: Deployment) -> None:
        """They go round robin."""
        topic = fresh("spread")
        async with Producer(deployment.address) as producer:
            await producer.create_topic(topic, queues=3)
            places = [await producer.send(Message(topic=topic, body=b"")) for _ in range(6)]
        assert sorted(place.queue.queue_id for place in places) == [0, 0, 1, 1, 2, 2]

    async def test_a_batch_that_is_sent_again_is_stored_once(self, deployment: Deployment) -> None:
        """Also across a restart and a crash; the answer names the place of the first one."""
        topic, queue = fresh("once"), 0
        batch = encode_batch(
            QueueRef(topic, queue),
            Columns([], [], [], [b"a", b"b"], []),
            born_first_ms=1,
            producer_id=new_producer_id(),
        )
        told = []
        for again in (deployment.restart, deployment.crash, None):
            async with Producer(deployment.address) as producer:
                await producer.create_topic(topic, queues=1)
                answer = await producer._link.request(  # noqa: SLF001 - the same bytes once more
                    RequestCode.PRODUCE, bytes(batch), timeout_ms=5_000
                )
            (result,) = decode(ProduceAnswer, answer).results
            told.append((result.code, result.base_offset, result.duplicate))
            if again is not None:
                await again()
        assert told == [(0, 0, False), (0, 0, True), (0, 0, True)]
        async with AdminClient(deployment.address) as admin:
            assert [found.end for found in await admin.ranges([topic])] == [2]

    async def test_what_was_acknowledged_survives_a_crash(self, deployment: Deployment) -> None:
        """And offsets go on behind it."""
        topic = fresh("durable")
        bodies = [b"%d" % n for n in range(50)]
        async with Producer(deployment.address) as producer:
            await producer.create_topic(topic, queues=1)
            await producer.send_many([Message(topic=topic, body=body) for body in bodies])
        await deployment.crash()
        async with Producer(deployment.address) as producer:
            assert (await producer.send(Message(topic=topic, body=b"next"))).offset == 50
        async with Consumer(deployment.address, group="g", topics=[topic], settings=QUICK) as one:
            records = await take(one, 51)
        assert [record.body for record in records] == [*bodies, b"next"]
        assert [record.offset for record in records] == list(range(51))

    async def test_a_queue_frozen_for_writing_is_avoided(self, deployment: Deployment) -> None:
        """Its keys go to the others, and where there is no other they are refused."""
        topic = fresh("frozen")
        async with (
            Producer(deployment.address) as producer,
            AdminClient(deployment.address) as admin,
        ):
            await admin.create_topic(topic, queues=2)
            key = next(f"k{n}" for n in range(99) if queue_for_key(f"k{n}", 2) == 0)
            assert (
                await producer.send(Message(topic=topic, body=b"", key=key))
            ).queue.queue_id == 0
            await admin.freeze(topic, [0], writing=True)
            places = [await producer.send(Message(topic=topic, body=b"")) for _ in range(4)]
            places.append(await producer.send(Message(topic=topic, body=b"", key=key)))
            assert {place.queue.queue_id for place in places} == {1}
            await admin.freeze(topic, writing=True)
            with refused(QueueFrozen):
                await producer.send(Message(topic=topic, body=b"", key=key))
            await admin.thaw(topic)
            assert (await producer.send(Message(topic=topic, body=b"", key=key))).offset >= 0

    async def test_a_request_is_answered(self, deployment: Deployment) -> None:
        """The reply comes back to the connection that asked."""
        topic = fresh("asked")

        async def shout(record: Record) -> bytes:
            return record.body.upper()

        async with (
            Producer(deployment.address) as producer,
            Consumer(deployment.address, group="g", topics=[topic], settings=QUICK) as consumer,
        ):
            await producer.create_topic(topic)
            working = asyncio.create_task(consumer.run(answering(producer, shout)))
            requester = Requester(producer)
            asked = [Message(topic=topic, body=b"hello %d" % n) for n in range(5)]
            replies = await asyncio.gather(*(requester.request(one, 5_000) for one in asked))
            assert replies == [b"HELLO %d" % n for n in range(5)]
            await consumer.aclose()
            await working

    async def test_a_message_for_later_comes_when_it_is_due(self, deployment: Deployment) -> None:
        """Not before, not even after a crash of the broker, and not if it was cancelled."""
        topic = fresh("later")
        async with Producer(deployment.address) as producer:
            await producer.create_topic(topic, queues=1)
            before = await producer.send(Message(topic=fresh("now"), body=b""))
            await producer.schedule(Message(topic=topic, body=b"soon"), delay_ms=300)
            kept = await producer.schedule(Message(topic=topic, body=b"no"), delay_ms=300)
            assert await producer.cancel(kept.id)
            assert not await producer.cancel(kept.id)
        await deployment.crash()
        async with Consumer(deployment.address, group="g", topics=[topic], settings=QUICK) as one:
            await deployment.pass_ms(300)
            (record,) = await take(one, 1)
        assert record.body == b"soon"
        async with AdminClient(deployment.address) as admin:
            sooner = await admin.message(str(MessageId(before.queue, before.offset)))
            assert sooner is not None
            assert record.stored_at_ms >= sooner.stored_at_ms + 300
            assert [found.end for found in await admin.ranges([topic])] == [1]
