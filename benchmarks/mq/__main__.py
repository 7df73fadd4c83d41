"""
How fast the queue is, beside what this machine can do at best in the same run.

    python -m benchmarks.mq [W1 W2 W3 W4 W5 W6 transactional idle] [--flush always|interval] [--runs 3] [--scale 1] [--tls DIR]

    W1    one producer process: `send_many` in hundreds and thousands, 8 calls at a time and 32,
          `send` from 1,000 tasks, one message awaited at a time, without and with processes that
          look for more before they sleep (`busy_poll_us`)
    W2    four producer processes: batches, and 100 tasks awaiting in each
    W3    reading a backlog of 200,000 messages, decoded and committed
    W4    end-to-end latency at 500 messages a second, without and with `busy_poll_us` in all processes
          or in the broker alone
    W5    producing and consuming at once
    W6    reading a backlog of which one message of a hundred is wanted, by a header with a hundred
          values, by two of an order whose id and price are others each time, or by its tag: picked
          out by the broker, and in turns with that by a reader of everything (`reader_per_second`;
          `times` is the median over the turns); in batches of 1,000 and of 100 messages, of which
          one in each hundred is wanted, or all of one batch in a hundred batches
    transactional  `send` beside `send_in_transaction`, both from 1,000 tasks
    idle  1,000 connections that do nothing

One line of JSON per case: bodies of 100 bytes, four queues, one broker process, acknowledgements
after fdatasync (`--flush interval`: from the page cache). Rates are medians of the runs; `*_cpu_us`
is processor time for each message in that process and those that it started. On a machine that has other work to do the
processor times say more than the rates.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import facts, fdatasync_per_second, loopback_round_trips_per_second
from benchmarks.mq.processes import Child, broker, client, cpu_seconds, resident_bytes
from benchmarks.places import made_folder
from headrace_mq.client.producer.producer import Producer

QUEUES = 4
BACKLOG = 200_000
RARE_BACKLOG = 1_000_000
# A broker that takes no more of a processor than this has nothing left to do.
IDLE_SHARE_MAX, LOOK_SECONDS = 0.03, 0.5
# Longer than an answer takes; longer than 500 messages a second are apart.
SHORT_POLL_US, LONG_POLL_US = 500, 5_000
IDLE_CONNECTIONS = 1_000
IDLE_SECONDS = 5


class Case(NamedTuple):
    """One line of the result: processes that run a task at the same time."""

    workload: str
    name: str
    task: str
    asked: Mapping[str, Any]
    processes: int = 1
    # A consumer that runs at the same time, and what it is asked for.
    beside: tuple[str, Mapping[str, Any]] | None = None
    # Messages that are there before the first run.
    backlog: int = 0
    # What another process does in turns with the first one, where that is compared.
    against: Mapping[str, Any] | None = None
    # How long all processes look for more before they sleep, or the broker alone.
    busy_poll_us: int = 0
    broker_poll_us: int = 0


def many(size: int, tasks: int, count: int, *, keyed: bool = True) -> dict[str, Any]:
    # As many as the tasks send when each calls equally often: a reader waits for all of them.
    rounds = max(1, count // (size * tasks))
    return {"size": size, "tasks": tasks, "count": rounds * size * tasks, "keyed": keyed}


def awaited(tasks: int, count: int) -> dict[str, Any]:
    return {"tasks": tasks, "count": count, "keyed": True}


def cases(scale: float) -> list[Case]:
    def n(count: int) -> int:
        return int(count * scale)

    few, more = many(100, 8, n(400_000)), many(100, 32, n(400_000))
    both = {"group": "bench", "stay": True, "queues": QUEUES}
    paced = {"group": "bench", "count": n(2_000), "timed": True, "queues": QUEUES}
    backlog = {"group": "bench", "count": n(BACKLOG)}
    return [
        Case("W1", "send_many of 100", "send_many", few),
        Case("W1", "send_many of 100, 32 at a time", "send_many", more),
        Case(
            "W1", "send_many of 100, no keys", "send_many", many(100, 8, n(400_000), keyed=False)
        ),
        Case("W1", "send_many of 1,000", "send_many", many(1_000, 8, n(800_000))),
        Case("W1", "send from 1,000 tasks", "send", awaited(1_000, n(200_000))),
        Case("W1", "send, one at a time", "send", awaited(1, n(3_000))),
        Case("W1", "send, one at a time, busy polling", "send", awaited(1, n(3_000)),
             busy_poll_us=SHORT_POLL_US),
        Case("W2", "4 x send_many of 100", "send_many", many(100, 8, n(200_000)), 4),
        Case("W2", "4 x send_many of 100, 32 at a time", "send_many", many(100, 32, n(200_000)), 4),
        Case("W2", "4 x send from 100 tasks", "send", awaited(100, n(50_000)), 4),
        Case("W3", "backlog as columns", "read_columns", backlog, backlog=n(BACKLOG)),
        Case("W3", "backlog as records", "consume", backlog, backlog=n(BACKLOG)),
        Case("W4", "end to end at 500/s", "pace", {"count": n(2_000), "per_second": 500},
             beside=("follow", paced)),
        Case("W4", "end to end at 500/s, busy polling", "pace", {"count": n(2_000), "per_second": 500},
             beside=("follow", paced), busy_poll_us=LONG_POLL_US),
        Case("W4", "end to end at 500/s, the broker busy polling", "pace",
             {"count": n(2_000), "per_second": 500}, beside=("follow", paced),
             broker_poll_us=LONG_POLL_US),
        Case("W5", "producing and consuming", "send_many", few,
             beside=("follow", {**both, "count": few["count"]})),
        Case("W5", "producing and consuming, 32 at a time", "send_many", more,
             beside=("follow", {**both, "count": more["count"]})),
        *selections(n(RARE_BACKLOG)),
        Case("transactional", "plain, 1,000 tasks", "send", awaited(1_000, n(100_000))),
        Case("transactional", "in transactions, 1,000 tasks", "transact", awaited(1_000, n(100_000))),
        Case("idle", "1,000 connections", "connect",
             {"connections": IDLE_CONNECTIONS, "seconds": IDLE_SECONDS}),
    ]  # fmt: skip


def selections(count: int) -> list[Case]:
    """Who picks one message of a hundred out, by what it is known, and where it stands."""
    return [
        Case(
            "W6",
            f"1 of 100 by {by}, {'in clusters' if clustered else 'evenly'}, batches of {batch:,}",
            "select",
            {"group": "some", "count": count, "by": by, "clustered": clustered, "at_broker": True,
             "batch": batch},
            backlog=count,
            against={"group": "all", "at_broker": False},
        )
        for by in ("price", "order", "tag")
        for batch, clustered in ((1_000, False), (100, False), (100, True))
    ]  # fmt: skip


async def fill(server: Child, address: str, case: Case) -> None:
    """Sends the backlog of a case, and waits until its broker has noted the keys of all that."""
    task, asked = "send_many", many(1_000, 1, case.backlog)
    if case.task == "select":
        task, asked = "send_rare", {**case.asked, "count": case.backlog}
    async with client(task, address, {**asked, "topic": "bench"}) as child:
        await child.run()
    busy = 1.0
    while busy > IDLE_SHARE_MAX:
        before = cpu_seconds(server.pid)
        await asyncio.sleep(LOOK_SECONDS)
        busy = (cpu_seconds(server.pid) - before) / LOOK_SECONDS


def summary(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The medians over the runs; each run has one result for each process."""
    rates = [
        sum(result["count"] for result in results) / max(result["seconds"] for result in results)
        for results in runs
    ]
    said: dict[str, Any] = {
        "per_second": round(statistics.median(rates)),
        "per_second_min": round(min(rates)),
        "per_second_max": round(max(rates)),
    }
    for name in ("p50_us", "p99_us"):
        if name in runs[0][0]:
            said[name] = round(statistics.median(results[0][name] for results in runs))
    return said


