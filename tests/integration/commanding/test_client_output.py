"""A program of a user that uses a client: its output is its own, and its logging decides."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from headrace import Settings
from headrace_mq import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app

ROOT = Path(__file__).parents[3]
PROGRAM = """
import asyncio, sys
{setup}
from headrace import Settings
from headrace.errors import CommandTimeout
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount

async def main():
    async with app.client(Settings(broker={broker!r}, result_timeout_ms=120_000)) as bus:
        opened = OpenAccount(account_id="ann", owner="Ann")
        try:
            await bus.execute(opened, command_id="1", timeout_ms=1)
        except CommandTimeout:
            pass
        await bus.execute(opened, command_id="1")  # the late reply of the first call has come, too
        await bus.execute(Deposit(account_id="bob", transaction_id="t", amount=1))
    print("done")

asyncio.run(main())
"""
IGNORED = next(n for n, line in enumerate(PROGRAM.splitlines(), 1) if "Deposit(" in line)
LOGS_HERE = "import logging; logging.basicConfig(level='DEBUG', stream=sys.stderr, format='%(name)s: %(message)s')"


@pytest.mark.parametrize(
    ("setup", "options", "says"),
    [
        ("", [], ""),
        (LOGS_HERE, [], "headrace"),
        ("", ["-X", "dev"], f"<string>:{IGNORED}: RuntimeWarning: Deposit was rejected"),
    ],
    ids=["plain", "logging", "dev"],
)
async def test_a_client_prints_nothing_and_logs_where_the_program_wants_it(
    tmp_path: Path, setup: str, options: list[str], says: str
) -> None:
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(port=0, store=store))
    await broker.start()
    settings = Settings(broker=broker.address, read_models=f"sqlite:///{tmp_path}/read.db")
    async with app.run(settings):
        program = PROGRAM.format(setup=setup, broker=broker.address)
        child = await asyncio.create_subprocess_exec(
            sys.executable, *options, "-c", program,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        output, errors = await child.communicate()
    await broker.aclose()
    assert (output.decode(), child.returncode) == ("done\n", 0), errors.decode()
    if says:
        assert says in errors.decode()
    else:
        assert errors.decode() == ""
