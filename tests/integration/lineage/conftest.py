"""A small shop on real files: a broker, an event store, read models, and what may become of each."""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    Projection,
    applies,
)
from headrace.errors import AggregateNotFound
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.running_app import RunningApp
from headrace.settings import Settings
from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings

WAIT_MS = 60_000


class Stock(Command):
    product_id: AggregateId
    pieces: int


class Note(Command):
    """What the process manager and the process send; counts how often it has an effect."""

    note_id: AggregateId


class Stocked(DomainEvent):
    pieces: int


class Noted(DomainEvent):
    pass


class Product(Aggregate):
    def stock(self, pieces: int) -> None:
        self.record(Stocked(pieces=pieces))

    @applies
    def _stocked(self, event: Stocked) -> None:
        pass


class Notes(Aggregate):
    def note(self) -> None:
        self.record(Noted())

    @applies
    def _noted(self, event: Noted) -> None:
        pass


class Pieces(BaseModel):
    product_id: str
    pieces: int
    folded: int


class Count(BaseModel):
    note_id: str
    notes: int


class Memory(BaseModel):
    seen: int = 0


def make_shop(handled: list[str]) -> App:
    """An application with each kind of reader."""
    app = App("shop")
    pieces = Projection("pieces", row=Pieces, key="product_id")
    notes = Projection("notes", row=Count, key="note_id")
    manager = ProcessManager("noting")
    process = Process("remembering", state=Memory)

    @pieces.fold
    def stocked(row: Pieces | None, event: Stocked, context: EventContext) -> Pieces:
        before, folded = (row.pieces, row.folded) if row else (0, 0)
        return Pieces(
            product_id=context.aggregate_id, pieces=before + event.pieces, folded=folded + 1
        )

    @notes.fold
    def noted(row: Count | None, event: Noted, context: EventContext) -> Count:
        return Count(note_id=context.aggregate_id, notes=(row.notes if row else 0) + 1)

    @manager.on
    def note_it(event: Stocked, context: EventContext) -> Iterator[Any]:
        yield Note(note_id="manager")

    @process.on
    def remember(state: Memory | None, event: Stocked, context: EventContext) -> Iterator[Any]:
        yield Memory(seen=(state.seen if state else 0) + 1)
        yield Note(note_id="process")

    @app.handles
    async def stock(command: Stock, context: CommandContext) -> None:
        try:
            product = await context.get(Product, command.product_id)
        except AggregateNotFound:
            product = Product(command.product_id)
            context.add(product)
        product.stock(command.pieces)

    @app.handles
    async def note(command: Note, context: CommandContext) -> None:
        try:
            notes = await context.get(Notes, command.note_id)
        except AggregateNotFound:
            notes = Notes(command.note_id)
            context.add(notes)
        notes.note()

    @app.on_event
    async def tell(event: Stocked, context: EventContext) -> None:
        handled.append(context.event_id)

    app.add(Product, Notes, pieces, notes, manager, process)
    return app


class World:
    """A shop, and its parts on the disk."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.mq = folder / "mq"
        self.events = folder / "events.db"
        self.read = folder / "read.db"
        self.handled: list[str] = []
        self.stocked = 0
        self._port = port
        self._broker: Broker | None = None

    @property
    def app(self) -> App:
        """The application, for a look at its parts."""
        return make_shop([])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def settings(self, **changes: Any) -> Settings:
        parts = {
            "broker": self.address,
            "event_store": f"sqlite:///{self.events}",
            "read_models": f"sqlite:///{self.read}",
            "lineage_check_ms": 200,
        }
        return Settings(**{**parts, **changes})

    async def start_broker(self) -> None:
        store = StoreSettings(directory=self.mq, segment_bytes=1 << 20)
        self._broker = Broker(BrokerSettings(store=store, port=self._port))
        await self._broker.start()

    async def stop_broker(self) -> None:
        if self._broker is not None:
            await self._broker.aclose()
            self._broker = None

    @asynccontextmanager
    async def shop(self, **changes: Any) -> AsyncIterator[RunningApp]:
        """The application at work; whatever is on the disk must not be touched meanwhile."""
        app = make_shop(self.handled)
        async with app.run(self.settings(**changes)) as running:
            yield running

    async def stock(self, running: RunningApp, product: str, times: int = 1) -> None:
        """Stocks a piece so many times, and waits until everybody has seen it."""
        for _ in range(times):
            self.stocked += 1
            result = await running.bus.execute(
                Stock(product_id=product, pieces=1), wait_for="handled", timeout_ms=WAIT_MS
            )
            assert result.status == "executed", result

    async def rows(self, running: RunningApp) -> dict[str, tuple[int, int]]:
        """Pieces and folds of each product."""
        pieces = make_shop([]).projection("pieces")
        found = [row async for row in running.read(pieces).rows()]
        return {row.product_id: (row.pieces, row.folded) for row in found}

    async def truth(self, running: RunningApp) -> dict[str, tuple[int, int]]:
        """The same, from the event store."""
        found: dict[str, tuple[int, int]] = {}
        for stored in await running.store.read_all(limit=100_000):
            for event in stored.stream.events:
                if isinstance(event, Stocked):
                    pieces, folds = found.get(stored.stream.aggregate_id, (0, 0))
                    found[stored.stream.aggregate_id] = (pieces + event.pieces, folds + 1)
        return found

    def save(self, *parts: Path) -> Callable[[], None]:
        """Copies files or folders; returns what puts the copies in their place."""
        kept = self.folder / f"kept-{len(list(self.folder.glob('kept-*')))}"
        kept.mkdir()
        for part in parts:
            (shutil.copytree if part.is_dir() else shutil.copy)(part, kept / part.name)

        def restore() -> None:
            for part in parts:
                self.lose(part)
                (shutil.copytree if (kept / part.name).is_dir() else shutil.copy)(
                    kept / part.name, part
                )

        return restore

    @staticmethod
    def lose(part: Path) -> None:
        if part.is_dir():
            shutil.rmtree(part)
        for file in part.parent.glob(f"{part.name}*"):
            file.unlink()


@pytest.fixture
async def world(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[World]:
    """A shop whose broker runs."""
    world = World(tmp_path, free_port())
    await world.start_broker()
    yield world
    await world.stop_broker()