async def measure(
    case: Case, flush: str, folder: Path, runs: int, certificates: Path | None
) -> dict[str, Any]:
    """Runs one case against a fresh broker."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        server, address = await stack.enter_async_context(
            broker(
                Path(directory),
                flush,
                busy_poll_us=case.busy_poll_us or case.broker_poll_us,
                certificates=certificates,
            )
        )
        async with Producer(address) as producer:
            await producer.create_topic("bench", QUEUES)
        if case.backlog:
            await fill(server, address, case)
        before = resident_bytes(server.pid)
        common = {"topic": "bench", "busy_poll_us": case.busy_poll_us}
        clients = [
            await stack.enter_async_context(client(case.task, address, {**case.asked, **common}))
            for _ in range(case.processes)
        ]
        consumers = []
        if case.beside is not None:
            task, asked = case.beside
            consumers.append(
                await stack.enter_async_context(client(task, address, {**asked, **common}))
            )
        if case.against is not None:
            asked = {**case.asked, **case.against, **common}
            other = await stack.enter_async_context(client(case.task, address, asked))
            return await compare(server, clients[0], other, runs)
        said = await take_turns(server, clients, consumers, runs)
        if case.workload == "idle":
            grown = resident_bytes(server.pid) - before
            said["broker_bytes_per_connection"] = grown // case.asked["connections"]
        return said


async def take_turns(
    server: Child, clients: Sequence[Child], consumers: Sequence[Child], runs: int
) -> dict[str, Any]:
    """Lets all processes run together, some times over; the first time only warms up."""
    turns = [await turn(server, clients, consumers) for _ in range(runs + 1)]
    return summary([one.results for one in turns[1:]]) | costs(turns[1:], consumed=bool(consumers))


async def compare(server: Child, one: Child, other: Child, runs: int) -> dict[str, Any]:
    """Lets two readers of one backlog take turns; what the second one does is told as a reader's."""
    for child in (one, other):
        await turn(server, [child], [])
    turns = [[await turn(server, [child], []) for child in (one, other)] for _ in range(runs)]
    ours, theirs = zip(*turns, strict=True)
    times = sorted(a.per_second / b.per_second for a, b in turns)
    theirs_said = summary([turn.results for turn in theirs]) | costs(theirs)
    return {
        **summary([turn.results for turn in ours]),
        **costs(ours),
        **{f"reader_{name}": value for name, value in theirs_said.items()},
        "times": round(statistics.median(times), 2),
        "times_min": round(times[0], 2),
        "times_max": round(times[-1], 2),
    }


