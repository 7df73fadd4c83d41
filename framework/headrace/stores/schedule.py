"""
Messages for later in the event store's database, SQLite or PostgreSQL.

Implements the `Schedule` port of the Kafka transport on the table `scheduled_messages`. Several processes
may publish what is due: on PostgreSQL each takes rows that no other one has locked; on SQLite two may publish
the same message, which is recognised by its command's id.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headrace.stores.database.tables import scheduled_messages
from headrace.transports.base import Outgoing
from headrace.transports.kafka.schedule import REFUSED, Publish

__all__ = ["DatabaseSchedule"]

_columns = scheduled_messages.c


class _Kept(msgspec.Struct, frozen=True):
    """A message in a row."""

    topic: str
    key: str
    body: bytes
    tag: str
    headers: dict[str, str]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Kept).decode


class DatabaseSchedule:
    """Keeps messages in the database of the events; see `open_schedule`.

    Args:
        engine: of a database whose schema is up to date; closed with this.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._locks = engine.dialect.name == "postgresql"

    async def add(self, message: Outgoing, due: datetime) -> None:
        """Returns when the message is kept durably."""
        topic, key, body, tag, headers = message
        kept = _encode(_Kept(topic, key, body, tag, dict(headers)))
        async with self._engine.begin() as connection:
            await connection.execute(
                insert(scheduled_messages).values(due=due, topic=topic, message=kept)
            )

    async def publish_due(self, now: datetime, limit: int, publish: Publish) -> int:
        """Publishes what is due, and forgets it; see `Schedule`."""
        if self._locks:
            async with self._engine.begin() as connection:
                rows = await self._due(connection, now, limit)
                outcomes = await self._publish(rows, publish)
                return await self._note(connection, rows, outcomes, now)
        # A transaction that stays open would keep others from writing.
        async with self._engine.connect() as connection:
            rows = await self._due(connection, now, limit)
        outcomes = await self._publish(rows, publish)
        if not rows:
            return 0
        async with self._engine.begin() as connection:
            return await self._note(connection, rows, outcomes, now)

    async def next_due(self) -> datetime | None:
        """Returns when the next message is due; None: there is none."""
        async with self._engine.connect() as connection:
            found: datetime | None = await connection.scalar(select(func.min(_columns.due)))
            return found

    async def aclose(self) -> None:
        """Closes the engine."""
        await self._engine.dispose()

    async def _due(
        self, connection: AsyncConnection, now: datetime, limit: int
    ) -> Sequence[tuple[int, bytes]]:
        rows = await connection.execute(
            select(_columns.number, _columns.message)
            .where(_columns.due <= now)
            .order_by(_columns.due, _columns.number)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        return [(row.number, row.message) for row in rows]

    async def _publish(
        self, rows: Sequence[tuple[int, bytes]], publish: Publish
    ) -> Sequence[bool | None]:
        if not rows:
            return ()
        found = [_decode(message) for _, message in rows]
        return await publish(
            [Outgoing(one.topic, one.key, one.body, one.tag, one.headers) for one in found]
        )

    async def _note(
        self,
        connection: AsyncConnection,
        rows: Sequence[tuple[int, bytes]],
        outcomes: Sequence[bool | None],
        now: datetime,
    ) -> int:
        told = list(zip([number for number, _ in rows], outcomes, strict=True))
        done = [number for number, outcome in told if outcome]
        refused = [number for number, outcome in told if outcome is False]
        if done:
            await connection.execute(delete(scheduled_messages).where(_columns.number.in_(done)))
        if refused:
            later = update(scheduled_messages).where(_columns.number.in_(refused))
            await connection.execute(later.values(due=now + REFUSED))
        return len(done) + len(refused)
