"""Consumers that are killed, stopped and slow, against a broker in another process."""

import asyncio
import json
import random
import signal
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.producer.route import queue_for_key
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import ConsumerSettings

A = QueueRef("t", 0)
QUICK = ConsumerSettings(heartbeat_ms=100, commit_interval_ms=50, reconnect_ms_max=200)


def numbered(count: int, *, keys: int = 64, start: int = 0) -> list[Message]:
    """Messages whose bodies count up; every key's bodies are in order."""
    return [
        Message(topic="t", key=f"key-{n % keys}", body=b"%d" % n)
        for n in range(start, start + count)
    ]


def assert_in_order(handled: list[tuple[str, int]]) -> None:
    """Of each key, every number that came for the first time is the largest so far."""
    first: dict[str, list[int]] = defaultdict(list)
    for key, number in dict.fromkeys(handled):
        first[key].append(number)
    assert all(numbers == sorted(numbers) for numbers in first.values())


def is_divided(assigned: dict[int, set[int]], *, members: int, queues: int) -> bool:
    """Whether each member has an equal share and nobody has anybody else's queue."""
    even = all(len(share) == queues // members for share in assigned.values())
    return even and len(assigned) == members and len(set().union(*assigned.values())) == queues


@pytest.mark.slow
async def test_only_the_queues_of_a_killed_member_move(broker: Any, start_consumer: Any) -> None:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=16)
        group = [await start_consumer("g", "t", allocation="sticky") for _ in range(8)]
        news: asyncio.Queue[tuple[int, dict[str, Any]]] = asyncio.Queue()

        async def listen(number: int) -> None:
            while True:
                news.put_nowait((number, await group[number].says()))

        listening = [asyncio.create_task(listen(number)) for number in range(8)]
        assigned: dict[int, set[int]] = defaultdict(set)
        while not is_divided(assigned, members=8, queues=16):
            number, what = await news.get()
            assigned[number] = set(what["assigned"])
        kept = {number: set(queues) for number, queues in assigned.items()}
        moving = kept.pop(3)

        handled: dict[int, list[tuple[int, int]]] = defaultdict(list)

        async def handle(until: int) -> None:
            while len(handled) < until:
                number, what = await news.get()
                if "assigned" in what:
                    assert kept[number] <= set(what["assigned"]), "a queue that stays was revoked"
                    assigned[number] = set(what["assigned"])
                else:
                    handled[int(what["body"])].append((number, what["queue"]))

        await producer.send_many(numbered(400))
        await handle(400)
        await group[3].end()
        await producer.send_many(numbered(400, start=400))
        await handle(800)
        # What the killed one had not committed may have come again; nothing else did.
        for body, places in handled.items():
            assert len(places) == 1 or places[0] in {(3, queue) for queue in moving}, body
        taken_over = {number for places in handled.values() for number, q in places if q in moving}
        assert taken_over - {3}
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)


@pytest.mark.parametrize("handling", ["per_key", "per_queue"])
async def test_each_queue_has_one_owner_while_members_come_and_go(
    broker: Any, handling: Any
) -> None:
    count, chance = 2_000, random.Random(7)
    settings = ConsumerSettings(heartbeat_ms=100, commit_interval_ms=50, handling=handling)
    handled: list[tuple[str, int]] = []
    at_work: dict[QueueRef, list[int]] = defaultdict(list)
    members: dict[int, tuple[Consumer, asyncio.Task[None]]] = {}

    async def join(number: int) -> None:
        async def handle(record: Record) -> None:
            at_work[record.queue].append(number)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
                assert set(at_work[record.queue]) == {number}, "two owners at work"
            at_work[record.queue].remove(number)
            handled.append((record.key, int(record.body)))

        consumer = Consumer(broker.address, group="g", topics=["t"], settings=settings)
        await consumer.start()
        members[number] = (consumer, asyncio.create_task(consumer.run(handle)))

    async def leave(number: int) -> None:
        consumer, run = members.pop(number)
        await consumer.aclose()
        await run

    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=8)
        await join(0)
        for turn in range(1, 21):
            if len(members) > 1 and (len(members) == 5 or chance.random() < 0.5):
                await leave(chance.choice(sorted(members)))
            else:
                await join(turn)
            await producer.send_many(numbered(100, start=100 * (turn - 1)))
        while len({number for _, number in handled}) < count:
            await asyncio.sleep(0)
        for number in sorted(members):
            await leave(number)
    # What was done behind a record that was not comes again; in order nothing is behind another.
    if handling == "per_queue":
        assert sorted(number for _, number in handled) == list(range(count))
    assert_in_order(handled)


