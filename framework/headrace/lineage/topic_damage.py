"""
Messages of the event topic that cannot be read: known before any reader goes past them.

    a live reader meets them ─▶ noted, once, before it goes on ─▶ one process takes them
    ─▶ what the topic lacks is published from the event store ─▶ filled

What was noted outlives the process; what a process has taken and not filled, another takes when the
claim ends. Sits between: `check`, which fills the topic, and the table. Must never know an
event.
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

# Places kept of a topic; of more, those that are filled go, and are filled again if they are met again.
PLACES_MAX: Final = 10_000
# A claim is renewed so often while it lasts.
_RENEWALS: Final = 3

_columns = topic_damages.c
_MESSAGES: Final = func.coalesce(func.sum(_columns.next_offset - _columns.first_offset), 0)


class TopicDamage:
    """What is known of the damage in one topic.

    Args:
        topic: its name.
        read_models: the database that keeps it.
        clock: tells when a claim ends.
        claim_ms: how long a claim lasts that is not renewed.

    Attributes:
        unfilled: how many messages are not made up for, as of the last look.
    """

    def __init__(self, topic: str, read_models: ReadModels, clock: Clock, claim_ms: int) -> None:
        self._topic = topic
        self._read_models = read_models
        self._clock = clock
        self._claim = timedelta(milliseconds=claim_ms)
        self._me = new_id()
        # Of this process; a reader that comes later asks the database no more.
        self._noted: set[tuple[str, int, int]] = set()
        self.unfilled = 0

    async def note(self, identity: str, markers: Collection[Incoming]) -> bool:
        """Keeps what messages with the header `DAMAGED` stand for; durable on return.

        Args:
            identity: of the topic that they came from.
            markers: those messages.

        Returns:
            Whether some of it was not known, to any process.
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
        """Takes what is not filled and no process is at; returns how many messages that are."""
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
        """Notes that what was taken is filled; lets go of what is too much, or of another topic."""

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
        """Renews the claim on what was taken while the block lasts; gives it back where that fails."""
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
    """Inserts those that are not there; returns how many messages they are."""
    added = 0
    for row in rows:
        kind = sqlite if connection.dialect.name == "sqlite" else postgresql
        insert: Any = kind.insert(topic_damages)
        if connection.execute(insert.on_conflict_do_nothing().values(row)).rowcount:
            added += row["next_offset"] - row["first_offset"]
    return added
