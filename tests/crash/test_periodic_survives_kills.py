"""kill -9 of services and their broker while missed periodic commands are made up for: each comes once."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import Settings
from headrace._runtime.ids import derived_id
from headrace.stores.base import EventStore
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from tests.crash.conftest import Child
from tests.crash.ticking_app import CLOCKS, Tick, app, make_app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

KILLS = 6
MISSED = 800
SERVICES = 2


class Deployment:
    """A broker and two services on one PostgreSQL; each may be killed and started again."""

    def __init__(self, folder: Path, port: int, database: str) -> None:
        self.settings = Settings(
            broker=f"127.0.0.1:{port}", event_store=database, read_models=database
        )
        self.broker = Child(
            "broker", "--data", str(folder / "mq"), "--port", str(port), log=folder / "broker.log"
        )
        self.services = [
            Child(
                "run", "tests.crash.ticking_app:app", "--broker", f"127.0.0.1:{port}",
                "--event-store", database, "--read-models", database,
                log=folder / f"service-{number}.log",
            )
            for number in range(SERVICES)
        ]  # fmt: skip

    async def stop(self) -> None:
        for child in (*self.services, self.broker):
            await child.end(signal.SIGKILL)


@pytest.fixture
async def deployment(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str, store: EventStore
) -> AsyncIterator[Deployment]:
    assert store, "its tables are there"
    running = Deployment(tmp_path, free_port(), postgres_database)
    try:
        await running.broker.start()
        yield running
    finally:
        await running.stop()


@pytest.fixture
async def store(postgres_database: str) -> AsyncIterator[EventStore]:
    await upgrade(postgres_database)
    store = await open_event_store(postgres_database, app.serializer)
    yield store
    await store.aclose()


async def handle_first(settings: Settings, moment: datetime) -> None:
    """Handles an occurrence of the past: all after it were missed."""
    only_handles = make_app(periodic=False)
    first = Tick(clock_id=f"clock-{moment.minute % CLOCKS}", moment=moment)
    command_id = derived_id("ticking", "periodic", "every_minute", moment.isoformat())
    async with only_handles.run(settings), only_handles.client(settings) as bus:
        assert (await bus.execute(first, command_id=command_id)).status == "executed"


async def moments(store: EventStore) -> list[datetime]:
    return [
        event.moment
        for one in await store.read_all(limit=100_000)
        for event in one.stream.events
        if isinstance(event.moment, datetime)
    ]


async def at_least(store: EventStore, count: int) -> None:
    async with asyncio.timeout(120):
        while await store.last_position() < count:
            await asyncio.sleep(0)


async def test_each_missed_occurrence_is_handled_once(
    deployment: Deployment, store: EventStore
) -> None:
    chance = random.Random(11)
    first = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=MISSED)
    await handle_first(deployment.settings, first)
    await asyncio.gather(*[each.start() for each in deployment.services])
    kills = sorted(chance.randrange(20, MISSED - 20) for _ in range(KILLS))
    for number, count in enumerate(kills):
        await at_least(store, count)
        # Of three kills one is the broker's.
        child = deployment.broker if number % 3 == 2 else deployment.services[number % 2]
        await child.end(signal.SIGKILL)
        await child.start()
    await at_least(store, MISSED + 1)
    found = Counter(await moments(store))
    assert [moment for moment, times in found.items() if times > 1] == []
    last = max(found)
    expected = {
        first + timedelta(minutes=n) for n in range((last - first) // timedelta(minutes=1) + 1)
    }
    assert expected - found.keys() == set()
    assert len(expected) > MISSED
