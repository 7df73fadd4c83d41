"""The last events of aggregates stand in a batch that nobody can decode: the event store makes up for it.

No further event comes. Every reader is right all the same, each event has its effect once, and what the
topic lacked is there once.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from headrace._runtime.backoff import Backoff
from headrace.settings import Settings
from headrace.stores.base import AppendOutcome
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import topic_damages
from headrace.stores.open import open_event_store
from headrace.transports.queue import QueueTransport
from headrace_mq.admin.client import AdminClient
from headrace_mq.message import QueueRef
from headrace_mq.testing.hostile import hostile_batches
from samples.bank.accounts import OpenAccount
from samples.bank.application import app as bank

pytestmark = pytest.mark.timeout(300)

LOOKS = Backoff(ms_min=20, ms_max=50)
ROOT = Path(__file__).parents[3]
PRODUCTS = ("p0", "p1", "p2")
SERVICE = """
import asyncio, sys
from headrace.settings import Settings
from samples.bank.application import app

async def serve() -> None:
    async with app.run(Settings.model_validate_json(sys.argv[1])) as running:
        await running.failed()

asyncio.run(serve())
"""


async def until(wanted: Callable[[], Awaitable[bool]]) -> None:
    while not await wanted():
        await LOOKS.pause(1)


async def continued(store: Any, aggregates: Any, times: int = 1) -> None:
    """Stores what happens next to aggregates, as a service whose messages were lost has."""
    for aggregate_id in aggregates:
        last = (await store.read_stream(aggregate_id))[-1]
        following = [
            replace(last, version=(last.version or 0) + n, command_id=f"{last.command_id}-{n}")
            for n in range(1, times + 1)
        ]
        for first in range(0, times, 500):
            outcomes = await store.append(following[first : first + 500])
            assert {*outcomes} == {AppendOutcome.APPENDED}


async def damage(world: Any, topic: str) -> None:
    """Puts a batch of three messages that nobody can decode into each queue."""
    state = world._broker._state
    for number in range(state.topics.find(topic).queues):
        queue = QueueRef(topic, number)
        batch = bytearray(hostile_batches(queue)["no msgpack"])
        state.store.append(batch, retention=state.topics.for_append(queue))
    await state.store.durable()


async def held(world: Any, topic: str) -> Counter[tuple[str, str]]:
    """How often each stream stands in the topic, by aggregate and command."""
    found: Counter[tuple[str, str]] = Counter()
    transport = QueueTransport(world.address)
    await transport.start()
    lineage = await transport.topic_lineage(topic)
    for number, (first, end) in lineage.ranges.items():
        async for messages in transport.read((topic, number), first, end):
            found.update((each.key, each.headers["command"]) for each in messages)
    await transport.aclose()
    return found


async def unfilled(running: Any) -> int:
    query = select(func.count()).where(~topic_damages.c.filled)
    async with running.read_models.snapshot() as connection:
        return int((await connection.execute(query)).scalar_one())


@pytest.fixture(params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "sqlite":
        return {}
    url: str = request.getfixturevalue("postgres_database")
    return {"event_store": url, "read_models": url}


async def test_every_reader_is_right_without_a_further_event(world: Any, databases: Any) -> None:
    if databases:
        await upgrade(databases["read_models"])
    async with world.shop(event_queues=2, alarm_check_ms=50, **databases) as shop:
        for product in PRODUCTS:
            await world.stock(shop, product, 2)
        await continued(shop.store, PRODUCTS)
        await damage(world, "shop.events")
        truth = await world.truth(shop)
        assert truth == dict.fromkeys(PRODUCTS, (3, 3))
        notes = world.app.projection("notes")

        async def right() -> bool:
            counts = {row.note_id: row.notes async for row in shop.read(notes).rows()}
            return (
                await world.rows(shop) == truth
                and counts == {"manager": 9, "process": 9}
                and len(world.handled) == 9
            )

        await until(right)

        async def whole() -> bool:
            return not await unfilled(shop)

        await until(whole)
        assert Counter(world.handled) == Counter(f"{p}/{n}/1" for p in PRODUCTS for n in (1, 2, 3))
        times = await held(world, "shop.events")
        assert {key: times[key] for key in times if key[0] in PRODUCTS} == {
            (each.stream.aggregate_id, each.stream.command_id): 1
            for each in await shop.store.read_all(limit=1_000)
            if each.stream.aggregate_id in PRODUCTS
        }
        await shop.lineage.look()
        await shop.watch.alarms.look()
        assert shop.watch.alarms.current == ()
    async with world.shop(event_queues=2, **databases) as shop:
        assert await world.rows(shop) == truth


async def test_a_repair_by_a_killed_process_is_finished_by_another(world: Any) -> None:
    settings = world.settings(fill_claim_ms=500, event_queues=2)
    accounts = [f"a{number}" for number in range(3)]
    async with bank.run(settings) as running:
        for account in accounts:
            opened = OpenAccount(account_id=account, owner="o")
            await running.bus.execute(opened, wait_for="handled", timeout_ms=60_000)
    store = await open_event_store(settings.event_store, bank.serializer)
    await continued(store, accounts, times=1_500)
    # Nobody reads meanwhile: the next start meets it.
    await damage(world, "bank.events")
    begun = await ends(world)
    service = await start(settings)
    while service.returncode is None and await ends(world) < begun + 500:
        await LOOKS.pause(1)
    assert service.returncode is None, (await service.communicate())[1].decode()
    service.send_signal(signal.SIGKILL)
    await service.communicate()
    assert await ends(world) < begun + 4_500, "killed too late to be half way"

    async with bank.run(settings) as running:
        balances = bank.projection("balances")

        async def right() -> bool:
            versions = [
                await running.read_models.wait_for_version(balances, each, 1_501, timeout_ms=60_000)
                for each in accounts
            ]
            return len(versions) == len(accounts) and not await unfilled(running)

        await until(right)
    stored = {(s.stream.aggregate_id, s.stream.command_id) for s in await all_of(store)}
    await store.aclose()
    times = await held(world, "bank.events")
    assert stored <= times.keys()
    # What was under way at the kill may stand twice: no more than the publisher hands over at once.
    assert sum(times[each] - 1 for each in stored) <= 1_000


async def all_of(store: Any) -> list[Any]:
    return list(await store.read_all(limit=100_000))


async def ends(world: Any) -> int:
    async with AdminClient(world.address) as admin:
        _, ranges = await admin.lineage("bank.events")
    return sum(each.end for each in ranges)


async def start(settings: Settings) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVICE, settings.model_dump_json(),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
