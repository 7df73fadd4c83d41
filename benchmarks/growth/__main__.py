"""
Growth: more queues, more consumers, a longer backlog, larger messages.

    python -m benchmarks.growth [body queues consumers backlog] [--runs 3] [--seconds 0.3]
                                [--alone] [--backlog 10000000] [--page docs/benchmarks]

    body       messages of 10 bytes to 1 MiB, sent together, each acknowledged after a flush
    queues     a topic of 1 to 1,000 queues: sending 100 messages with keys at a time, taking all;
               partitions of Kafka, streams of Redis and a column of PostgreSQL, up to 100
    consumers  1 to 64 members of a group, in one process, take what one process sends to 64 queues;
               of the same three, up to 16
    backlog    10,000 messages to ten million wait: sending more, taking the oldest, and what the
               server holds in memory; other systems up to a million

Other systems take part unless ours is to be `--alone`. One line of JSON per system and step, medians of
the runs with the least and the most. A step that fails, or takes too long, has a line that says so.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
import uvloop

from benchmarks.growth.members import members
from benchmarks.growth.page import write
from benchmarks.lines import Lines
from benchmarks.machine import limits
from benchmarks.peers.cases import HOLDERS, SYSTEMS
from benchmarks.peers.contender import TooSlow, client, reason, server
from benchmarks.peers.processes import family, held_bytes
from benchmarks.peers.ratios import OURS
from benchmarks.peers.system import QUEUES, Driver, Serving, system
from benchmarks.places import made_folder

OUR_SYSTEM = f"{OURS}:always"
# Who has queues and groups like ours: partitions, streams, a column of a table.
SHARERS = [OUR_SYSTEM, "kafka:always", "redis_streams:always", "postgresql_table:always"]
BODIES = (10, 100, 1024, 10 * 1024, 100 * 1024, 2**20)
# Of one `send_many`, so that eight of them under way are no more than a few MiB.
TOGETHER_MAX, TOGETHER_BYTES_MAX = 100, 2**18
QUEUE_COUNTS = (1, 10, 100, 1_000)
CONSUMERS = (1, 4, 16, 64)
SHARED_QUEUES = 64
SHARED_MESSAGES = 200_000
BACKLOGS = (10_000, 100_000, 1_000_000, 10_000_000)
# A step is of some seconds, filling aside. What takes so long has no figure, and its cell says so.
STEP_S_MAX, FILLING_S_MAX = 150, 90
# As far as others go.
OTHERS_QUEUES_MAX, OTHERS_CONSUMERS_MAX, OTHERS_BACKLOG_MAX = 100, 16, 1_000_000
# Sent and taken beside a backlog, few enough that it stays what it is, and for no longer.
SOME_MIN, SOME_MAX, SOME_S_MAX = 10_000, 200_000, 1.0
SMALL = 100

Found = dict[str, Any]


class Steps:
    """One axis for one system: says a line for each step.

    Attributes:
        has_failed: whether a step has no figure, so that harder ones need not be tried.
    """

    def __init__(self, axis: str, one: str, lines: Lines, runs: int) -> None:
        self._axis = axis
        self.name, _, self._mode = one.partition(":")
        self._one = one
        self._lines = lines
        self._runs = runs
        self.has_failed = False

    @asynccontextmanager
    async def server(self, folder: Path | None, queues: int) -> AsyncIterator[Serving]:
        """A server of its own; a failure ends the axis for this system and is told."""
        try:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                async with server(self._one, queues, Path(place)) as serving:
                    yield serving
        except (Exception, SystemExit) as failure:  # noqa: BLE001 - told, and the others go on
            self.has_failed = True
            self._say(failed=reason(failure))

    @asynccontextmanager
    async def step(self, at: int) -> AsyncIterator[None]:
        """One step in its time; a failure ends the axis for this system, and its cell says why."""
        try:
            async with asyncio.timeout(STEP_S_MAX):
                yield
        except (Exception, SystemExit) as failure:  # noqa: BLE001 - told, and the others go on
            self.has_failed = True
            self._say(at=at, failed=reason(failure, STEP_S_MAX))

    async def rates(self, task: str, address: str, asked: Found, field: str) -> Found:
        """The rate of a client's task: the median, the least, the most."""
        async with client(self.name, task, address, asked) as process:
            # The first one warms up.
            said = [await process.run() for _ in range(self._runs + 1)][1:]
        return spread(field, [one["count"] / one["seconds"] for one in said])

    def told(self, at: int, **found: Any) -> None:
        """Says what a step has found."""
        self._say(at=at, **found)

    def _say(self, **found: Any) -> None:
        self._lines.say({
            "benchmark": "growth", "axis": self._axis, "system": self.name, "mode": self._mode,
            **found,
        })  # fmt: skip


def spread(field: str, rates: list[float]) -> Found:
    return {
        field: round(statistics.median(rates)),
        f"{field}_min": round(min(rates)),
        f"{field}_max": round(max(rates)),
    }


