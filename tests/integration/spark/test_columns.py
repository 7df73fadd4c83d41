"""A rebuild from exported files in columns makes the live rows, goes on with the topic, and goes live."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import Settings
from headrace.rebuild.local.rebuild import rebuild as replay
from headrace.spark.analysis.export import export_events
from headrace.spark.columns.rebuild import rebuild, rebuild_together
from headrace.stores.database.schema import upgrade
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import balances, daily_totals

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "samples.bank:app"
PROJECTIONS = [balances, daily_totals]
ACCOUNTS = [f"account-{number}" for number in range(8)]

# Killed when the rows of the files are written and committed, and the tail is still to come.
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from headrace.rebuild.local import part
from headrace.spark.columns.rebuild import rebuild
part.Part.stand = lambda *of, **choices: os.kill(os.getpid(), signal.SIGKILL)
broker, url, export = sys.argv[1:]
asyncio.run(rebuild("samples.bank:app", "balances", export=Path(export), broker=broker, read_models_url=url))
"""


async def deposit(running: Any, name: str, amount: int) -> None:
    """A deposit into each account, which is in the read models when this returns."""
    await asyncio.gather(
        *(
            running.bus.execute(
                Deposit(account_id=each, transaction_id=f"{name}-{each}", amount=amount),
                wait_for=PROJECTIONS,
            )
            for each in ACCOUNTS
        )
    )


async def rows_of(running: Any, projection: Any) -> dict[str, str]:
    reader = running.read(projection)
    return {getattr(row, projection.key): repr(row) async for row in reader.rows()}


async def test_rows_from_files_and_the_tail_are_the_live_ones_and_go_live(
    broker: Any, read_models_url: str, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'events.db'}"
    for url in (store, read_models_url):
        await upgrade(url)
    settings = Settings(broker=broker.address, event_store=store, read_models=read_models_url)
    choices: dict[str, Any] = {
        "broker": broker.address, "read_models_url": read_models_url, "event_store_url": store,
        "export": tmp_path / "out",
    }  # fmt: skip

    def export() -> Any:
        return export_events(APP, tmp_path / "out", broker=broker.address, event_store_url=store)

    async with app.run(settings) as running:
        opened = (OpenAccount(account_id=each, owner=each) for each in ACCOUNTS)
        await asyncio.gather(*(running.bus.execute(each, wait_for=PROJECTIONS) for each in opened))
        parts = []
        for number in range(3):
            await deposit(running, f"t{number}", 10 * number + 1)
            parts.append(await asyncio.to_thread(export))
        await deposit(running, "tail", 5)
        live = {each.name: await rows_of(running, each) for each in PROJECTIONS}

        killed = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", KILLED, broker.address, read_models_url, str(tmp_path / "out")],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        gone_on = await rebuild(APP, "balances", **choices)
        # The rows from the files were there already.
        assert (gone_on.start, gone_on.archived, gone_on.events) == ("offsets", 0, len(ACCOUNTS))

        names = [each.name for each in PROJECTIONS]
        outcomes = await rebuild_together(APP, names, **choices)
        for projection in PROJECTIONS:
            report: Any = outcomes[projection.name]
            assert (report.switched, report.mismatches) == (True, 0), report
            assert report.compared == report.rows == len(live[projection.name])
            assert report.archived == sum(part.messages for part in parts)
            assert (report.start, report.events) == ("zero", 5 * len(ACCOUNTS))
            assert await rows_of(running, projection) == live[projection.name]
        # What was switched to is what the live runner goes on with.
        await deposit(running, "after", 3)
        del choices["export"]
        again = await replay(APP, "balances", **choices)
        assert (again.switched, again.mismatches, again.compared) == (True, 0, len(ACCOUNTS))
