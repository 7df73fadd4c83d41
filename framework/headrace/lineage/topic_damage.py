"""
Messages of the event topic that cannot be read: stored in a table before any reader goes past them.

    a live reader meets damage ─▶ it is stored, once, before the reader goes on ─▶ one process claims it
    ─▶ that process publishes from the event store what the topic lacks ─▶ the damage is filled

The table outlives the process. If a process claims damage and does not fill it, another process claims it
when the first claim ends. Used by `check`, which fills the topic. It knows no events.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, delete, func, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from headrace._runtime.clock import Clock
from headrace._runtime.ids import new_id
from headrace._runtime.log import get_logger
from headrace._runtime.tasks import finish
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.tables import topic_damages
from headrace.transports.base import DAMAGED, Incoming

__all__ = ["PLACES_MAX", "TopicDamage"]

log = get_logger(__name__)

# Rows kept per topic. If there are more, filled ones are deleted; a reader that meets such damage again
# causes one more fill.
PLACES_MAX: Final = 10_000
# How often a claim is renewed before it would end.
_RENEWALS: Final = 3

_columns = topic_damages.c
_MESSAGES: Final = func.coalesce(func.sum(_columns.next_offset - _columns.first_offset), 0)


class TopicDamage:
    """The known damage in one topic.

    Args:
        topic: its name.
        read_models: the database of the damage.
        clock: says when a claim ends.
        claim_ms: how long a claim lasts without renewal, in milliseconds.

    Attributes:
        unfilled: how many damaged messages were not filled at the last look.
    """

    def __init__(self, topic: str, read_models: ReadModels, clock: Clock, claim_ms: int) -> None:
        self._topic = topic
        self._read_models = read_models
        self._clock = clock
        self._claim = timedelta(milliseconds=claim_ms)
        self._me = new_id()
        # Damage that this process has stored: other readers here need not ask the database.
        self._noted: set[tuple[str, int, int]] = set()
        self.unfilled = 0

    async def note(self, identity: str, markers: Collection[Incoming]) -> bool:
        """Stores the damage that messages with the header `DAMAGED` mark; durable on return.

        Args:
            identity: the topic's identity.
            markers: the messages.

        Returns:
            Whether some of the damage was new to all processes.
        """
        firsts = {
            (each.queue[1], each.offset + 1): int(each.headers[DAMAGED])
            for each in markers
            if (identity, each.queue[1], each.offset + 1) not in self._noted
        }
        if not firsts:
            return False
        rows = [
            {
                "topic": self._topic,
                "topic_identity": identity,
                "queue_id": number,
                "next_offset": following,
                "first_offset": first,
                "noted_at": self._clock.now(),
                "filled": False,
            }
            for (number, following), first in firsts.items()
        ]
        added: int = await finish(self._read_models.transact(partial(_insert_new, rows=rows)))
        if len(self._noted) > PLACES_MAX:
            self._noted.clear()
        self._noted.update((identity, *place) for place in firsts)
        self.unfilled += added
        return added > 0

    async def take(self, identity: str) -> int:
        """Claims all unfilled damage, unless another process has a claim; returns how many messages."""
        now = self._clock.now()

        def work(connection: Connection) -> tuple[int, int]:
            unfilled = self._of(identity) & ~_columns.filled
            messages = connection.execute(select(_MESSAGES).where(unfilled)).scalar_one()
            others = (_columns.taken_by != self._me) & (_columns.taken_until >= now)
            busy = select(func.count()).where(unfilled & others)
            if not messages or connection.execute(busy).scalar_one():
                return messages, 0
            claim = {"taken_by": self._me, "taken_until": now + self._claim}
            connection.execute(update(topic_damages).where(unfilled).values(claim))
            return messages, messages

        self.unfilled, taken = await self._read_models.transact(work)
        return taken

    async def settle(self, identity: str) -> None:
        """Notes claimed damage as filled; deletes rows beyond `PLACES_MAX`, and those of earlier topics."""

        def work(connection: Connection) -> int:
            mine, of_topic = _columns.taken_by == self._me, self._of(identity)
            connection.execute(update(topic_damages).where(of_topic & mine).values(filled=True))
            gone = (_columns.topic == self._topic) & (_columns.topic_identity != identity)
            connection.execute(delete(topic_damages).where(gone))
            key = (_columns.queue_id, _columns.next_offset)
            latest = _columns.noted_at.desc()
            kept = select(*key).where(of_topic).order_by(_columns.filled, latest).limit(PLACES_MAX)
            old = of_topic & _columns.filled & tuple_(*key).not_in(kept)
            connection.execute(delete(topic_damages).where(old))
            unfilled = select(_MESSAGES).where(of_topic & ~_columns.filled)
            return int(connection.execute(unfilled).scalar_one())

        self.unfilled = await self._read_models.transact(work)

    @asynccontextmanager
    async def claimed(self, identity: str) -> AsyncIterator[None]:
        """Renews the claim while the block runs; gives it back if the block fails."""
        renewal = asyncio.create_task(self._renew(identity), name="renew a claim")
        try:
            yield
        except BaseException:
            await finish(self._hold_until(identity, None))
            raise
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    async def _renew(self, identity: str) -> None:
        while True:
            await asyncio.sleep(self._claim.total_seconds() / _RENEWALS)
            await finish(self._hold_until(identity, self._clock.now() + self._claim))

    async def _hold_until(self, identity: str, until: datetime | None) -> None:
        mine = self._of(identity) & ~_columns.filled & (_columns.taken_by == self._me)
        statement = update(topic_damages).where(mine).values(taken_until=until)
        try:
            await self._read_models.transact(lambda connection: connection.execute(statement))
        except Exception as error:  # noqa: BLE001 - the database may fail in any way; the claim ends by itself
            log.warning("a claim was not changed", topic=self._topic, error=repr(error))

    def _of(self, identity: str) -> ColumnElement[bool]:
        return (_columns.topic == self._topic) & (_columns.topic_identity == identity)


def _insert_new(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
    """Inserts rows that are not there yet; returns how many messages these cover."""
    added = 0
    for row in rows:
        kind = sqlite if connection.dialect.name == "sqlite" else postgresql
        insert: Any = kind.insert(topic_damages)
        if connection.execute(insert.on_conflict_do_nothing().values(row)).rowcount:
            added += row["next_offset"] - row["first_offset"]
    return added
