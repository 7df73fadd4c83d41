"""
A client process of one system: one task, run as often as it is told to, for some seconds each time.

    python -m benchmarks.peers.client SYSTEM TASK ADDRESS SETTINGS
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
import uvloop

from benchmarks.mq.client import percentiles
from benchmarks.peers.system import Driver, Pouring, system

Said = dict[str, Any]
Run = Callable[[], Awaitable[Said]]
Asked = Mapping[str, Any]

KEYS = 5_000
# Handed over at a time, and between two looks at what has arrived.
POURED_TOGETHER, POURED_LOOK_S = 1_000, 0.1


async def send_many(driver: Driver, asked: Asked) -> Run:
    """`tasks` tasks that each send `size` messages at a time."""
    size, tasks, body = asked["size"], asked["tasks"], bytes(asked["body"])
    bodies = [body] * size
    parts = [[f"key-{(n * size + i) % KEYS}" for i in range(size)] for n in range(tasks)]

    async def run() -> Said:
        ends = time.perf_counter() + asked["seconds"]

        async def keep_sending(keys: list[str]) -> int:
            count = 0
            while True:
                await driver.send_many(bodies, keys)
                count += size
                if time.perf_counter() >= ends:
                    return count

        return await timed(keep_sending(keys) for keys in parts)

    return run


async def send(driver: Driver, asked: Asked) -> Run:
    """`tasks` tasks that each await one message at a time."""
    tasks, body = asked["tasks"], bytes(asked["body"])

    async def run() -> Said:
        took: list[float] = []
        ends = time.perf_counter() + asked["seconds"]

        async def keep_sending(first: int) -> int:
            count = 0
            while True:
                began = time.perf_counter()
                await driver.send(body, f"key-{(first + count) % KEYS}")
                ended = time.perf_counter()
                took.append(ended - began)
                count += 1
                if ended >= ends:
                    return count

        return await timed(keep_sending(n * 7) for n in range(tasks)) | percentiles(took)

    return run


async def fill(driver: Driver, asked: Asked) -> Run:
    """Leaves `count` messages, or as many as can be sent in `seconds`."""
    size, body = 1_000, bytes(asked["body"])
    keys = [f"key-{i}" for i in range(size)]

    async def run() -> Said:
        ends = time.perf_counter() + asked["seconds"]
        rounds, rest = divmod(asked["count"], size)
        sizes = iter([size] * rounds + [rest] * (rest > 0))

        async def keep_sending() -> int:
            sent = 0
            for some in sizes:
                await driver.send_many([body] * some, keys[:some])
                sent += some
                if time.perf_counter() >= ends:
                    break
            return sent

        return await timed(keep_sending() for _ in range(4))

    return run


async def pour(driver: Driver, asked: Asked) -> Run:
    """Leaves messages as `fill` does, the fastest way in that the system has; not to be rated."""
    if not isinstance(driver, Pouring):
        return await fill(driver, asked)
    body = bytes(asked["body"])
    keys = [f"key-{i}" for i in range(POURED_TOGETHER)]

    async def run() -> Said:
        began, sent = time.perf_counter(), 0
        before = await driver.waiting()
        while sent < asked["count"] and time.perf_counter() - began < asked["seconds"]:
            some = min(POURED_TOGETHER, asked["count"] - sent)
            await driver.pour([body] * some, keys[:some])
            sent += some
        # It was handed over; now the server has to have it.
        while await driver.waiting() - before < sent:  # noqa: ASYNC110 - it is in another process
            await asyncio.sleep(POURED_LOOK_S)
        return {"count": sent, "seconds": time.perf_counter() - began}

    return run


async def drain(driver: Driver, asked: Asked) -> Run:
    """Sends for some seconds, or `count` messages, then takes and acknowledges as many; that is measured."""
    sending = fill if "count" in asked else send_many
    send_some = await sending(driver, {**asked, "size": 1_000, "tasks": 4})

    async def run() -> Said:
        filled = (await send_some())["count"]
        began, taken = time.perf_counter(), 0
        await driver.join()
        while taken < filled:
            taken += len(await driver.take())
            await driver.done()
        seconds = time.perf_counter() - began
        await driver.leave()
        return {"count": taken, "seconds": seconds, "all_measured": False}

    return run


async def both(driver: Driver, asked: Asked) -> Run:
    """Takes what `send_many` sends at the same time, until all of it has arrived."""
    fill = await send_many(driver, asked)
    await driver.join()

    async def run() -> Said:
        sending = asyncio.create_task(fill())
        began, taken = time.perf_counter(), 0
        while not sending.done() or taken < sending.result()["count"]:
            taken += len(await driver.take())
            await driver.done()
        return {"count": taken, "seconds": time.perf_counter() - began}

    return run


async def pace(driver: Driver, asked: Asked) -> Run:
    """Sends `per_second` messages, each with its time, and takes them: how long they were under way."""
    gap_s, rest = 1 / asked["per_second"], bytes(asked["body"] - 8)
    await driver.join()

    async def one(number: int) -> None:
        await driver.send(time.monotonic_ns().to_bytes(8) + rest, f"key-{number}")

    async def send_all(count: int, began: float) -> None:
        tasks = []
        for number in range(count):
            await asyncio.sleep(max(0, began + number * gap_s - time.perf_counter()))
            tasks.append(asyncio.create_task(one(number)))
        await asyncio.gather(*tasks)

    async def run() -> Said:
        count, took = int(asked["seconds"] / gap_s), []
        began = time.perf_counter()
        sending = asyncio.create_task(send_all(count, began))
        while len(took) < count:
            bodies = await driver.take()
            now_ns = time.monotonic_ns()
            took += [(now_ns - int.from_bytes(body[:8])) / 1e9 for body in bodies]
            await driver.done()
        await sending
        return {"count": count, "seconds": time.perf_counter() - began} | percentiles(took)

    return run


TASKS = {task.__name__: task for task in (send_many, send, fill, pour, drain, both, pace)}


async def timed(work: Any) -> Said:
    """Runs coroutines that count, all at once."""
    began = time.perf_counter()
    counts = await asyncio.gather(*work)
    return {"count": sum(counts), "seconds": time.perf_counter() - began}


async def serve(name: str, task: str, address: str, asked: Asked) -> None:
    driver = system(name).Driver(address, asked["queues"])
    await driver.open()
    try:
        run = await TASKS[task](driver, asked)
        gc.set_threshold(50_000, 20, 100)
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while (await loop.run_in_executor(None, sys.stdin.readline)).strip() == "go":
            print(json.dumps(await run()), flush=True)
    finally:
        await driver.aclose()


def main() -> None:
    name, task, address, asked = sys.argv[1:]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(serve(name, task, address, json.loads(asked)))


if __name__ == "__main__":
    main()
