"""
A shop that takes orders into a database of its own and announces exactly those that were taken.

An order and its announcement cannot be written in one transaction, because the order is in SQLite and the
announcement in the queue. So the shop first prepares the announcement, which no consumer sees yet. Then it
commits the order, and then the announcement. If it dies in between, the broker asks it later, and the table
of orders has the answer. You need no table of messages to send.

Uses `headrace_mq`'s transactional producer.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from headrace_mq import Decision, Message, Transaction, TransactionalProducer, Undecided

__all__ = ["ORDERS_TAKEN", "Shop"]

ORDERS_TAKEN = "orders-taken"

# One writes at a time; the others wait for so long at most.
_BUSY_S = 60

_TABLE = (
    "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT, taken INTEGER NOT NULL)"
)
_TAKE = "INSERT INTO orders (id, item, taken) VALUES (?, ?, 1)"
# An order that is asked for before it was taken can never be taken afterwards: its id is used up.
_FENCE = "INSERT INTO orders (id, taken) VALUES (?, 0) ON CONFLICT (id) DO NOTHING"
_LOOK = "SELECT taken FROM orders WHERE id = ?"
_TAKEN = "SELECT id FROM orders WHERE taken = 1 ORDER BY id"


class Shop:
    """One process of the shop; there may be many, on one database.

    Args:
        broker: the broker's `host:port`.
        database: the SQLite file.
    """

    def __init__(self, broker: str, database: Path) -> None:
        self._database = database
        self._producer = TransactionalProducer(broker, group="shop", checker=self._look)

    async def __aenter__(self) -> "Shop":
        await asyncio.to_thread(self._run, _TABLE)
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.aclose()

    async def take(self, order_id: str, item: str) -> bool:
        """Takes an order and announces it; False: there is one of that id, and nothing was done."""

        async def write(_: Transaction) -> Decision:
            try:
                await asyncio.to_thread(self._run, _TAKE, order_id, item)
            except sqlite3.IntegrityError:
                return Decision.ROLLBACK
            return Decision.COMMIT

        announcement = Message(topic=ORDERS_TAKEN, key=order_id, body=item.encode())
        decision = await self._producer.send_in_transaction(
            announcement, write, transaction_id=order_id
        )
        return decision is Decision.COMMIT

    async def taken(self) -> list[str]:
        """The ids of all orders that were taken."""
        return [order_id for (order_id,) in await asyncio.to_thread(self._run, _TAKEN)]

    async def _look(self, undecided: Undecided) -> Decision:
        await asyncio.to_thread(self._run, _FENCE, undecided.id)
        ((taken,),) = await asyncio.to_thread(self._run, _LOOK, undecided.id)
        return Decision.COMMIT if taken else Decision.ROLLBACK

    def _run(self, statement: str, *values: str) -> list[tuple[str]]:
        opened = sqlite3.connect(self._database, timeout=_BUSY_S)
        with closing(opened) as connection, connection:
            return connection.execute(statement, values).fetchall()