async def body(asked: argparse.Namespace, lines: Lines) -> None:
    systems = [one for one in SYSTEMS if one.endswith(":always")]
    for one in [OUR_SYSTEM] if asked.alone else systems:
        steps = Steps("body", one, lines, asked.runs)
        async with steps.server(asked.directory, QUEUES) as serving:
            for size in BODIES:
                if steps.has_failed:
                    break
                together = max(1, min(TOGETHER_MAX, TOGETHER_BYTES_MAX // size))
                wanted = {
                    "seconds": asked.seconds, "body": size, "queues": QUEUES,
                    "size": together, "tasks": 8,
                }  # fmt: skip
                async with steps.step(size):
                    found = await steps.rates(
                        "send_many", serving.address, wanted, "sent_per_second"
                    )
                    bytes_per_second = size * found["sent_per_second"]
                    steps.told(size, **found, sent_bytes_per_second=bytes_per_second)


async def queues(asked: argparse.Namespace, lines: Lines) -> None:
    for one in [OUR_SYSTEM] if asked.alone else SHARERS:
        steps = Steps("queues", one, lines, asked.runs)
        for count in QUEUE_COUNTS:
            if one != OUR_SYSTEM and count > OTHERS_QUEUES_MAX:
                break
            async with steps.server(asked.directory, count) as serving, steps.step(count):
                wanted = {
                    "seconds": asked.seconds, "body": SMALL, "queues": count, "size": 100,
                    "tasks": 8,
                }  # fmt: skip
                sent = await steps.rates("send_many", serving.address, wanted, "sent_per_second")
                taken = await steps.rates("drain", serving.address, wanted, "taken_per_second")
                held = held_bytes(family(serving.pids))
                steps.told(count, **sent, **taken, server_bytes=held)
            if steps.has_failed:
                break


async def consumers(asked: argparse.Namespace, lines: Lines) -> None:
    for one in [OUR_SYSTEM] if asked.alone else SHARERS:
        steps = Steps("consumers", one, lines, asked.runs)
        for count in CONSUMERS:
            if one != OUR_SYSTEM and count > OTHERS_CONSUMERS_MAX:
                break
            async with steps.server(asked.directory, SHARED_QUEUES) as serving, steps.step(count):
                rates = await shared(steps.name, serving.address, count, asked)
                held = held_bytes(family(serving.pids))
                steps.told(count, **spread("taken_per_second", rates), server_bytes=held)
            if steps.has_failed:
                break


async def shared(name: str, address: str, count: int, asked: argparse.Namespace) -> list[float]:
    """The rates at which so many members take what one process sends, from its first message on."""
    wanted = {
        "count": SHARED_MESSAGES, "body": SMALL, "queues": SHARED_QUEUES, "seconds": asked.seconds,
    }  # fmt: skip

    def make() -> Driver:
        return system(name).Driver(address, SHARED_QUEUES)

    rates: list[float] = []
    async with (
        client(name, "fill", address, wanted) as filling,
        members(make, count, SHARED_QUEUES) as taking,
    ):
        # The first one warms up.
        for _ in range(asked.runs + 1):
            before, began = taking.taken, time.perf_counter()
            sent = (await filling.run())["count"]
            await taking.until(before + sent)
            rates.append(sent / (time.perf_counter() - began))
    return rates[1:]


async def backlog(asked: argparse.Namespace, lines: Lines) -> None:
    for one in [OUR_SYSTEM] if asked.alone else HOLDERS:
        steps = Steps("backlog", one, lines, asked.runs)
        most = asked.backlog if steps.name == OURS else min(asked.backlog, OTHERS_BACKLOG_MAX)
        async with steps.server(asked.directory, QUEUES) as serving:
            waiting = 0
            for wanted in BACKLOGS:
                if wanted > most or steps.has_failed:
                    break
                async with steps.step(wanted):
                    waiting += await filled(steps.name, serving.address, wanted - waiting)
                    held = held_bytes(family(serving.pids))
                    some = {
                        "body": SMALL, "queues": QUEUES, "seconds": SOME_S_MAX,
                        "count": max(SOME_MIN, min(SOME_MAX, wanted // 10)),
                    }  # fmt: skip
                    sent = await steps.rates("fill", serving.address, some, "sent_per_second")
                    # It sends as many as it takes, so that the backlog stays as it is.
                    taken = await steps.rates("drain", serving.address, some, "taken_per_second")
                    steps.told(wanted, **sent, **taken, server_bytes=held)


async def filled(name: str, address: str, count: int) -> int:
    """Leaves so many messages more.

    Raises:
        TooSlow: it took in less in its time.
    """
    asked = {"body": SMALL, "queues": QUEUES, "count": count, "seconds": FILLING_S_MAX}
    async with client(name, "pour", address, asked) as filling:
        said: int = (await filling.run())["count"]
    if said < count:
        raise TooSlow(f"took in {said:,} of {count:,} in {FILLING_S_MAX} s")
    return said


AXES = {axis.__name__: axis for axis in (body, queues, consumers, backlog)}


async def main(asked: argparse.Namespace) -> None:
    lines = Lines(asked.page and asked.page / "growth.jsonl")
    lines.say(limits(asked.directory))
    try:
        for name, axis in AXES.items():
            if not asked.axes or name in asked.axes:
                await axis(asked, lines)
    finally:
        if asked.page:
            write(asked.page, lines.said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("axes", nargs="*", metavar="AXIS", help=", ".join(AXES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="of sending, in each run")
    parser.add_argument("--alone", action="store_true", help="without the other systems")
    parser.add_argument("--backlog", type=int, default=BACKLOGS[-1], help="the longest one")
    parser.add_argument("--directory", type=made_folder, help="where the servers write")
    parser.add_argument("--page", type=made_folder, help="write tables and plots into this folder")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(main(parser.parse_args()))
