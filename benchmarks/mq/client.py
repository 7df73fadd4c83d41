"""
The client process of the benchmarks: one task, run as often as it is told to.

    python -m benchmarks.mq.client TASK ADDRESS SETTINGS
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import structlog
import uvloop

from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.client.transactions.checks import Decision, Undecided
from headrace_mq.client.transactions.transactional_producer import (
    Transaction,
    TransactionalProducer,
)
from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.settings import ConsumerSettings, ProducerSettings

# What a run returns: numbers and lists of numbers.
Said = dict[str, Any]
Run = Callable[[], Awaitable[Said]]

BODY = b"x" * 100
# Records a consumer may hold: as many as a real projection that works in batches.
IN_FLIGHT_MAX = 50_000


def messages(topic: str, count: int, *, keyed: bool, offset: int = 0) -> list[Message]:
    """Messages of 100 bytes, with keys of about ten characters or without."""
    return [
        Message(topic=topic, body=BODY, key=f"key-{(offset + n) % 5_000}" if keyed else "")
        for n in range(count)
    ]


def of_a_hundred(topic: str, batch: int, size: int, *, clustered: bool, by: str) -> list[Message]:
    """A batch of one queue, of which one message of 100 has a price of 99 and the tag "rare".

    Clustered: all of them, in one batch of 100. By order: with headers as orders have them, of which
    almost none comes twice.
    """
    rare = [batch % 100 == 99 if clustered else n % 100 == 99 for n in range(size)]
    return [
        Message(
            topic=topic,
            body=BODY,
            key=f"key-{batch}",
            tag="rare" if wanted else "usual",
            headers=order(batch * size + n, wanted=wanted)
            if by == "order"
            else {"price": "99" if wanted else str(n % 99)},
        )
        for n, wanted in enumerate(rare)
    ]


def order(number: int, *, wanted: bool) -> dict[str, str]:
    """The headers of an order: its id, a region, and one of 990,000 prices; wanted ones are dear."""
    cents = number * 7_919 % 990_000 + 990_000 * wanted
    region = "EU" if wanted else ("EU", "US", "ASIA", "LATAM", "AFRICA")[number % 5]
    return {"order": f"order-{number:x}", "region": region, "price": f"{cents / 100:.2f}"}


def producing(asked: Mapping[str, Any]) -> ProducerSettings:
    return ProducerSettings(busy_poll_us=asked.get("busy_poll_us", 0))


async def send_many(stack: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """`tasks` tasks that each send `size` messages at a time, until `count` are acknowledged."""
    producer = await stack.enter_async_context(Producer(address))
    size, tasks = asked["size"], asked["tasks"]
    rounds = asked["count"] // size // tasks
    parts = [
        messages(asked["topic"], size, keyed=asked["keyed"], offset=n * size) for n in range(tasks)
    ]

    async def keep_sending(part: list[Message]) -> None:
        for _ in range(rounds):
            await producer.send_many(part)

    async def run() -> Said:
        began = time.perf_counter()
        await asyncio.gather(*map(keep_sending, parts))
        return {"count": rounds * size * tasks, "seconds": time.perf_counter() - began}

    return run


async def send(stack: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """`tasks` tasks that each await one message at a time."""
    producer = await stack.enter_async_context(Producer(address, producing(asked)))
    tasks = asked["tasks"]
    each = asked["count"] // tasks
    ready = messages(asked["topic"], 5_000, keyed=asked["keyed"])
    took: list[float] = []

    async def keep_sending(first: int) -> None:
        for n in range(first, first + each):
            await producer.send(ready[n % 5_000])

    async def keep_timing(first: int) -> None:
        for n in range(first, first + each):
            began = time.perf_counter()
            await producer.send(ready[n % 5_000])
            took.append(time.perf_counter() - began)

    async def run() -> Said:
        took.clear()
        work = keep_timing if tasks == 1 else keep_sending
        began = time.perf_counter()
        await asyncio.gather(*(work(n * 7) for n in range(tasks)))
        seconds = time.perf_counter() - began
        return {"count": each * tasks, "seconds": seconds} | percentiles(took)

    return run


async def transact(stack: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """`tasks` tasks that each await one transaction of one message at a time; all are committed."""

    async def checker(_: Undecided) -> Decision:
        return Decision.UNKNOWN

    async def commit(_: Transaction) -> Decision:
        return Decision.COMMIT

    producer = await stack.enter_async_context(
        TransactionalProducer(address, group="bench", checker=checker)
    )
    tasks = asked["tasks"]
    each = asked["count"] // tasks
    ready = messages(asked["topic"], 5_000, keyed=True)

    async def keep_sending(first: int) -> None:
        for n in range(first, first + each):
            await producer.send_in_transaction(ready[n % 5_000], commit)

    async def run() -> Said:
        began = time.perf_counter()
        await asyncio.gather(*(keep_sending(n * 7) for n in range(tasks)))
        return {"count": each * tasks, "seconds": time.perf_counter() - began}

    return run


async def consume(_: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """A member of a group that takes `count` records as objects and commits them."""
    runs = 0

    async def run() -> Said:
        nonlocal runs
        runs += 1
        group = asked["group"] if asked.get("stay") else f"{asked['group']}-{runs}"
        settings = ConsumerSettings(in_flight_max=IN_FLIGHT_MAX, in_flight_span_max=IN_FLIGHT_MAX)
        consumer = Consumer(address, group=group, topics=[asked["topic"]], settings=settings)
        count = asked["count"]
        async with consumer:
            began = time.perf_counter()
            taken = 0
            while taken < count:
                records = await consumer.poll()
                consumer.ack_all(records)
                taken += len(records)
            await consumer.commit()
            seconds = time.perf_counter() - began
        return {"count": taken, "seconds": seconds}

    return run


async def send_rare(stack: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """Sends `count` messages in batches of `batch`, of which one of a hundred is wanted."""
    producer = await stack.enter_async_context(Producer(address))
    how = {"clustered": asked["clustered"], "by": asked["by"]}

    async def run() -> Said:
        began = time.perf_counter()
        for batch in range(asked["count"] // asked["batch"]):
            part = of_a_hundred(asked["topic"], batch, asked["batch"], **how)
            await producer.send_many(part)
        return {"count": asked["count"], "seconds": time.perf_counter() - began}

    return run


# What is wanted, as a condition and as whoever reads everything asks each record.
WANTED: Mapping[str, tuple[str, Callable[[Record], bool]]] = {
    "price": ("price >= 99", lambda record: float(record.headers["price"]) >= 99),
    "order": (
        "price >= 9900 AND region IN ('EU', 'US')",
        lambda record: (
            float(record.headers["price"]) >= 9_900 and record.headers["region"] in {"EU", "US"}
        ),
    ),
    "tag": ("_tag = 'rare'", lambda record: record.tag == "rare"),
}


async def select(_: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """A member of a group that wants one message of a hundred, and has it picked out here or there."""
    runs = 0
    condition, is_wanted = WANTED[asked["by"]]

    async def run() -> Said:
        nonlocal runs
        runs += 1
        topic, at_broker, count = asked["topic"], asked["at_broker"], asked["count"]
        consumer = Consumer(
            address,
            group=f"{asked['group']}-{runs}",
            topics={topic: condition if at_broker else ""},
            settings=ConsumerSettings(
                in_flight_max=IN_FLIGHT_MAX, in_flight_span_max=IN_FLIGHT_MAX
            ),
        )
        async with consumer:
            began = time.perf_counter()
            wanted = 0
            while wanted < count // 100:
                records = await consumer.poll()
                consumer.ack_all(records)
                wanted += len(records) if at_broker else sum(map(is_wanted, records))
            await consumer.commit()
            seconds = time.perf_counter() - began
        return {"count": count, "seconds": seconds}

    return run


async def read_columns(_: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """A script that takes `count` messages as columns and commits their offsets."""

    def work() -> Said:
        with BlockingReader(address) as reader:
            began = time.perf_counter()
            taken = 0
            ends: dict[QueueRef, int] = {}
            for found in reader.ranges([asked["topic"]]):
                queue = QueueRef(found.topic, found.queue_id)
                for _header, columns, _first, _last in reader.read(queue, found.first, found.end):
                    taken += len(columns.bodies)
                ends[queue] = found.end
            reader.commit(asked["group"], ends)
            return {"count": taken, "seconds": time.perf_counter() - began}

    async def run() -> Said:
        return work()

    return run


async def follow(stack: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """A member of a group that takes records as they come, `count` of them in each run.

    Bodies that begin with a time (8 bytes, monotonic ns) tell how long they were under way.
    """
    settings = ConsumerSettings(
        in_flight_max=IN_FLIGHT_MAX,
        in_flight_span_max=IN_FLIGHT_MAX,
        busy_poll_us=asked.get("busy_poll_us", 0),
    )
    consumer = await stack.enter_async_context(
        Consumer(address, group=asked["group"], topics=[asked["topic"]], settings=settings)
    )
    count, timed = asked["count"], asked.get("timed", False)
    async with asyncio.timeout(10):
        while len(consumer.assignment) < asked["queues"]:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)

    async def run() -> Said:
        taken = 0
        took: list[float] = []
        began = time.perf_counter()
        while taken < count:
            records = await consumer.poll()
            if timed:
                now_ns = time.monotonic_ns()
                took += [(now_ns - int.from_bytes(record.body[:8])) / 1e9 for record in records]
            consumer.ack_all(records)
            taken += len(records)
        await consumer.commit()
        return {"count": taken, "seconds": time.perf_counter() - began} | percentiles(took)

    return run


async def pace(stack: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """Sends `count` messages, `per_second` of them, each with the time it was sent at."""
    producer = await stack.enter_async_context(Producer(address, producing(asked)))
    topic, count, gap_s = asked["topic"], asked["count"], 1 / asked["per_second"]
    rest = bytes(92)

    async def one(number: int) -> None:
        body = time.monotonic_ns().to_bytes(8) + rest
        await producer.send(Message(topic=topic, body=body, key=f"key-{number}"))

    async def run() -> Said:
        began = time.perf_counter()
        tasks = []
        for number in range(count):
            await asyncio.sleep(max(0, began + number * gap_s - time.perf_counter()))
            tasks.append(asyncio.create_task(one(number)))
        await asyncio.gather(*tasks)
        return {"count": count, "seconds": time.perf_counter() - began}

    return run


async def steady(stack: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """Sends `per_second` messages for `seconds`, some every 10 ms, each with the time it was due at."""
    producer = await stack.enter_async_context(Producer(address))
    topic, per_second, seconds = asked["topic"], asked["per_second"], asked["seconds"]
    rest, ticks = bytes(92), round(seconds * 100)

    async def run() -> Said:
        began, sent = time.monotonic(), 0
        under_way: set[asyncio.Task[Any]] = set()
        for tick in range(1, ticks + 1):
            due = began + tick / 100
            await asyncio.sleep(max(0, due - time.monotonic()))
            upto = round(per_second * seconds * tick / ticks)
            body = round(due * 1e9).to_bytes(8) + rest
            part = [
                Message(topic=topic, body=body, key=f"key-{n % 5_000}") for n in range(sent, upto)
            ]
            sent = upto
            task = asyncio.create_task(producer.send_many(part))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
        return {"count": sent, "seconds": time.monotonic() - began}

    return run


async def connect(stack: AsyncExitStack, address: str, asked: Mapping[str, Any]) -> Run:
    """Opens `connections` connections and does nothing for `seconds`."""
    for _ in range(asked["connections"]):
        await stack.enter_async_context(Producer(address))

    async def run() -> Said:
        await asyncio.sleep(asked["seconds"])
        return {"count": asked["connections"], "seconds": asked["seconds"]}

    return run


TASKS = {
    task.__name__: task
    for task in (
        send_many, send, send_rare, consume, read_columns, select, follow, pace, steady, connect,
        transact,
    )
}  # fmt: skip


def percentiles(seconds: list[float]) -> Said:
    """p50 and p99 in microseconds, where there is something to tell."""
    ordered = sorted(seconds)
    return {
        f"p{part}_us": round(ordered[len(ordered) * part // 100] * 1e6)
        for part in (50, 99)
        if ordered
    }


async def serve(task: str, address: str, asked: Mapping[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        run = await TASKS[task](stack, address, asked)
        # As the broker does, and any service should that makes many short-lived objects.
        gc.set_threshold(50_000, 20, 100)
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while (await loop.run_in_executor(None, sys.stdin.readline)).strip() == "go":
            print(json.dumps(await run()), flush=True)


def main() -> None:
    task, address, asked = sys.argv[1:]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(serve(task, address, json.loads(asked)))


if __name__ == "__main__":
    main()
