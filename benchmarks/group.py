"""
What a group of brokers costs and how fast it fails over, and one broker alone, in turns.

    python -m benchmarks.group --runs 3 --seconds 5 --failovers 50 --catch-up 1024 --reads 5

Each broker is a process with a folder of its own; all share this machine's cores and disk. One line of JSON for each
figure, the median of the runs with the least and the most. Every failover is checked: what was acknowledged is there once.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path

from benchmarks.event_store import embedded_postgres
from headrace_mq import AdminClient, Message, Producer, PullConsumer, QueueRef
from headrace_mq.cluster.operations import acknowledgement
from headrace_mq.cluster.record import ACK_IN_SYNC, ACK_LEADER, RecordUnavailable
from headrace_mq.cluster.records.keeper import keeper_of
from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import ProducerSettings

TOPIC, QUEUES = "orders", 4
BATCH, IN_FLIGHT, BODY = 100, 16, b"x" * 100
# Groups that are compared: so many brokers, and who acknowledges.
COSTS = ((1, ACK_IN_SYNC), (2, ACK_IN_SYNC), (2, ACK_LEADER), (3, ACK_IN_SYNC), (3, ACK_LEADER))
PATIENT = ProducerSettings(send_timeout_ms=60_000, reconnect_ms_min=20, reconnect_ms_max=100)


class Member:
    """One broker process."""

    def __init__(self, folder: Path, record: str, group: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.address = f"127.0.0.1:{server.getsockname()[1]}"
        self._words = ["--data", str(folder), "--port", self.address.rpartition(":")[2]]
        self._words += [
            "--log-level",
            "error",
            *(["--record", record, "--group", group] if group else []),
        ]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts it, and returns when it listens."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "headrace", "broker", *self._words,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        await self._process.stdout.readline()

    def processor_s(self) -> float:
        """The processor time that it used so far, in seconds."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends it with a signal."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await self._process.wait()


@asynccontextmanager
async def brokers(folder: Path, count: int, record: str, group: str) -> AsyncIterator[list[Member]]:
    """Runs so many, all in sync; without a group, one alone."""
    folder.mkdir(exist_ok=True)
    members = [Member(folder / str(number), record, group) for number in range(count)]
    try:
        for member in members:
            await member.start()
        if group:
            await until_in_sync(record, group, count)
        yield members
    finally:
        for member in members:
            await member.end()


async def until_in_sync(record: str, group: str, count: int) -> None:
    """Returns when the set has so many members."""
    keeper = keeper_of(record, cluster="default", group=group)
    try:
        while True:
            # The first broker makes it soon after it is ready.
            with suppress(RecordUnavailable):
                if len((await keeper.read()).in_sync) >= count:
                    return
            await asyncio.sleep(0.05)
    finally:
        await keeper.aclose()


async def acknowledge_alone(record: str, group: str, address: str) -> None:
    """Lets the leader acknowledge alone, and returns when it does."""
    keeper = keeper_of(record, cluster="default", group=group)
    try:
        while True:
            with suppress(
                MessageQueueError
            ):  # a broker has not reported yet, or the record was changed meanwhile
                found = await keeper.read()
                proposal = acknowledgement(found, await keeper.registered(), ACK_LEADER)
                if proposal is None:
                    break
                await keeper.propose(proposal)
            await asyncio.sleep(0.05)
        async with AdminClient(address, timeout_ms=60_000) as admin:
            while True:
                if (await admin.status()).leads[0].ack == ACK_LEADER:
                    return
                await asyncio.sleep(0.05)
    finally:
        await keeper.aclose()


async def rate(address: str, seconds: float, in_flight: int) -> float:
    """Returns messages a second, with batches of 100 in flight."""
    sent = 0
    async with Producer(address, settings=PATIENT) as producer:
        await producer.create_topic(TOPIC, QUEUES)
        batch = [Message(topic=TOPIC, body=BODY) for _ in range(BATCH)]
        await producer.send_many(batch)
        end = time.perf_counter() + seconds

        async def send() -> None:
            nonlocal sent
            while time.perf_counter() < end:
                await producer.send_many(batch)
                sent += BATCH

        begin = time.perf_counter()
        await asyncio.gather(*(send() for _ in range(in_flight)))
        return sent / (time.perf_counter() - begin)


async def delay_us(address: str, seconds: float, per_second: int = 500) -> float:
    """Returns the median time of one message in microseconds, at so many a second."""
    times: list[float] = []
    async with Producer(address, settings=PATIENT) as producer:
        await producer.create_topic(TOPIC, QUEUES)
        waits = []

        async def send() -> None:
            begin = time.perf_counter()
            await producer.send(Message(topic=TOPIC, body=BODY))
            times.append(time.perf_counter() - begin)

        begin = time.perf_counter()
        for number in range(int(seconds * per_second)):
            await asyncio.sleep(max(0.0, begin + number / per_second - time.perf_counter()))
            waits.append(asyncio.create_task(send()))
        await asyncio.gather(*waits)
    return statistics.median(times) * 1e6


