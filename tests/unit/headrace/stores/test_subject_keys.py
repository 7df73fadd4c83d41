"""Keys of personal fields in a database, SQLite or PostgreSQL."""

import gc
import multiprocessing
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asyncpg import connect
from sqlalchemy import make_url

from headrace.errors import DefinitionError, SubjectKeysError
from headrace.stores.database.schema import upgrade
from headrace.stores.subject_keys import DatabaseKeys, keys_at
from headrace.subjects.keys import SUBJECT_MAX, ManyKeys, MemoryKeys
from headrace.subscriptions.outages import is_outage
from headrace.testing.conformance.subject_keys import SubjectKeysConformance


class Databases(SubjectKeysConformance):
    url: str
    made: list[DatabaseKeys]

    def make_keys(self) -> DatabaseKeys:
        self.made.append(DatabaseKeys(self.url))
        return self.made[-1]


class TestSqliteKeys(Databases):
    @pytest.fixture(autouse=True)
    def _url(self, sqlite_database: str) -> Iterator[None]:
        self.url, self.made = sqlite_database, []
        yield
        for each in self.made:
            each.close()


class TestPostgresKeys(Databases):
    @pytest.fixture(autouse=True)
    def _url(self, migrated_postgres: str) -> Iterator[None]:
        self.url, self.made = migrated_postgres, []
        yield
        for each in self.made:
            each.close()