# Takes two records, says so, and waits without reading from its connection; then it commits.
STOPPED = """
import asyncio, json, sys
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import ConsumerSettings

async def main(address):
    settings = ConsumerSettings(heartbeat_ms=100, commit_interval_ms=60_000)
    consumer = Consumer(address, group="g", topics=["t"], settings=settings)
    await consumer.start()
    records = []
    while len(records) < 2:
        records += await consumer.poll()
    for record in records:
        consumer.ack(record)
    print("said", len(records), flush=True)
    sys.stdin.readline()
    try:
        await consumer.commit()
    except MessageQueueError as error:
        print("said", type(error).__name__, flush=True)
    else:
        print("said nothing", flush=True)
    rest = await consumer.poll()
    print("said", json.dumps([record.queue.queue_id for record in rest]), flush=True)

asyncio.run(main(sys.argv[1]))
"""


async def test_an_owner_that_was_stopped_cannot_commit_over_its_successor(
    start_broker: Any, start_child: Any
) -> None:
    broker = await start_broker(lock_expiry_ms=500)
    async with Producer(broker.address) as producer, AdminClient(broker.address) as admin:
        await producer.create_topic("t", queues=2)
        for queue_id in range(2):
            await producer.send(Message(topic="t", key=key_of(queue_id), body=b"1"))
        old = await start_child(STOPPED, broker.address)
        assert await old.heard("said") == "2"
        old.send(signal.SIGSTOP)
        async with Consumer(broker.address, group="g", topics=["t"], settings=QUICK) as successor:
            # The old owner is still a member; one of its two queues goes to the new one.
            (record,) = await successor.poll()
            await producer.send(Message(topic="t", key=key_of(record.queue.queue_id), body=b"2"))
            await successor.poll()
            successor.ack(record)
            # On a busy machine its own heartbeats may be late, and it commits when it is sure again.
            while (await admin.offsets("g", ["t"]))[record.queue] != 1:
                await successor.commit()
            old.send(signal.SIGCONT)
            await old.tell("go on")
            assert await old.heard("said") == "StaleLock"
            offsets = await admin.offsets("g", ["t"])
            assert offsets[record.queue] == 1
            assert offsets[QueueRef("t", 1 - record.queue.queue_id)] <= 0
            # It goes on with the queue that is still its own, and with that one alone.
            other = 1 - record.queue.queue_id
            await producer.send(Message(topic="t", key=key_of(other), body=b"3"))
            assert json.loads(await old.heard("said")) == [other]


def key_of(queue_id: int) -> str:
    """A key whose messages go to a queue of two."""
    return next(key for key in "abcdef" if queue_for_key(key, 2) == queue_id)


