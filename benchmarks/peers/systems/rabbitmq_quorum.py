"""RabbitMQ's quorum queues by aio-pika: publisher confirms, acknowledgements of many at once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from aiormq import spec
from aiormq.abc import ChannelFrame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from benchmarks.peers.daemon import INSTALLED, daemon, free_port, program
from benchmarks.peers.system import Serving, queue_of

MODES = {"always": "confirmed after the log was flushed (quorum queues of one node)"}
HOME = "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8"
# Messages a consumer may hold without having acknowledged them.
PREFETCH = 2_000


@asynccontextmanager
async def serve(folder: Path, mode: str, queues: int) -> AsyncIterator[Serving]:
    """A node, with the port mapper that Erlang wants, and empty quorum queues."""
    port, mapper, distribution = free_port(), free_port(), free_port()
    where = {
        "HOME": str(folder),
        "PATH": f"{INSTALLED}/usr/lib/erlang/bin:/usr/bin:/bin",
        "ERL_ROOTDIR": f"{INSTALLED}/usr/lib/erlang",
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_HOME": str(INSTALLED / HOME),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    epmd = [program("usr/bin/epmd"), "-address", "127.0.0.1", "-port", str(mapper)]
    node = [program(f"{HOME}/sbin/rabbitmq-server")]
    async with (
        daemon(epmd, folder=folder / "epmd", port=mapper),
        daemon(node, folder=folder, port=port, environment=where) as pid,
    ):
        async with await _connect(port) as connection:
            channel = await connection.channel()
            for number in range(queues):
                await channel.declare_queue(
                    f"bench-{number}", durable=True, arguments={"x-queue-type": "quorum"}
                )
        yield Serving(
            address=str(port), pids=(pid,), version="3.10.8", settings="quorum queues, one node"
        )


async def _connect(port: int) -> aio_pika.abc.AbstractConnection:
    return await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")


def _publication(queue: str, body: bytes, channel: int) -> bytes:
    """The frames that publish a durable message."""
    frames = [
        spec.Basic.Publish(exchange="", routing_key=queue),
        ContentHeader(properties=spec.Basic.Properties(delivery_mode=2), body_size=len(body)),
        ContentBody(body),
    ]
    return ChannelFrame.marshall(channel, frames).payload


class Driver:
    """Publications that wait for their confirmations together; consumers with a prefetch."""

    def __init__(self, address: str, queues: int) -> None:
        self._port = int(address)
        self._queues = queues
        self._stack = AsyncExitStack()
        self._membership = AsyncExitStack()
        self._arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self._last: dict[str, AbstractIncomingMessage] = {}

    async def open(self) -> None:
        connection = await self._stack.enter_async_context(await _connect(self._port))
        self._connection = connection
        self._channel = await connection.channel(publisher_confirms=True)
        self._unconfirmed = await connection.channel(publisher_confirms=False)

    async def aclose(self) -> None:
        await self._stack.aclose()

    async def send_many(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        await asyncio.gather(*map(self.send, bodies, keys))

    async def send(self, body: bytes, key: str) -> None:
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(
            message, f"bench-{queue_of(key, self._queues)}"
        )

    async def pour(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        # Marshalling a message of its own for each would cost more than the server's part.
        channel = await self._unconfirmed.get_underlay_channel()
        made: dict[tuple[int, bytes], bytes] = {}
        parts = []
        for body, key in zip(bodies, keys, strict=True):
            queue = queue_of(key, self._queues)
            if (queue, body) not in made:
                made[queue, body] = _publication(f"bench-{queue}", body, channel.number)
            parts.append(made[queue, body])
        drained = asyncio.get_running_loop().create_future()
        await channel.write_queue.put(
            ChannelFrame(payload=b"".join(parts), should_close=False, drain_future=drained)
        )
        await drained

    async def waiting(self) -> int:
        count = 0
        for number in range(self._queues):
            queue = await self._unconfirmed.declare_queue(f"bench-{number}", passive=True)
            count += queue.declaration_result.message_count or 0
        return count

    async def join(self) -> None:
        # A channel for each queue: "acknowledge all up to this one" counts by channel.
        for number in range(self._queues):
            channel = await self._membership.enter_async_context(await self._connection.channel())
            await channel.set_qos(prefetch_count=PREFETCH)
            queue = await channel.get_queue(f"bench-{number}")
            await queue.consume(self._arrived.put)

    async def leave(self) -> None:
        await self._membership.aclose()
        # What was sent ahead and not acknowledged comes again.
        self._arrived = asyncio.Queue()
        self._last.clear()

    async def take(self) -> Sequence[bytes]:
        messages = [await self._arrived.get()]
        while not self._arrived.empty():
            messages.append(self._arrived.get_nowait())
        for message in messages:
            self._last[message.routing_key or ""] = message
        return [message.body for message in messages]

    async def done(self) -> None:
        for message in self._last.values():
            await message.ack(multiple=True)
        self._last.clear()
