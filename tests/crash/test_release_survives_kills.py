"""kill -9 of a broker while released segments go: each start holds what was not released, and no less."""

import asyncio
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice
from headrace_mq.spark.reader import read_record_batches

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

KILLS = 5
MESSAGES = 60

# Dies at a call of some function of the store or of its files, counted from the request on.
BROKER = """
import os, signal, sys
from pathlib import Path
import structlog
from headrace_mq.broker.handlers import releases
from headrace_mq.broker.process import run
from headrace_mq.settings import BrokerSettings, StoreSettings
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
left = int(sys.argv[2])
release = releases._release
def count(frame, event, argument):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def counted(*arguments):
    sys.setprofile(count if left else None)
    try:
        return release(*arguments)
    finally:
        sys.setprofile(None)
releases._release = counted
store = StoreSettings(directory=Path(sys.argv[1]), segment_bytes=64 << 10)
settings = BrokerSettings(store=store, port=0, offsets_flush_ms=50)
run(settings, ready=lambda address: print(address, flush=True))
"""


class Started:
    """A broker in a process of its own, that dies so many calls into a release."""

    def __init__(self, folder: Path, calls: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", BROKER, str(folder), str(calls)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def wait(self) -> None:
        self._process.wait(60)

    def end(self) -> bool:
        """Stops it; returns whether it had been killed."""
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=120)
        return self._process.returncode == -signal.SIGKILL


async def release(broker: Started, before: dict[int, int]) -> None:
    """Releases messages; gives up when the broker is dead, because a client would wait for the next one."""

    async def ask() -> None:
        async with AdminClient(broker.address) as admin:
            await admin.release("t", before)

    asked = asyncio.create_task(ask())
    dead = asyncio.create_task(asyncio.to_thread(broker.wait))
    await asyncio.wait({asked, dead}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    # Asked or not: the broker is stopped next, which ends the other one.
    with suppress(asyncio.CancelledError, MessageQueueError):
        await asked


async def ranges(address: str) -> list[QueueRange]:
    async with AdminClient(address) as admin:
        return await admin.ranges(["t"])


def held(address: str, one: QueueRange) -> list[int]:
    piece = QueueSlice(queue=QueueRef("t", one.queue_id), start=one.first, end=one.end)
    batches = read_record_batches(address, piece)
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


async def test_messages_that_were_not_released_are_held_after_each_kill(tmp_path: Path) -> None:
    chance, killed = random.Random(3), 0
    broker = await asyncio.to_thread(Started, tmp_path, 0)
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", queues=2, retention="forever")
        for number in range(MESSAGES):
            body = chance.randbytes(12 << 10)
            await producer.send(Message(topic="t", key=str(number), body=body))
    ends = {one.queue_id: one.end for one in await ranges(broker.address)}
    assert sum(ends.values()) == MESSAGES
    assert await asyncio.to_thread(broker.end) is False
    firsts = dict.fromkeys(ends, 0)
    asked = firsts
    for step in range(1, KILLS + 2):
        broker = await asyncio.to_thread(Started, tmp_path, chance.randrange(20, 1_500))
        for one in await ranges(broker.address):
            assert firsts[one.queue_id] <= one.first <= asked[one.queue_id]
            assert one.end == ends[one.queue_id]
            found = await asyncio.to_thread(held, broker.address, one)
            assert found == list(range(one.first, one.end))
            firsts = {**firsts, one.queue_id: one.first}
        asked = {number: end * step // (KILLS + 1) for number, end in ends.items()}
        if step <= KILLS:
            await release(broker, asked)
        killed += await asyncio.to_thread(broker.end)
    assert killed >= KILLS // 2
    assert min(firsts.values()) > 0
