"""Producers and consumers against a broker in another process."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import ReplyUndeliverable
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import ConsumerSettings, ProducerSettings

QUICK = ConsumerSettings(heartbeat_ms=100, commit_interval_ms=50, reconnect_ms_max=200)


def numbered(count: int, *, keys: int = 20, start: int = 0) -> list[Message]:
    """Messages whose bodies count up; every key's bodies are in order."""
    return [
        Message(topic="t", key=f"key-{n % keys}", body=b"%d" % n)
        for n in range(start, start + count)
    ]


def assert_in_order(said: list[tuple[str, int]]) -> None:
    """Of each key, every number that came for the first time is the largest so far."""
    latest: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    for key, number in said:
        if (key, number) not in seen:
            assert number > latest.get(key, -1), f"{key}: {number} after {latest[key]}"
            latest[key] = number
            seen.add((key, number))


async def test_messages_reach_a_consumer_in_another_process_in_order_per_key(
    broker: Any, start_consumer: Any
) -> None:
    consumer = await start_consumer("g", "t")
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=4)
        sends = [asyncio.create_task(producer.send(m)) for m in numbered(2_000)]
        results = await asyncio.gather(*sends)
    said = []
    while len(said) < 2_000:
        what = await consumer.says()
        if "body" in what:
            said.append(what)
    assert sorted(int(what["body"]) for what in said) == list(range(2_000))
    assert_in_order([(what["key"], int(what["body"])) for what in said])
    places = {int(what["body"]): (what["queue"], what["offset"]) for what in said}
    assert places == {n: (r.queue.queue_id, r.offset) for n, r in enumerate(results)}


async def test_two_consumers_share_the_queues_and_one_takes_over_when_the_other_is_killed(
    broker: Any, start_consumer: Any
) -> None:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=4)
        pair = [await start_consumer("g", "t") for _ in range(2)]
        news: asyncio.Queue[tuple[int, dict[str, Any]]] = asyncio.Queue()

        async def listen(number: int) -> None:
            while True:
                news.put_nowait((number, await pair[number].says()))

        listening = [asyncio.create_task(listen(number)) for number in range(2)]
        assigned: dict[int, list[int]] = {}
        while sorted(assigned.values()) != [[0, 1], [2, 3]]:
            number, what = await news.get()
            assigned[number] = what["assigned"]

        await producer.send_many(numbered(200))
        handled: dict[int, set[int]] = defaultdict(set)
        while len(handled[0] | handled[1]) < 200:
            number, what = await news.get()
            handled[number].add(int(what["body"]))
        assert handled[0]
        assert handled[1]
        assert not handled[0] & handled[1]

        await pair[0].end()
        await producer.send_many(numbered(200, start=200))
        rest: set[int] = set()
        while rest < set(range(200, 400)):
            number, what = await news.get()
            if "assigned" in what:
                assert number == 1
                assert what["assigned"] == [0, 1, 2, 3]
            else:
                # What the killed one acknowledged last may come again.
                rest.add(int(what["body"]))
        assert rest - set(range(200, 400)) <= handled[0]
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)


async def consume(address: str, count: int) -> list[Record]:
    """Reads and acknowledges so many records as a member of group g."""
    records: list[Record] = []
    async with Consumer(address, group="g", topics=["t"], settings=QUICK) as consumer:
        while len(records) < count:
            for record in await consumer.poll():
                records.append(record)
                consumer.ack(record)
    return records


async def test_offsets_survive_a_restart_of_the_broker(broker: Any) -> None:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=4)
        await producer.send_many(numbered(100))
        assert len(await consume(broker.address, 100)) == 100
        await broker.stop()
        await broker.start()
        await producer.send_many(numbered(50, start=100))
    rest = await consume(broker.address, 50)
    assert sorted(int(record.body) for record in rest) == list(range(100, 150))


