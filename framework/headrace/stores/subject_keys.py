"""
Subjects' keys in the table `subject_keys` of a database, SQLite or PostgreSQL: that of the events by default.

Implements `ManyKeys`. The port blocks, for readers without an event loop: executors of Spark, exports, the
command line. So PostgreSQL, which has a driver for asyncio alone, is asked in a loop of its own, in a thread.
Services ask ahead and do not wait here; see `KeptKeys`.
"""

import asyncio
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    String,
    any_,
    event,
    literal,
    make_url,
    select,
)
from sqlalchemy import update as update_rows
from sqlalchemy.dialects.postgresql import insert as insert_postgres
from sqlalchemy.dialects.sqlite import insert as insert_sqlite

from headrace.errors import HeadraceError, SchemaOutOfDate, SubjectKeysAway, SubjectKeysError
from headrace.stores.database.engines import (
    EngineLimits,
    autocommit,
    create_engine,
    create_sqlite_engine,
    database_url,
)
from headrace.stores.database.refusals import is_away
from headrace.stores.database.schema import check
from headrace.stores.database.tables import subject_keys
from headrace.subjects.keys import (
    KEY_BYTES,
    SUBJECT_MAX,
    KeyWrap,
    Subject,
    SubjectKeys,
    claims_away,
    is_storable,
)

__all__ = ["DatabaseKeys", "keys_at"]

T = TypeVar("T")
# A row of the table: subject, key, wrapped.
_Row = tuple[str, bytes | None, bool]

# Readers block while they wait, so a server that does not answer is noticed sooner than by others.
_LIMITS: Final = EngineLimits(
    connections_max=2,
    checkout_timeout_ms=10_000,
    connect_timeout_ms=5_000,
    statement_timeout_ms=5_000,
)
# Milliseconds for one answer in all: a new connection, and two statements.
_ANSWER_MS_MAX: Final = 20_000
# Milliseconds for closing a connection: a server that is away is not waited for.
_CLOSE_MS_MAX: Final = 2_000
# Milliseconds for which emptying SQLite's log waits for readers: `forget` is done without, too.
_EMPTY_LOG_MS_MAX: Final = 1_000

_columns = subject_keys.c


class _Database(Protocol):
    def run(self, work: Callable[[Connection], T], *, writes: bool) -> T: ...

    def close(self) -> None: ...


