"""A failure in a user's function tells its line: in the log, and in what is parked, for every kind."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    ApplicationMessage,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    MessageContext,
    Process,
    ProcessManager,
    Projection,
    Settings,
    applies,
)
from headrace.app import RunningApp


class Sell(Command):
    product_id: AggregateId


class Sold(DomainEvent):
    pass


class Told(ApplicationMessage):
    text: str


class Row(BaseModel):
    product_id: str


class Product(Aggregate):
    @applies
    def _sold(self, event: Sold) -> None: ...


def the_line_at_fault() -> Any:
    prices: dict[str, int] = {}
    return prices["nope"]


def _command(app: App) -> None:
    @app.handles
    async def sell(command: Sell, context: CommandContext) -> None:
        the_line_at_fault()


def _sells(app: App) -> None:
    @app.handles
    async def sell(command: Sell, context: CommandContext) -> None:
        product = Product(command.product_id)
        product.record(Sold())
        context.add(product)
        context.publish(Told(text="sold"))


def _event(app: App) -> None:
    _sells(app)

    @app.on_event(processor="mail")
    async def tell(event: Sold, context: EventContext) -> None:
        the_line_at_fault()


def _message(app: App) -> None:
    _sells(app)

    @app.on_message
    async def told(message: Told, context: MessageContext) -> None:
        the_line_at_fault()


def _process_manager(app: App) -> None:
    _sells(app)
    manager = ProcessManager("packing")
    app.add(manager)

    @manager.on
    def pack(event: Sold, context: EventContext) -> Iterable[Command]:
        yield the_line_at_fault()


def _process(app: App) -> None:
    _sells(app)
    process = Process("sales", state=Row)
    app.add(process)

    @process.on
    def sold(state: Row | None, event: Sold, context: EventContext) -> Iterable[Any]:
        yield the_line_at_fault()


def _projection(app: App) -> None:
    _sells(app)
    rows = Projection("rows", row=Row, key="product_id")
    app.add(rows)

    @rows.fold
    def sold(row: Row | None, event: Sold, context: EventContext) -> Row:
        raise the_line_at_fault()


async def parked_traceback(running: RunningApp, define: Callable[[App], None]) -> str:
    """Returns what the one parked thing tells, once there is one; of a message its dead letter."""
    if define is _message:
        assert running.lineage is not None
        transport = running.lineage.transport
        await transport.ensure_topic("shop.messages.dead", queues=1, forever=True)
        subscription = await transport.subscribe("look", ["shop.messages.dead"])
        (letter,) = await subscription.poll()
        await subscription.aclose()
        return letter.headers["traceback"]
    while not (found := await running.parked.read()):
        await asyncio.sleep(0)
    return found[0].traceback


@pytest.mark.parametrize(
    "define", [_command, _event, _message, _process_manager, _process, _projection]
)
async def test_a_failure_tells_its_line_in_the_log_and_in_what_is_parked(
    define: Callable[[App], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("shop")
    app.add(Product, Told)
    define(app)
    settings = Settings(read_models=f"sqlite:///{tmp_path}/read.db", error_retries_max=0)
    async with app.run_local(settings) as running:
        result = await running.bus.execute(Sell(product_id="p"))
        assert result.ok is (define is not _command)
        async with asyncio.timeout(60):
            told = await parked_traceback(running, define)
            # It is logged after it was parked.
            while "the_line_at_fault" not in caplog.text:
                await asyncio.sleep(0)
    for text in (told, caplog.text):
        assert "in the_line_at_fault" in text
        assert 'return prices["nope"]' in text
        assert "KeyError: 'nope'" in text
