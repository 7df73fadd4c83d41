"""Transactions while their broker and their producers are killed."""

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.message import QueueRef
from samples.shop import ORDERS_TAKEN, Shop

ORDERS, KILLS = 160, 2
QUICK = {
    "transaction_timeout_ms": 100,
    "transaction_check_ms": 100,
    "transaction_checks_max": 10**9,
}

# Takes orders as fast as it can, and says how many.
CUSTOMER = """
import asyncio, sys
from pathlib import Path
from samples.shop import Shop

async def main(address, database, name):
    async with Shop(address, Path(database)) as shop:
        for number in range(1_000_000):
            await asyncio.gather(*(shop.take(f"{name}-{number}-{n}", "a chair") for n in range(4)))
            print("said", number, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def announced(address: str) -> Counter[str]:
    """The keys of what was announced."""
    keys: Counter[str] = Counter()
    with BlockingReader(address) as reader:
        for held in reader.ranges([ORDERS_TAKEN]):
            queue = QueueRef(held.topic, held.queue_id)
            for _, columns, first, last in reader.read(queue, held.first, held.end):
                keys.update(columns.keys[first:last])
    return keys


def taken(database: Path) -> set[str]:
    """The orders that stand in the database."""
    with closing(sqlite3.connect(database)) as connection:
        return {row[0] for row in connection.execute("SELECT id FROM orders WHERE taken = 1")}


async def decided(address: str) -> None:
    """Waits until nothing is undecided."""
    async with AdminClient(address) as admin:
        while (await admin.transactions()).undecided:
            await asyncio.sleep(0)


async def test_exactly_the_orders_in_the_database_are_announced_though_both_sides_are_killed(
    tmp_path: Path, start_broker: Any, start_child: Any
) -> None:
    broker = await start_broker(**QUICK)
    database = tmp_path / "shop.db"
    for kill in range(KILLS):
        customer = await start_child(CUSTOMER, broker.address, str(database), f"life-{kill}")
        # In the middle of its work, of which some is undecided.
        for _ in range(5):
            await customer.heard("said")
        if kill % 2:
            await broker.kill()
            await customer.end()
            await broker.start()
        else:
            await customer.end()
    async with Shop(broker.address, database) as shop:
        assert await shop.take("last", "a table")
        await decided(broker.address)
        assert announced(broker.address) == Counter(taken(database))
        assert len(taken(database)) >= KILLS * 20


async def test_a_broker_that_is_killed_while_it_commits_loses_and_repeats_nothing(
    tmp_path: Path, start_broker: Any
) -> None:
    broker = await start_broker(**QUICK)
    async with Shop(broker.address, tmp_path / "shop.db") as shop:

        async def keep_taking(name: int) -> None:
            for number in range(ORDERS // 20):
                assert await shop.take(f"{name}-{number}", "a chair")

        working = [asyncio.create_task(keep_taking(name)) for name in range(20)]
        for kill in range(KILLS):
            while len(await shop.taken()) < ORDERS // (2 * KILLS) * (kill + 1):
                await asyncio.sleep(0)
            await broker.kill()
            await broker.start()
        await asyncio.gather(*working)
        assert announced(broker.address) == Counter(await shop.taken())
        assert len(await shop.taken()) == ORDERS
