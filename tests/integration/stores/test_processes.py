"""Several processes on one database, and what is left of one that is killed."""

import asyncio
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from headrace.testing.conformance.streams import conformance_serializer

PROGRAM = Path(__file__).parent / "appending.py"
GROUP = 20

Start = Callable[[str, str], Awaitable[Process]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts the appending program; what is left of it ends with the test."""
    processes: list[Process] = []

    async def begin(url: str, name: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), url, name, stdout=PIPE
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'events.db'}"
    url: str = request.getfixturevalue("postgres_database")
    return url


async def _with_schema(database: str) -> None:
    """Leaves a new SQLite file to those who open it."""
    if database.startswith("postgresql"):
        await upgrade(database)


async def _acknowledged(process: Process, name: str, count: int) -> list[int]:
    """Reads until a number of groups is acknowledged; skips what a log may say."""
    assert process.stdout is not None
    found: list[int] = []
    while len(found) < count:
        line = (await process.stdout.readline()).decode()
        assert line, "the program ended"
        if line.startswith(f"{name} "):
            found.append(int(line.split()[1]))
    return found


async def _kill(process: Process, name: str) -> list[int]:
    """Kills the process and returns what it had acknowledged before that was not read yet."""
    process.send_signal(signal.SIGKILL)
    rest, _ = await process.communicate()
    assert process.returncode == -signal.SIGKILL
    lines = [line for line in rest.decode().splitlines(keepends=True) if line.endswith("\n")]
    return [int(line.split()[1]) for line in lines if line.startswith(f"{name} ")]


@pytest.mark.slow
async def test_acknowledged_streams_are_whole_after_a_kill(database: str, start: Start) -> None:
    await _with_schema(database)
    for life in range(5):
        name = f"life{life}"
        process = await start(database, name)
        acknowledged = await _acknowledged(process, name, 3 + 2 * life)
        acknowledged += await _kill(process, name)
        store = await open_event_store(database, conformance_serializer())
        stored = {
            found.stream.aggregate_id
            for found in await store.read_all(limit=1_000_000)
            if found.stream.aggregate_id.startswith(f"{name}-")
        }
        await store.aclose()
        expected = {f"{name}-{n}-{place}" for n in acknowledged for place in range(GROUP)}
        assert expected <= stored
        # Besides these, at most the one group that was under way; it is there whole or not at all.
        assert len(stored - expected) in {0, GROUP}


@pytest.mark.slow
async def test_an_sqlite_file_is_sound_after_a_kill(tmp_path: Path, start: Start) -> None:
    file = tmp_path / "events.db"
    process = await start(f"sqlite:///{file}", "p")
    await _acknowledged(process, "p", 5)
    await _kill(process, "p")
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.mark.slow
async def test_processes_share_a_database_and_a_new_sqlite_file(
    database: str, start: Start
) -> None:
    await _with_schema(database)
    names = ["p", "q", "r"]
    processes = [await start(database, name) for name in names]
    await asyncio.gather(
        *[_acknowledged(process, name, 15) for process, name in zip(processes, names, strict=True)]
    )
    for process, name in zip(processes, names, strict=True):
        await _kill(process, name)
    store = await open_event_store(database, conformance_serializer())
    shared = await store.read_stream("shared")
    everything = await store.read_all(limit=1_000_000)
    await store.aclose()
    assert [each.version for each in shared] == list(range(1, len(shared) + 1))
    assert len(shared) >= 15
    positions = [found.position for found in everything]
    assert positions == sorted(set(positions))
