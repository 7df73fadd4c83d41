"""`headrace parked list|show|retry|skip`: commands of a service at work, and what readers parked."""

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import headrace.cli
from headrace.app import load_app
from headrace.bus import CommandResult
from headrace.errors import HeadraceError, LetterNotFound, SchemaOutOfDate
from headrace.settings import Settings

PARCELS = """
from pathlib import Path

from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, applies


class Ship(Command):
    order_id: AggregateId
    parcel: int


class Shipped(DomainEvent):
    parcel: int


class Order(Aggregate):
    def initial_state(self) -> None:
        self.parcels = 0

    @applies
    def _shipped(self, event: Shipped) -> None:
        self.parcels += 1


app = App("parcels_NUMBER")
app.add(Order)


@app.handles
async def ship(command: Ship, context: CommandContext) -> None:
    if command.parcel == 1 and not Path("mended").exists():
        await context.get(Order, "no order of this command")  # fails without a second attempt
    if command.parcel == 0:
        context.add(order := Order(command.order_id))
    else:
        order = await context.get(Order, command.order_id)
    order.record(Shipped(parcel=command.parcel))
"""


class Service:
    """An application in a process of its own."""

    def __init__(self, folder: Path, broker: str, module: str) -> None:
        self.folder, self.broker, self.app = folder, broker, f"{module}:app"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "headrace", "run", self.app, "--broker", self.broker,
                "--after-parked", "hold",
            ],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=self.folder,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "headrace run ready\n"

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate(timeout=120)
            self.process = None

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder}/var/events.db"

    def send(self, *parcels: int) -> list[CommandResult]:
        app = load_app(self.app)
        ship = next(iter(app.command_types))

        async def send() -> list[CommandResult]:
            async with app.client(Settings(broker=self.broker)) as bus:
                return [
                    await bus.execute(
                        ship(order_id="o-1", parcel=parcel), command_id=f"ship-{parcel}"
                    )
                    for parcel in parcels
                ]

        return asyncio.run(send())

    def operate(self, *arguments: str) -> Result:
        environment = {
            "HEADRACE_APP": self.app,
            "HEADRACE_BROKER": self.broker,
            "HEADRACE_EVENT_STORE": self.store,
            "HEADRACE_READ_MODELS": self.store.replace("events.db", "read.db"),
            "COLUMNS": "400",
            "TERM": "dumb",
        }
        command_line = headrace.cli._command_line()
        return CliRunner().invoke(command_line, ["parked", *arguments], env=environment)

    def letters(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.operate("list", "--json").output.splitlines()]


