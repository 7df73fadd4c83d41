"""The shop that announces exactly what it took."""

import asyncio
from pathlib import Path

from headrace_mq import Consumer, Decision, Undecided
from headrace_mq.testing.embedded import broker
from samples.shop import ORDERS_TAKEN, Shop


async def announced(address: str, count: int) -> list[str]:
    """The keys of so many announcements."""
    keys: list[str] = []
    async with Consumer(address, group="packers", topics=[ORDERS_TAKEN]) as consumer:
        while len(keys) < count:
            keys += [record.key for record in await consumer.poll()]
    return sorted(keys)


async def test_every_order_that_was_taken_is_announced_and_no_other(tmp_path: Path) -> None:
    async with broker() as address, Shop(address, tmp_path / "shop.db") as shop:
        taken = await asyncio.gather(*(shop.take(f"o-{n % 5}", "a chair") for n in range(5)))
        assert taken == [True] * 5
        assert not await shop.take("o-1", "a table")
        assert await shop.taken() == await announced(address, 5) == [f"o-{n}" for n in range(5)]


async def test_an_order_that_is_asked_for_too_early_is_never_taken(tmp_path: Path) -> None:
    async with broker() as address, Shop(address, tmp_path / "shop.db") as shop:
        assert await shop._look(Undecided("o-1", 1, 0)) is Decision.ROLLBACK
        assert not await shop.take("o-1", "a chair")
        assert await shop.take("o-2", "a chair")
        assert await shop._look(Undecided("o-2", 1, 0)) is Decision.COMMIT
        assert await shop.taken() == ["o-2"]
