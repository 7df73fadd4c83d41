"""`headrace handler letters|retry|skip` on a shop whose handler cannot send one kind of mail."""

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import headrace.cli
from headrace import Settings
from headrace.errors import EventHandlerError, LetterNotFound

SHOP = """
from headrace import (
    Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, EventContext, applies,
)


class Sell(Command):
    product_id: AggregateId


class Sold(DomainEvent):
    pass


class Product(Aggregate):
    @applies
    def _sold(self, event: Sold) -> None: ...


SENT: list[str] = []
BROKEN: set[str] = {"ink", "nib"}
app = App("shop")
app.add(Product)


@app.handles
async def sell(command: Sell, context: CommandContext) -> None:
    product = Product(command.product_id)
    product.record(Sold())
    context.add(product)


@app.on_event(processor="mail")
async def tell(event: Sold, context: EventContext) -> None:
    if context.aggregate_id in BROKEN:
        raise ValueError(f"no mail about {context.aggregate_id}")
    SENT.append(context.aggregate_id)
"""


class Desk:
    """The shop as it is known to an operator."""

    def __init__(self, folder: Path) -> None:
        self.shop: Any = importlib.import_module("handler_shop")
        self._databases = [
            "--event-store", f"sqlite:///{folder / 'events.db'}",
            "--read-models", f"sqlite:///{folder / 'read.db'}",
        ]  # fmt: skip
        self.settings = Settings(
            event_store=self._databases[1], read_models=self._databases[3], error_retries_max=0
        )

    async def sell(self) -> None:
        """Sells three products, of which two make mails that cannot be sent."""
        async with self.shop.app.run_local(self.settings) as running:
            for product_id in ("ink", "pen", "nib"):
                await running.bus.execute(self.shop.Sell(product_id=product_id))
            letters = running.handler_letters(self.shop.app.event_handlers("mail"))
            while len(await letters.all()) < 2 or self.shop.SENT != ["pen"]:
                await asyncio.sleep(0)

    def operate(self, *arguments: str, processor: str = "mail") -> Result:
        return CliRunner().invoke(
            headrace.cli._command_line(),
            ["handler", *arguments, "--app", "handler_shop:app", "--processor", processor,
             *self._databases],
        )  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A shop that has parked two of three products."""
    (tmp_path / "handler_shop.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    # Commands set logs up for a process of their own, which this one is not.
    monkeypatch.setattr("headrace.cli.logs.configure_logs", lambda _form: None)
    desk = Desk(tmp_path)
    asyncio.run(desk.sell())
    yield desk
    sys.modules.pop("handler_shop", None)


def test_letters_of_event_handlers_are_listed_retried_and_skipped(desk: Desk) -> None:
    listed = desk.operate("letters", "--json")
    letters = [json.loads(line) for line in listed.output.splitlines()]
    assert {each["aggregate_id"] for each in letters} == {"ink", "nib"}
    assert {(each["version"], each["held"], each["retries"]) for each in letters} == {(0, 1, 0)}
    again = desk.operate("retry")
    assert (again.exit_code, "0 of 2 letters of mail are done" in again.output) == (1, True)
    desk.shop.BROKEN.remove("ink")
    done = desk.operate("retry", "ink")
    assert (done.exit_code, done.output) == (0, "1 of 1 letters of mail are done\n")
    assert desk.shop.SENT == ["pen", "ink"]
    assert desk.operate("skip", "nib").output == "nib goes on without it\n"
    assert desk.operate("letters").output == "processor mail has parked nothing\n"
    assert isinstance(desk.operate("skip", "nib").exception, LetterNotFound)


def test_a_processor_that_is_not_there_is_named_with_those_that_are(desk: Desk) -> None:
    failed = desk.operate("letters", processor="post")
    assert isinstance(failed.exception, EventHandlerError)
    assert str(failed.exception) == "shop has no event handlers 'post'; it has: mail"