class Turn(NamedTuple):
    """What came of one run: results that count, and microseconds for each message by process."""

    results: Sequence[Mapping[str, Any]]
    cpu_us: Sequence[float]

    @property
    def per_second(self) -> float:
        """Messages a second of its one process."""
        (result,) = self.results
        return float(result["count"] / result["seconds"])


async def turn(server: Child, clients: Sequence[Child], consumers: Sequence[Child]) -> Turn:
    """Lets processes run together once."""
    everybody = [*clients, *consumers]
    before = [cpu_seconds(child.pid) for child in (server, *everybody)]
    said = await asyncio.gather(*(child.run() for child in everybody))
    after = [cpu_seconds(child.pid) for child in (server, *everybody)]
    sent = sum(result["count"] for result in said[: len(clients)])
    parts = [1e6 * (late - early) / sent for early, late in zip(before, after, strict=True)]
    # Where somebody consumes, what counts is what has arrived.
    return Turn(
        said[len(clients) :] if consumers else said,
        [parts[0], sum(parts[1 : 1 + len(clients)]), sum(parts[1 + len(clients) :])],
    )


def costs(turns: Sequence[Turn], *, consumed: bool = False) -> dict[str, float]:
    """The medians of processor times."""
    names = ["broker_cpu_us", "client_cpu_us", "consumer_cpu_us"][: 3 if consumed else 2]
    used = zip(names, zip(*(one.cpu_us for one in turns), strict=True), strict=False)
    return {name: round(statistics.median(values), 3) for name, values in used}


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mq", description="queue speed")
    parser.add_argument("workloads", nargs="*", help="W1 to W5, idle; all without one")
    parser.add_argument("--flush", choices=("always", "interval"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument(
        "--tls",
        type=Path,
        help="over TLS, with the files of `headrace certificates make` in this folder",
    )
    parser.add_argument("--directory", type=made_folder, help="where the broker writes")
    asked = parser.parse_args()
    machine = {
        "benchmark": "machine",
        **facts(),
        "fdatasync_per_second": round(fdatasync_per_second(asked.directory)),
        "loopback_round_trips_per_second": round(loopback_round_trips_per_second()),
    }
    print(json.dumps(machine), flush=True)
    for flush in [asked.flush] if asked.flush else ["always", "interval"]:
        for case in cases(asked.scale):
            wanted = not asked.workloads or case.workload in asked.workloads
            if wanted and asked.only in case.name:
                said = await measure(case, flush, asked.directory, asked.runs, asked.tls)
                line = {"benchmark": "mq", "workload": case.workload, "case": case.name}
                print(json.dumps({**line, "flush": flush, **said}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