def say(figure: str, values: list[float], digits: int = 0) -> None:
    """Prints the median with the least and the most."""
    shown = [round(one, digits) for one in (statistics.median(values), min(values), max(values))]
    print(json.dumps({"figure": figure, "median": shown[0], "least": shown[1], "most": shown[2]}))


async def costs(folder: Path, record: str, runs: int, seconds: float) -> None:
    """Measures rates and delays, each with its ratio to one broker of the same round."""
    found: dict[str, list[float]] = {}
    for run in range(runs):
        alone: dict[str, float] = {}
        for count, ack in COSTS:
            group = f"costs{run}-{count}{ack}" if count > 1 else ""
            async with brokers(folder / f"{run}-{count}{ack}", count, record, group) as members:
                address = ",".join(one.address for one in members)
                if ack == ACK_LEADER:
                    await acknowledge_alone(record, group, address)
                used_s = [one.processor_s() for one in members]
                begun = time.perf_counter()
                per_second = await rate(address, seconds, IN_FLIGHT)
                sent = per_second * (time.perf_counter() - begun)
                used_s = [
                    one.processor_s() - before for one, before in zip(members, used_s, strict=True)
                ]
                measured = {
                    "rate": per_second,
                    # The first one that started leads.
                    "leader's processor, us per 1000 messages": used_s[0] / sent * 1e9,
                    "rate one at a time": await rate(address, seconds, 1),
                    "delay us": await delay_us(address, seconds),
                }
            alone = alone or measured
            for name, value in measured.items():
                what = f"{count} brokers, {'leader alone, ' if ack == ACK_LEADER else ''}{name}"
                found.setdefault(what, []).append(value)
                found.setdefault(f"{what}, ratio to one", []).append(value / alone[name])
    for figure, values in found.items():
        say(figure, values, 2 if "ratio" in figure else 0)


async def reads(folder: Path, record: str, runs: int, seconds: float) -> None:
    """Measures what is left of the leader's rate while a reader reads all messages again and again, from either broker."""
    found: dict[str, list[float]] = {}
    for run in range(runs):
        group = f"reads{run}"
        async with brokers(folder / group, 2, record, group) as members:
            address = ",".join(one.address for one in members)
            await rate(address, seconds, IN_FLIGHT)
            without = 0.0
            for read_from in ("", "leader", "replica"):
                reader = await _reader(address, read_from) if read_from else None
                used_s, begun = members[0].processor_s(), time.perf_counter()
                per_second = await rate(address, seconds, IN_FLIGHT)
                sent = per_second * (time.perf_counter() - begun)
                used_s = members[0].processor_s() - used_s
                without = without or per_second
                name = f"reads from the {read_from}" if reader else "no reads"
                if reader is not None:
                    read, _ = await reader.communicate(b"stop")
                    own = float(read) / (time.perf_counter() - begun)
                    found.setdefault(f"{name}, messages read a second", []).append(own)
                found.setdefault(f"{name}, rate of the leader", []).append(per_second)
                found.setdefault(f"{name}, rate, ratio to no reads", []).append(
                    per_second / without
                )
                found.setdefault(f"{name}, leader's processor, us per 1000 messages", []).append(
                    used_s / sent * 1e9
                )
    for figure, values in found.items():
        say(figure, values, 2 if "ratio" in figure else 0)


async def _reader(address: str, read_from: str) -> asyncio.subprocess.Process:
    """Starts a process that reads the topic again and again until it gets a word; it then says how many messages it read."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", READER, address, read_from, TOPIC,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


READER = """
import sys, threading
from headrace_mq import BlockingReader, QueueRef
address, read_from, topic = sys.argv[1:]
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
read = 0
with BlockingReader(address, read_from=read_from) as reader:
    held = reader.ranges([topic])
    while not stop.is_set():
        for one in held:
            for _, _, first, last in reader.read(QueueRef(topic, one.queue_id), one.first, one.end):
                read += last - first
                if stop.is_set():
                    break