class DatabaseKeys:
    """Keys in a database; see `SubjectKeys`.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`, with an up-to-date schema; None: the
            database of the application's events.
        wrap: encrypts the keys before they are stored; None: they are stored as they are. Keys from
            before stay as they are, and can be read.
    """

    def __init__(self, url: str | None = None, *, wrap: KeyWrap | None = None) -> None:
        if url is not None:
            database_url(url)
        self._url = url
        self._wrap = wrap
        self._opening = threading.Lock()
        self._opened: tuple[int, _Database] | None = None
        self._closing: Callable[[], object] | None = None

    def at(self, url: str) -> "DatabaseKeys":
        """Returns these keys in a database, where they have none of their own yet."""
        return self if self._url is not None else DatabaseKeys(url, wrap=self._wrap)

    def find(self, subject: str) -> bytes | None:
        """Returns a subject's key; None: it has none, or it was destroyed.

        Raises:
            SubjectKeysError: the database cannot be read, or the key cannot be unwrapped.
        """
        return self.find_many([subject]).get(subject)

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        """Returns keys by subject; None: destroyed; left out: it never had one here.

        Raises:
            SubjectKeysError: as `find`.
        """
        wanted = [_checked(each) for each in subjects]
        return self._keys_in(self._run(partial(_find, subjects=wanted), "read"))

    def make(self, subject: str) -> bytes | None:
        """Returns a subject's key, made durably if it never had one; None: it was destroyed.

        Raises:
            SubjectKeysError: the database cannot be read or written, or the key cannot be wrapped.
        """
        return self.make_many([subject])[subject]

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        """Returns keys by subject, made durably where there never was one; None: destroyed.

        Raises:
            SubjectKeysError: as `make`.
        """
        found = dict(self.find_many(subjects))
        # In one order: two processes that make the same keys do not wait for each other.
        new = sorted(set(subjects) - found.keys())
        if new:
            now = datetime.now(UTC)
            rows = [
                {
                    "subject": each,
                    "key": self._wrapped(each, secrets.token_bytes(KEY_BYTES)),
                    "wrapped": self._wrap is not None,
                    "made_at": now,
                }
                for each in new
            ]
            made = self._run(partial(_add, rows=rows), "written", writes=True)
            found |= self._keys_in(made)
        return found

    def forget(self, subject: str) -> bool:
        """Destroys a subject's key for ever; returns whether it had one.

        On SQLite zeros go over its bytes, in the log as well unless a reader holds it up. PostgreSQL keeps
        them in its files until it vacuums the table, and in its log.

        Raises:
            SubjectKeysError: the database cannot be read or written.
        """
        had = self._run(partial(_forget, subject=_checked(subject)), "written", writes=True)
        self._run(_empty_log, "written")
        return had

    def subjects(self) -> list[Subject]:
        """Returns every subject, by id.

        Raises:
            SubjectKeysError: the database cannot be read.
        """
        return sorted(self._run(_subjects, "read"))

    def close(self) -> None:
        """Closes the connections; the next call opens one again."""
        with self._opening:
            closing, self._opened, self._closing = self._closing, None, None
        if closing is not None:
            closing()

    def _run(self, work: Callable[[Connection], T], verb: str, *, writes: bool = False) -> T:
        if self._url is None:
            raise SubjectKeysError(
                "the keys of personal fields are in the database of the events, which was not named: give"
                " its URL (event_store of the settings, --event-store without --unsealed), or say with"
                " app.keep_keys(…) where they are"
            )
        try:
            return self._database(self._url).run(work, writes=writes)
        except HeadraceError:
            raise
        except Exception as error:  # noqa: BLE001 - a driver raises what it likes; raised with what to do
            shown = make_url(self._url).render_as_string(hide_password=True)
            cause = _outdated(self._url) or error
            why = f"{cause}".partition("\n")[0] or repr(cause)
            raise _kind(cause)(f"the keys in {shown} cannot be {verb}: {why}") from cause

    def _database(self, url: str) -> _Database:
        with self._opening:
            # What was opened before a fork is the parent's.
            if self._opened is None or self._opened[0] != os.getpid():
                database = _open(url)
                self._opened = (os.getpid(), database)
                # Many short-lived parts have a key store, and nothing to close it with.
                self._closing = weakref.finalize(self, _close, *self._opened)
            return self._opened[1]

    def _wrapped(self, subject: str, key: bytes) -> bytes:
        if self._wrap is None:
            return key
        with _of_wrap(subject, "wrapped"):
            return self._wrap.wrap(subject, key)

    def _keys_in(self, rows: Collection[_Row]) -> dict[str, bytes | None]:
        return {subject: self._key_in(subject, key, wrapped) for subject, key, wrapped in rows}

    def _key_in(self, subject: str, key: bytes | None, wrapped: bool) -> bytes | None:
        if key is None or not wrapped:
            return key
        if self._wrap is None:
            raise SubjectKeysError(
                f"the key of {subject!r} was wrapped before it was stored; say with what:"
                " app.keep_keys(DatabaseKeys(wrap=…))"
            )
        with _of_wrap(subject, "unwrapped"):
            return self._wrap.unwrap(subject, key)


def keys_at(
    said: SubjectKeys | None, event_store: str | None, in_memory: SubjectKeys
) -> SubjectKeys:
    """Returns the keys of an application.

    Args:
        said: where it says that they are; None: nothing.
        event_store: URL of its events; None: not known here. Keys that are there then raise
            SubjectKeysError where they are needed.
        in_memory: the keys where the events are in memory, too.
    """
    keys = DatabaseKeys() if said is None else said
    if event_store is None or not isinstance(keys, DatabaseKeys):
        return keys
    return in_memory if event_store == "memory://" else keys.at(event_store)


class _Sqlite:
    """A file, read and written in the caller's thread."""

    def __init__(self, url: str) -> None:
        self._engine = create_sqlite_engine(url, _LIMITS)
        event.listen(self._engine, "connect", _delete_securely)
        self._reading = autocommit(self._engine)

    def run(self, work: Callable[[Connection], T], *, writes: bool) -> T:
        if not writes:
            with self._reading.connect() as connection:
                return work(connection)
        with self._engine.begin() as connection:
            return work(connection)

    def close(self) -> None:
        self._engine.dispose()


