"""`headrace process` on a shop whose process cannot pack one of its parcels."""

import asyncio
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Update, update
from typer.testing import CliRunner

import headrace.cli
from headrace import Settings
from headrace.errors import NotYetHandled
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.tables import process_commands

SHOP = """
import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from headrace import (
    Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, End, EventContext, Later,
    Process, applies,
)
from pydantic import BaseModel


class Order(Command):
    parcel_id: AggregateId


class Ordered(DomainEvent):
    pass


class Parcel(Aggregate):
    def initial_state(self) -> None: ...

    @applies
    def _ordered(self, event: Ordered) -> None: ...


class Delivery(BaseModel):
    steps: int = 0


MENDED: list[bool] = []
ENDS: list[bool] = []
app = App("shop")
deliveries = Process("deliveries", state=Delivery)
app.add(Parcel, deliveries)


@app.handles
async def order(command: Order, context: CommandContext) -> None:
    parcel = Parcel(command.parcel_id)
    parcel.record(Ordered())
    context.add(parcel)


@deliveries.on
def ordered(state: Delivery | None, event: Ordered, context: EventContext) -> Iterable[Any]:
    if "bad" in context.aggregate_id and not MENDED:
        raise ValueError("cannot be packed")
    yield Delivery(steps=1)
    yield Later(Order(parcel_id="reminder"), at=context.recorded_at + timedelta(days=1))
    if ENDS:
        yield End()
"""


async def change(read_models: str, statement: Update) -> None:
    """Changes the database of read models."""
    models = ReadModels(read_models)
    async with models.begin() as connection:
        await connection.execute(statement)
    await models.aclose()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The shop's module; three parcels are ordered, and two cannot be packed."""
    (tmp_path / "parcel_shop.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("parcel_shop")
    settings = Settings(
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=f"sqlite:///{tmp_path / 'read.db'}",
        error_retries_max=0,
    )

    async def orders() -> None:
        async with module.app.run_local(settings) as running:
            for parcel_id in ("bad-1", "bad-2", "good"):
                with suppress(NotYetHandled):
                    await running.bus.execute(module.Order(parcel_id=parcel_id), wait_for="handled")

    asyncio.run(orders())
    module.READ_MODELS = settings.read_models
    yield module
    del sys.modules["parcel_shop"]


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    environment = {
        "HEADRACE_EVENT_STORE": f"sqlite:///{tmp_path / 'events.db'}",
        "HEADRACE_READ_MODELS": f"sqlite:///{tmp_path / 'read.db'}",
        "HEADRACE_APP": "parcel_shop:app",
        "TERM": "dumb",
        "COLUMNS": "200",
    }

    def run(*arguments: str, area: str = "process") -> tuple[int, str]:
        done = CliRunner().invoke(headrace.cli._command_line(), [area, *arguments], env=environment)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    return run


def test_instances_are_listed_and_shown_with_what_makes_them_stand_still(
    shop: Any, ask: Any
) -> None:
    status, listed = ask("list")
    assert status == 0
    assert [line.split()[1] for line in listed.splitlines()[1:]] == ["bad-1", "bad-2", "good"]
    assert "parked" in listed
    _, lines = ask("list", "--stuck", "--json")
    first, second = map(json.loads, lines.splitlines())
    assert (first["key"], first["waiting"], second["key"]) == ("bad-1", 1, "bad-2")
    assert "cannot be packed" in first["stuck"][0]["sentence"]
    _, shown = ask("show", "deliveries", "good")
    assert 'state     {"steps": 1}' in shown
    assert "last      Ordered of good at " in shown
    assert "pending   Order to reminder, due " in shown
    parked = ask("show", "deliveries", "bad-1")[1]
    assert "parked    Ordered of bad-1" in parked
    assert 'raise ValueError("cannot be packed")' in parked
    assert json.loads(ask("show", "deliveries", "good", "--json")[1])["stuck"] == []
    assert ask("list", "others")[1] == "no such instances\n"


def test_ended_instances_are_counted_and_pruned(shop: Any, ask: Any) -> None:
    shop.MENDED.append(True)
    shop.ENDS.append(True)
    assert ask("retry", area="parked")[0] == 0
    sent = update(process_commands).values(sent=True)  # as the running application does
    asyncio.run(change(shop.READ_MODELS, sent))
    before = ["--before", "2999-01-01"]
    said = "2 ended instances of deliveries would be pruned\n"
    assert ask("prune", "deliveries", *before, "--dry-run") == (0, said)
    assert len(ask("list", "--ended", "--json")[1].splitlines()) == 3
    none = "0 ended instances of deliveries were pruned\n"
    assert ask("prune", "deliveries", "--before", "2001-01-01") == (0, none)
    assert ask("prune", "deliveries", *before)[1] == "2 ended instances of deliveries were pruned\n"
    (left,) = ask("list", "--ended", "--json")[1].splitlines()
    assert json.loads(left)["key"] == "good"
    assert ask("prune", "deliveries", "--before", "soon")[0] == 2
