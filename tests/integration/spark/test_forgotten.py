"""After a person is forgotten, no file holds a plain value, and rebuilds of every kind equal live rows."""

import asyncio
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.local.rebuild import rebuild as replay
from headrace.settings import Settings
from headrace.spark.analysis.export import export_events
from headrace.spark.rebuild import rebuild

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = ("contacts", "last_emails")
PLAIN = re.compile(rb"ann-\d@example\.org|19710203")


@pytest.fixture
def customers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The application as a module of this test alone, with the folder of its keys."""
    source = Path(__file__).with_name("customers_app.py").read_text(encoding="utf-8")
    keys = f"FolderKeys({str(tmp_path / 'keys')!r})"
    name = f"customers_{tmp_path.name.replace('-', '_')}"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(
        source.replace('FolderKeys(os.environ.get("CUSTOMERS_KEYS", "keys"))', keys)
    )
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    return __import__(name)


def holders(*folders: Path) -> list[str]:
    """Returns the files that hold a plain value."""
    files = [
        file
        for one in folders
        for file in ([one] if one.is_file() else one.rglob("*"))
        if file.is_file()
    ]
    assert files
    return [str(file) for file in files if PLAIN.search(file.read_bytes())]


def databases(folder: Path) -> list[Path]:
    """Returns the files of the event store and the read models, logs included."""
    return [*folder.glob("events.db*"), *folder.glob("read.db*")]


async def drop_former(url: str) -> None:
    """Drops the tables that were live before."""
    read_models = ReadModels(url)
    try:
        for name in NAMES:
            await read_models.drop_generation(name, 1)
    finally:
        await read_models.aclose()


async def change_emails(customers: Any, settings: Settings) -> None:
    async with customers.app.run(settings) as running:
        for number in (1, 2, 2, 3):  # one is rejected, with the command's values in the rejection
            for who in ("ann", "bob"):
                await running.bus.execute(
                    customers.SetEmail(
                        customer_id=f"id-{who}", email=f"{who}-{number}@example.org", born=19710203
                        if who == "ann" else 1980
                    ),
                    wait_for="handled",
                )  # fmt: skip


async def test_nothing_of_a_forgotten_person_is_left_and_rebuilt_equals_live(
    customers: Any, tmp_path: Path, broker: Any, spark: Any, rows_of: Any
) -> None:
    store, read = tmp_path / "events.db", tmp_path / "read.db"
    settings = Settings(
        broker=broker.address, event_store=f"sqlite:///{store}", read_models=f"sqlite:///{read}"
    )
    await change_emails(customers, settings)
    module = f"{customers.__name__}:app"
    choices: Any = {
        "broker": broker.address, "event_store_url": settings.event_store,
        "read_models_url": settings.read_models,
    }  # fmt: skip
    for name in NAMES:
        proof = await rebuild(module, name, spark=spark, switch=False, **choices)
        assert (proof.proven, proof.mismatches) == (True, 0)
    assert holders(read)
    assert customers.app.serializer.subject_keys.forget("id-ann")

    export = tmp_path / "export"
    await asyncio.to_thread(export_events, module, export, broker=broker.address)
    for name in NAMES:
        report = await rebuild(module, name, spark=spark, accept=True, **choices)
        assert (report.switched, report.mismatches) == (True, 1)
        for proof in (
            await rebuild(module, name, spark=spark, switch=False, **choices),
            await rebuild(module, name, spark=spark, switch=False, export=export, **choices),
            await replay(module, name, switch=False, **choices),
        ):
            assert (proof.proven, proof.mismatches) == (True, 0)
        rows = await rows_of(settings.read_models, customers.app.projection(name))
        assert rows["id-ann"].email == "[forgotten]"
        assert rows["id-bob"].email == "bob-3@example.org"
    await drop_former(settings.read_models)
    shutil.rmtree(tmp_path / "keys")
    with sqlite3.connect(read) as database:
        database.execute("VACUUM")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert holders(*databases(tmp_path), tmp_path / "broker", export) == []
