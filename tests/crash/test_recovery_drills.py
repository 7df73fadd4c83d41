"""The three drills of docs/recovery.md, with the processes of the bank: each ends with rebuilt = live.

lose the broker              it heals by itself
lose the read models         they are made again from the event store
restore yesterday's store    refused in a sentence that names the commands; these lead on
"""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.stores.database.schema import upgrade
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.application import app

ROOT = Path(__file__).parents[2]
ACCOUNTS = 5
PROJECTIONS = sorted(app.projections)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Drill:
    """The bank, and what is done to it."""

    def __init__(self, bank: Any, folder: Path) -> None:
        self.bank = bank
        self.folder = folder
        self.deposits = 0
        self.where = [
            "--event-store", bank.event_store, "--read-models", bank.read_models,
            "--broker", bank.address,
        ]  # fmt: skip

    async def deposit(self, count: int) -> None:
        settings = self.bank.settings.model_copy(update={"read_models": self.bank.read_models})
        async with app.client(settings) as bus:
            for number in range(ACCOUNTS):
                await bus.execute(
                    OpenAccount(account_id=f"a{number}", owner="o"), command_id=f"open-{number}"
                )
            for _ in range(count):
                self.deposits += 1
                result = await bus.execute(
                    Deposit(
                        account_id=f"a{self.deposits % ACCOUNTS}",
                        transaction_id=f"t{self.deposits}",
                        amount=1,
                    ),
                    command_id=f"t{self.deposits}",
                    wait_for="handled",
                )
                assert result.status == "executed"

    async def headrace(self, *arguments: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace", *arguments, "--app", "samples.bank:app", *self.where,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT,
            env=os.environ | {"PYTHONSAFEPATH": "1"},
        )  # fmt: skip
        said, _ = await asyncio.wait_for(process.communicate(), 100)
        return process.returncode or 0, said.decode()

    async def stop(self) -> None:
        await self.bank.service.end(signal.SIGTERM)

    async def start(self) -> None:
        await self.bank.service.start()

    def parts(self, name: str) -> list[Path]:
        return sorted(self.folder.glob(f"{name}*"))

    def lose(self, name: str) -> None:
        for part in self.parts(name):
            shutil.rmtree(part) if part.is_dir() else part.unlink()

    async def assert_rebuilt_is_live(self) -> None:
        """Compares with the event store, and with a rebuild from it."""
        for command in (("verify", *PROJECTIONS), ("rebuild", *PROJECTIONS, "--from", "store")):
            status, said = await self.headrace("projection", *command)
            assert status == 0, said
            assert [name for name in PROJECTIONS if name not in said] == []


@pytest.fixture
async def drill(bank: Any, tmp_path: Path) -> Drill:
    return Drill(bank, tmp_path)


async def test_lose_the_broker(drill: Any) -> None:
    await drill.deposit(20)
    await drill.stop()
    await drill.bank.broker.end(signal.SIGKILL)
    drill.lose("broker")
    await drill.bank.broker.start()
    await drill.start()
    await drill.deposit(5)
    await drill.assert_rebuilt_is_live()


async def test_lose_the_read_models(drill: Any) -> None:
    await drill.deposit(20)
    await drill.stop()
    drill.lose("read.db")
    await upgrade(drill.bank.read_models)
    await drill.start()
    await drill.deposit(5)
    await drill.assert_rebuilt_is_live()


async def test_restore_the_event_store_of_yesterday(drill: Any) -> None:
    await drill.deposit(20)
    await drill.stop()
    shutil.copy(drill.folder / "events.db", drill.folder / "yesterday.db")
    await drill.start()
    await drill.deposit(10)
    await drill.stop()
    drill.lose("events.db")
    shutil.copy(drill.folder / "yesterday.db", drill.folder / "events.db")

    refused = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", *drill.bank.service.arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT,
        env=os.environ | {"PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    said = (await asyncio.wait_for(refused.communicate(), 100))[0].decode()
    assert refused.returncode == 2
    assert "not in this event store" in said
    assert "`headrace events republish --replace`" in said
    assert "Traceback" not in said

    status, said = await drill.headrace("events", "republish", "--replace")
    assert status == 0, said
    status, said = await drill.headrace(
        "projection", "rebuild", *PROJECTIONS, "--from", "store", "--no-verify"
    )
    assert status == 0, said
    drill.deposits = 20
    await drill.start()
    await drill.deposit(5)
    await drill.assert_rebuilt_is_live()
