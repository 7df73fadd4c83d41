"""
Growth: more queues, more consumers, a longer backlog, larger messages.

    python -m benchmarks.growth [body queues consumers backlog] [--runs 3] [--seconds 0.3]
                                [--alone] [--backlog 10000000] [--page docs/benchmarks]

    body       messages of 10 bytes to 1 MiB, sent together, each acknowledged after a flush
    queues     a topic of 1 to 1,000 queues: sending 100 messages with keys at a time, taking all
    consumers  1 to 64 members of a group, in one process, take what one process sends to 64 queues
    backlog    10,000 messages to ten million wait: sending more, taking the oldest, and what the
               server holds in memory; other systems up to a million, or as many as they take in soon

Other systems take part in `body` and `backlog`, unless ours is to be `--alone`. One line of JSON per
system and step, medians of the runs with the least and the most. What fails is told and left out.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
import uvloop

from benchmarks.growth.page import write
from benchmarks.lines import Lines
from benchmarks.machine import limits
from benchmarks.peers.cases import HOLDERS, SYSTEMS
from benchmarks.peers.contender import client, server
from benchmarks.peers.processes import family, held_bytes
from benchmarks.peers.ratios import OURS
from benchmarks.peers.system import QUEUES, Serving
from benchmarks.places import made_folder
from headrace_mq.client.consumer import Consumer
from headrace_mq.settings import ConsumerSettings

OUR_SYSTEM = f"{OURS}:always"
BODIES = (10, 100, 1024, 10 * 1024, 100 * 1024, 2**20)
# Of one `send_many`, so that eight of them under way are no more than a few MiB.
TOGETHER_MAX, TOGETHER_BYTES_MAX = 100, 2**18
QUEUE_COUNTS = (1, 10, 100, 1_000)
CONSUMERS = (1, 4, 16, 64)
SHARED_QUEUES = 64
SHARED_MESSAGES = 200_000
BACKLOGS = (10_000, 100_000, 1_000_000, 10_000_000)
# Others are slow: what they do not take in so soon, and so many, is not waited for.
OTHERS_FILL_S_MAX, OTHERS_BACKLOG_MAX = 20, 1_000_000
OUR_FILL_S_MAX = 60
# Sent and taken beside a backlog, few enough that it stays what it is.
SOME_MIN, SOME_MAX = 10_000, 200_000
SMALL = 100

Found = dict[str, Any]


class Steps:
    """One axis for one system: says a line for each step."""

    def __init__(self, axis: str, one: str, lines: Lines, runs: int) -> None:
        self._axis = axis
        self.name, _, self._mode = one.partition(":")
        self._one = one
        self._lines = lines
        self._runs = runs

    @asynccontextmanager
    async def server(self, folder: Path | None, queues: int) -> AsyncIterator[Serving]:
        """A server of its own; a failure ends the axis for this system and is told."""
        try:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                async with server(self._one, queues, Path(place)) as serving:
                    yield serving
        except (Exception, SystemExit) as failure:  # noqa: BLE001 - told, and the others go on
            said = f"{type(failure).__name__}: {failure}".splitlines()[0][:200]
            self._say(failed=said)

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
                together = max(1, min(TOGETHER_MAX, TOGETHER_BYTES_MAX // size))
                wanted = {
                    "seconds": asked.seconds, "body": size, "queues": QUEUES,
                    "size": together, "tasks": 8,
                }  # fmt: skip
                found = await steps.rates("send_many", serving.address, wanted, "sent_per_second")
                bytes_per_second = size * found["sent_per_second"]
                steps.told(size, **found, sent_bytes_per_second=bytes_per_second)


async def queues(asked: argparse.Namespace, lines: Lines) -> None:
    steps = Steps("queues", OUR_SYSTEM, lines, asked.runs)
    for count in QUEUE_COUNTS:
        async with steps.server(asked.directory, count) as serving:
            wanted = {
                "seconds": asked.seconds, "body": SMALL, "queues": count, "size": 100, "tasks": 8,
            }  # fmt: skip
            sent = await steps.rates("send_many", serving.address, wanted, "sent_per_second")
            taken = await steps.rates("drain", serving.address, wanted, "taken_per_second")
            held = held_bytes(family(serving.pids))
            steps.told(count, **sent, **taken, server_bytes=held)


async def consumers(asked: argparse.Namespace, lines: Lines) -> None:
    steps = Steps("consumers", OUR_SYSTEM, lines, asked.runs)
    for members in CONSUMERS:
        async with steps.server(asked.directory, SHARED_QUEUES) as serving:
            wanted = {
                "count": SHARED_MESSAGES, "body": SMALL, "queues": SHARED_QUEUES,
                "seconds": OUR_FILL_S_MAX,
            }  # fmt: skip
            async with (
                client(steps.name, "fill", serving.address, wanted) as filling,
                group(serving.address, members) as take,
            ):
                rates = []
                for _ in range(asked.runs + 1):
                    began = time.perf_counter()
                    await asyncio.gather(filling.run(), take(SHARED_MESSAGES))
                    rates.append(SHARED_MESSAGES / (time.perf_counter() - began))
            held = held_bytes(family(serving.pids))
            steps.told(members, **spread("taken_per_second", rates[1:]), server_bytes=held)


@asynccontextmanager
async def group(address: str, members: int) -> AsyncIterator[Callable[[int], Any]]:
    """Members that share the queues evenly; they take so many messages together."""
    settings = ConsumerSettings(in_flight_max=50_000)
    async with AsyncExitStack() as stack:
        consumers = [
            await stack.enter_async_context(
                Consumer(address, group="growth", topics=["bench"], settings=settings)
            )
            for _ in range(members)
        ]
        async with asyncio.timeout(OUR_FILL_S_MAX):
            while any(len(one.assignment) != SHARED_QUEUES // members for one in consumers):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
        left = 0  # of what is to be taken
        is_done = asyncio.Event()

        async def keep_taking(consumer: Consumer) -> None:
            nonlocal left
            while True:
                records = await consumer.poll()
                consumer.ack_all(records)
                left -= len(records)
                if left <= 0:
                    is_done.set()

        async def take(count: int) -> None:
            nonlocal left
            left += count
            is_done.clear()
            await is_done.wait()
            await asyncio.gather(*(one.commit() for one in consumers))

        taking = [asyncio.create_task(keep_taking(one)) for one in consumers]
        try:
            yield take
        finally:
            for task in taking:
                task.cancel()
            await asyncio.gather(*taking, return_exceptions=True)


async def backlog(asked: argparse.Namespace, lines: Lines) -> None:
    for one in [OUR_SYSTEM] if asked.alone else HOLDERS:
        steps = Steps("backlog", one, lines, asked.runs)
        most = asked.backlog if steps.name == OURS else min(asked.backlog, OTHERS_BACKLOG_MAX)
        limit_s = OUR_FILL_S_MAX if steps.name == OURS else OTHERS_FILL_S_MAX
        async with steps.server(asked.directory, QUEUES) as serving:
            waiting = 0
            for wanted in BACKLOGS:
                if wanted > most:
                    break
                common = {"body": SMALL, "queues": QUEUES, "seconds": limit_s}
                missing = {**common, "count": wanted - waiting}
                async with client(steps.name, "fill", serving.address, missing) as filling:
                    filled = (await filling.run())["count"]
                waiting += filled
                if waiting < wanted:
                    break
                held = held_bytes(family(serving.pids))
                some = {**common, "count": max(SOME_MIN, min(SOME_MAX, wanted // 10))}
                sent = await steps.rates("fill", serving.address, some, "sent_per_second")
                # It sends as many as it takes, so that the backlog stays as it is.
                taken = await steps.rates("drain", serving.address, some, "taken_per_second")
                steps.told(wanted, **sent, **taken, server_bytes=held)


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
