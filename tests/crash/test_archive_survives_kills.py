"""A broker that is killed while it archives: every acknowledged message once, and in order."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from headrace.stores.database.schema import ARCHIVE, upgrade
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import Message
from headrace_mq.settings import ConsumerSettings, ProducerSettings
from headrace_mq.testing.arrivals import take

TOPIC = "orders"
LIVES, BATCHES = 3, 12
WAIT_S_MAX = 90


class BrokerProcess:
    """`headrace broker` with an archive, small segments, and no window."""

    def __init__(self, folder: Path, url: str) -> None:
        self._command = [
            sys.executable, "-m", "headrace", "broker", "--data", str(folder), "--port", "0",
            "--archive", url, "--archive-window", "0", "--segment-size", "64KiB",
            "--retention-interval", "10ms",
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Returns its address."""
        process = self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | {"PYTHONSAFEPATH": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("headrace broker ready on "):
                return line.split()[-1]
        raise AssertionError(f"the broker ended with {process.wait()}")

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def broker(tmp_path: Path, postgres_database: str) -> Iterator[BrokerProcess]:
    asyncio.run(upgrade(postgres_database, tree=ARCHIVE))
    process = BrokerProcess(tmp_path / "broker", postgres_database)
    yield process
    process.kill()


async def live(broker: BrokerProcess, first: int, acknowledged: list[int]) -> int:
    """Sends until the broker is killed in the midst of it; returns the next number."""
    address = await asyncio.to_thread(broker.start)
    number = first
    settings = ProducerSettings(send_timeout_ms=WAIT_S_MAX * 1_000)
    producer = Producer(address, settings=settings)
    await producer.start()
    try:
        await producer.create_topic(TOPIC, queues=1)
        for _ in range(BATCHES):
            numbers = range(number, number + 40)
            number = numbers.stop
            messages = [Message(topic=TOPIC, body=b"%d %s" % (n, b"x" * 300)) for n in numbers]
            await producer.send_many(messages)
            acknowledged += numbers
        more = asyncio.create_task(
            producer.send_many(
                [Message(topic=TOPIC, body=b"%d " % n) for n in range(number, number + 40)]
            )
        )
        number += 40
        # Let it leave; whether it arrives is nobody's promise.
        await asyncio.sleep(0)
        await asyncio.to_thread(broker.kill)
        more.cancel()
        await asyncio.gather(more, return_exceptions=True)
    finally:
        broker.kill()
        # What it holds has nowhere to go.
        with suppress(TimeoutError, MessageQueueError):
            await asyncio.wait_for(producer.aclose(), 1)
    return number


async def rows(url: str) -> list[tuple[int, bytes]]:
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(
            "SELECT queue_offset, body FROM archived_messages WHERE topic = $1"
            " ORDER BY queue_offset", TOPIC,
        )  # fmt: skip
    finally:
        await connection.close()
    return [(row[0], row[1]) for row in found]


async def test_acknowledged_messages_are_archived_once_and_in_order_however_often_it_is_killed(
    broker: BrokerProcess, postgres_database: str
) -> None:
    acknowledged: list[int] = []
    number = 0
    for _ in range(LIVES):
        number = await live(broker, number, acknowledged)
    address = await asyncio.to_thread(broker.start)
    async with AdminClient(address) as admin:
        async with asyncio.timeout(WAIT_S_MAX):
            while (await admin.status()).archive[0].waiting_bytes:
                await asyncio.sleep(0)
        (held,) = await admin.ranges([TOPIC])
    settings = ConsumerSettings(in_flight_max=100_000, in_flight_span_max=100_000)
    async with Consumer(address, group="g", topics=[TOPIC], settings=settings) as consumer:
        read = await take(consumer, held.end, timeout_ms=WAIT_S_MAX * 1_000)
    archived = await rows(postgres_database)
    assert archived == [(record.offset, record.body) for record in read]
    assert [offset for offset, _ in archived] == list(range(held.end))
    numbers = [int(body.split()[0]) for _, body in archived]
    assert numbers == sorted(set(numbers))
    assert set(acknowledged) <= set(numbers)
    assert len(acknowledged) == LIVES * BATCHES * 40
