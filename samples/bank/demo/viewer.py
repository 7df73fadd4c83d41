"""
The demo's bank in a console, while commands go on.

    headrace console ready on http://…   you look at it
    a cent a few times a second          what you look at moves
    Ctrl-C                               all processes end in order

Used by `run`, last of all.
"""

import asyncio
import signal
import uuid
from itertools import cycle
from typing import Final

from rich.console import Console

from headrace import CommandBus, Settings
from samples.bank import app
from samples.bank.accounts import Deposit
from samples.bank.demo.data_set import DataSet
from samples.bank.demo.folder import Folder
from samples.bank.demo.processes import Child, running

__all__ = ["show_console"]

# Enough to see rates and backlogs move, on a machine that has other work.
PER_SECOND: Final = 20


async def show_console(
    data: DataSet, folder: Folder, broker: str, group: asyncio.TaskGroup, console: Console
) -> None:
    """Serves a console, and sends commands, until the process gets SIGINT, SIGTERM or SIGHUP.

    Args:
        data: whose open accounts get the money.
        folder: of the demo; not one of another demo, whose accounts have other balances afterwards.
        broker: its address.
        group: where an unexpected end of a process is raised, as `ChildFailed`.
        console: hears where to look.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    child = Child(
        "console",
        *("console", "--broker", broker, "--port", "0", "--app", "samples.bank:app"),
        *("--event-store", folder.event_store, "--read-models", folder.read_models),
        *("--log-format", "json"),
        log=folder.logs / "console.log",
        group=group,
    )
    async with running(child) as line, app.client(Settings(broker=broker)) as bus:
        console.print(f"{line}; press Ctrl-C to end it", soft_wrap=True)
        load = group.create_task(_deposit(bus, data), name="load")
        await stop.wait()
        load.cancel()
        await asyncio.wait([load])


async def _deposit(bus: CommandBus, data: DataSet) -> None:
    """Pays a cent into one account after the other."""
    accounts = [one.account_id for one in data.accounts.values() if not one.closes]
    for account_id in cycle(accounts):
        name = f"console-{uuid.uuid4()}"
        await bus.execute(
            Deposit(account_id=account_id, transaction_id=name, amount=1), command_id=name
        )
        await asyncio.sleep(1 / PER_SECOND)
