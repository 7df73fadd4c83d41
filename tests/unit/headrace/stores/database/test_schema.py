import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from headrace.errors import DefinitionError, SchemaOutOfDate
from headrace.stores.database.engines import EngineLimits, create_engine
from headrace.stores.database.schema import (
    VERSION_TABLE,
    check,
    downgrade,
    migrations_folder,
    prepare,
    upgrade,
)
from headrace.stores.database.tables import metadata
from headrace.stores.open import open_event_store
from headrace.testing.conformance.streams import conformance_serializer, stream


async def _tables(url: str) -> set[str]:
    engine = create_engine(url)
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    await engine.dispose()
    return set(names)


def _folder_with_migrations(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "env.py").touch()
    return folder


def test_migrations_are_found_within_the_installed_package(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "headrace"
    inside = _folder_with_migrations(package / "_migrations")
    assert migrations_folder(package) == inside


def test_migrations_are_found_in_a_checkout(tmp_path: Path) -> None:
    beside = _folder_with_migrations(tmp_path / "migrations")
    assert migrations_folder(tmp_path / "framework" / "headrace") == beside


def test_an_installation_without_migrations_says_so(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="install headrace again"):
        migrations_folder(tmp_path / "framework" / "headrace")


def test_the_running_package_has_migrations() -> None:
    assert (migrations_folder() / "versions").is_dir()


async def test_check_passes_what_upgrade_made(sqlite_database: str) -> None:
    await check(sqlite_database)
    assert await _tables(sqlite_database) == {*metadata.tables, VERSION_TABLE}


async def test_upgrade_a_second_time_changes_nothing(sqlite_database: str) -> None:
    engine = create_engine(sqlite_database)
    async with engine.begin() as connection:
        await connection.execute(
            text("INSERT INTO projections (name, generation, fingerprint) VALUES ('p', 1, 'f')")
        )
    await upgrade(sqlite_database)
    async with engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM projections"))).scalar() == 1
    await engine.dispose()


async def test_downgrade_to_base_leaves_no_table_of_ours(sqlite_database: str) -> None:
    await downgrade(sqlite_database, "base")
    assert await _tables(sqlite_database) <= {VERSION_TABLE}
    with pytest.raises(SchemaOutOfDate):
        await check(sqlite_database)


async def test_a_missing_file_is_behind_and_stays_missing(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    with pytest.raises(SchemaOutOfDate, match=f"headrace db upgrade --url sqlite:///{file}"):
        await check(f"sqlite:///{file}")
    assert not file.exists()


async def test_a_password_is_not_in_the_sentence(postgres_database: str) -> None:
    with pytest.raises(SchemaOutOfDate, match="headrace db upgrade --url postgresql://") as refusal:
        await check(postgres_database.replace("postgres@", "postgres:secret@"))
    assert "secret" not in str(refusal.value)
    assert "+asyncpg" not in str(refusal.value)


async def test_a_schema_of_a_newer_version_is_refused_as_such(sqlite_database: str) -> None:
    engine = create_engine(sqlite_database)
    async with engine.begin() as connection:
        await connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    await engine.dispose()
    with pytest.raises(SchemaOutOfDate, match="is at 9999, which this version does not know"):
        await check(sqlite_database)


async def test_a_database_in_memory_has_no_schema_to_keep() -> None:
    for action in (check("sqlite://"), upgrade("sqlite://"), downgrade("sqlite://", "base")):
        with pytest.raises(DefinitionError, match="in memory"):
            await action


async def test_prepare_migrates_a_new_file_and_makes_its_folder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'deep' / 'folder' / 'new.db'}"
    engine = create_engine(url)
    await prepare(engine)
    await prepare(engine)
    await engine.dispose()
    await check(url)


async def test_prepare_migrates_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    engine = create_engine(f"sqlite:///{tmp_path / 'empty.db'}")
    await prepare(engine)
    await engine.dispose()
    await check(f"sqlite:///{tmp_path / 'empty.db'}")


async def test_prepare_makes_the_tables_of_a_database_in_memory() -> None:
    engine = create_engine("sqlite://")
    await prepare(engine)
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    await engine.dispose()
    assert set(names) == set(metadata.tables)


async def test_prepare_leaves_a_file_with_other_tables_alone(tmp_path: Path) -> None:
    file = tmp_path / "mine.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE mine (number INTEGER)")
    connection.close()
    engine = create_engine(f"sqlite:///{file}")
    with pytest.raises(SchemaOutOfDate, match="is behind this version"):
        await prepare(engine)
    await engine.dispose()
    assert await _tables(f"sqlite:///{file}") == {"mine"}


async def test_prepare_refuses_a_postgresql_database_without_schema(postgres_database: str) -> None:
    engine = create_engine(postgres_database)
    with pytest.raises(SchemaOutOfDate, match="headrace db upgrade"):
        await prepare(engine)
    await upgrade(postgres_database)
    await prepare(engine)
    await engine.dispose()


async def test_several_processes_migrate_at_once(tmp_path: Path, postgres_database: str) -> None:
    same = f"sqlite:///{tmp_path / 'same.db'}"
    others = [f"sqlite:///{tmp_path / f'{number}.db'}" for number in range(3)]
    urls = [same] * 3 + others + [postgres_database] * 3
    await asyncio.gather(*[upgrade(url) for url in urls])
    await asyncio.gather(*[check(url) for url in urls])


async def test_looking_at_the_schema_does_not_wait_for_a_writer(sqlite_database: str) -> None:
    other = sqlite3.connect(sqlite_database.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    engine = create_engine(sqlite_database, EngineLimits(busy_timeout_ms=0))
    await prepare(engine)
    await engine.dispose()
    other.close()


def _modes(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.rglob("*")}


async def test_a_new_file_and_its_folders_are_no_business_of_others(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "events.db"
    before = os.umask(0)
    try:
        url = f"sqlite:///{file}"
        store = await open_event_store(url, conformance_serializer())
        await store.append([stream("a", 1)])
        modes = _modes(tmp_path)
        await store.aclose()
    finally:
        os.umask(before)
    assert modes == {
        "a": 0o700, "b": 0o700, "events.db": 0o600, "events.db-wal": 0o600, "events.db-shm": 0o600,
    }  # fmt: skip


async def test_the_mode_of_a_file_that_is_there_stays(tmp_path: Path) -> None:
    file = tmp_path / "events.db"
    file.touch(mode=0o640)
    store = await open_event_store(f"sqlite:///{file}", conformance_serializer())
    await store.aclose()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
