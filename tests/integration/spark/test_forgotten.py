"""After a person is forgotten, no file holds a plain value, and rebuilds of every kind equal live rows."""

import asyncio
import re
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from asyncpg import connect

from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.local.rebuild import rebuild as replay
from headrace.settings import Settings
from headrace.spark.analysis.export import export_events
from headrace.spark.rebuild import rebuild
from headrace.stores.database.schema import upgrade

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = ("contacts", "last_emails")
PLAIN = re.compile(rb"ann-\d@example\.org|19710203")


@dataclass(frozen=True)
class Deployment:
    """An application with its databases.

    Attributes:
        customers: its module.
        event_store: URL of the events.
        read_models: URL of the rows.
        folder: of this test.
        keys_are_files: they are in a folder; otherwise in the database of the events.
    """

    customers: Any
    event_store: str
    read_models: str
    folder: Path
    keys_are_files: bool


@pytest.fixture(params=["folder", "sqlite", "postgresql"])
def deployment(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Deployment:
    """The application as a module of this test alone, with its keys in each place."""
    source = Path(__file__).with_name("customers_app.py").read_text(encoding="utf-8")
    line = 'app.keep_keys(FolderKeys(os.environ.get("CUSTOMERS_KEYS", "keys")))\n'
    assert line in source
    in_folder = f"app.keep_keys(FolderKeys({str(tmp_path / 'keys')!r}))\n"
    files = request.param == "folder"
    name = f"customers_{tmp_path.name.replace('-', '_')}"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(source.replace(line, in_folder if files else ""))
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    events, rows = (f"sqlite:///{tmp_path / name}" for name in ("events.db", "read.db"))
    if request.param == "postgresql":
        events = rows = request.getfixturevalue("postgres_database")
    return Deployment(__import__(name), events, rows, tmp_path, files)


def holders(*folders: Path, pattern: re.Pattern[bytes] = PLAIN) -> list[str]:
    """Returns the files that hold a plain value."""
    files = [
        file
        for one in folders
        for file in ([one] if one.is_file() else one.rglob("*"))
        if file.is_file()
    ]
    assert files
    return [str(file) for file in files if pattern.search(file.read_bytes())]


async def databases(deployment: Deployment) -> list[Path]:
    """Returns the files of the event store and the read models; of SQLite logs included.

    What is deleted is no longer in them. PostgreSQL's log holds the rows of before until it is recycled.
    """
    folder, url = deployment.folder, deployment.event_store
    if url.startswith("sqlite"):
        with sqlite3.connect(folder / "read.db") as database:
            database.execute("VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return [*folder.glob("events.db*"), *folder.glob("read.db*")]
    connection = await connect(url)
    try:
        await connection.execute("VACUUM FULL")
        await connection.execute("CHECKPOINT")
        place = await connection.fetchval("SHOW data_directory")
        number = await connection.fetchval(
            "SELECT oid FROM pg_database WHERE datname = current_database()"
        )
    finally:
        await connection.close()
    return [Path(place) / "base" / str(number)]


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
    deployment: Deployment, tmp_path: Path, broker: Any, spark: Any, rows_of: Any
) -> None:
    customers = deployment.customers
    settings = Settings(
        broker=broker.address,
        event_store=deployment.event_store,
        read_models=deployment.read_models,
    )
    await upgrade(settings.event_store)
    await change_emails(customers, settings)
    module = f"{customers.__name__}:app"
    choices: Any = {
        "broker": broker.address, "event_store_url": settings.event_store,
        "read_models_url": settings.read_models,
    }  # fmt: skip
    for name in NAMES:
        proof = await rebuild(module, name, spark=spark, switch=False, **choices)
        assert (proof.proven, proof.mismatches) == (True, 0)
    assert holders(*await databases(deployment))
    keys = customers.app.serializer_at(settings.event_store).subject_keys
    key = keys.find("id-ann")
    assert key
    assert keys.forget("id-ann")

    export = tmp_path / "export"
    await asyncio.to_thread(
        export_events, module, export, broker=broker.address, event_store_url=settings.event_store
    )
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
    if deployment.keys_are_files:
        shutil.rmtree(tmp_path / "keys")
    files = await databases(deployment)
    assert holders(*files, tmp_path / "broker", export) == []
    assert holders(*files, pattern=re.compile(re.escape(key))) == []
