"""A lock lasts as long as its process, wherever that is, and no longer."""

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from headrace.errors import RebuildRunning
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.rebuild_locks import RebuildLocks
from headrace.rebuild.shadow import Building
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade

# A process with a number of its own, as in a container: it is the first one there. Root needs no user
# namespace, in which it could not open a server's socket.
UNSHARED = ["unshare", "--pid", "--fork", "--kill-child=SIGKILL"]
AS_USER = [*UNSHARED, "--user", "--map-root-user"]
BEGINS = """
import asyncio, os, sys
from pydantic import BaseModel
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.shadow import Building

class Row(BaseModel):
    key: str

async def main():
    models = ReadModels(sys.argv[1])
    projection = Projection("rows", row=Row, key="key")
    await models.ensure(projection)
    await Building(models, projection).begin(take_over=False)
    print(os.getpid(), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class Row(BaseModel):
    key: str


@pytest.fixture
async def url(database_url: str) -> str:
    await upgrade(database_url)
    return database_url


@pytest.fixture(params=["this namespace", "another namespace"])
def rebuilding(request: pytest.FixtureRequest, url: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that has begun a rebuild of `rows`."""
    prefix = [] if request.param == "this namespace" else _unsharing()
    begins = [*prefix, sys.executable, "-c", BEGINS, url]
    with subprocess.Popen(begins, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            number = process.stdout.readline().strip()
            assert number == ("1" if prefix else str(process.pid))
            yield process
        finally:
            process.kill()


async def test_a_living_rebuild_is_refused_and_a_killed_one_replaced_at_once(
    rebuilding: "subprocess.Popen[str]", url: str
) -> None:
    models = ReadModels(url)
    building = Building(models, Projection("rows", row=Row, key="key"))
    with pytest.raises(RebuildRunning, match="has been rebuilding it since"):
        await building.begin(take_over=False)
    rebuilding.send_signal(signal.SIGKILL)
    dead = (await models.state("rows")).rebuild_owner
    assert dead is not None
    await _until_free(models.locks, dead)
    begun = await building.begin(take_over=False, adopt=True)
    assert begun.generation == 2
    assert (await models.state("rows")).rebuild_owner == begun.owner != dead
    await models.aclose()


async def test_a_lock_is_seen_by_others_until_it_is_released(url: str, tmp_path: Path) -> None:
    ours, others = RebuildLocks(create_engine(url)), RebuildLocks(create_engine(url))
    await ours.hold("a")
    await ours.hold("b")
    assert [await each.is_held("a") for each in (ours, others)] == [True, True]
    await ours.release("a")
    assert [await others.is_held(name) for name in ("a", "b", "c")] == [False, True, False]
    await ours.aclose()
    assert not await others.is_held("b")
    await ours.release("b")
    left = await asyncio.to_thread(lambda: list(tmp_path.glob("*.lock")))
    assert left == []


async def test_a_database_in_memory_has_no_other_process(tmp_path: Path) -> None:
    locks = RebuildLocks(create_engine("sqlite://"))
    assert not await locks.is_held("a")
    await locks.hold("a")
    assert await locks.is_held("a")
    await locks.aclose()
    assert not await locks.is_held("a")


async def test_a_session_that_the_server_has_ended_holds_nothing(postgres_database: str) -> None:
    ours, others = (RebuildLocks(create_engine(postgres_database)) for _ in range(2))
    await ours.hold("a")
    async with create_engine(postgres_database).connect() as connection:
        await connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
        )
    await _until_free(others, "a")
    await ours.release("a")
    await ours.aclose()


def _unsharing() -> list[str]:
    if shutil.which("unshare") is not None:
        for prefix in (UNSHARED, AS_USER):
            if not subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
                return prefix
    pytest.skip("this system makes no namespaces for this user")


async def _until_free(locks: RebuildLocks, owner: str) -> None:
    # The system gives a lock back when the process has ended, not when the signal was sent.
    for _ in range(10_000):
        if not await locks.is_held(owner):
            return
    raise AssertionError(f"{owner} still holds its lock")