class _Postgres:
    """A server, asked in an event loop of this object's own."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, _LIMITS)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headrace-subject-keys", daemon=True
        )
        self._thread.start()

    def run(self, work: Callable[[Connection], T], *, writes: bool) -> T:
        async def ask() -> T:
            engine = self._engine if writes else autocommit(self._engine)
            async with engine.connect() as connection:
                done = await connection.run_sync(work)
                await connection.commit()
                return done

        future = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        try:
            return future.result(_ANSWER_MS_MAX / 1_000)
        except TimeoutError:
            future.cancel()
            raise

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        closing = asyncio.run_coroutine_threadsafe(self._engine.dispose(), self._loop)
        with suppress(Exception):
            closing.result(_CLOSE_MS_MAX / 1_000)
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_MS_MAX / 1_000)
            if not self._thread.is_alive():
                self._loop.close()


def _open(url: str) -> _Database:
    parsed = database_url(url)
    if parsed.get_backend_name() != "sqlite":
        return _Postgres(url)
    if not Path(parsed.database or "").is_file():
        # A new file has no keys, so everyone would look forgotten. It may be on a disk that comes later.
        raise SubjectKeysAway(
            f"there is no database {url} with the keys of personal fields; correct the URL, or make it:"
            f" headrace db upgrade --url {url}"
        )
    return _Sqlite(url)


def _close(process: int, database: _Database) -> None:
    if process == os.getpid():
        database.close()


def _checked(subject: str) -> str:
    if not is_storable(subject):
        raise SubjectKeysError(
            f"the id of a subject has at most {SUBJECT_MAX} characters and no NUL; this one, with"
            f" {len(subject)}, begins with {subject[:20]!r}"
        )
    return subject


def _find(connection: Connection, *, subjects: list[str]) -> list[_Row]:
    query = select(_columns.subject, _columns.key, _columns.wrapped)
    rows = connection.execute(query.where(_among(connection, subjects)))
    return [(row.subject, row.key, row.wrapped) for row in rows]


def _among(connection: Connection, subjects: list[str]) -> ColumnElement[bool]:
    if connection.dialect.name == "sqlite":
        return _columns.subject.in_(subjects)
    # One statement for any number of them, which the driver prepares once.
    return _columns.subject == any_(literal(subjects, ARRAY(String)))


def _add(connection: Connection, *, rows: list[dict[str, Any]]) -> list[_Row]:
    connection.execute(_insert(connection), rows)
    return _find(connection, subjects=[row["subject"] for row in rows])


def _insert(connection: Connection) -> Any:
    if connection.dialect.name == "sqlite":
        return insert_sqlite(subject_keys).on_conflict_do_nothing()
    return insert_postgres(subject_keys).on_conflict_do_nothing()


def _forget(connection: Connection, *, subject: str) -> bool:
    now = datetime.now(UTC)
    row = {"subject": subject, "key": None, "wrapped": False, "made_at": now, "forgotten_at": now}
    # A key that is made at the same moment is found by the update.
    connection.execute(_insert(connection), [row])
    destroyed = connection.execute(
        update_rows(subject_keys)
        .where(_columns.subject == subject, _columns.key.is_not(None))
        .values(key=None, wrapped=False, forgotten_at=now)
    )
    return destroyed.rowcount == 1


def _empty_log(connection: Connection) -> None:
    """Takes SQLite's log into the file, where zeros are in the key's place; not while others hold it up."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {_EMPTY_LOG_MS_MAX}")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").close()
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {_LIMITS.busy_timeout_ms}")


def _delete_securely(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA secure_delete = ON")


def _subjects(connection: Connection) -> list[Subject]:
    rows = connection.execute(select(_columns.subject, _columns.forgotten_at))
    return [Subject(row.subject, row.forgotten_at) for row in rows]


@contextmanager
def _of_wrap(subject: str, verb: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        kind = SubjectKeysAway if claims_away(error) else _kind(error)
        raise kind(f"the key of {subject!r} cannot be {verb}: {error!r}") from error


def _kind(cause: Exception) -> type[SubjectKeysError]:
    """Returns the error for a cause: an outage is waited for, another one is not."""
    return SubjectKeysAway if is_away(cause) else SubjectKeysError


def _outdated(url: str) -> SchemaOutOfDate | None:
    """Returns what to do where the schema is why a database failed."""
    found: list[SchemaOutOfDate] = []

    def look() -> None:
        try:
            asyncio.run(check(url))
        except SchemaOutOfDate as outdated:
            found.append(outdated)
        except Exception:  # noqa: BLE001, S110 - the first error says it
            pass

    thread = threading.Thread(target=look, name="headrace-schema-check")
    thread.start()
    thread.join(_ANSWER_MS_MAX / 1_000)
    return found[0] if found else None