async def test_a_reply_goes_back_to_the_sender_of_the_command(broker: Any) -> None:
    replies: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    async with (
        Producer(broker.address) as caller,
        Producer(broker.address) as worker,
    ):
        caller.on_reply(lambda correlation, body: replies.put_nowait((correlation, body)))
        await caller.create_topic("t", queues=2)
        async with Consumer(
            broker.address, group="workers", topics=["t"], settings=QUICK
        ) as consumer:

            async def handle(record: Record) -> None:
                await worker.reply(record.headers["reply-to"], record.key, record.body * 2)

            running = asyncio.create_task(consumer.run(handle))
            headers = {"reply-to": caller.client_id}
            await caller.send_many(
                [
                    Message(topic="t", key=f"c{n}", body=b"%d" % n, headers=headers)
                    for n in range(50)
                ]
            )
            got = dict([await replies.get() for _ in range(50)])
            assert got == {f"c{n}": b"%d" % n * 2 for n in range(50)}

            # The caller's address stays the same when the broker is started again.
            await broker.stop()
            await broker.start()
            await caller.send(Message(topic="t", key="again", body=b"x", headers=headers))
            assert await replies.get() == ("again", b"xx")
        await running
        with pytest.raises(ReplyUndeliverable):
            await worker.reply("nobody", "c", b"")


async def test_a_killed_broker_loses_no_acknowledged_message_stores_none_twice_and_keeps_order(
    broker: Any,
) -> None:
    count, kills = 3_000, [400, 1_100, 1_900]
    messages = numbered(count, keys=50)
    acknowledged: dict[int, Any] = {}
    killing = asyncio.Event()
    consumed: list[tuple[str, int]] = []
    settings = ProducerSettings(reconnect_ms_max=200, batch_messages_max=20)
    async with (
        Producer(broker.address, settings) as producer,
        Consumer(broker.address, group="g", topics=["t"], settings=QUICK) as consumer,
    ):
        await producer.create_topic("t", queues=4)

        async def send(number: int) -> None:
            acknowledged[number] = await producer.send(messages[number])
            if len(acknowledged) in kills:
                killing.set()

        async def read() -> None:
            while len(set(consumed)) < count:
                for record in await consumer.poll():
                    consumed.append((record.key, int(record.body)))
                    consumer.ack(record)

        async def kill_again_and_again() -> None:
            for _ in kills:
                await killing.wait()
                killing.clear()
                await broker.kill()
                await broker.start()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kill_again_and_again())
            tasks.create_task(read())
            for at in range(0, count, 100):
                # Always 100 on their way, so that every kill strikes a broker at work.
                await asyncio.gather(*(send(n) for n in range(at, at + 100)))

    stored = await asyncio.to_thread(read_everything, broker.address)
    numbers = [number for _, _, number in stored]
    assert sorted(numbers) == list(range(count))
    assert {number: (queue, offset) for queue, offset, number in stored} == {
        number: (result.queue, result.offset) for number, result in acknowledged.items()
    }
    assert_in_order([(messages[number].key, number) for number in numbers])
    assert_in_order(consumed)
    assert {number for _, number in consumed} == set(range(count))


def read_everything(address: str) -> list[tuple[QueueRef, int, int]]:
    """Queue, offset and number of every stored message, in offset order per queue."""
    stored = []
    with BlockingReader(address) as reader:
        for held in reader.ranges(["t"]):
            queue = QueueRef(held.topic, held.queue_id)
            for header, columns, first, last in reader.read(queue, held.first, held.end):
                stored += [
                    (queue, header.base_offset + index, int(columns.bodies[index]))
                    for index in range(first, last)
                ]
    return stored


async def test_the_administration_sees_what_the_clients_did(broker: Any) -> None:
    async with Producer(broker.address) as producer, AdminClient(broker.address) as admin:
        await producer.create_topic("t", queues=2)
        await producer.send_many(numbered(10))
        await consume(broker.address, 10)
        ranges = await admin.ranges(["t"])
        ends = {QueueRef(held.topic, held.queue_id): held.end for held in ranges}
        assert sum(ends.values()) == 10
        assert await admin.offsets("g", ["t"]) == ends
        await admin.set_offsets("g", dict.fromkeys(ends, 0))
    assert len(await consume(broker.address, 10)) == 10
