"""
Promises to operators: topics, offsets, groups, and finding messages.

Used by `queue`, which puts the suite together. Knows no deployment.
"""

import asyncio

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import GroupNotEmpty, TopicExists, TopicInUse, TopicNotFound
from headrace_mq.message import Message, QueueRef
from headrace_mq.message_id import MessageId
from headrace_mq.testing.arrivals import take
from headrace_mq.testing.conformance.deployment import QUICK, Deployment, fresh, refused

__all__ = ["AdminConformance"]

WAIT_S_MAX = 10.0


class AdminConformance:
    """Administration; needs the fixture `deployment`."""

    async def test_a_topic_grows_and_keeps_its_retention(self, deployment: Deployment) -> None:
        """Asking again changes nothing, asking for another retention is refused."""
        topic = fresh("grows")
        async with AdminClient(deployment.address) as admin:
            await admin.create_topic(topic, queues=2, retention="forever")
            assert (await admin.create_topic(topic, retention="forever")).queues == 2
            with refused(TopicExists):
                await admin.create_topic(topic)
            assert (await admin.add_queues(topic, 5)).queues == 5
        await deployment.crash()
        async with AdminClient(deployment.address) as admin:
            described = await admin.topic(topic)
            assert (described.queues, described.retention) == (5, "forever")
            assert topic in {one.topic for one in await admin.topics()}

    async def test_a_topic_goes_when_nobody_needs_it_and_its_ids_are_not_given_again(
        self, deployment: Deployment
    ) -> None:
        """Frozen for both and consumed; a topic of the same name goes on with the offsets."""
        topic, group = fresh("goes"), fresh("g")
        async with (
            AdminClient(deployment.address) as admin,
            Producer(deployment.address) as producer,
        ):
            await admin.create_topic(topic, queues=1)
            await producer.send_many([Message(topic=topic, body=b"old")] * 3)
            with refused(TopicInUse):
                await admin.delete_queues(topic)
            async with Consumer(
                deployment.address, group=group, topics=[topic], settings=QUICK
            ) as consumer:
                await consumer.poll()
            await admin.freeze(topic, writing=True, reading=True)
            assert not (await admin.delete_queues(topic, dry_run=True)).deleted
            with refused(TopicInUse):
                await admin.delete_queues(topic)
            await admin.reset_offsets(group, "latest")
            assert (await admin.delete_queues(topic)).deleted
            with refused(TopicNotFound):
                await admin.topic(topic)
        await deployment.crash()
        async with AdminClient(deployment.address) as admin:
            with refused(TopicNotFound):
                await admin.topic(topic)
            await admin.create_topic(topic, queues=1)
        async with Producer(deployment.address) as producer:
            assert (await producer.send(Message(topic=topic, body=b"new"))).offset == 3
        async with Consumer(
            deployment.address, group=group, topics=[topic], settings=QUICK
        ) as consumer:
            assert [record.body for record in await take(consumer, 1)] == [b"new"]

    async def test_members_leave_queues_alone_that_are_frozen_for_reading(
        self, deployment: Deployment
    ) -> None:
        """And have them back when they are thawed."""
        topic = fresh("frozen")
        async with AdminClient(deployment.address) as admin:
            await admin.create_topic(topic, queues=3)
            await admin.freeze(topic, [1], reading=True)
            async with Consumer(
                deployment.address, group="g", topics=[topic], settings=QUICK
            ) as consumer:
                assert consumer.assignment == {QueueRef(topic, 0), QueueRef(topic, 2)}
                await admin.thaw(topic)
                async with asyncio.timeout(WAIT_S_MAX):
                    while len(consumer.assignment) < 3:  # noqa: ASYNC110 - it has no event
                        await asyncio.sleep(0.01)

    async def test_an_idle_group_can_be_moved_cloned_and_deleted(
        self, deployment: Deployment
    ) -> None:
        """After a dry run that changes nothing; never while it is at work."""
        topic, group, clone = fresh("moved"), fresh("g"), fresh("h")
        queue = QueueRef(topic, 0)
        async with (
            AdminClient(deployment.address) as admin,
            Producer(deployment.address) as producer,
        ):
            await admin.create_topic(topic, queues=1)
            await producer.send_many([Message(topic=topic, body=b"x")] * 10)
            async with Consumer(
                deployment.address, group=group, topics=[topic], settings=QUICK
            ) as consumer:
                await take(consumer, 10)
                with refused(GroupNotEmpty):
                    await admin.reset_offsets(group, "earliest")
            (told,) = (await admin.reset_offsets(group, "offset", 4, dry_run=True)).moves
            assert (told.before, told.after, told.redelivered) == (10, 4, 6)
            assert await admin.offsets(group, [topic]) == {queue: 10}
            assert (await admin.reset_offsets(group, "offset", 4)).moved
            await admin.clone_offsets(group, clone)
        await deployment.crash()
        async with AdminClient(deployment.address) as admin:
            assert await admin.offsets(clone, [topic]) == {queue: 4}
            (lag,) = (await admin.lag(group, [topic])).queues
            assert (lag.committed, lag.lag) == (4, 6)
            await admin.delete_group(group)
            assert await admin.offsets(group, [topic]) == {queue: -1}
            assert group not in {one.group for one in await admin.groups()}

    async def test_messages_are_found_by_key_time_and_id(self, deployment: Deployment) -> None:
        """Also those that were stored before a crash."""
        topic = fresh("found")
        async with Producer(deployment.address) as producer:
            await producer.create_topic(topic, queues=2)
            for number in range(6):
                await producer.send(Message(topic=topic, body=b"%d" % number, key=f"k{number % 2}"))
            await deployment.pass_ms(5)
        await deployment.crash()
        async with Producer(deployment.address) as producer:
            last = await producer.send(Message(topic=topic, body=b"6", key="k0"))
        async with AdminClient(deployment.address) as admin:
            found = await admin.find(topic, "k0")
            assert [record.body for record in found] == [b"0", b"2", b"4", b"6"]
            since = found[-1].stored_at_ms
            assert await admin.find(topic, "k0", from_ms=since) == found[-1:]
            assert await admin.find(topic, "k0", to_ms=since) == found[:-1]
            assert await admin.message(str(MessageId(last.queue, last.offset))) == found[-1]
            offsets = await admin.offsets_at([topic], since)
            assert offsets[last.queue] == last.offset
