"""
Reads what commands have stored, with bodies left undecoded.

Used by the proof of exported events, which compares bytes; reads SQLite and PostgreSQL over one connection.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import text

from headrace.stores.base import StoreIdentity
from headrace.stores.database.engines import EngineLimits, autocommit, create_engine
from headrace.stores.database.identity import identity_in
from headrace.stores.database.rows import checksum_of
from headrace.stores.database.schema import check
from headrace.stores.database.statements import load_statement

__all__ = ["CommandBodies", "StoredCommand"]

# One page is read at a time.
_LIMITS: Final = EngineLimits(connections_max=1, statement_timeout_ms=300_000)


class StoredCommand(NamedTuple):
    """What a command has stored.

    Attributes:
        version: of the aggregate after it; None for a rejection.
        body: the JSON as it is stored.
        damaged: its checksum says that it is not what was stored.
    """

    version: int | None
    body: bytes
    damaged: bool


class CommandBodies:
    """Reads an event store by aggregate and command.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`; a database that is there.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine = create_engine(url, _LIMITS)
        self._reading = autocommit(self._engine)
        self._sqlite = self._engine.dialect.name == "sqlite"
        package = "headrace.stores.sqlite" if self._sqlite else "headrace.stores.postgres"
        self._statement = text(load_statement(package, "stored"))

    async def identity(self) -> StoreIdentity:
        """Returns which event store this is.

        Raises:
            SchemaOutOfDate: there is no database, or its schema is not this version's.
            DefinitionError: the database is in memory.
            sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
        """
        await check(self._url)
        async with self._reading.connect() as connection:
            return await connection.run_sync(identity_in)

    async def find(
        self, commands: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], StoredCommand]:
        """Returns what commands stored, rejections included, by aggregate and command id.

        A command that stored nothing is left out. One round trip, so ask for a thousand at a time.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: the database failed.
        """
        binds: dict[str, Any] = {"pairs": json.dumps(list(commands))}
        if not self._sqlite:
            pairs = list(commands)
            binds = {
                "aggregate_ids": [aggregate for aggregate, _ in pairs],
                "command_ids": [command for _, command in pairs],
            }
        async with self._reading.connect() as connection:
            rows = (await connection.execute(self._statement, binds)).all()
        return {(row.aggregate_id, row.command_id): _command_in(row) for row in rows}

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._engine.dispose()


def _command_in(row: Any) -> StoredCommand:
    _, aggregate_id, aggregate_type, version, command_id, text_, checksum = row
    body = text_.encode()
    damaged = checksum is not None and checksum != checksum_of(
        aggregate_id, aggregate_type, version, command_id, body
    )
    return StoredCommand(version, body, damaged)
