"""
Which commands an event store has: one by its id alone, some that came soon after another, and the newest ones.

The store has an index for a command of a known aggregate. Without the aggregate the newest rows are searched, some
hundred thousand at most, because a search of all would take minutes in a large store.

Used by the console and by `headrace message trace`. It reads, and writes nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import Row, Select, select

from headrace.domain.stream_body import MALFORMED
from headrace.errors import DamagedStream
from headrace.serialization import Serializer
from headrace.stores.base import LetterState, StoredStream
from headrace.stores.database.engines import autocommit, create_engine
from headrace.stores.database.queries import highest_position
from headrace.stores.database.rows import COLUMNS, checksum_of, entry_in, read_keys
from headrace.stores.database.tables import event_streams
from headrace.stores.letters import DatabaseCommandLetters

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["DAMAGED", "CommandDirectory", "CommandPlace", "open_command_directory"]

# Positions that are searched by one statement: some 50 MB of a table.
_SPAN: Final = 100_000
# Positions that are searched for a command of which the aggregate is not known: about a second.
SEARCHED_POSITIONS_MAX: Final = 500_000
# Results of one page.
RESULTS_MAX: Final = 1_000
# The outcome of what cannot be read.
DAMAGED: Final = ("damaged", "")
_of: Final = event_streams.c


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlace:
    """Where a command stands in an event store.

    Attributes:
        position: in the order of everything stored.
        aggregate_id: whose command it was.
        command_id: its id.
        version: of the aggregate after it; None: it changed nothing, or was rejected.
    """

    position: int
    aggregate_id: str
    command_id: str
    version: int | None


class CommandDirectory:
    """The commands of an event store whose schema is up to date.

    Args:
        engine: of its database; closed by the caller.
        serializer: decodes results.
    """

    def __init__(self, engine: "AsyncEngine", serializer: Serializer) -> None:
        self._engine = autocommit(engine)
        self._serializer = serializer

    async def at(self, aggregate_id: str, command_id: str) -> CommandPlace | None:
        """Returns where a command of a known aggregate stands; None: it has stored nothing."""
        query = _places().where(_of.aggregate_id == aggregate_id, _of.command_id == command_id)
        rows = await self._read(query)
        return _place(rows[0]) if rows else None

    async def find(self, command_id: str) -> CommandPlace | None:
        """Returns where a command stands, by its id alone; None: it is not among the newest ones.

        Args:
            command_id: of a command that is among the last `SEARCHED_POSITIONS_MAX` positions.
        """
        async with self._engine.connect() as connection:
            last = (await connection.execute(highest_position())).scalar_one()
        for end in range(last, max(0, last - SEARCHED_POSITIONS_MAX), -_SPAN):
            query = _places().where(
                _of.position > end - _SPAN, _of.position <= end, _of.command_id == command_id
            )
            rows = await self._read(query.order_by(_of.position.desc()).limit(1))
            if rows:
                return _place(rows[0])
        return None

    async def soon_after(
        self, position: int, command_ids: Collection[str]
    ) -> dict[str, CommandPlace]:
        """Returns which of some commands stand within `_SPAN` positions after one, by their ids."""
        query = _places().where(
            _of.position > position,
            _of.position <= position + _SPAN,
            _of.command_id.in_(command_ids),
        )
        rows = await self._read(query) if command_ids else []
        return {row.command_id: _place(row) for row in rows}

    async def newest(
        self, *, before: int | None = None, limit: int = 50
    ) -> list[StoredStream | DamagedStream]:
        """Returns what commands stored, the newest first; a damaged one comes as its error.

        Args:
            before: only those at lower positions than this one; None: all.
            limit: how many at most, up to `RESULTS_MAX`.
        """
        query = select(*COLUMNS).order_by(_of.position.desc())
        if before is not None:
            query = query.where(_of.position < before)
        rows = await self._read(query.limit(max(1, min(limit, RESULTS_MAX))))
        await read_keys(rows, self._serializer)
        return [entry_in(row, self._serializer) for row in rows]

    async def outcomes(self, *, limit: int = RESULTS_MAX) -> Counter[tuple[str, str]]:
        """Returns how many of the newest commands had each status and error, without a look at their events.

        So a command counts as executed also where an event of it is of a type that the application does not know.

        Args:
            limit: how many are counted at most, up to `RESULTS_MAX`.
        """
        query = select(*COLUMNS).order_by(_of.position.desc())
        return Counter(
            map(_outcome, await self._read(query.limit(max(1, min(limit, RESULTS_MAX)))))
        )

    async def parked(self) -> dict[tuple[str, LetterState], int]:
        """Returns how many commands are parked or held, by error and state."""
        return await DatabaseCommandLetters(self._engine).tally()

    async def _read(self, query: Select[Any]) -> Sequence[Row[Any]]:
        async with self._engine.connect() as connection:
            rows: Sequence[Row[Any]] = (await connection.execute(query)).all()
            return rows


@asynccontextmanager
async def open_command_directory(
    url: str, serializer: Serializer
) -> AsyncIterator[CommandDirectory]:
    """Opens the directory of an event store until the block ends; see `schema.check` for its schema.

    Raises:
        DefinitionError: the URL is not one of SQLite or PostgreSQL.
    """
    engine = create_engine(url)
    try:
        yield CommandDirectory(engine, serializer)
    finally:
        await engine.dispose()


class _RejectionHead(msgspec.Struct, gc=False):
    error: str


class _OutcomeBody(msgspec.Struct, gc=False):
    """What says how a command ended; events and messages stay in JSON."""

    events: list[msgspec.Raw] = []
    messages: list[msgspec.Raw] = []
    rejection: _RejectionHead | None = None


_read_outcome: Final = msgspec.json.Decoder(_OutcomeBody).decode


def _outcome(row: Any) -> tuple[str, str]:
    """Status and error of a row of `COLUMNS`, as `answer.result_of` has them for a whole stream."""
    _, aggregate_id, aggregate_type, version, command_id, text, checksum = row
    body = text.encode()
    if checksum is not None and checksum != checksum_of(
        aggregate_id, aggregate_type, version, command_id, body
    ):
        return DAMAGED
    try:
        found = _read_outcome(body)
    except MALFORMED:
        return DAMAGED
    if found.events or found.messages:
        return "executed", ""
    return ("unchanged", "") if found.rejection is None else ("rejected", found.rejection.error)


def _places() -> Select[Any]:
    return select(_of.position, _of.aggregate_id, _of.command_id, _of.version)


def _place(row: Any) -> CommandPlace:
    position, aggregate_id, command_id, version = row
    return CommandPlace(
        position=position, aggregate_id=aggregate_id, command_id=command_id, version=version
    )
