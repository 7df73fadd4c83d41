"""SQLite files on a disk that takes no writes: a real one, which is mounted so."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from headrace.errors import DefinitionError
from headrace.serialization import Serializer
from headrace.stores.base import AppendOutcome
from headrace.stores.database.engines import create_engine, create_sqlite_engine
from headrace.stores.database.read_only import ReadOnlyFile, why_read_only
from headrace.stores.database.schema import check
from headrace.stores.open import open_command_letters, open_event_store
from headrace.testing.conformance.streams import conformance_serializer, stream

# Commits a row that only the log has, and ends as a kill ends it.
KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("CREATE TABLE IF NOT EXISTS numbers (number)")
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.execute("INSERT INTO numbers VALUES (1)")
os._exit(0)
"""


def kill_a_writer(file: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, file], check=True)
    assert file.with_name(f"{file.name}-wal").stat().st_size


def numbers(file: Path) -> list[int]:
    engine = create_sqlite_engine(f"sqlite:///{file}")
    try:
        with engine.begin() as connection:
            return list(connection.scalars(text("SELECT number FROM numbers")))
    finally:
        engine.dispose()


def test_the_log_of_a_killed_writer_is_read(small_disk: Any) -> None:
    file = small_disk.path / "a b.db"
    kill_a_writer(file)
    small_disk.forbid()
    assert why_read_only(file) == "its disk takes no writes"
    assert numbers(file) == [1]


def test_a_file_without_a_log_is_read(small_disk: Any) -> None:
    file = small_disk.path / "a.db"
    kill_a_writer(file)
    sqlite3.connect(file).execute("SELECT * FROM numbers").connection.close()
    assert list(small_disk.path.iterdir()) == [file]
    small_disk.forbid()
    assert numbers(file) == [1]


def test_a_log_without_its_index_is_never_passed_over(small_disk: Any) -> None:
    file = small_disk.path / "a.db"
    kill_a_writer(file)
    file.with_name("a.db-shm").unlink()
    small_disk.forbid()
    with pytest.raises(DefinitionError, match=r"copy a\.db and a\.db-wal into a folder") as refused:
        numbers(file)
    assert "\n" not in str(refused.value)


def test_an_empty_log_holds_nothing(small_disk: Any) -> None:
    file = small_disk.path / "a.db"
    kill_a_writer(file)
    sqlite3.connect(file).execute("SELECT * FROM numbers").connection.close()
    file.with_name("a.db-wal").touch()
    small_disk.forbid()
    assert numbers(file) == [1]


def test_a_connection_that_would_not_see_a_change_is_replaced(
    small_disk: Any,
) -> None:
    file = small_disk.path / "a.db"
    kill_a_writer(file)
    sqlite3.connect(file).execute("SELECT * FROM numbers").connection.close()
    small_disk.forbid()
    engine = create_sqlite_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        assert list(connection.scalars(text("SELECT number FROM numbers"))) == [1]
    small_disk.allow()
    kill_a_writer(file)
    small_disk.forbid()
    with engine.connect() as connection:
        assert list(connection.scalars(text("SELECT number FROM numbers"))) == [1, 1]
    engine.dispose()


async def test_the_asyncio_engine_reads_too_and_cannot_write(small_disk: Any) -> None:
    file = small_disk.path / "a.db"
    kill_a_writer(file)
    small_disk.forbid()
    engine = create_engine(f"sqlite:///{file}")
    async with engine.begin() as connection:
        assert (await connection.execute(text("SELECT number FROM numbers"))).all() == [(1,)]
    with pytest.raises(OperationalError, match="readonly"):
        async with engine.begin() as connection:
            await connection.execute(text("INSERT INTO numbers VALUES (2)"))
    await engine.dispose()


@pytest.mark.parametrize("ended", ["orderly", "killed"])
async def test_an_event_store_and_its_letters_open_and_are_read(
    small_disk: Any, tmp_path: Path, ended: str
) -> None:
    files = tmp_path / "events.db"
    serializer: Serializer = conformance_serializer()
    store = await open_event_store(f"sqlite:///{files}", serializer)
    made = await store.identity()
    assert await store.append([stream("a", 1)]) == [AppendOutcome.APPENDED]
    if ended == "killed":  # what a kill leaves is what there is before the end
        for ending in ("", "-wal", "-shm"):
            shutil.copy(f"{files}{ending}", small_disk.path)
    await store.aclose()
    if ended == "orderly":
        shutil.copy(files, small_disk.path)
    small_disk.forbid()
    url = f"sqlite:///{small_disk.path / 'events.db'}"
    await check(url)
    reading = await open_event_store(url, serializer)
    assert [one.version for one in await reading.read_stream("a")] == [1]
    assert (await reading.identity(), await reading.last_position()) == (made, 1)
    with pytest.raises(OperationalError, match="readonly"):
        await reading.append([stream("a", 2)])
    await reading.aclose()
    letters = await open_command_letters(url)
    assert await letters.read() == []
    await letters.aclose()


def test_a_file_that_can_be_written_is_not_read_only(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    assert why_read_only(file) is None
    kill_a_writer(file)
    assert why_read_only(file) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize(
    ("modes", "reason"),
    [
        ({"a.db": 0o444}, "this user may not write a.db"),
        ({"a.db-wal": 0o444}, "this user may not write a.db-wal"),
        ({".": 0o755}, None),
    ],
)
def test_the_rights_of_this_user_count(
    tmp_path: Path, modes: dict[str, int], reason: str | None
) -> None:
    folder = tmp_path / "f"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    kill_a_writer(folder / "a.db")
    for file in folder.iterdir():
        file.chmod(0o666)
    for name, mode in modes.items():
        (folder / name).chmod(mode)
    assert as_another_user(folder / "a.db") == reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_folder_in_which_no_log_can_be_made_counts(tmp_path: Path) -> None:
    file = tmp_path / "f" / "a.db"
    file.parent.mkdir(mode=0o755)
    kill_a_writer(file)
    sqlite3.connect(file).execute("SELECT * FROM numbers").connection.close()
    file.chmod(0o666)
    assert as_another_user(file) == "this user may not make a.db-wal in its folder"


def as_another_user(file: Path) -> str | None:
    """Asks in a child process that stands in the folder and gave root up."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(file.parent)
            os.setgroups([])
            os.setuid(65_534)
            os.write(writing, str(why_read_only(Path(file.name))).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    return None if said == "None" else said


def test_the_way_a_file_is_opened_is_known_before_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a b.db"
    kill_a_writer(file)
    with_log = ReadOnlyFile.of(file)
    assert with_log.uri.endswith("/a%20b.db?mode=ro")
    assert not with_log.is_outdated(file)
    sqlite3.connect(file).execute("SELECT * FROM numbers").connection.close()
    alone = ReadOnlyFile.of(file)
    assert alone.uri.endswith("?mode=ro&immutable=1")
    assert not alone.is_outdated(file)
    kill_a_writer(file)
    assert alone.is_outdated(file)
