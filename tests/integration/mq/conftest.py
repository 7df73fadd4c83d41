"""Real processes: a broker that can be killed and started again, and consumers beside it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

BROKER = """
import json, sys
from pathlib import Path
from headrace_mq.broker.process import run
from headrace_mq.settings import BrokerSettings, StoreSettings

store = StoreSettings(directory=Path(sys.argv[1]), segment_bytes=8 << 20)
run(
    BrokerSettings(store=store, port=int(sys.argv[2]), **json.loads(sys.argv[3])),
    ready=lambda address: print("ready", address, flush=True),
)
"""

# Prints its assignment when it changes, and every record before it is acknowledged. Its last
# argument is settings.
CONSUMER = """
import asyncio, json, sys
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.settings import ConsumerSettings

def say(**what):
    print("said", json.dumps(what), flush=True)

async def watch(consumer):
    said = None
    while True:
        if consumer.assignment != said:
            said = consumer.assignment
            say(assigned=sorted(queue.queue_id for queue in said))
        await asyncio.sleep(0.01)

async def main(address, group, topic, changed):
    quick = {"heartbeat_ms": 100, "commit_interval_ms": 50}
    settings = ConsumerSettings(**(quick | json.loads(changed)))
    async with Consumer(address, group=group, topics=[topic], settings=settings) as consumer:
        watching = asyncio.create_task(watch(consumer))
        while True:
            for record in await consumer.poll():
                say(queue=record.queue.queue_id, offset=record.offset, key=record.key,
                    body=record.body.decode())
                consumer.ack(record)

asyncio.run(main(*sys.argv[1:]))
"""


class Child:
    """A Python process that says what it does, line by line."""

    def __init__(self, code: str, *arguments: str) -> None:
        self._command = [sys.executable, "-P", "-c", code, *arguments]
        self._lines: asyncio.Queue[str] = asyncio.Queue()

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            # It may import what this process can, such as the samples.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        # Read all the time: a full pipe would hold the process up.
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._lines.put_nowait(line.decode())
        self._lines.put_nowait("")

    async def heard(self, word: str) -> str:
        """The rest of the next line that begins with a word; log lines are passed over."""
        while line := await self._lines.get():
            if line.startswith(f"{word} "):
                return line.removeprefix(f"{word} ").strip()
        raise AssertionError(f"the process ended without saying {word!r}")

    def rest(self, word: str) -> list[str]:
        """What it said after that word before it ended, and nobody has heard yet."""
        lines = [self._lines.get_nowait() for _ in range(self._lines.qsize())]
        return [
            line.removeprefix(f"{word} ").strip() for line in lines if line.startswith(f"{word} ")
        ]

    def send(self, number: int) -> None:
        """Sends a signal to this process alone."""
        self._process.send_signal(number)

    @property
    def children(self) -> list[int]:
        """The processes that this one has started and that are still there."""
        threads = Path(f"/proc/{self._process.pid}/task").iterdir()
        return [int(pid) for one in threads for pid in (one / "children").read_text().split()]

    @property
    def processor_s(self) -> float:
        """The processor time that this process has taken so far, in seconds."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def ended(self) -> bool:
        """Whether its process is gone."""
        return self._process.returncode is not None

    async def tell(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def end(self, number: int = signal.SIGKILL) -> None:
        """Sends the signal to this process alone and waits until it is gone."""
        if self._process.returncode is None:
            self._process.send_signal(number)
        await self._process.wait()
        await self._listening


class BrokerProcess:
    """A broker in a process of its own; started again, it has the same folder and port."""

    def __init__(self, directory: Path, port: int, **settings: int) -> None:
        self._directory = directory
        self._port = str(port)
        self._settings = json.dumps(settings)
        self._child: Child | None = None
        self.address = ""

    async def start(self) -> None:
        self._child = Child(BROKER, str(self._directory), self._port, self._settings)
        await self._child.start()
        self.address = await self._child.heard("ready")

    @property
    def children(self) -> list[int]:
        """The processes that it has started and that are still there."""
        assert self._child is not None
        return self._child.children

    @property
    def processor_s(self) -> float:
        """The processor time that it has taken so far, in seconds."""
        assert self._child is not None
        return self._child.processor_s

    @property
    def ended(self) -> bool:
        """Whether its process is gone."""
        return self._child is not None and self._child.ended

    async def kill(self) -> None:
        """Ends it with SIGKILL, in the middle of whatever it does."""
        assert self._child is not None
        await self._child.end()

    async def stop(self) -> None:
        """Ends it with SIGTERM, so that it stops in order."""
        assert self._child is not None
        await self._child.end(signal.SIGTERM)


class ConsumerProcess(Child):
    """A member of a group in a process of its own that acknowledges what it says."""

    def __init__(self, address: str, group: str, topic: str, **settings: Any) -> None:
        super().__init__(CONSUMER, address, group, topic, json.dumps(settings))

    async def says(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(await self.heard("said"))
        return said


@pytest.fixture
async def broker(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data", free_port())
    await broker.start()
    yield broker
    await broker.kill()


@pytest.fixture
async def start_broker(
    tmp_path: Path, free_port: Callable[[], int]
) -> AsyncIterator[Callable[..., Awaitable[BrokerProcess]]]:
    """Starts brokers with settings of their own."""
    started: list[BrokerProcess] = []

    async def start(directory: Path | None = None, **settings: int) -> BrokerProcess:
        directory = directory or tmp_path / f"broker-{len(started)}"
        broker = BrokerProcess(directory, free_port(), **settings)
        await broker.start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        await broker.kill()


@pytest.fixture
async def start_child() -> AsyncIterator[Callable[..., Awaitable[Child]]]:
    """Starts a program that says what it does, given as text, with its arguments."""
    started: list[Child] = []

    async def start(code: str, *arguments: str) -> Child:
        child = Child(code, *arguments)
        await child.start()
        started.append(child)
        return child

    yield start
    for child in started:
        await child.end()


@pytest.fixture
async def start_consumer(
    broker: BrokerProcess,
) -> AsyncIterator[Callable[..., Awaitable[ConsumerProcess]]]:
    """Starts a consumer process for a group and a topic."""
    started: list[ConsumerProcess] = []

    async def start(group: str, topic: str, **settings: Any) -> ConsumerProcess:
        consumer = ConsumerProcess(broker.address, group, topic, **settings)
        await consumer.start()
        started.append(consumer)
        return consumer

    yield start
    for consumer in started:
        await consumer.end()