# 25 members in one process. Says when each has one queue, and every record that it has handled; those of
# queue 7 wait for "open". Tells by "look" how much of queue 7 is held.
QUARTER = """
import asyncio, sys
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.message import QueueRef
from headrace_mq.settings import ConsumerSettings

SLOW = QueueRef("t", 7)

async def main(address):
    settings = ConsumerSettings(in_flight_max=10, fetch_bytes_max=1, heartbeat_ms=5_000)
    gate = asyncio.Event()

    async def handle(record):
        if record.queue == SLOW:
            await gate.wait()
        print("said", record.queue.queue_id, int(record.body), flush=True)

    members = [Consumer(address, group="g", topics=["t"], settings=settings) for _ in range(25)]
    await asyncio.gather(*(member.start() for member in members))
    runs = [asyncio.create_task(member.run(handle)) for member in members]
    while not all(len(member.assignment) == 1 for member in members):
        await asyncio.sleep(0.01)
    print("settled 1", flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if line == "open":
            gate.set()
        else:
            held = [len(share.window) for member in members if (share := member._shares.get(SLOW))]
            print("holds", sum(held), flush=True)
    await asyncio.gather(*(member.aclose() for member in members))
    await asyncio.gather(*runs)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
async def test_a_slow_consumer_among_a_hundred_holds_up_its_own_queue_only(
    start_broker: Any, start_child: Any
) -> None:
    # However late the heartbeats of a hundred are, nobody is taken for gone.
    broker = await start_broker(lock_expiry_ms=100_000, member_expiry_ms=200_000)
    handled: dict[int, list[int]] = defaultdict(list)
    news = asyncio.Event()

    async def listen(quarter: Any) -> None:
        while True:
            queue_id, number = (await quarter.heard("said")).split()
            handled[int(queue_id)].append(int(number))
            news.set()

    async with Producer(broker.address) as producer, AdminClient(broker.address) as admin:
        await producer.create_topic("t", queues=100)
        quarters = [await start_child(QUARTER, broker.address) for _ in range(4)]
        for quarter in quarters:
            await quarter.heard("settled")
        assert len((await admin.group("g")).members) == 100
        # One for each queue at a time, so that a fetch brings one.
        for at in range(40):
            bodies = [Message(topic="t", body=b"%d" % at)] * 100
            await producer.send_many(bodies)
        listening = [asyncio.create_task(listen(quarter)) for quarter in quarters]
        while sum(map(len, handled.values())) < 99 * 40:
            news.clear()
            await news.wait()
        assert 7 not in handled
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
        for quarter in quarters:
            await quarter.tell("look")
        assert sum([int(await quarter.heard("holds")) for quarter in quarters]) == 10
        listening = [asyncio.create_task(listen(quarter)) for quarter in quarters]
        for quarter in quarters:
            await quarter.tell("open")
        while len(handled[7]) < 40:
            news.clear()
            await news.wait()
        assert all(sorted(numbers) == list(range(40)) for numbers in handled.values())
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)


async def test_two_owners_keep_every_keys_order_while_the_broker_is_killed_and_started_again(
    broker: Any,
) -> None:
    count, kills = 1_500, (300, 900)
    handled: list[tuple[str, int]] = []
    killing, progress = asyncio.Event(), asyncio.Event()

    async def handle(record: Record) -> None:
        handled.append((record.key, int(record.body)))
        if len(handled) in kills:
            killing.set()
        progress.set()

    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer(broker.address))
        await producer.create_topic("t", queues=4)
        pair = [
            await stack.enter_async_context(
                Consumer(broker.address, group="g", topics=["t"], settings=QUICK)
            )
            for _ in range(2)
        ]
        runs = [asyncio.create_task(consumer.run(handle)) for consumer in pair]

        async def send() -> None:
            for at in range(0, count, 100):
                await producer.send_many(numbered(100, start=at))

        async def kill_again_and_again() -> None:
            for _ in kills:
                await killing.wait()
                killing.clear()
                await broker.kill()
                await broker.start()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            tasks.create_task(kill_again_and_again())
        while len({number for _, number in handled}) < count:
            progress.clear()
            await progress.wait()
    await asyncio.gather(*runs)
    assert_in_order(handled)


@pytest.mark.parametrize("in_columns", [False, True])
async def test_no_fetch_exceeds_what_a_member_may_have_unfinished(
    broker: Any, in_columns: bool
) -> None:
    messages = [Message(topic="t", body=b"x" * 10) for _ in range(20_000)]

    async def poll(consumer: Consumer) -> list[int]:
        if in_columns:
            return [one for run in await consumer.poll_columns() for one in run.offsets]
        return [record.offset for record in await consumer.poll()]

    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=1)
        await producer.send_many(messages)
    async with Consumer(broker.address, group="g", topics=["t"]) as consumer:
        taken: list[int] = []
        while len(taken) < 1_000:
            taken += await poll(consumer)
        # All of them came in one answer, and wait here.
        (share,) = consumer._shares._shares.values()
        assert share.window.end > 5_000
        assert taken == [*range(1_000)]
        assert consumer._shares.deliver() == consumer._shares.deliver_columns() == []
        # One that is slow: the span ends the rest.
        for offset in taken[1:]:
            consumer.ack_offset(A, offset)
        while taken[-1] < 1_999:
            taken += await poll(consumer)
            for offset in taken[1:]:
                consumer.ack_offset(A, offset)
        assert taken == [*range(2_000)]
        assert consumer._shares.deliver() == []
        consumer.ack_offset(A, 0)
        while len(taken) < len(messages):
            more = await poll(consumer)
            assert len(more) <= 1_000
            taken += more
            for offset in more:
                consumer.ack_offset(A, offset)
        assert taken == [*range(len(messages))]
