"""Commands with a topic of their own, handled in a process of their own, through a real broker."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.app import load_app
from headrace.settings import Settings
from headrace.transports.queue import QueueTransport
from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings

STOCK = """
from headrace import (
    Aggregate, AggregateId, App, Command, CommandContext, DomainError, DomainEvent, applies,
)


class Add(Command):
    article: AggregateId
    pieces: int


class Import(Command, topic="imports"):
    article: AggregateId
    pieces: int


class Take(Command):
    article: AggregateId
    pieces: int


class Moved(DomainEvent):
    pieces: int


class TooFew(DomainError):
    pass


class Stock(Aggregate):
    def initial_state(self) -> None:
        self.pieces = 0

    @applies
    def _moved(self, event: Moved) -> None:
        self.pieces += event.pieces


app = App("stock")
app.add(Stock)


@app.handles
async def add(command: Add, context: CommandContext) -> None:
    context.add(stock := Stock(command.article))
    stock.record(Moved(pieces=command.pieces))


@app.handles
async def load(command: Import, context: CommandContext) -> None:
    stock = await context.get(Stock, command.article)
    stock.record(Moved(pieces=command.pieces))


@app.handles
async def take(command: Take, context: CommandContext) -> None:
    stock = await context.get(Stock, command.article)
    if stock.pieces < command.pieces:
        raise TooFew(f"{stock.pieces} are left")
    stock.record(Moved(pieces=-command.pieces))
"""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker on a free port."""
    store = StoreSettings(directory=tmp_path / "mq", segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    yield broker
    await broker.aclose()


@asynccontextmanager
async def importing(app: str, settings: Settings, folder: Path) -> AsyncIterator[None]:
    """A service for imports alone; at the end it is asked to stop, and has."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headrace", "run", app, "--commands", "imports"),
        *("--broker", settings.broker or "", "--event-store", settings.event_store),
        *("--read-models", f"sqlite:///{folder}/read-2.db"),
        stdout=asyncio.subprocess.PIPE,
        cwd=folder,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"headrace run ready\n"
        yield
    finally:
        process.terminate()
        await process.communicate()


async def test_a_process_for_imports_shares_aggregates_with_one_for_everything_else(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"stock_{os.getpid()}"
    (tmp_path / f"{module}.py").write_text(STOCK)
    monkeypatch.syspath_prepend(str(tmp_path))
    app = load_app(f"{module}:app")
    add, load, take = sorted(app.command_types, key=lambda each: each.message_name)
    settings = Settings(
        broker=broker.address,
        event_store=f"sqlite:///{tmp_path}/events.db",
        read_models=f"sqlite:///{tmp_path}/read.db",
        command_topics=("main",),
    )
    async with app.run(settings) as here:
        imported = load(article="nails", pieces=5)
        assert (await here.bus.execute(add(article="nails", pieces=1))).version == 1
        waiting = asyncio.create_task(here.bus.execute(imported, command_id="import-1"))
        few = await here.bus.execute(take(article="nails", pieces=6))
        assert (few.error, waiting.done()) == ("TooFew", False)
        async with importing(f"{module}:app", settings, tmp_path):
            assert (await waiting).version == 2
            # The aggregate in this process's memory is the one before the import.
            assert (await here.bus.execute(take(article="nails", pieces=6))).version == 3
            again = await here.bus.execute(imported, command_id="import-1")
            assert again.version == 2
    assert await offsets(broker, "stock.commands.imports") == (2, 0)
    assert await offsets(broker, "stock.commands") == (3, 0)


async def offsets(broker: Broker, topic: str) -> tuple[int, int]:
    """How many commands the service is done with, and how many wait."""
    transport = QueueTransport(broker.address)
    await transport.start()
    try:
        committed = await transport.committed("stock.commands", topic)
        waiting = await transport.waiting(topic, committed)
        return sum(committed.values()), sum(each.count for each in waiting)
    finally:
        await transport.aclose()
