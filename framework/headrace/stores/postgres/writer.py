"""
The fast path of an append on PostgreSQL: one statement on one connection of its own.

Used by the PostgreSQL store. It calls asyncpg directly, because a statement through SQLAlchemy costs a
single stream more than everything else in an append. On any failure the writer gives up without
finding the cause; the store then appends the slower way, which reports it.
"""

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headrace._runtime.log import get_logger

__all__ = ["PostgresWriter", "numbered"]

log = get_logger(__name__)

_BIND: Final = re.compile(r"(?<!:):([a-z_]+)\b")
# What PostgreSQL says of an INSERT: the word, an old zero, and the number of rows.
_INSERTED: Final = re.compile(r"INSERT 0 (\d+)")


def numbered(statement: str) -> tuple[str, Sequence[str]]:
    """Returns a statement with `$1`, `$2` … in place of its named binds, and the names in order."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _BIND.sub(number, statement), names


class PostgresWriter:
    """Runs one INSERT again and again, each a transaction of its own.

    Args:
        engine: commits every statement by itself; has a connection for the writer alone.
        statement: with named binds.
    """

    def __init__(self, engine: AsyncEngine, statement: str) -> None:
        self._engine = engine
        self._statement, self._binds = numbered(statement)
        self._connection: AsyncConnection | None = None
        self._prepared: Any = None
        self._busy = False

    async def insert(self, binds: Mapping[str, Any]) -> int | None:
        """Returns how many rows it inserted; None: ask in another way.

        After None the rows may be there or not: the connection was lost, a constraint objected, or
        another insert is under way.
        """
        if self._busy:
            return None
        self._busy = True
        try:
            if self._prepared is None:
                await self._prepare()
            await self._prepared.fetch(*[binds[name] for name in self._binds])
            said = _INSERTED.fullmatch(self._prepared.get_statusmsg())
            return None if said is None else int(said.group(1))
        except asyncpg.IntegrityConstraintViolationError:
            return None
        except Exception as error:  # noqa: BLE001 - the slower way meets the same error and reports it
            log.info("the writer's connection is given up", error=repr(error))
            await self.aclose()
            return None
        except BaseException:
            # Cancelled in the middle of a statement: the connection's state is unknown.
            await self.aclose()
            raise
        finally:
            self._busy = False

    async def _prepare(self) -> None:
        self._connection = await self._engine.connect()
        raw = await self._connection.get_raw_connection()
        driver: Any = raw.driver_connection
        self._prepared = await driver.prepare(self._statement)

    async def aclose(self) -> None:
        """Gives the connection up; the next insert makes another."""
        self._prepared = None
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(Exception):  # it is of no use any more
            await connection.invalidate()
        with contextlib.suppress(Exception):
            await connection.close()
