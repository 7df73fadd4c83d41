"""Redis Streams by redis-py: a stream for each queue, one consumer group."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import redis.asyncio

from benchmarks.peers.daemon import daemon, free_port, program
from benchmarks.peers.system import Serving, queue_of

MODES = {
    "always": "acknowledged after the append-only file was flushed (appendfsync always)",
    "everysec": "acknowledged from memory, flushed every second (appendfsync everysec)",
}
GROUP = "bench"
# Messages asked for at once.
COUNT = 1_000


@asynccontextmanager
async def serve(folder: Path, mode: str, queues: int) -> AsyncIterator[Serving]:
    """A server with an append-only file and empty streams."""
    port = free_port()
    arguments = [
        program("usr/bin/redis-server"), "--bind", "127.0.0.1", "--port", str(port),
        "--dir", folder, "--save", "", "--appendonly", "yes", "--appendfsync", mode,
    ]  # fmt: skip
    async with daemon(arguments, folder=folder, port=port) as pid:
        client = redis.asyncio.Redis(host="127.0.0.1", port=port)
        for number in range(queues):
            await client.xgroup_create(f"bench-{number}", GROUP, id="0", mkstream=True)
        version = (await client.info("server"))["redis_version"]
        await client.aclose()
        yield Serving(
            address=str(port),
            pids=(pid,),
            version=version,
            settings=f"appendonly yes, appendfsync {mode}, no snapshots",
        )


class Driver:
    """Pipelines of XADD; XREADGROUP and XACK."""

    def __init__(self, address: str, queues: int) -> None:
        self._port = int(address)
        self._queues = queues
        self._streams = [f"bench-{number}" for number in range(queues)]
        self._taken: dict[bytes, list[bytes]] = {}
        self._member = uuid4().hex

    async def open(self) -> None:
        self._client = redis.asyncio.Redis(host="127.0.0.1", port=self._port, max_connections=2_000)
        await self._client.ping()

    async def aclose(self) -> None:
        await self._client.aclose()

    async def send_many(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for body, key in zip(bodies, keys, strict=True):
                pipeline.xadd(self._stream(key), {"k": key, "b": body})
            await pipeline.execute()

    async def send(self, body: bytes, key: str) -> None:
        await self._client.xadd(self._stream(key), {"k": key, "b": body})

    async def join(self) -> None:
        """Nothing: whoever asks is a member."""

    async def leave(self) -> None:
        """Nothing."""

    async def take(self) -> Sequence[bytes]:
        asked = dict.fromkeys(self._streams, ">")
        found = await self._client.xreadgroup(GROUP, self._member, asked, count=COUNT, block=5_000)
        bodies = []
        for stream, messages in found or ():
            self._taken.setdefault(stream, []).extend(name for name, _ in messages)
            bodies += [fields[b"b"] for _, fields in messages]
        return bodies

    async def done(self) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for stream, names in self._taken.items():
                pipeline.xack(stream, GROUP, *names)
            await pipeline.execute()
        self._taken.clear()

    def _stream(self, key: str) -> str:
        return self._streams[queue_of(key, self._queues)]
