"""Consumers that want some of a topic's messages, against a broker in another process."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.filters.filter import InvalidFilter
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ConsumerSettings

QUICK = ConsumerSettings(heartbeat_ms=100, commit_interval_ms=20)
COUNT = 3_000
RARE = "price >= 99 AND region IN ('EU', 'US')"


def priced(first: int, end: int) -> list[Message]:
    return [
        Message(
            topic="t",
            key=f"k{number % 7}",
            tag="odd" if number % 2 else "even",
            headers={"price": str(number % 100), "region": "EU"},
            body=b"%d" % number,
        )
        for number in range(first, end)
    ]


async def behind(address: str, group: str) -> int:
    """How many messages the group has not behind it."""
    async with AdminClient(address) as admin:
        lag = await admin.lag(group, ["t"])
    return sum(queue.lag for queue in lag.queues)


async def test_a_group_gets_the_messages_it_selects_and_the_rest_counts_as_done(
    broker: Any,
) -> None:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=3)
        await producer.send_many(priced(0, COUNT))
        async with Consumer(
            broker.address, group="g", topics={"t": RARE}, settings=QUICK
        ) as consumer:
            seen: list[int] = []
            while len(seen) < COUNT // 100:
                records = await consumer.poll()
                seen += [int(record.body) for record in records]
                consumer.ack_all(records)
            assert sorted(seen) == list(range(99, COUNT, 100))
            # One that is stored while the fetch waits comes as well, and then nothing is behind.
            await producer.send(priced(99, 100)[0])
            (last,) = await consumer.poll()
            assert last.body == b"99"
            consumer.ack(last)
            while await behind(broker.address, "g"):
                await consumer.commit()


async def test_columns_and_tags_are_selected_alike(broker: Any) -> None:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=1)
        await producer.send_many(priced(0, 500))
    async with Consumer(
        broker.address, group="g", topics={"t": "_tag = 'odd' AND price < 50"}, settings=QUICK
    ) as consumer:
        bodies: list[bytes] = []
        offsets: list[int] = []
        while len(bodies) < 125:
            for run in await consumer.poll_columns():
                bodies += run.bodies
                offsets += run.offsets
                consumer.ack_columns(run)
    wanted = [number for number in range(1, 500, 2) if number % 100 < 50]
    assert [int(body) for body in bodies] == wanted
    assert offsets == wanted


async def test_a_pulling_consumer_continues_past_messages_it_does_not_select(broker: Any) -> None:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=1)
        await producer.send_many(priced(0, 300))
    async with PullConsumer(
        broker.address, filters={"t": "price = 5"}, settings=ConsumerSettings(start="earliest")
    ) as consumer:
        await consumer.assign([QueueRef("t", 0)])
        found: list[int] = []
        while len(found) < 3:
            found += [record.offset for record in await consumer.fetch()]
    assert found == [5, 105, 205]


async def test_a_condition_that_means_nothing_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InvalidFilter, match="column 8"):
        Consumer("127.0.0.1:1", group="g", topics={"t": "price >"})


BACKLOG = 100_000


async def filled(address: str) -> None:
    async with Producer(address) as producer:
        await producer.create_topic("t", queues=3)
        for first in range(0, BACKLOG, 5_000):
            await producer.send_many(priced(first, first + 5_000))


async def read_by(address: str, group: str, between: Callable[[], None] = lambda: None) -> None:
    """A new group reads the whole backlog: all that it wants, and nothing twice."""
    seen: list[int] = []
    async with Consumer(address, group=group, topics={"t": RARE}, settings=QUICK) as consumer:
        while len(seen) < BACKLOG // 100:
            records = await consumer.poll()
            seen += [int(record.body) for record in records]
            consumer.ack_all(records)
            between()
    assert sorted(seen) == list(range(99, BACKLOG, 100))


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0)


def kill(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


async def test_killed_filter_processes_cost_a_group_nothing_but_time(broker: Any) -> None:
    await filled(broker.address)
    await read_by(broker.address, "first")
    await until(lambda: broker.children)
    killed: set[int] = set()

    def kill_all() -> None:
        killed.update(broker.children)
        kill(broker.children, signal.SIGKILL)

    await read_by(broker.address, "second", kill_all)
    assert killed
    # Nobody starts others at once; the broker looks for itself.
    await read_by(broker.address, "third")
    assert broker.children == []


async def test_no_filter_process_outlives_its_broker(start_broker: Any) -> None:
    for end in ("kill", "stop"):
        broker = await start_broker()
        await filled(broker.address)
        await read_by(broker.address, "first")
        await until(lambda broker=broker: broker.children)
        children = broker.children
        await getattr(broker, end)()
        for pid in children:
            await until(lambda pid=pid: not Path(f"/proc/{pid}").exists())


async def test_a_broker_without_filter_processes_filters_by_itself(start_broker: Any) -> None:
    broker = await start_broker(filter_processes_max=0)
    await filled(broker.address)
    await read_by(broker.address, "first")
    assert broker.children == []
