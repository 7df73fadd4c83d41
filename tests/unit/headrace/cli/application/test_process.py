"""`headrace process` on a shop whose process cannot pack one of its parcels."""

import asyncio
import importlib
import json
import os
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
from headrace.errors import InstanceNotFound, NotYetHandled, ProcessError
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

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(
            headrace.cli._command_line(), ["process", *arguments], env=environment
        )
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


def test_parked_instances_are_retried_and_skipped(shop: Any, ask: Any) -> None:
    status, said = ask("retry", "deliveries")
    assert status == 1
    assert "0 of 2 parked by deliveries go on" in said
    assert "bad-2: ValueError('cannot be packed')" in said
    assert ask("skip", "deliveries", "bad-1") == (0, "bad-1 goes on without it\n")
    shop.MENDED.append(True)
    assert ask("retry", "deliveries") == (0, "1 of 1 parked by deliveries go on\n")
    assert ask("list", "--stuck")[1] == "no such instances\n"


def test_ended_instances_are_counted_and_pruned(shop: Any, ask: Any) -> None:
    shop.MENDED.append(True)
    shop.ENDS.append(True)
    ask("retry", "deliveries")
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


def test_mistakes_are_told(shop: Any, ask: Any) -> None:
    with pytest.raises(
        ProcessError, match="shop has no process manager 'others'; it has: deliveries"
    ):
        ask("retry", "others")
    with pytest.raises(
        InstanceNotFound, match="deliveries has parked neither an instance nor an aggregate 'good'"
    ):
        ask("skip", "deliveries", "good")


PACKING = """
from collections.abc import Iterable

from headrace import (
    Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, EventContext,
    ProcessManager, applies,
)


class Order(Command):
    parcel_id: AggregateId


class Pack(Command):
    box_id: AggregateId


class Ordered(DomainEvent):
    pass


class Packed(DomainEvent):
    pass


class Parcel(Aggregate):
    def initial_state(self) -> None: ...

    @applies
    def _ordered(self, event: Ordered) -> None: ...

    @applies
    def _packed(self, event: Packed) -> None: ...


MENDED: list[bool] = []
app = App("packing_NUMBER")
packing = ProcessManager("packing")
app.add(Parcel, packing)


@app.handles
async def order(command: Order, context: CommandContext) -> None:
    parcel = Parcel(command.parcel_id)
    parcel.record(Ordered())
    context.add(parcel)


@app.handles
async def pack(command: Pack, context: CommandContext) -> None:
    box = Parcel(command.box_id)
    box.record(Packed())
    context.add(box)


@packing.on
def ordered(event: Ordered, context: EventContext) -> Iterable[Command]:
    if "bad" in context.aggregate_id and not MENDED:
        raise ValueError("cannot be packed")
    yield Pack(box_id=f"box of {context.aggregate_id}")
"""


def test_aggregates_that_a_process_manager_has_parked_are_listed_retried_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Any, broker_address: str
) -> None:
    source = PACKING.replace("NUMBER", str(os.getpid()))
    (tmp_path / "parcel_shop.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HEADRACE_BROKER", broker_address)
    module: Any = importlib.import_module("parcel_shop")
    settings = Settings(
        broker=broker_address,
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=f"sqlite:///{tmp_path / 'read.db'}",
        error_retries_max=0,
    )

    async def orders() -> None:
        async with module.app.run(settings) as running:
            for parcel_id in ("bad-1", "bad-2", "good"):
                with suppress(NotYetHandled):
                    await running.bus.execute(module.Order(parcel_id=parcel_id), wait_for="handled")
            while (
                len(await running.process_letters(module.app.process_manager("packing")).all()) < 2
            ):
                await asyncio.sleep(0)

    async def packed(box_id: str) -> bool:
        async with module.app.run(settings) as running:
            result = await running.bus.execute(module.Pack(box_id=box_id))
            return bool(result.error == "AggregateExists")

    try:
        asyncio.run(orders())
        assert "2 aggregates are parked besides" in ask("list", "--stuck")[1]
        _, listed = ask("parked", "packing", "--traceback")
        assert {"packing", "bad-1", "bad-2"} <= set(listed.split())
        assert 'raise ValueError("cannot be packed")' in listed
        first, second = map(json.loads, ask("parked", "--json")[1].splitlines())
        assert (first["process"], first["held"], second["version"]) == ("packing", 1, 0)
        status, said = ask("retry", "packing")
        assert status == 1
        assert "0 of 2 parked by packing go on" in said
        assert ask("skip", "packing", "bad-1") == (0, "bad-1 goes on without it\n")
        module.MENDED.append(True)
        assert ask("retry", "packing") == (0, "1 of 1 parked by packing go on\n")
        assert ask("parked")[1] == "no process manager has parked an aggregate\n"
        assert asyncio.run(packed("box of bad-2"))
        assert not asyncio.run(packed("box of bad-1"))
    finally:
        del sys.modules["parcel_shop"]
