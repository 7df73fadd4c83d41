"""Members that are killed as queues are divided anew, and members that share a queue by mistake."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import app as app_module
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade

ROOT = Path(__file__).parents[3]
KILLS = 2
READY_SECONDS_MAX = 120
TWIN = ".twin"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
async def settings(settings: Settings, postgres_database: str) -> Settings:
    """Both databases on a PostgreSQL server, which several processes may write to."""
    await upgrade(postgres_database)
    return settings.model_copy(
        update={"event_store": postgres_database, "read_models": postgres_database}
    )


class Member:
    """`headrace run` in a process of its own."""

    def __init__(self, app_path: str, settings: Settings, log: Path) -> None:
        self._arguments = (
            "run", app_path, "--broker", settings.broker or "",
            "--event-store", settings.event_store, "--read-models", settings.read_models,
        )  # fmt: skip
        self._log = log

    async def start(self) -> None:
        """Returns when it is ready: it has joined its groups, and the others make room for it."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headrace", *self._arguments,
                stdout=asyncio.subprocess.PIPE, stderr=log, cwd=ROOT,
                env=os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": ":".join(sys.path)},
            )  # fmt: skip
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), READY_SECONDS_MAX)
        assert b"ready" in line, self._log.read_text()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.communicate()


@pytest.fixture
async def start_member(
    settings: Settings, tmp_path: Path
) -> AsyncIterator[Callable[[Any], Awaitable[Member]]]:
    started: list[Member] = []

    async def start(world: Any) -> Member:
        path = f"samples.{world.app.name}:app"
        member = Member(path, settings, tmp_path / f"member-{len(started)}.log")
        started.append(member)
        await member.start()
        return member

    yield start
    for member in started:
        await member.kill()


async def test_members_killed_as_others_come_do_everything_once(
    world: Any, settings: Settings, start_member: Any, settled: Any, read_history: Any
) -> None:
    members = [await start_member(world)]
    async with world.app.client(settings) as bus:
        await world.begin(bus)
        for kill in range(KILLS):
            working = asyncio.create_task(world.go_on(bus, kill, KILLS))
            # The new one has just joined: the queues are being divided when the old one dies.
            members.append(await start_member(world))
            await members.pop(0).kill()
            await working
        await settled(world.app, settings)
    history = await read_history(world.app, settings)
    assert history.faults() == []
    assert history.happened == world.expected


class TwinTransport:
    """Joins groups of its own, so that its member has every queue that another one has too."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def subscribe(self, group: str, topics: Sequence[str], **offsets: Any) -> Any:
        return await self._inner.subscribe(f"{group}{TWIN}", topics, **offsets)


async def test_two_members_by_mistake_on_every_queue_do_everything_once(
    world: Any,
    settings: Settings,
    live: Any,
    settled: Any,
    read_history: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_transport: Callable[..., Any] = app_module.open_transport

    @asynccontextmanager
    async def open_twin(broker: str | None, **choices: Any) -> AsyncIterator[Any]:
        async with open_transport(broker, **choices) as inner:
            yield TwinTransport(inner)

    async with live(world.app, settings) as running:
        monkeypatch.setattr(app_module, "open_transport", open_twin)
        async with world.app.run(settings):
            await world.begin(running.bus)
            await world.go_on(running.bus)
            await settled(world.app, settings, ["", TWIN])
    history = await read_history(world.app, settings)
    assert history.faults() == []
    assert history.happened == world.expected
