import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.errors import DefinitionError, SchemaOutOfDate
from headrace.stores import open as opening
from headrace.stores.base import AppendOutcome
from headrace.stores.database.schema import downgrade
from headrace.stores.memory.store import MemoryEventStore
from headrace.stores.open import is_kept_in_memory, open_event_store
from headrace.stores.postgres.store import PostgresEventStore
from headrace.stores.sqlite.store import SqliteEventStore
from headrace.testing.conformance.streams import conformance_serializer, stream


async def test_memory_is_opened_by_its_url() -> None:
    assert isinstance(
        await open_event_store("memory://", conformance_serializer()), MemoryEventStore
    )


async def test_a_new_sqlite_file_works_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    store = await open_event_store(url, conformance_serializer())
    assert isinstance(store, SqliteEventStore)
    await store.append([stream("a", 1)])
    await store.aclose()
    again = await open_event_store(url, conformance_serializer())
    assert await again.read_stream("a") == [stream("a", 1)]
    await again.aclose()


async def test_a_relative_path_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_event_store("sqlite:///var/new.db", conformance_serializer())
    await store.aclose()
    assert (tmp_path / "var" / "new.db").is_file()


async def test_a_url_with_its_driver_is_the_same(tmp_path: Path) -> None:
    store = await open_event_store(
        f"sqlite+aiosqlite:///{tmp_path / 'new.db'}", conformance_serializer()
    )
    assert await store.append([stream("a", 1)]) == [AppendOutcome.APPENDED]
    await store.aclose()


async def test_several_processes_open_a_new_file_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    stores = await asyncio.gather(
        *[open_event_store(url, conformance_serializer()) for _ in range(4)]
    )
    await asyncio.gather(*[store.append([stream(f"a-{id(store)}", 1)]) for store in stores])
    assert len(await stores[0].read_all()) == 4
    for store in stores:
        await store.aclose()


async def test_a_sqlite_file_that_is_behind_is_refused(sqlite_database: str) -> None:
    await downgrade(sqlite_database, "base")
    with pytest.raises(SchemaOutOfDate, match=f"headrace db upgrade --url {sqlite_database}"):
        await open_event_store(sqlite_database, conformance_serializer())


async def test_postgresql_is_opened_only_with_its_schema(postgres_database: str) -> None:
    with pytest.raises(SchemaOutOfDate, match="headrace db upgrade --url postgresql://"):
        await open_event_store(postgres_database, conformance_serializer())


async def test_postgresql_is_opened_by_its_url(migrated_postgres: str) -> None:
    store = await open_event_store(migrated_postgres, conformance_serializer())
    assert isinstance(store, PostgresEventStore)
    assert await store.append([stream("a", 1)]) == [AppendOutcome.APPENDED]
    await store.aclose()


@pytest.mark.parametrize(
    "url", ["mysql://host/bank", "memory", "memory://x", "", "sqlite://", "sqlite:///:memory:"]
)
async def test_another_url_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(DefinitionError, match="sqlite:///FILE"):
        await open_event_store(url, conformance_serializer())


async def test_a_server_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        await open_event_store(
            f"postgresql://postgres@/bank?host={tmp_path}", conformance_serializer()
        )


@pytest.mark.parametrize(("version", "warnings"), [((3, 40, 1), 1), ((3, 51, 3), 0)])
async def test_a_library_with_the_reset_bug_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], warnings: int
) -> None:
    monkeypatch.setattr(opening.sqlite3, "sqlite_version_info", version)
    opening._say_unsound.cache_clear()
    with capture_logs() as logs:
        for name in ("new", "other"):  # once in a process, however many it opens
            url = f"sqlite:///{tmp_path / name}.db"
            await (await open_event_store(url, conformance_serializer())).aclose()
    assert [entry["log_level"] for entry in logs] == ["warning"] * warnings


def test_a_store_that_ends_with_the_process_is_known_by_its_url() -> None:
    for url in ("memory://", "sqlite://", "sqlite:///:memory:"):
        assert is_kept_in_memory(url)
    for url in ("sqlite:///e.db", "postgresql://h/d"):
        assert not is_kept_in_memory(url)
    with pytest.raises(DefinitionError):
        is_kept_in_memory("mysql://h/d")
