"""What earlier versions wrote opens, goes on where it stopped, and keeps what was parked."""

import asyncio
import importlib.util
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import asyncpg
import pytest
from sqlalchemy import make_url

from headrace import Settings
from headrace._runtime.backoff import Backoff
from headrace.running_app import RunningApp
from headrace.stores.database.schema import upgrade
from headrace_mq import Broker, BrokerSettings, StoreSettings

GOLDEN = Path(__file__).parents[2] / "golden" / "application"
VERSIONS = sorted(
    path.name for path in GOLDEN.iterdir() if path.is_dir() and path.name.startswith("schema-")
)
# What readers take at most to come to rest.
SECONDS_MAX = 100


def _ledger() -> ModuleType:
    """The application, loaded again: each test breaks and mends its own."""
    spec = importlib.util.spec_from_file_location("golden_ledger", GOLDEN / "ledger.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _write_broker_files(kept: Path, folder: Path) -> None:
    for name, file in json.loads(kept.read_text()).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(file["hex"]).ljust(file["bytes"], b"\0"))


class OldData:
    """The data of an earlier version, laid out as that version had left it."""

    def __init__(self, folder: Path, event_store: str, read_models: str) -> None:
        self.folder = folder
        self.event_store = event_store
        self.read_models = read_models

    @asynccontextmanager
    async def opened(self, ledger: ModuleType) -> AsyncIterator[RunningApp]:
        """Runs the application of this version on it."""
        store = StoreSettings(directory=self.folder, segment_bytes=1 << 20)
        async with Broker(BrokerSettings(store=store, port=0)) as broker:
            settings = Settings(
                broker=broker.address,
                event_store=self.event_store,
                read_models=self.read_models,
                after_parked="hold",
                error_retries_max=0,
            )
            async with ledger.app.run(settings) as running:
                yield running


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> Path:
    return GOLDEN / str(request.param)


def _on_sqlite(version: Path, folder: Path) -> OldData:
    for name in ("events", "read_models"):
        database = sqlite3.connect(folder / f"{name}.db")
        database.executescript((version / f"{name}.sql").read_text())
        database.close()
    _write_broker_files(version / "broker.json", folder / "mq")
    urls = [f"sqlite:///{folder / name}.db" for name in ("events", "read_models")]
    return OldData(folder / "mq", *urls)


async def _on_postgres(version: Path, folder: Path, database: str) -> OldData:
    url = make_url(database)
    connection = await asyncpg.connect(
        host=str(url.query["host"]), user=url.username, database=url.database
    )
    await connection.execute((version / "postgres.sql").read_text())
    await connection.close()
    _write_broker_files(version / "broker_of_postgres.json", folder / "mq")
    return OldData(folder / "mq", database, database)


@pytest.fixture(params=["sqlite", "postgres"])
async def old(
    request: pytest.FixtureRequest, version: Path, tmp_path: Path, postgres_database: str
) -> OldData:
    if request.param == "sqlite":
        return _on_sqlite(version, tmp_path)
    return await _on_postgres(version, tmp_path, postgres_database)


async def _upgraded(old: OldData) -> None:
    for url in dict.fromkeys((old.event_store, old.read_models)):
        await upgrade(url)


async def _balances(running: RunningApp, ledger: ModuleType) -> dict[str, int]:
    reader = running.read(ledger.balances)
    found = {key: await reader.get(key) for key in ("a1", "a2", "a3", "a4", "a5")}
    return {key: row.balance for key, row in found.items() if row is not None}


async def test_data_of_an_earlier_version_opens_and_goes_on(old: OldData) -> None:
    await _upgraded(old)
    ledger = _ledger()
    async with old.opened(ledger) as running:
        assert await _balances(running, ledger) == {"a1": 505, "a2": 5, "a4": 12, "a5": 7}
        result = await running.bus.execute(ledger.Deposit(account_id="a1", amount=1))
        await running.seen(ledger.balances, result)
        assert (await _balances(running, ledger))["a1"] == 506
        instances = await running.processes.all(ledger.greetings.name)
        pending = {one.key: [command.name for command in one.pending] for one in instances}
        # The reminder of the first version waits in the broker's schedule, for 300 days.
        assert pending["a1"] == pending["a2"] == ["Close"]


async def test_letters_of_an_earlier_version_are_handled_after_the_repair(old: OldData) -> None:
    await _upgraded(old)
    ledger = _ledger()
    ledger.BROKEN.clear()
    async with old.opened(ledger) as running:
        folds = running.projection_letters(ledger.balances)
        assert [letter.aggregate_id for letter in await folds.all()] == ["a3"]
        assert await folds.retry("a3") is None
        handled = running.handler_letters(ledger.app.event_handlers("events"))
        assert [letter.aggregate_id for letter in await handled.all()] == ["a4"]
        assert await handled.retry("a4") is None
        (entry,) = await running.parked.read(processor="instances:greetings")
        assert (entry.aggregate_id, entry.attempts, entry.waiting) == ("a5", 1, 1)
        assert "ValueError('the process is broken')" in entry.sentence
        (one,) = await running.processes.all("greetings", stuck=True)
        assert (one.key, one.waiting, [each.kind for each in one.stuck]) == ("a5", 1, ["parked"])
        assert await running.parked.retry(entry) is None
        states = [letter.state.value for letter in await running.letters.read()]
        assert states == ["holding", "held"]
        first = (await running.letters.read())[0]
        assert await running.letters.retry(first.number) is None
        looks, attempt = Backoff(ms_min=5, ms_max=50), 0
        expected = {"a1": 505, "a2": 19, "a3": 12, "a4": 12, "a5": 12}
        async with asyncio.timeout(SECONDS_MAX):
            while await _balances(running, ledger) != expected:
                attempt += 1
                await looks.pause(attempt)
        assert await running.letters.read() == []
