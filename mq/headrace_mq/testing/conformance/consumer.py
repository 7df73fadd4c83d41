"""
Promises to consumers: each record at least once per group, in order, to one owner.

Used by `queue`, which puts the suite together. Knows no deployment.
"""

import asyncio
from pathlib import Path
from typing import Literal

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.consumer.retrying_consumer import RetryingConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retries.retries import GiveUp
from headrace_mq.errors import InconsistentGroup
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import ConsumerSettings
from headrace_mq.testing.arrivals import caught_up, take
from headrace_mq.testing.conformance.deployment import QUICK, Deployment, fresh

__all__ = ["ConsumerConformance"]

# What is waited for without an event comes within a few heartbeats; nothing waits this long.
WAIT_S_MAX = 10.0


async def _filled(deployment: Deployment, count: int, *, queues: int = 1) -> str:
    """Makes a topic with numbered messages in turns over its queues."""
    topic = fresh("filled")
    async with Producer(deployment.address) as producer:
        await producer.create_topic(topic, queues=queues)
        await producer.send_many([Message(topic=topic, body=b"%d" % n) for n in range(count)])
    return topic


def _numbers(records: list[Record]) -> list[int]:
    return sorted(int(record.body) for record in records)


async def _shared(*consumers: Consumer, queues: int) -> None:
    """Waits until members have divided so many queues, each at least one, none twice."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            held = [consumer.assignment for consumer in consumers]
            if all(held) and sum(map(len, held)) == queues == len(frozenset().union(*held)):
                return
            await asyncio.sleep(0.01)


class ConsumerConformance:
    """Consumers; needs the fixture `deployment`, and pytest's `tmp_path`."""

    async def test_a_member_that_wants_other_messages_is_refused(
        self, deployment: Deployment
    ) -> None:
        """It would acknowledge what the others want; once they are gone, it may come."""
        topic, group, address = await _filled(deployment, 1), fresh("group"), deployment.address
        other = Consumer(address, group=group, topics={topic: "_tag = 'b'"}, settings=QUICK)
        async with Consumer(address, group=group, topics={topic: "_tag = 'a'"}, settings=QUICK):
            refused: Exception | None = None
            try:
                await other.start()
            except InconsistentGroup as error:
                refused = error
            assert refused is not None
            for word in (group, topic, "_tag = 'a'", "_tag = 'b'"):
                assert word in str(refused)
        async with Consumer(
            address, group=group, topics={topic: "_tag = 'b'"}, settings=QUICK
        ) as late:
            await _shared(late, queues=1)

    async def test_every_group_receives_everything_once(self, deployment: Deployment) -> None:
        """Where nothing fails; members of one group share it."""
        topic = await _filled(deployment, 60, queues=4)
        for group in ("one", "other"):
            async with (
                Consumer(deployment.address, group=group, topics=[topic], settings=QUICK) as first,
                Consumer(deployment.address, group=group, topics=[topic], settings=QUICK) as second,
            ):
                await _shared(first, second, queues=4)
                got: list[Record] = []
                polls = {asyncio.create_task(one.poll()): one for one in (first, second)}
                while len(got) < 60:
                    done, _ = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
                    for poll in done:
                        consumer = polls.pop(poll)
                        got += poll.result()
                        consumer.ack_all(poll.result())
                        polls[asyncio.create_task(consumer.poll())] = consumer
                for poll in polls:
                    poll.cancel()
                await asyncio.gather(*polls, return_exceptions=True)
            assert _numbers(got) == list(range(60))

    async def test_a_group_goes_on_where_it_committed(self, deployment: Deployment) -> None:
        """What was not acknowledged comes again, also when the broker was restarted."""
        topic = await _filled(deployment, 6)
        async with Consumer(deployment.address, group="g", topics=[topic], settings=QUICK) as one:
            records: list[Record] = []
            while len(records) < 6:
                records += await one.poll()
            for record in (*records[:3], records[4]):
                one.ack(record)
            await one.commit()
        await deployment.restart()
        async with Consumer(deployment.address, group="g", topics=[topic], settings=QUICK) as one:
            assert [record.offset for record in await take(one, 3)] == [3, 4, 5]

    async def test_the_queues_of_a_member_that_leaves_go_to_the_others(
        self, deployment: Deployment
    ) -> None:
        """With all that it had not acknowledged."""
        topic = await _filled(deployment, 40, queues=4)
        async with Consumer(deployment.address, group="g", topics=[topic], settings=QUICK) as stays:
            leaves = Consumer(deployment.address, group="g", topics=[topic], settings=QUICK)
            await leaves.start()
            await _shared(stays, leaves, queues=4)
            await leaves.aclose()
            assert set(_numbers(await take(stays, 40))) == set(range(40))
            await caught_up(deployment.address, "g", [topic])

    async def test_columns_hold_what_records_hold(self, deployment: Deployment) -> None:
        """Both ways of polling deliver the same, and are acknowledged alike."""
        topic = await _filled(deployment, 30, queues=2)
        found: list[Record] = []
        async with Consumer(deployment.address, group="g", topics=[topic], settings=QUICK) as one:
            while len(found) < 30:
                for run in await one.poll_columns():
                    found += run.records()
                    one.ack_columns(run)
            await one.commit()
        async with Consumer(deployment.address, group="h", topics=[topic], settings=QUICK) as one:
            records = await take(one, 30)
        assert sorted(found, key=_place) == sorted(records, key=_place)
        await caught_up(deployment.address, "g", [topic])

    async def test_a_group_begins_where_it_is_told(self, deployment: Deployment) -> None:
        """At the first record, behind the last one, or at a time."""
        topic = await _filled(deployment, 3)
        await deployment.pass_ms(5)
        async with Producer(deployment.address) as producer:
            sent = await producer.send(Message(topic=topic, body=b"3"))
        async with AdminClient(deployment.address) as admin:
            later = await admin.message(f"{topic}:{sent.queue.queue_id}:{sent.offset}")
        assert later is not None
        starts: dict[Literal["earliest", "latest"] | int, int] = {
            "earliest": 0, later.stored_at_ms: 3, "latest": 4,
        }  # fmt: skip
        for start, first in starts.items():
            group = fresh("g")
            settings = ConsumerSettings(start=start, commit_interval_ms=50)
            async with Consumer(
                deployment.address, group=group, topics=[topic], settings=settings
            ) as consumer:
                if start == "latest":
                    # Where it begins is committed like any other place.
                    await caught_up(deployment.address, group, [topic])
                    async with Producer(deployment.address) as producer:
                        await producer.send(Message(topic=topic, body=b"4"))
                (record, *_) = await consumer.poll()
                assert record.offset == first

    async def test_a_reader_without_a_group_goes_where_it_likes(
        self, deployment: Deployment
    ) -> None:
        """And leaves no trace."""
        topic = await _filled(deployment, 10)
        queue = QueueRef(topic, 0)
        async with PullConsumer(deployment.address) as reader:
            await reader.assign([queue])
            assert [r.offset for r in await reader.fetch(4, timeout_ms=5_000)] == [0, 1, 2, 3]
            reader.seek(queue, 8)
            assert [r.offset for r in await reader.fetch(4, timeout_ms=5_000)] == [8, 9]
            assert await reader.fetch(timeout_ms=0) == []

    async def test_broadcast_reaches_everyone_and_is_kept_in_files(
        self, deployment: Deployment, tmp_path: Path
    ) -> None:
        """Each consumer goes on where its own file says."""
        topic = await _filled(deployment, 8, queues=2)
        for name in ("one", "other"):
            settings = ConsumerSettings(broadcast_file=tmp_path / name)
            async with Consumer(
                deployment.address, group="g", topics=[topic], settings=settings
            ) as consumer:
                assert _numbers(await take(consumer, 8)) == list(range(8))
        async with Producer(deployment.address) as producer:
            await producer.send(Message(topic=topic, body=b"8"))
        async with Consumer(
            deployment.address, group="g", topics=[topic], settings=settings
        ) as consumer:
            assert _numbers(await take(consumer, 1)) == [8]

    async def test_what_a_group_gives_up_is_kept_and_can_be_sent_again(
        self, deployment: Deployment
    ) -> None:
        """Among its dead letters, with where it came from."""
        topic, group = await _filled(deployment, 2), fresh("g")
        refuse, handled = True, asyncio.Event()

        async def handle(record: Record) -> None:
            if refuse and record.body == b"1":
                handled.set()
                raise GiveUp("not now")
            if not refuse:
                handled.set()

        async with AdminClient(deployment.address) as admin:
            for refuse in (True, False):
                handled.clear()
                async with RetryingConsumer(
                    deployment.address, group=group, topics=[topic], settings=QUICK
                ) as consumer:
                    working = asyncio.create_task(consumer.run(handle))
                    if not refuse:
                        (letter,) = await admin.dead_letters(group)
                        assert letter.origin is not None
                        assert (letter.origin.topic, letter.origin.offset) == (topic, 1)
                        (resent,) = await admin.resend_all(group)
                        assert resent.error == ""
                    async with asyncio.timeout(WAIT_S_MAX):
                        await handled.wait()
                await working


def _place(record: Record) -> tuple[QueueRef, int]:
    return record.queue, record.offset
