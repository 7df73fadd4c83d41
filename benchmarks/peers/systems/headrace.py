"""Headrace's own broker, by its asyncio clients."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from benchmarks.mq.processes import broker
from benchmarks.peers.system import Serving
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message, Record
from headrace_mq.settings import ConsumerSettings

MODES = {
    "always": "acknowledged after fdatasync",
    "interval": "acknowledged from the page cache, flushed every 100 ms",
}
TOPIC = "bench"
# Records a consumer may hold: as many as a real projection that works in batches.
IN_FLIGHT_MAX = 50_000
# How long is waited for messages that may never come.
TAKE_SECONDS_MAX = 1


@asynccontextmanager
async def serve(folder: Path, mode: str, queues: int) -> AsyncIterator[Serving]:
    """A broker process with an empty topic."""
    async with broker(folder, mode) as (child, address):
        async with Producer(address) as producer:
            await producer.create_topic(TOPIC, queues)
        yield Serving(
            address=address,
            pids=(child.pid,),
            version=version("headrace"),
            settings=f"flush={mode}",
        )


class Driver:
    """A producer and, once asked for, a member of a group."""

    def __init__(self, address: str, queues: int) -> None:
        self._address = address
        self._queues = queues
        self._stack = AsyncExitStack()
        self._membership = AsyncExitStack()
        self._taken: list[Record] = []

    async def open(self) -> None:
        self._producer = await self._stack.enter_async_context(Producer(self._address))

    async def aclose(self) -> None:
        await self._membership.aclose()
        await self._stack.aclose()

    async def send_many(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        await self._producer.send_many(
            [
                Message(topic=TOPIC, body=body, key=key)
                for body, key in zip(bodies, keys, strict=True)
            ]
        )

    async def send(self, body: bytes, key: str) -> None:
        await self._producer.send(Message(topic=TOPIC, body=body, key=key))

    async def join(self) -> None:
        settings = ConsumerSettings(in_flight_max=IN_FLIGHT_MAX, in_flight_span_max=IN_FLIGHT_MAX)
        self._consumer = Consumer(self._address, group="bench", topics=[TOPIC], settings=settings)
        await self._membership.enter_async_context(self._consumer)

    async def leave(self) -> None:
        await self._membership.aclose()

    def held(self) -> int:
        return len(self._consumer.assignment)

    async def take(self) -> Sequence[bytes]:
        try:
            async with asyncio.timeout(TAKE_SECONDS_MAX):
                records = await self._consumer.poll()
        except TimeoutError:
            # All of it may have been taken before its sender knows that it was sent.
            return []
        self._taken += records
        return [record.body for record in records]

    async def done(self) -> None:
        self._consumer.ack_all(self._taken)
        self._taken.clear()
        await self._consumer.commit()
