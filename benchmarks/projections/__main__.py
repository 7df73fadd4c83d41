"""
How fast events become rows, beside what this machine can do and what a peer does in the same run.

    python -m benchmarks.projections [live lag rebuild peer] [--events 40000]
        [--rebuild-events 200000] [--lag-seconds 10] [--runs 3] [--postgres URL]

    live     a backlog folded by the live runner into PostgreSQL and SQLite: 10,000 keys, 1 key, and
             3 and 6 projections in one process
    lag      1,000 events a second, paced: from sending to the end of the transaction, and its parts:
             the queue until the batch that takes the message, applying it; beside them how long
             fdatasync took in the same seconds
    rebuild  without Spark; `bare` is the least work that gives the same rows; `sealed` has an event
             store whose seal every message carries, and checks it; 3 projections in one pass, and
             apart from each other
    peer     the projection runner of `eventsourcing`, in PostgreSQL (extra `peers`), which folds anew
             as it catches up: the rate of its first ten seconds

One line of JSON per case, medians of the runs. `cpu_us` is the measured process's processor time
for an event, `server_cpu_us` that of PostgreSQL. On a machine that has other work to do the
processor times say more than the rates. A broker with fdatasync holds the topic, of four queues.
"""

import argparse
import asyncio
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from benchmarks.machine import facts, fdatasync_per_second, loopback_round_trips_per_second
from benchmarks.mq.processes import broker
from benchmarks.places import made_folder
from benchmarks.projections.account import app, bodies
from benchmarks.projections.postgres import cpu_seconds, new_database, server
from headrace.events.seals import Seal
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from headrace_mq.client.producer.producer import Producer

TOPIC = "bench.events"
QUEUES = 4
SENT_TOGETHER = 1_000
LAG_PER_SECOND = 1_000
# All of it; from sending to the batch that takes it; from there to the end of its transaction.
# The last is no part: 4 KiB written to the same disk in the same seconds.
LAG_PARTS = ("", "queue_", "applying_", "fdatasync_")
# It flushes the disk for each event and is stopped after so long.
PEER_SECONDS_MAX = 10
# Several times what it folds in them: storing more takes it minutes.
PEER_EVENTS_MAX = 60_000


class Case(NamedTuple):
    """One line of the result."""

    workload: str
    database: str
    task: str
    events: int
    keys: int
    projections: int = 1


def cases(asked: argparse.Namespace) -> list[Case]:
    events, lag_events = asked.events, asked.lag_seconds * LAG_PER_SECOND
    return [
        *(
            Case("live", database, "live", events, keys)
            for database in ("postgresql", "sqlite")
            for keys in (10_000, 1)
        ),
        *(Case("live", "sqlite", "live", events, 10_000, many) for many in (3, 6)),
        *(Case("lag", each, "lag", lag_events, 10_000) for each in ("postgresql", "sqlite")),
        *(Case("rebuild", db, "rebuild", asked.rebuild_events, 10_000) for db in ("postgresql", "sqlite")),
        Case("rebuild", "sqlite", "sealed", asked.rebuild_events, 10_000),
        *(
            Case("rebuild", "sqlite", task, asked.rebuild_events, 10_000, 3)
            for task in ("rebuild", "apart")
        ),
        Case("rebuild", "postgresql", "bare", asked.rebuild_events, 10_000),
        Case("peer", "postgresql", "eventsourcing", min(asked.rebuild_events, PEER_EVENTS_MAX), 10_000),
    ]  # fmt: skip