@pytest.fixture
def service(
    tmp_path: Path, broker_address: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    module = f"parcels_{os.getpid()}"
    (tmp_path / f"{module}.py").write_text(PARCELS.replace("NUMBER", str(os.getpid())))
    monkeypatch.syspath_prepend(str(tmp_path))
    service = Service(tmp_path, broker_address, module)
    yield service
    service.stop()


def test_parked_commands_are_listed_shown_retried_and_skipped_while_a_service_runs(
    service: Service,
) -> None:
    service.start()
    results = service.send(0, 1, 2, 3)
    assert [each.error for each in results] == ["", "ContextMisused", "Held", "Held"]
    service.stop()
    service.start()

    table = service.operate("list").output.splitlines()
    assert [line.split()[:5] for line in table[1:]] == [
        ["commands", "o-1", "Ship", "ship-1", "holding"],
        ["commands", "o-1", "Ship", "ship-2", "held"],
        ["commands", "o-1", "Ship", "ship-3", "held"],
    ]
    assert "ContextMisused: Ship is for aggregate 'o-1'" in table[1]
    trace = service.operate("show", "--command", "ship-1").output
    assert "Traceback (most recent call last):" in trace
    assert 'await context.get(Order, "no order of this command")' in trace
    shown = json.loads(service.operate("show", "--command", "ship-2", "--json").output)
    assert (shown["command_id"], json.loads(shown["body"])["data"]["parcel"]) == ("ship-2", 2)
    assert "command_id:   ship-2" in service.operate("show", "--aggregate", "o-1").output

    again = service.operate("retry")
    assert (again.exit_code, "0 of 1 parked are done" in again.output) == (1, True)
    held = service.operate("retry", "--command", "ship-3")
    assert isinstance(held.exception, HeadraceError)
    assert "command ship-3 (letter 3) is held behind ship-1 (letter 1)" in str(held.exception)

    skipped = service.operate("skip", "--command", "ship-2")
    assert skipped.output == "o-1 of commands goes on without command ship-2\n"
    (service.folder / "mended").touch()
    done = service.operate("retry", "--processor", "commands", "--aggregate", "o-1")
    assert (done.exit_code, done.output) == (0, "1 of 1 parked are done\n")
    assert [each.version for each in service.send(1, 3)] == [2, 3]
    assert service.operate("list").output == "nothing is parked\n"
    assert isinstance(service.operate("show", "--command", "ship-1").exception, LetterNotFound)


def test_a_retry_that_no_service_takes_up_says_so_and_looking_creates_no_database(
    service: Service,
) -> None:
    assert isinstance(service.operate("list").exception, SchemaOutOfDate)
    assert not (service.folder / "var").exists()
    service.start()
    service.send(0, 1)
    service.stop()
    alone = service.operate("retry", "--timeout-ms", "100")
    assert "letter 1 was not taken up within 100 ms" in str(alone.exception)
    skipped = service.operate("skip", "--aggregate", "o-1")
    assert skipped.output == "o-1 of commands goes on without command ship-1\n"
    service.start()
    assert [each.error for each in service.send(2)] == [""]
    assert service.letters() == []


SHOP = """
from collections.abc import Iterable
from typing import Any

from headrace import (
    Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, EventContext, Process,
    ProcessManager, Projection, applies,
)
from pydantic import BaseModel


class Sell(Command):
    product_id: AggregateId


class Pack(Command):
    box_id: AggregateId


class Sold(DomainEvent):
    pass


class Packed(DomainEvent):
    pass


class Product(Aggregate):
    @applies
    def _sold(self, event: Sold) -> None: ...

    @applies
    def _packed(self, event: Packed) -> None: ...


class Sales(BaseModel):
    product_id: str


class Delivery(BaseModel):
    steps: int = 0


SENT: list[str] = []
BROKEN: set[str] = {"ink", "nib"}
app = App("SHOPNAME")
sales = Projection("sales", row=Sales, key="product_id")
packing = ProcessManager("packing")
deliveries = Process("deliveries", state=Delivery)
app.add(Product, sales, packing, deliveries)


def check(product_id: str, what: str) -> None:
    if product_id in BROKEN:
        raise ValueError(f"no {what} of {product_id}")


@app.handles
async def sell(command: Sell, context: CommandContext) -> None:
    product = Product(command.product_id)
    product.record(Sold())
    context.add(product)


@app.handles
async def pack(command: Pack, context: CommandContext) -> None:
    box = Product(command.box_id)
    box.record(Packed())
    context.add(box)


@sales.fold
def counted(row: Sales | None, event: Sold, context: EventContext) -> Sales:
    check(context.aggregate_id, "row")
    return Sales(product_id=context.aggregate_id)


@app.on_event(processor="mail")
async def tell(event: Sold, context: EventContext) -> None:
    check(context.aggregate_id, "mail")
    SENT.append(context.aggregate_id)


@packing.on
def packed(event: Sold, context: EventContext) -> Iterable[Command]:
    check(context.aggregate_id, "box")
    yield Pack(box_id=f"box of {context.aggregate_id}")


@deliveries.on
def delivered(state: Delivery | None, event: Sold, context: EventContext) -> Iterable[Any]:
    check(context.aggregate_id, "delivery")
    yield Delivery(steps=1)
"""

READERS = ["handlers:mail", "process:packing", "projection:sales", "instances:deliveries"]


class Shop:
    """A shop of whose readers each has parked two of three products."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.module: Any = importlib.import_module("parked_shop")
        self.settings = Settings(
            broker=broker,
            event_store=f"sqlite:///{folder / 'events.db'}",
            read_models=f"sqlite:///{folder / 'read.db'}",
            error_retries_max=0,
        )

    async def sell(self) -> None:
        async with self.module.app.run(self.settings) as running:
            for product_id in ("ink", "pen", "nib"):
                await running.bus.execute(self.module.Sell(product_id=product_id))
            while len(await running.parked.read()) < 8 or not await running.read(
                self.module.sales
            ).get("pen"):
                await asyncio.sleep(0)

    async def boxes(self) -> list[str]:
        async with self.module.app.run(self.settings) as running:
            results = [
                await running.bus.execute(self.module.Pack(box_id=f"box of {each}"))
                for each in ("ink", "nib")
            ]
        return [each.error for each in results]

    def operate(self, *arguments: str) -> Result:
        options = [
            "--app", "parked_shop:app", "--event-store", self.settings.event_store,
            "--read-models", self.settings.read_models,
        ]  # fmt: skip
        return CliRunner().invoke(
            headrace.cli._command_line(),
            ["parked", *arguments, *options],
            env={"HEADRACE_BROKER": self.settings.broker, "COLUMNS": "400", "TERM": "dumb"},
        )

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        lines = self.operate("list", "--json", *arguments).output.splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def shop(tmp_path: Path, broker_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    source = SHOP.replace("SHOPNAME", f"shop_{os.getpid()}")
    (tmp_path / "parked_shop.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    # Commands set logs up for a process of their own, which this one is not.
    monkeypatch.setattr("headrace.cli.logs.configure_logs", lambda _form: None)
    shop = Shop(tmp_path, broker_address)
    asyncio.run(shop.sell())
    yield shop
    sys.modules.pop("parked_shop", None)


def test_letters_of_all_kinds_of_readers_are_listed_shown_retried_and_skipped(
    shop: Shop,
) -> None:
    found = shop.listed()
    assert sorted({each["processor"] for each in found}) == sorted(READERS)
    assert {(each["aggregate_id"], each["attempts"], each["waiting"]) for each in found} == {
        ("ink", 1, 1),
        ("nib", 1, 1),
    }
    (one,) = shop.listed("--processor", "projection:sales", "--aggregate", "ink")
    assert "no row of ink" in one["sentence"]
    shown = shop.operate("show", "--processor", "handlers:mail", "--aggregate", "nib").output
    assert "processor:    handlers:mail\n" in shown
    assert "parked_shop.py" in shown

    again = shop.operate("retry")
    assert (again.exit_code, "0 of 8 parked are done" in again.output) == (1, True)
    assert {each["attempts"] for each in shop.listed()} == {2}
    shop.module.BROKEN.remove("ink")
    for processor in READERS:
        done = shop.operate("retry", "--processor", processor, "--aggregate", "ink")
        assert (done.exit_code, done.output) == (0, "1 of 1 parked are done\n")
    assert shop.module.SENT == ["pen", "ink"]
    for processor in READERS:
        skipped = shop.operate("skip", "--processor", processor)
        assert skipped.output == f"nib of {processor} goes on without it\n"
    assert shop.operate("list").output == "nothing is parked\n"
    assert asyncio.run(shop.boxes()) == ["AggregateExists", ""]
    gone = shop.operate("skip", "--processor", "handlers:mail", "--aggregate", "nib")
    assert isinstance(gone.exception, LetterNotFound)
    assert "0 are parked that they choose" in shop.operate("skip").output
    assert shop.operate("retry").output == "0 of 0 parked are done\n"


def test_a_choice_of_several_or_of_no_kind_that_there_is_is_a_mistake(shop: Shop) -> None:
    several = shop.operate("skip", "--aggregate", "ink")
    assert several.exit_code == 2
    assert "4 are parked that they choose" in several.output
    strange = shop.operate("list", "--processor", "sales")
    assert strange.exit_code == 2
    assert "'projection:NAME'" in strange.output
    assert shop.operate("list", "--processor", "projection:others").output == "nothing is parked\n"
