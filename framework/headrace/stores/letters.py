"""
Parked commands in a database, SQLite or PostgreSQL.

Implements the `CommandLetterStore` port on the table `parked`. Letters are few, so plain statements do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import RowMapping, Select, and_, case, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncEngine

from headrace.stores.base import CommandLetter, LetterState
from headrace.stores.database.engines import autocommit
from headrace.stores.database.tables import parked_rows

__all__ = ["DatabaseCommandLetters"]

_columns = parked_rows.c
# What no reader of events is called.
_NAME: Final = "commands:"
_MINE: Final = (_columns.name == _NAME, _columns.generation == 0)
_SHOWN: Final = (
    _columns.number,
    _columns.aggregate_id,
    _columns.command_id,
    _columns.command.label("name"),
    _columns.state,
    _columns.parked_at,
    _columns.attempts,
    _columns.error,
    _columns.sentence,
    _columns.traceback.label("trace"),
    _columns.message,
)

# PostgreSQL keeps no NUL in a text. What the message really said is in the column `message`.
_NO_NUL: Final = str.maketrans({"\x00": "\N{REPLACEMENT CHARACTER}"})
# As long as an aggregate's id may be. A longer name is cut, because a letter must be kept in any case.
_ID_CHARACTERS_MAX: Final = 255


class _Message(msgspec.Struct):
    """What came through the queue, byte for byte."""

    key: str
    headers: dict[str, str]
    body: bytes


class DatabaseCommandLetters:
    """Keeps letters in the database of the events; see `open_command_letters`.

    Args:
        engine: of a database whose schema is up to date; closed with this.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._single = autocommit(engine)
        insert = sqlite.insert if engine.dialect.name == "sqlite" else postgresql.insert
        new = insert(parked_rows)
        is_only_held = new.excluded.state == LetterState.HELD.value
        kept = {
            name: case((is_only_held, _columns[name]), else_=new.excluded[name])
            for name in ("state", "error", "sentence", "traceback")
        }
        self._park = new.on_conflict_do_update(
            index_elements=[
                _columns.name,
                _columns.generation,
                _columns.aggregate_id,
                _columns.command_id,
            ],
            set_={"attempts": _columns.attempts + 1, **kept},
        )

    async def park(self, letters: Sequence[CommandLetter]) -> None:
        """Keeps letters in their order; see `CommandLetterStore.park`."""
        async with self._engine.begin() as connection:
            # One by one: numbers must follow the order.
            for letter in letters:
                await connection.execute(self._park, _row_of(letter))

    async def read(self, *, after: int = 0, limit: int = 1_000) -> list[CommandLetter]:
        """Returns letters in the order of parking."""
        return await self._select(
            select(*_SHOWN)
            .where(*_MINE, _columns.number > after)
            .order_by(_columns.number)
            .limit(limit)
        )

    async def find(self, number: int) -> CommandLetter | None:
        """Returns a letter, or None."""
        found = await self._select(select(*_SHOWN).where(*_MINE, _columns.number == number))
        return found[0] if found else None

    async def first_in_line(self, aggregate_id: str) -> CommandLetter | None:
        """Returns the first letter that an aggregate's later commands wait for, or None."""
        found = await self._select(
            select(*_SHOWN)
            .where(
                *_MINE,
                _columns.aggregate_id == _storable(aggregate_id),
                _columns.state != LetterState.PARKED.value,
            )
            .order_by(_columns.number)
            .limit(1)
        )
        return found[0] if found else None

    async def find_command(self, command_id: str, aggregate_id: str = "") -> CommandLetter | None:
        """Returns the first letter of a command, or None."""
        query = select(*_SHOWN).where(*_MINE, _columns.command_id == _storable(command_id))
        if aggregate_id:
            query = query.where(_columns.aggregate_id == _storable(aggregate_id))
        found = await self._select(query.order_by(_columns.number).limit(1))
        return found[0] if found else None

    async def tally(self) -> dict[tuple[str, LetterState], int]:
        """Returns how many letters there are of each error and state."""
        query = select(_columns.error, _columns.state, func.count()).where(*_MINE)
        async with self._single.connect() as connection:
            rows = await connection.execute(query.group_by(_columns.error, _columns.state))
            return {(error, LetterState(state)): count for error, state, count in rows}

    async def lines(self) -> list[CommandLetter]:
        """Returns the first in line of every aggregate that has a line."""
        first = (
            select(func.min(_columns.number).label("number"))
            .where(*_MINE, _columns.state != LetterState.PARKED.value)
            .group_by(_columns.aggregate_id)
            .subquery()
        )
        return await self._select(
            select(*_SHOWN).join(first, first.c.number == _columns.number).order_by(_columns.number)
        )

    async def finish(self, letter: CommandLetter) -> bool:
        """Takes a letter out unless its command was parked again since it was read."""
        same = and_(_columns.number == letter.number, _columns.attempts == letter.attempts)
        async with self._engine.begin() as connection:
            done = await connection.execute(delete(parked_rows).where(*_MINE, same))
        return bool(done.rowcount)

    async def count(self) -> int:
        """Returns how many letters there are."""
        async with self._single.connect() as connection:
            query = select(func.count()).where(*_MINE)
            return (await connection.execute(query)).scalar_one()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._engine.dispose()

    async def _select(self, query: Select[Any]) -> list[CommandLetter]:
        async with self._single.connect() as connection:
            return [_letter_of(row) for row in (await connection.execute(query)).mappings()]


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode().translate(_NO_NUL)


def _storable(text: str) -> str:
    return _plain(text)[:_ID_CHARACTERS_MAX]


def _row_of(letter: CommandLetter) -> Mapping[str, Any]:
    message = _Message(key=letter.key, headers=dict(letter.headers), body=letter.body)
    return {
        "name": _NAME,
        "generation": 0,
        "held": 1,
        "aggregate_id": _storable(letter.aggregate_id),
        "command_id": _storable(letter.command_id),
        "command": _plain(letter.name),
        "state": letter.state.value,
        "parked_at": letter.parked_at,
        "attempts": 1,
        "error": _plain(letter.error),
        "sentence": _plain(letter.sentence),
        "traceback": _plain(letter.trace),
        "message": msgspec.msgpack.encode(message),
    }


def _letter_of(row: RowMapping) -> CommandLetter:
    columns = dict(row)
    message = msgspec.msgpack.decode(columns.pop("message"), type=_Message)
    return CommandLetter(
        **columns | {"state": LetterState(columns["state"])},
        key=message.key,
        headers=message.headers,
        body=message.body,
    )