async def start(module: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"benchmarks.projections.{module}", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def hear(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise SystemExit("a process of the benchmark ended early; its error stands above")
    return line.decode()


async def fill(address: str, count: int, keys: int, seal: Seal | None = None) -> None:
    """Sends events as fast as they go; they are durable on return."""
    made = bodies(count, keys)
    if seal is not None:
        made = ((key, seal.put_on(body)) for key, body in made)
    async with Producer(address) as producer:
        while some := list(islice(made, SENT_TOGETHER)):
            await producer.send_columns(
                TOPIC,
                [body for _, body in some],
                keys=[key for key, _ in some],
                headers=[{"kind": "events"}] * len(some),
            )


async def pace(address: str, count: int, keys: int) -> None:
    """Sends events one by one, each at its time."""
    made = list(bodies(count, keys))
    waiting = set()
    async with Producer(address) as producer:
        begin = time.monotonic() + 0.5
        for number, (key, body) in enumerate(made):
            due = begin + number / LAG_PER_SECOND
            if (early := due - time.monotonic()) > 0:
                await asyncio.sleep(early)
            sent = asyncio.ensure_future(
                producer.send_columns(
                    TOPIC, [body], keys=[key],
                    headers=[{"kind": "events", "sent": str(time.monotonic())}],
                )
            )  # fmt: skip
            waiting.add(sent)
            sent.add_done_callback(waiting.discard)
        await asyncio.gather(*waiting)


async def seal_of(url: str) -> Seal:
    """Makes an event store, and returns what its messages carry."""
    store = await open_event_store(url, app.serializer)
    try:
        return Seal(await store.identity())
    finally:
        await store.aclose()


@asynccontextmanager
async def disk_watched(folder: Path) -> AsyncIterator[dict[str, Any]]:
    """What fdatasync takes within the block, filled in when that ends."""
    said: dict[str, Any] = {}
    process = await start("disk", str(folder))
    yield said
    assert process.stdin is not None
    process.stdin.close()
    said |= json.loads(await hear(process))
    await process.wait()


async def measure(case: Case, where: str, pid: int | None, folder: Path) -> dict[str, Any]:
    """Runs a case once, on a new broker and a new database."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        read_models = f"sqlite:///{directory / 'read.db'}"
        if case.database == "postgresql":
            url = await stack.enter_async_context(new_database(where))
            read_models = url.render_as_string(hide_password=False)
        if case.task == "eventsourcing":
            host = str(url.query.get("host", url.host))
            named = (host, str(url.username), str(url.database))
            process = await start(
                "peer", str(case.events), str(case.keys), *named, str(PEER_SECONDS_MAX)
            )
            said: dict[str, Any] = json.loads(await hear(process))
            await process.wait()
            return said
        await upgrade(read_models)
        _, address = await stack.enter_async_context(broker(directory / "mq", "always"))
        async with Producer(address) as producer:
            await producer.create_topic(TOPIC, QUEUES)
        event_store = f"sqlite:///{directory / 'events.db'}" if case.task == "sealed" else None
        if case.task != "lag":
            seal = None if event_store is None else await seal_of(event_store)
            await fill(address, case.events, case.keys, seal)
        task = {
            "broker": address,
            "event_store": event_store,
            "read_models": read_models,
            "projections": case.projections,
            "events": case.events,
            "warm_up": case.events // 5,
        }
        before = cpu_seconds(pid)
        process = await start("worker", case.task, json.dumps(task))
        if case.task == "lag":
            await hear(process)
            async with disk_watched(directory) as disk:
                await pace(address, case.events, case.keys)
            said = json.loads(await hear(process)) | disk
        else:
            said = json.loads(await hear(process))
        said["server_cpu"] = cpu_seconds(pid) - before
        await process.wait()
        return said


async def report(case: Case, where: str, pid: int | None, asked: argparse.Namespace) -> None:
    results = [await measure(case, where, pid, asked.directory) for _ in range(asked.runs)]

    def median(name: str) -> float:
        return statistics.median(result[name] for result in results)

    # Every projection folds every event.
    events = case.events * case.projections
    if case.task == "eventsourcing":
        events = round(median("events"))
    line: dict[str, Any] = {
        "benchmark": "projections", "workload": case.workload, "database": case.database,
        "case": case.task, "keys": case.keys, "projections": case.projections,
        "events": events // case.projections,
    }  # fmt: skip
    if case.task == "lag":
        parts = [f"{part}{cut}" for part in LAG_PARTS for cut in ("p50_ms", "p99_ms")]
        line |= {name: round(median(name), 2) for name in parts}
        events -= case.events // 5
    else:
        line["per_second"] = round(events / median("seconds"))
        line["per_second_max"] = round(events / min(result["seconds"] for result in results))
    line["cpu_us"] = round(median("cpu") / events * 1e6, 2)
    # The peer's events are in the same server.
    if case.database == "postgresql" and pid is not None and case.task != "eventsourcing":
        line["server_cpu_us"] = round(median("server_cpu") / events * 1e6, 2)
    print(json.dumps(line), flush=True)


async def run(where: str, pid: int | None, asked: argparse.Namespace) -> None:
    machine = {
        "benchmark": "machine",
        **facts(),
        "fdatasync_per_second": round(fdatasync_per_second(asked.directory)),
        "loopback_round_trips_per_second": round(loopback_round_trips_per_second()),
    }
    print(json.dumps(machine), flush=True)
    for case in cases(asked):
        if asked.workloads and case.workload not in asked.workloads:
            continue
        if asked.only and asked.only not in (case.database, case.task):
            continue
        if case.workload == "peer" and importlib.util.find_spec("eventsourcing") is None:
            print("the peer is not installed: pip install 'headrace[peers]'", file=sys.stderr)
            continue
        await report(case, where, pid, asked)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.projections", description="speed of the read side"
    )
    parser.add_argument("workloads", nargs="*", help="live, lag, rebuild, peer; all without one")
    parser.add_argument("--events", type=int, default=40_000)
    parser.add_argument("--rebuild-events", type=int, default=200_000)
    parser.add_argument("--lag-seconds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="cases of this database or task")
    parser.add_argument("--postgres", help="URL of a server; one of the run's own without it")
    parser.add_argument("--directory", type=made_folder, help="where broker and SQLite write")
    asked = parser.parse_args()
    with server(asked.postgres) as (where, pid):
        uvloop.run(run(where, pid, asked))


if __name__ == "__main__":
    main()
