"""
Locks that tell whether a rebuild still runs, wherever its process is.

    hold ─▶ the rebuild's owner is in the database ─▶ release, or the process dies ─▶ is_held: False

PostgreSQL: an advisory lock of a session that the rebuild keeps open; it ends with the session, also where
the process was in a container or on another host. SQLite: a lock of the file system on a file next to the
database, which ends with the process. A process number tells neither: in a container each is 1.

Used by rebuilds, by way of `ReadModels`. It knows neither projections nor their tables.
"""

import asyncio
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from sqlalchemy import func, literal, select
from sqlalchemy import table as lightweight_table
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql import column

from headrace._runtime.file_lock import take_file_lock
from headrace._runtime.private_files import FILE_MODE
from headrace.stores.database.engines import autocommit, is_in_memory

__all__ = ["RebuildLocks"]

# Of the session that holds locks: a host that is away has lost them after a minute, instead of the two
# hours of most systems; and the server does not end the session because it is silent.
_SESSION: Final = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "idle_session_timeout": "0",
}
# How long a server may take to notice that a process was killed, and how often is looked (PostgreSQL).
_NOTICED_MS: Final = 1_000
_LOOK_MS: Final = 50
_SETTINGS: Final = lightweight_table("pg_settings", column("name"))


class RebuildLocks:
    """The locks of the rebuilds of one database.

    Args:
        engine: of the database; one of its connections is kept while locks are held on PostgreSQL.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = autocommit(engine)
        self._url = engine.url
        self._turn = asyncio.Lock()
        self._held: dict[str, int | None] = {}
        self._session: AsyncConnection | None = None

    async def hold(self, owner: str) -> None:
        """Takes the lock of an owner, a name that no other rebuild has.

        Raises:
            OSError: the folder of the database takes no new file (SQLite).
        """
        if is_in_memory(self._url):
            self._held[owner] = None
        elif self._url.get_backend_name() == "sqlite":
            file = os.open(self._file(owner), os.O_CREAT | os.O_RDWR, FILE_MODE)
            take_file_lock(file)  # no other one has this name
            self._held[owner] = file
        else:
            async with self._turn:
                if self._session is None:
                    self._session = await self._open_session()
                await self._session.execute(select(func.pg_advisory_lock(_number(owner))))
                self._held[owner] = None

    async def release(self, owner: str) -> None:
        """Gives a lock back; nothing happens if it is not held here. Never raises."""
        if owner not in self._held:
            return
        file = self._held.pop(owner)
        if file is not None:
            self._file(owner).unlink(missing_ok=True)
            os.close(file)
        elif self._session is not None:
            # A session that the server has ended holds nothing.
            with suppress(SQLAlchemyError, OSError):
                async with self._turn:
                    await self._session.execute(select(func.pg_advisory_unlock(_number(owner))))

    async def is_held(self, owner: str) -> bool:
        """Whether the rebuild of an owner that has taken its lock still runs, here or elsewhere."""
        if owner in self._held:
            return True
        if is_in_memory(self._url):
            return False
        if self._url.get_backend_name() == "sqlite":
            return _is_locked(self._file(owner))
        free = select(func.pg_try_advisory_xact_lock(_number(owner)))
        async with self._engine.connect() as connection:
            for _ in range(_NOTICED_MS // _LOOK_MS):
                if await connection.scalar(free):
                    return False
                await asyncio.sleep(_LOOK_MS / 1_000)
        return True

    async def aclose(self) -> None:
        """Gives all locks back."""
        for owner in list(self._held):
            await self.release(owner)
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def _open_session(self) -> AsyncConnection:
        session = await self._engine.connect()
        for name, value in _SESSION.items():
            known = select(literal(1)).select_from(_SETTINGS).where(_SETTINGS.c.name == name)
            await session.execute(select(func.set_config(name, value, False)).where(known.exists()))  # noqa: FBT003 - the database's argument
        return session

    def _file(self, owner: str) -> Path:
        file = Path(self._url.database or "").resolve()
        return file.with_name(f"{file.name}-rebuild-{_digest(owner).hex()}.lock")


def _is_locked(path: Path) -> bool:
    """Whether a process holds a lock on a file; removes one that a dead process has left."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    try:
        if not take_file_lock(file):
            return True
        with suppress(PermissionError):
            path.unlink(missing_ok=True)
        return False
    finally:
        os.close(file)


def _digest(owner: str) -> bytes:
    return blake2b(b"rebuild " + owner.encode(), digest_size=8).digest()


def _number(owner: str) -> int:
    return int.from_bytes(_digest(owner), "big", signed=True)