@pytest.fixture(params=["sqlite_database", "migrated_postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def keys(url: str) -> Iterator[DatabaseKeys]:
    made = DatabaseKeys(url)
    yield made
    made.close()


class Turned:
    """Wraps a key by turning it round; knows of each call."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.away = False
        self.refuses = False

    def wrap(self, subject: str, key: bytes) -> bytes:
        self.asked.append(f"wrap {subject}")
        return b"turned" + key[::-1]

    def unwrap(self, subject: str, wrapped: bytes) -> bytes:
        if self.refuses:
            raise RuntimeError("not yours")
        if self.away:
            # As clients of services do, with an error of their own.
            raise RuntimeError("the service for keys is away") from ConnectionError("refused")
        self.asked.append(f"unwrap {subject}")
        return wrapped.removeprefix(b"turned")[::-1]


def test_many_keys_are_asked_for_at_once(keys: DatabaseKeys) -> None:
    assert isinstance(keys, ManyKeys)
    made = keys.make_many(["a", "b", "a"])
    keys.forget("c")
    assert keys.find_many(["a", "b", "c", "d"]) == {**made, "c": None}
    assert keys.make_many(["b", "c", "d"]).keys() == {"b", "c", "d"}
    assert keys.find_many([]) == {}


def test_processes_and_threads_that_make_keys_at_once_get_the_same(url: str) -> None:
    stores = [DatabaseKeys(url) for _ in range(3)]
    names = [f"c-{number}" for number in range(20)]
    start = threading.Barrier(6)

    def make(number: int) -> dict[str, bytes | None]:
        start.wait()
        wanted = names if number % 2 else names[::-1]
        return dict(stores[number % 3].make_many(wanted))

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(make, range(6)))
    assert all(each == found[0] for each in found)
    assert len(set(found[0].values())) == len(names)
    for each in stores:
        each.close()


def test_a_wrapped_key_is_stored_wrapped_and_found_unwrapped(
    url: str, keys: DatabaseKeys, tmp_path: Path
) -> None:
    plain = keys.make("plain")
    wrap = Turned()
    wrapping = DatabaseKeys(url, wrap=wrap)
    key = wrapping.make("c-1")
    assert (wrapping.find("c-1"), wrapping.find("plain")) == (key, plain)
    assert wrap.asked == ["wrap c-1", "unwrap c-1", "unwrap c-1"]
    with pytest.raises(SubjectKeysError, match=r"'c-1' was wrapped .*DatabaseKeys\(wrap="):
        keys.find("c-1")
    wrap.away = True
    with pytest.raises(SubjectKeysError, match=r"'c-1' cannot be unwrapped: .*away") as raised:
        wrapping.find("c-1")
    assert is_outage(raised.value)
    wrap.refuses = True
    with pytest.raises(SubjectKeysError, match="not yours") as raised:
        wrapping.find("c-1")
    assert not is_outage(raised.value)
    assert wrapping.forget("c-1")
    assert keys.find("c-1") is None
    wrapping.close()


def test_a_destroyed_key_is_in_no_file_of_sqlite(sqlite_database: str) -> None:
    keys = DatabaseKeys(sqlite_database)
    made = keys.make_many([f"c-{number}" for number in range(50)])
    gone = made["c-7"]
    assert gone is not None
    file = Path(make_url(sqlite_database).database or "")

    def held() -> bool:
        return any(gone in each.read_bytes() for each in file.parent.glob(f"{file.name}*"))

    assert held()
    keys.forget("c-7")
    assert not held()
    assert keys.find("c-8") == made["c-8"]
    keys.close()


def test_a_reader_does_not_keep_a_key_from_being_destroyed(
    sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.stores.subject_keys._EMPTY_LOG_MS_MAX", 1)
    keys = DatabaseKeys(sqlite_database)
    keys.make("c-1")
    with sqlite3.connect(make_url(sqlite_database).database or "") as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM subject_keys").fetchall()
        assert keys.forget("c-1")
    reader.close()
    assert keys.find("c-1") is None
    keys.close()


def test_keys_without_a_database_say_what_to_name(url: str) -> None:
    nowhere = DatabaseKeys()
    with pytest.raises(
        SubjectKeysError, match="database of the events, which was not named"
    ) as one:
        nowhere.find("c-1")
    assert not is_outage(one.value)
    keys = nowhere.at(url)
    assert keys.make("c-1")
    assert keys.at("sqlite:///other.db") is keys
    keys.close()


def test_a_url_of_another_database_is_refused_at_once() -> None:
    with pytest.raises(DefinitionError, match="mysql://"):
        DatabaseKeys("mysql://host/database")


@pytest.mark.parametrize("subject", ["x" * (SUBJECT_MAX + 1), "a\0b", "\ud800"])
def test_an_id_that_no_column_holds_is_refused(keys: DatabaseKeys, subject: str) -> None:
    for ask in (keys.find, keys.make, keys.forget):
        with pytest.raises(SubjectKeysError, match="has at most 255 characters and no NUL"):
            ask(subject)


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    keys = DatabaseKeys(f"sqlite:///{tmp_path / 'none.db'}")
    with pytest.raises(SubjectKeysError, match=r"no database .*none\.db .*headrace db upgrade"):
        keys.make("c-1")
    assert not (tmp_path / "none.db").exists()


async def test_a_schema_from_before_is_named_with_the_command(
    tmp_path: Path, postgres_database: str
) -> None:
    file = f"sqlite:///{tmp_path / 'old.db'}"
    for url in (file, postgres_database):
        await upgrade(url, "0018")
        keys = DatabaseKeys(url)
        with pytest.raises(
            SubjectKeysError, match=r"is behind .*run: headrace db upgrade"
        ) as raised:
            keys.find("c-1")
        assert not is_outage(raised.value)
        keys.close()


def test_a_server_that_is_away_is_an_outage_without_its_password(tmp_path: Path) -> None:
    keys = DatabaseKeys(f"postgresql://ann:secret@/shop?host={tmp_path}")
    with pytest.raises(SubjectKeysError, match="cannot be read") as raised:
        keys.find("c-1")
    assert is_outage(raised.value)
    assert "secret" not in str(raised.value)
    keys.close()


async def test_a_connection_that_was_cut_is_an_outage_at_most_once(migrated_postgres: str) -> None:
    keys = DatabaseKeys(migrated_postgres)
    key = keys.make("c-1")
    connection = await connect(migrated_postgres)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()
    outages: list[Exception] = []

    def find() -> bytes | None:
        try:
            return keys.find("c-1")
        except SubjectKeysError as error:
            outages.append(error)
            return None

    assert (find() or find()) == key
    assert all(map(is_outage, outages))
    keys.close()


def test_closed_keys_open_again(keys: DatabaseKeys) -> None:
    key = keys.make("c-1")
    keys.close()
    keys.close()
    assert keys.find("c-1") == key


def test_forgotten_keys_close_what_they_opened(url: str) -> None:
    before = threading.active_count()
    for _ in range(3):
        DatabaseKeys(url).make("c-1")
    gc.collect()
    assert threading.active_count() == before


def ask_in_child(keys: DatabaseKeys, told: Any) -> None:
    told.put(keys.find("c-1"))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_was_forked_has_connections_of_its_own(keys: DatabaseKeys) -> None:
    key = keys.make("c-1")
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    child = context.Process(target=ask_in_child, args=(keys, told))
    child.start()
    assert told.get(timeout=120) == key
    child.join(30)
    assert child.exitcode == 0
    assert keys.find("c-1") == key


def test_an_application_keeps_its_keys_with_its_events_unless_it_says_otherwise() -> None:
    memory, said = MemoryKeys(), MemoryKeys()
    own = DatabaseKeys("sqlite:///keys.db")
    assert isinstance(keys_at(None, "sqlite:///events.db", memory), DatabaseKeys)
    assert isinstance(keys_at(None, None, memory), DatabaseKeys)
    assert keys_at(None, "memory://", memory) is memory
    assert keys_at(said, "sqlite:///events.db", memory) is said
    assert keys_at(said, "memory://", memory) is said
    assert keys_at(own, "sqlite:///events.db", memory) is own
