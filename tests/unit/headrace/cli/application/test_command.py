"""`headrace command letters|show|retry|skip`, as an operator uses them beside a service at work."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
            self.process.communicate(timeout=50)
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
            "COLUMNS": "200",
            "TERM": "dumb",
        }
        command_line = headrace.cli._command_line()
        return CliRunner().invoke(command_line, ["command", *arguments], env=environment)

    def letters(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.operate("letters", "--json").output.splitlines()]


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


def test_parked_commands_are_listed_shown_retried_and_skipped_beside_a_service(
    service: Service,
) -> None:
    service.start()
    results = service.send(0, 1, 2, 3)
    assert [each.error for each in results] == ["", "ContextMisused", "Held", "Held"]
    service.stop()
    service.start()

    table = service.operate("letters").output.splitlines()
    assert [line.split()[:4] for line in table if line.lstrip()[:1].isdigit()] == [
        ["1", "o-1", "Ship", "holding"],
        ["2", "o-1", "Ship", "held"],
        ["3", "o-1", "Ship", "held"],
    ]
    assert "ContextMisused: Ship is for aggregate 'o-1'" in table[1]
    trace = service.operate("show", "1").output
    assert "Traceback (most recent call last):" in trace
    assert 'await context.get(Order, "no order of this command")' in trace
    shown = json.loads(service.operate("show", "2", "--json").output)
    assert (shown["command_id"], json.loads(shown["body"])["data"]["parcel"]) == ("ship-2", 2)
    assert "command_id:   ship-2" in service.operate("show", "2").output

    again = service.operate("retry")
    assert (again.exit_code, "0 of 1 letters are done" in again.output) == (1, True)
    held = service.operate("retry", "3")
    assert isinstance(held.exception, HeadraceError)
    assert "letter 3 is held behind letter 1" in str(held.exception)

    skipped = service.operate("skip", "2")
    assert skipped.output == "command ship-2 of o-1 is left out\n"
    (service.folder / "mended").touch()
    done = service.operate("retry", "1")
    assert (done.exit_code, done.output) == (0, "1 of 1 letters are done\n")
    assert [each.version for each in service.send(1, 3)] == [2, 3]
    assert service.operate("letters").output == "no command is parked\n"
    assert isinstance(service.operate("show", "1").exception, LetterNotFound)


def test_a_retry_that_nobody_takes_up_says_so_and_looking_creates_no_database(
    service: Service,
) -> None:
    assert isinstance(service.operate("letters").exception, SchemaOutOfDate)
    assert not (service.folder / "var").exists()
    service.start()
    service.send(0, 1)
    service.stop()
    alone = service.operate("retry", "1", "--timeout-ms", "100")
    assert "letter 1 was not taken up within 100 ms" in str(alone.exception)
    skipped = service.operate("skip", "1", "--json")
    assert json.loads(skipped.output)["command_id"] == "ship-1"
    service.start()
    assert [each.error for each in service.send(2)] == [""]
    assert service.letters() == []
