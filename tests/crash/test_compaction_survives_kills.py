"""A broker that is killed while it compacts: whoever reads the topic finds the last of each key."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.metadata import METADATA
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ConsumerSettings
from headrace_mq.spark.offsets import QueueSlice
from headrace_mq.spark.reader import fetch_ranges, read_record_batches
from headrace_mq.store.check.inspection import check

READY_SECONDS_MAX = 60
TOPIC = "state"
KEYS = 60
OPTIONS = (
    "--compact-segment-size", "64KiB", "--compact-interval", "1ms", "--compact-lag", "0",
    "--tombstone-age", "50ms", "--compact-dirty", "1%", "--compact-rate", "2MiB",
)  # fmt: skip


class Child:
    """A broker in a process of its own, on one port over all its lives."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._port = port
        self._process: asyncio.subprocess.Process | None = None
        self.data = folder / "data"

    async def start(self) -> str:
        """Returns its address."""
        with (self._folder / "broker.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headrace", "broker", "--data", str(self.data),
                "--port", str(self._port), *OPTIONS,
                stdout=asyncio.subprocess.PIPE, stderr=log,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
            )  # fmt: skip
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), READY_SECONDS_MAX)
        assert b"ready" in line, (self._folder / "broker.log").read_text()
        return line.decode().split()[-1]

    async def end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await asyncio.wait_for(self._process.wait(), READY_SECONDS_MAX)


@pytest.fixture
async def child(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Child]:
    made = Child(tmp_path, free_port())
    yield made
    await made.end(signal.SIGKILL)


async def read(address: str) -> dict[str, bytes]:
    """The state as a reader comes to it that begins with the oldest message."""
    async with AdminClient(address) as admin:
        ranges = await admin.ranges([TOPIC])
    ends = {QueueRef(one.topic, one.queue_id): one.end for one in ranges}
    state: dict[str, bytes] = {}
    settings = ConsumerSettings(start="earliest")
    async with PullConsumer(address, settings=settings) as consumer:
        await consumer.assign(ends)
        while any(consumer.position(queue) < end for queue, end in ends.items()):
            for record in await consumer.fetch(timeout_ms=100):
                state[record.key] = record.body
    return {key: body for key, body in state.items() if body}


def read_by_spark(address: str) -> dict[str, bytes]:
    """The same by what a Spark executor runs; a gap in the offsets is no loss there."""
    state: dict[str, bytes] = {}
    for one in fetch_ranges(address, [TOPIC]):
        queue = QueueRef(one.topic, one.queue_id)
        wanted = QueueSlice(queue=queue, start=0, end=one.end)
        for batch in read_record_batches(address, wanted):
            state.update(zip(batch["key"].to_pylist(), batch["body"].to_pylist(), strict=True))
    return {key: body for key, body in state.items() if body}


async def write(address: str, chosen: random.Random, latest: dict[str, bytes]) -> None:
    """Sends some hundred messages and waits for the last of them."""
    async with Producer(address) as producer:
        for _ in range(chosen.randrange(10, 60)):
            messages = [
                Message(
                    topic=TOPIC,
                    key=f"key {chosen.randrange(KEYS)}",
                    body=b"" if chosen.random() < 0.2 else chosen.randbytes(400),
                )
                for _ in range(10)
            ]
            await producer.send_many(messages)
            latest.update((message.key, message.body) for message in messages)


async def compacted(address: str) -> None:
    """Returns when the broker has taken something out since its start."""
    async with AdminClient(address) as admin:
        while (found := (await admin.status()).compaction).freed_bytes <= 0:
            assert found.trouble == ""


async def test_a_reader_finds_the_last_message_of_each_key_after_every_kill(
    child: Child,
) -> None:
    chosen = random.Random(5)
    latest: dict[str, bytes] = {}
    address = await child.start()
    async with Producer(address) as producer:
        await producer.create_topic(TOPIC, 2, "compact")
    for _ in range(4):
        await write(address, chosen, latest)
        await child.end(signal.SIGKILL)
        address = await child.start()
        expected = {key: body for key, body in latest.items() if body}
        assert await read(address) == expected
    for _ in range(12):
        await write(address, chosen, latest)
    await compacted(address)
    expected = {key: body for key, body in latest.items() if body}
    assert await read(address) == expected
    assert await asyncio.to_thread(read_by_spark, address) == expected
    await child.end(signal.SIGTERM)
    assert check(child.data, metadata=METADATA).status == "clean"
