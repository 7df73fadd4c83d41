"""Brokers of one group as processes, and producers that know what was acknowledged."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.cluster.record import RecordUnavailable
from headrace_mq.cluster.records.keeper import keeper_of
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ConsumerSettings, ProducerSettings

__all__ = [
    "PATIENT",
    "PATIENT_S",
    "QUEUES",
    "TOPIC",
    "Group",
    "Member",
    "Senders",
    "a_moment",
    "bodies_of",
    "running",
]

TOPIC = "orders"
QUEUES = 2
# A producer that waits through a failover, and sends a message again until it is acknowledged.
PATIENT = ProducerSettings(send_timeout_ms=150_000, reconnect_ms_min=20, reconnect_ms_max=100)

# The longest wait for what takes a second on a quiet machine: a start, a failover, a copy. No property depends on it.
PATIENT_S = 150
_LOOK_S = 0.05


async def a_moment() -> None:
    """Leaves the processor to the brokers, which have to do what a test waits for."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(_LOOK_S, over.set)
    await over.wait()


class Member:
    """One broker process of the group."""

    def __init__(
        self,
        folder: Path,
        address: str,
        record: str,
        *options: str,
        prefix: Sequence[str] = (),
        program: Sequence[str] = ("-m", "headrace"),
    ) -> None:
        """`prefix` runs the command elsewhere, such as in a network of its own; `program` is run in place of Headrace."""
        self._options = options
        self._prefix = prefix
        self._program = program
        self.address = address
        self._folder = folder
        self._record = record
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *, alone: bool = False) -> None:
        """Starts it in its group, or without one."""
        group = () if alone else ("--record", self._record)
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._prefix, sys.executable, "-P", *self._program, "broker", "--data", str(self._folder / "data"),
                "--port", self.address.rpartition(":")[2], *group, "--segment-size", "256KiB", *self._options,
                stdout=log, stderr=log,
            )  # fmt: skip

    def option(self, name: str) -> str:
        """The value of an option that it was made with."""
        return self._options[self._options.index(name) + 1]

    def trouble(self, name: str, number: float) -> None:
        """Troubles a `troubled_broker`; 0 ends it."""
        path = self._folder / f".{name}"
        path.write_text(str(number))
        path.rename(self._folder / name)

    def take(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def log(self) -> str:
        """What it has written, over all its starts."""
        return (self._folder / "log").read_text()

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()


class Group:
    """Several of them."""

    def __init__(self, members: list[Member], record: str) -> None:
        self.members = members
        self.address = ",".join(one.address for one in self.members)
        self.record = keeper_of(record, cluster="default", group="g1", timeout_ms=30_000)

    async def in_sync(self) -> None:
        """Returns when all are in the set."""
        async with asyncio.timeout(PATIENT_S):
            while await self._in_sync() < len(self.members):
                await a_moment()

    async def _in_sync(self) -> int:
        try:
            return len((await self.record.read()).in_sync)
        except RecordUnavailable:  # no broker has made it yet
            return 0

    async def leader(self) -> Member:
        """The one that serves clients."""
        async with AdminClient(self.address, timeout_ms=PATIENT_S * 1_000) as admin:
            described = await admin.describe()
        return next(one for one in self.members if one.address == described.broker)


@asynccontextmanager
async def running(group: Group) -> AsyncIterator[Group]:
    """Starts the members, the first of which leads, and yields when all are in sync; kills them afterwards."""
    async with AsyncExitStack() as stack:
        for member in group.members:
            stack.push_async_callback(member.end)
        for member in group.members:
            await member.start()
            await group.leader()
        stack.push_async_callback(group.record.aclose)
        await group.in_sync()
        yield group


async def bodies_of(address: str) -> list[bytes]:
    """Every message of the topic, in the order of each queue."""
    queues = [QueueRef(TOPIC, number) for number in range(QUEUES)]
    async with AdminClient(address, timeout_ms=PATIENT_S * 1_000) as admin:
        ends = {one.queue_id: one.end for one in await admin.ranges([TOPIC])}
    found: list[bytes] = []
    settings = ConsumerSettings(start="earliest")
    async with PullConsumer(address, group="reader", settings=settings) as consumer:
        await consumer.assign(queues)
        while len(found) < sum(ends.values()):
            found += [one.body for one in await consumer.fetch(10_000, timeout_ms=5_000)]
    return found


class Senders:
    """Producers that count their messages, one after the other, and know which were acknowledged."""

    def __init__(self, address: str, count: int = 4) -> None:
        self.acknowledged: list[bytes] = []
        self._stop = asyncio.Event()
        self._news = asyncio.Event()
        self._tasks = [asyncio.create_task(self._send(address, one)) for one in range(count)]

    async def _send(self, address: str, number: int) -> None:
        async with Producer(address, settings=PATIENT) as producer:
            count = 0
            while not self._stop.is_set():
                body = b"%d %d" % (number, count)
                await producer.send(Message(topic=TOPIC, body=body, key=f"k{number}"))
                self.acknowledged.append(body)
                self._news.set()
                count += 1

    async def more(self, count: int) -> None:
        """Returns when so many more are acknowledged."""
        goal = len(self.acknowledged) + count
        async with asyncio.timeout(PATIENT_S):
            while len(self.acknowledged) < goal:
                self._news.clear()
                news = asyncio.create_task(self._news.wait())
                await asyncio.wait([news, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
                for task in self._tasks:
                    if task.done():
                        task.result()

    async def go_on_for(self, seconds: float) -> None:
        """Returns after that time, in which there never was half a minute without an acknowledgement."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            async with asyncio.timeout(30):
                await self.more(10)

    async def stand_still_for(self, seconds: float) -> None:
        """Returns after that time, in which nothing was acknowledged but what was on its way."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await self.more(1_000_000)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.more(1)
                raise AssertionError(f"{self.acknowledged[-1]!r} was acknowledged")

    async def end(self, group: Group) -> None:
        """Checks that the group has what was acknowledged, once and in order."""
        self._stop.set()
        await asyncio.gather(*self._tasks)
        found = await bodies_of(group.address)
        assert sorted(found) == sorted(self.acknowledged)
        for number in range(len(self._tasks)):
            own = [int(one.split()[1]) for one in found if one.startswith(b"%d " % number)]
            assert own == sorted(own)
