"""
What scheduled messages cost a broker: memory, the start, and how late they are under load.

    python -m benchmarks.schedule [DIRECTORY] [--pending 1000000] [--seconds 10]

Three lines of JSON. `pending`: messages scheduled in thousands, spread over a year; the rate, and the
growth of the broker's memory for each. `start`: of the same broker after a clean stop, after a kill,
and when it has lost `schedule.json`; and of one without messages, for comparison. `lateness`: with all
of these waiting, messages due at random within the next seconds, while a producer sends 100-byte
messages as fast as one task of it can; how long after its time each was appended to its queue (one sync
more, and it is durable), once without and once with that load. Beside them what the machine does at best in the same run.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from benchmarks.machine import facts, fdatasync_per_second, loopback_round_trips_per_second
from benchmarks.places import made_folder
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.producer.scheduled import When, envelope
from headrace_mq.message import Message
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC

BODY = b"x" * 100
YEAR_MS = 360 * 86_400_000
DUE = 2_000
_BROKER = """
import sys
from pathlib import Path
from headrace_mq.broker.process import run
from headrace_mq.settings import BrokerSettings, StoreSettings

store = StoreSettings(
    directory=Path(sys.argv[1]), segment_bytes=256 << 20, disk_refuse_percent=100
)
run(BrokerSettings(store=store, port=0), ready=lambda address: print(address, flush=True))
"""


class Broker:
    """A broker in a process of its own.

    Args:
        directory: its files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: asyncio.subprocess.Process
        self.address = ""

    async def start(self) -> float:
        """Starts it; returns the CPU seconds until it was ready."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _BROKER, str(self._directory),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert self._process.stdout is not None
        while True:
            line = (await self._process.stdout.readline()).decode().strip()
            # The log's lines have spaces.
            if line and " " not in line:
                self.address = line
                return self._cpu_seconds()

    async def end(self, number: signal.Signals) -> None:
        """Sends it a signal and waits until it is gone."""
        self._process.send_signal(number)
        await self._process.wait()

    def memory_bytes(self) -> int:
        """What it keeps in memory now."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def fill(broker: Broker, pending: int) -> dict[str, Any]:
    """Schedules messages for times within a year."""
    chosen, now_ms = random.Random(1), time.time_ns() // 1_000_000
    before = broker.memory_bytes()
    began = time.perf_counter()
    async with Producer(broker.address) as producer:
        await producer.create_topic(SCHEDULE_TOPIC, 1)
        await producer.create_topic("t", 1)
        for done in range(0, pending, 1_000):
            due_ms = [now_ms + 600_000 + chosen.randrange(YEAR_MS) for _ in range(1_000)]
            await producer.send_many(
                [
                    envelope(Message(topic="t", body=BODY, key=f"{done}"), When(at_ms, 0))
                    for at_ms in due_ms
                ]
            )
    seconds = time.perf_counter() - began
    return {
        "kind": "pending",
        "messages": pending,
        "per_second": round(pending / seconds),
        "broker_bytes_each": round((broker.memory_bytes() - before) / pending, 1),
        "broker_mib": broker.memory_bytes() >> 20,
    }


async def starts(broker: Broker, empty: Broker, directory: Path) -> dict[str, Any]:
    """Starts the filled broker in three ways; CPU seconds until it is ready."""
    nothing = await empty.start()
    await empty.end(signal.SIGTERM)
    await broker.end(signal.SIGTERM)
    file = directory / "metadata" / "schedule.json"
    kept_bytes = file.stat().st_size
    clean = await broker.start()
    mib = broker.memory_bytes() >> 20
    await broker.end(signal.SIGKILL)
    killed = await broker.start()
    await broker.end(signal.SIGKILL)
    file.unlink()
    journal = await broker.start()
    return {
        "kind": "start",
        "kept_bytes": kept_bytes,
        "cpu_s_without_messages": round(nothing, 2),
        "cpu_s_after_stop": round(clean, 2),
        "cpu_s_after_kill": round(killed, 2),
        "cpu_s_from_journal": round(journal, 2),
        "broker_mib_after_start": mib,
    }


async def lateness(broker: Broker, seconds: int, *, load: bool) -> dict[str, Any]:
    """Lets messages become due, beside a producer that never rests if `load`."""
    chosen, sent, topic = random.Random(2), 0, f"due-{load}"
    over = asyncio.Event()

    async def press(producer: Producer) -> None:
        nonlocal sent
        while not over.is_set():
            await producer.send_many([Message(topic="load", body=BODY)] * 100)
            sent += 100

    async with Producer(broker.address) as producer, Producer(broker.address) as other:
        await producer.create_topic(topic, 1)
        pressing = asyncio.create_task(press(other)) if load else None
        start_ms = time.time_ns() // 1_000_000 + 2_000
        for _ in range(0, DUE, 100):
            times = [start_ms + chosen.randrange(1_000 * seconds) for _ in range(100)]
            await producer.send_many(
                [envelope(Message(topic=topic, body=str(at).encode()), When(at, 0)) for at in times]
            )
        late = await _late_ms(broker.address, topic)
        over.set()
        if pressing is not None:
            await pressing
    return {
        "kind": "lateness",
        "load_per_second": round(sent / (seconds + 2)),
        "messages": len(late),
        "p50_ms": statistics.median(late),
        "p99_ms": late[len(late) * 99 // 100],
        "max_ms": late[-1],
    }


async def _late_ms(address: str, topic: str) -> list[int]:
    """How late each message of the topic was appended, the most punctual first."""
    late: list[int] = []
    async with Consumer(address, group="late", topics=[topic]) as consumer:
        while len(late) < DUE:
            for record in await consumer.poll():
                late.append(record.stored_at_ms - int(record.body))
                consumer.ack(record)
    return sorted(late)


async def measure(directory: Path, pending: int, seconds: int) -> None:
    """Prints the figures."""
    broker, empty = Broker(directory / "filled"), Broker(directory / "empty")
    await broker.start()
    try:
        print(json.dumps(await fill(broker, pending)), flush=True)
        print(json.dumps(await starts(broker, empty, directory / "filled")), flush=True)
        for load in (False, True):
            machine = {
                "fdatasync_per_second": round(fdatasync_per_second(directory)),
                "loopback_per_second": round(loopback_round_trips_per_second()),
            }
            found = await lateness(broker, seconds, load=load)
            print(json.dumps(found | machine | facts()), flush=True)
    finally:
        await broker.end(signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().partition("\n")[0])
    parser.add_argument(
        "directory", nargs="?", type=made_folder, help="where the files go; default: /tmp"
    )
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=10)
    given = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    directory = Path(tempfile.mkdtemp(prefix="schedule-", dir=given.directory))
    try:
        asyncio.run(measure(directory, given.pending, given.seconds))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