print(read)
"""


async def catch_up(folder: Path, record: str, runs: int, mib: int) -> None:
    """Measures how fast an empty broker copies a leader's log, and how fast this disk takes such writes."""
    found: dict[str, list[float]] = {"catch-up, MiB/s": [], "the disk alone, MiB/s": []}
    for run in range(runs):
        group = f"catchup{run}"
        async with brokers(folder / group, 1, record, group) as members:
            async with Producer(members[0].address, settings=PATIENT) as producer:
                await producer.create_topic(TOPIC, QUEUES)
                batch = [Message(topic=TOPIC, body=os.urandom(1_000)) for _ in range(1_000)]
                for _ in range(mib // 8):
                    await asyncio.gather(*(producer.send_many(batch) for _ in range(8)))
            late = Member(folder / group / "late", record, group)
            held = mib // 8 * 8 * 1e6 / (1 << 20)
            try:
                await late.start()
                begun = time.perf_counter()
                await until_in_sync(record, group, 2)
                found["catch-up, MiB/s"].append(held / (time.perf_counter() - begun))
            finally:
                await late.end()
        found["the disk alone, MiB/s"].append(written_mib_per_s(folder / "plain", mib))
    for figure, values in found.items():
        say(figure, values)


def written_mib_per_s(path: Path, mib: int) -> float:
    """Writes a file as a replica does, a megabyte and a flush at a time; returns MiB/s."""
    part = os.urandom(1 << 20)
    with path.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, mib << 20)
        begun = time.perf_counter()
        for _ in range(mib):
            file.write(part)
            os.fdatasync(file.fileno())
        seconds = time.perf_counter() - begun
    path.unlink()
    return mib / seconds


async def failovers(folder: Path, record: str, count: int) -> None:
    """Ends the leader again and again, by kill -9 and in order in turns, and checks what was acknowledged."""
    acknowledged: list[bytes] = []
    times: list[float] = []
    silences: dict[signal.Signals, list[float]] = {signal.SIGKILL: [], signal.SIGTERM: []}
    news = asyncio.Event()
    async with brokers(folder / "failovers", 3, record, "failovers") as members:
        address = ",".join(one.address for one in members)
        async with Producer(address, settings=PATIENT) as producer:
            await producer.create_topic(TOPIC, QUEUES)
        ending = False

        async def send(number: int) -> None:
            async with Producer(address, settings=PATIENT) as producer:
                sent = 0
                while not ending:
                    body = b"%d %d" % (number, sent)
                    await producer.send(Message(topic=TOPIC, key=f"k{number}", body=body))
                    acknowledged.append(body)
                    times.append(time.perf_counter())
                    news.set()
                    sent += 1

        senders = [asyncio.create_task(send(number)) for number in range(4)]
        for turn in range(count):
            await until_in_sync(record, "failovers", 3)
            async with AdminClient(address, timeout_ms=60_000) as admin:
                leads = (await admin.describe()).broker
            leader = next(one for one in members if one.address == leads)
            news.clear()
            await news.wait()
            number = list(silences)[turn % len(silences)]
            before = len(times)
            await leader.end(number)
            ended = time.perf_counter()
            while times[-1] < ended:
                news.clear()
                await news.wait()
            window = times[before - 1 :]
            silences[number].append(max(b - a for a, b in pairwise(window)))
            await leader.start()
        ending = True
        await asyncio.gather(*senders)
        found = await bodies(address)
    for number, seconds in silences.items():
        say(f"longest silence after {number.name}, s", seconds, 3)
    lost, doubled = set(acknowledged) - set(found), len(found) - len(set(found))
    facts = {
        "failovers": count,
        "acknowledged": len(acknowledged),
        "lost": len(lost),
        "doubled": doubled,
    }
    print(json.dumps(facts))


async def bodies(address: str) -> list[bytes]:
    """Returns every message."""
    async with AdminClient(address, timeout_ms=60_000) as admin:
        count = sum(one.end for one in await admin.ranges([TOPIC]))
    found: list[bytes] = []
    async with PullConsumer(address, group="reader") as consumer:
        await consumer.assign([QueueRef(TOPIC, number) for number in range(QUEUES)])
        while len(found) < count:
            found += [one.body for one in await consumer.fetch(10_000, timeout_ms=5_000)]
    return found


def main() -> None:
    """Measures what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--failovers", type=int, default=20)
    parser.add_argument("--catch-up", type=int, default=0, metavar="MIB")
    parser.add_argument("--reads", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--record", default="", help="etcd://…, or a PostgreSQL of its own")
    asked = parser.parse_args()
    own = nullcontext(asked.record) if asked.record else embedded_postgres()
    with tempfile.TemporaryDirectory() as name, own as record:
        folder = Path(name)
        if asked.seconds:
            asyncio.run(costs(folder, record, asked.runs, asked.seconds))
        if asked.reads:
            asyncio.run(reads(folder, record, asked.runs, asked.reads))
        if asked.catch_up:
            asyncio.run(catch_up(folder, record, asked.runs, asked.catch_up))
        if asked.failovers:
            asyncio.run(failovers(folder, record, asked.failovers))


if __name__ == "__main__":
    main()
