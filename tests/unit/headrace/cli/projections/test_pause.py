"""`headrace projection pause|resume|reset` on a shop that has sold three things."""

import asyncio
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace.cli
from headrace import Settings
from headrace.errors import ProjectionNotFound

SHOP = """
from headrace import (
    Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, EventContext, Projection,
    applies,
)
from pydantic import BaseModel


class Sell(Command):
    product_id: AggregateId


class Sold(DomainEvent):
    pass


class Product(Aggregate):
    def initial_state(self) -> None: ...

    @applies
    def _sold(self, event: Sold) -> None: ...


class Sales(BaseModel):
    product_id: str


app = App("shop")
sales = Projection("sales", row=Sales, key="product_id")
app.add(Product, sales)


@app.handles
async def sell(command: Sell, context: CommandContext) -> None:
    product = Product(command.product_id)
    product.record(Sold())
    context.add(product)


@sales.fold
def sold(row: Sales | None, event: Sold, context: EventContext) -> Sales:
    return Sales(product_id=context.aggregate_id)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "pausing_shop.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("pausing_shop")
    settings = Settings(read_models=f"sqlite:///{tmp_path / 'read.db'}")

    async def sell() -> None:
        async with module.app.run_local(settings) as running:
            for product_id in "abc":
                await running.bus.execute(
                    module.Sell(product_id=product_id), wait_for=[module.sales]
                )
            await running.watch.check_lag()

    asyncio.run(sell())
    yield
    del sys.modules["pausing_shop"]


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    environment = {
        "HEADRACE_READ_MODELS": f"sqlite:///{tmp_path / 'read.db'}",
        "HEADRACE_APP": "pausing_shop:app",
        "TERM": "dumb",
    }

    def run(*arguments: str) -> tuple[int, str]:
        line = ["projection", *arguments]
        done = CliRunner().invoke(headrace.cli._command_line(), line, env=environment)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    return run


def listed(ask: Any) -> Any:
    return json.loads(ask("list", "--json")[1])


def test_a_projection_is_paused_and_goes_on(shop: None, ask: Any) -> None:
    assert ask("pause", "sales") == (0, "projection sales is paused\n")
    assert ask("pause", "sales")[0] == 0  # a second time changes nothing
    assert listed(ask)["state"] == "paused"
    assert ask("resume", "sales") == (0, "projection sales goes on\n")
    assert listed(ask) == {
        "projection": "sales", "generation": 1, "rows": 3, "parked": 0, "state": "live"
    }  # fmt: skip
    with pytest.raises(ProjectionNotFound, match="it has: sales"):
        ask("pause", "others")


def test_a_projection_is_begun_anew_and_had_back(shop: None, ask: Any) -> None:
    assert ask("reset", "sales") == (0, "projection sales starts over as generation 2\n")
    assert (listed(ask)["generation"], listed(ask)["rows"]) == (2, 0)
    ask("rollback", "sales")
    assert (listed(ask)["generation"], listed(ask)["rows"]) == (1, 3)
    status, said = ask("reset", "sales", "--at", "0-3")
    assert (status, "write QUEUE:OFFSET" in said) == (2, True)
