"""What an application has parked, of every kind, read and taken up in a program."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    ProcessManager,
    Settings,
    applies,
)
from headrace.errors import HeadraceError, LetterNotFound, ProjectionNotFound
from headrace.parked import KINDS, ParkedEntry, processor_of


class Sell(Command):
    product_id: AggregateId


class Sold(DomainEvent):
    pass


class Product(Aggregate):
    @applies
    def _sold(self, event: Sold) -> None: ...


def shop(broken: set[str]) -> App:
    """An application whose command, event handler and process manager fail for what is broken."""
    app = App("shop")
    packing = ProcessManager("packing")
    app.add(Product, packing)

    @app.handles
    async def sell(command: Sell, context: CommandContext) -> None:
        if "command" in broken:
            raise ValueError("cannot be sold")
        product = Product(command.product_id)
        product.record(Sold())
        context.add(product)

    @app.on_event(processor="mail")
    async def tell(event: Sold, context: EventContext) -> None:
        if "event" in broken:
            raise ValueError("no mail")

    @packing.on
    def pack(event: Sold, context: EventContext) -> Iterable[Command]:
        if "event" in broken:
            raise ValueError("no box")
        return []

    return app


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=f"sqlite:///{tmp_path / 'read.db'}",
        error_retries_max=0,
    )


async def test_commands_and_events_are_read_by_processor_and_taken_up(settings: Settings) -> None:
    broken = {"command", "event"}
    app = shop(broken)
    async with app.run_local(settings) as running, asyncio.timeout(30):
        assert (await running.bus.execute(Sell(product_id="ink"))).error == "ValueError"
        broken.discard("command")
        await running.bus.execute(Sell(product_id="pen"))
        while len(found := await running.parked.read()) < 3:
            await asyncio.sleep(0)
        by_processor = {each.processor: each for each in found}
        assert set(by_processor) == {"commands", "handlers:mail", "process:packing"}
        command = by_processor["commands"]
        assert (command.error, command.state, command.name) == ("ValueError", "parked", "Sell")
        assert (await running.parked.read(command_id=command.command_id)) == [command]
        assert await running.parked.read(aggregate_id="ink") == [command]
        assert await running.parked.retry(command) is None

        left = await running.parked.retry(by_processor["process:packing"])
        assert left is not None
        assert (left.attempts, left.version, left.aggregate_id) == (2, 0, "pen")
        broken.clear()
        for processor in ("handlers:mail", "process:packing"):
            for entry in await running.parked.read(processor=processor):
                assert await running.parked.retry(entry) is None
        assert await running.parked.read() == []
        with pytest.raises(LetterNotFound):
            await running.parked.skip(by_processor["handlers:mail"])


async def test_without_a_broker_that_which_needs_one_is_only_listed(settings: Settings) -> None:
    broken = {"command", "event"}
    app = shop(broken)
    async with app.run_local(settings) as running, asyncio.timeout(30):
        await running.bus.execute(Sell(product_id="ink"))
        broken.discard("command")
        await running.bus.execute(Sell(product_id="pen"))
        while len(await running.parked.read()) < 3:
            await asyncio.sleep(0)
    async with app.parked(settings) as parked:
        found = {each.processor: each for each in await parked.read()}
        needs = {name: parked.needs_broker(each) for name, each in found.items()}
        assert needs == {"commands": True, "process:packing": True, "handlers:mail": False}
        for name in ("commands", "process:packing"):
            with pytest.raises(HeadraceError, match="name the broker"):
                await parked.retry(found[name])
        assert await parked.skip(found["handlers:mail"]) is None
        # Behind it none is held.
        assert await parked.skip(found["commands"]) is None
        assert {each.processor for each in await parked.read()} == {"process:packing"}


async def test_a_part_that_the_application_no_longer_has_is_said_so(settings: Settings) -> None:
    entry = ParkedEntry(
        processor="projection:gone",
        aggregate_id="ink",
        parked_at=datetime(2026, 1, 31, tzinfo=UTC),
        attempts=1,
        sentence="no",
    )
    async with shop(set()).run_local(settings) as running:
        with pytest.raises(ProjectionNotFound, match="shop has no projection 'gone'"):
            await running.parked.retry(entry)


@pytest.mark.parametrize(
    ("name", "processor"),
    [
        ("commands", "projection:commands"),
        ("balances", "projection:balances"),
        ("handlers:mail", "handlers:mail"),
    ],
)
def test_the_name_of_a_reader_in_the_tables_becomes_a_processor(name: str, processor: str) -> None:
    assert processor_of(name) == processor
    assert processor.partition(":")[0] in KINDS
