"""A table of PostgreSQL as a queue, by asyncpg: COPY in, FOR UPDATE SKIP LOCKED out."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import make_url

from benchmarks.peers.system import Serving, queue_of
from benchmarks.projections.postgres import server

MODES = {
    "always": "acknowledged after the log was flushed (synchronous_commit on)",
    "off": "acknowledged from memory (synchronous_commit off)",
}
# Messages taken at once.
COUNT = 1_000
# Connections of one client process: tasks of `send` share them.
CONNECTIONS = 16
# Between two looks at a table that was empty.
PAUSE_S = 0.001
TABLE = "CREATE TABLE messages (id bigserial PRIMARY KEY, queue int NOT NULL, key text, body bytea)"
TAKE = (
    "DELETE FROM messages WHERE id IN (SELECT id FROM messages ORDER BY id LIMIT $1"
    " FOR UPDATE SKIP LOCKED) RETURNING body"
)
COLUMNS = ["queue", "key", "body"]


@asynccontextmanager
async def serve(folder: Path, mode: str, queues: int) -> AsyncIterator[Serving]:
    """A server with an empty table; a queue is a column's value."""
    with server(None) as (url, pid):
        host = str(make_url(url).query["host"])
        connection = await asyncpg.connect(host=host, user="postgres", database="postgres")
        wanted = "on" if mode == "always" else "off"
        await connection.execute(f"ALTER SYSTEM SET synchronous_commit = {wanted}")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.execute(TABLE)
        version = str(await connection.fetchval("SHOW server_version"))
        await connection.close()
        yield Serving(
            address=host,
            pids=() if pid is None else (pid,),
            version=version,
            settings=f"synchronous_commit {wanted}, a look every ms while empty",
        )


class Driver:
    """COPY for many messages, INSERT for one; messages are deleted as they are taken."""

    def __init__(self, address: str, queues: int) -> None:
        self._host = address
        self._queues = queues
        self._stack = AsyncExitStack()
        self._transaction: Any = None

    async def open(self) -> None:
        self._pool = await self._stack.enter_async_context(
            asyncpg.create_pool(
                host=self._host, user="postgres", database="postgres",
                min_size=1, max_size=CONNECTIONS,
            )
        )  # fmt: skip

    async def aclose(self) -> None:
        await self._stack.aclose()

    async def send_many(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        rows = [
            (queue_of(key, self._queues), key, body) for body, key in zip(bodies, keys, strict=True)
        ]
        async with self._pool.acquire() as connection:
            await connection.copy_records_to_table("messages", records=rows, columns=COLUMNS)

    async def send(self, body: bytes, key: str) -> None:
        async with self._pool.acquire() as connection:
            await connection.execute(
                "INSERT INTO messages (queue, key, body) VALUES ($1, $2, $3)",
                queue_of(key, self._queues), key, body,
            )  # fmt: skip

    async def join(self) -> None:
        self._connection = await self._pool.acquire()

    async def leave(self) -> None:
        await self._pool.release(self._connection)

    async def take(self) -> Sequence[bytes]:
        self._transaction = self._connection.transaction()
        await self._transaction.start()
        rows = await self._connection.fetch(TAKE, COUNT)
        if not rows:
            await asyncio.sleep(PAUSE_S)
        return [row[0] for row in rows]

    async def done(self) -> None:
        if self._transaction is not None:
            await self._transaction.commit()
            self._transaction = None
