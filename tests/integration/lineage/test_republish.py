"""`headrace events republish`: exactly what is missing, and the way on after a backup was restored."""

import asyncio
import os
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from headrace._runtime.backoff import Backoff
from headrace.cli.application.events import _delete
from headrace.errors import HeadraceError
from headrace.events.republication import Republication
from headrace.events.sealed_transport import seal_events
from headrace.lineage.adoption import adopt_store
from headrace.lineage.check import topic_reader
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.open import open_event_store
from headrace.transports.queue import QueueTransport
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import TopicNotFound
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.application import app as bank

LOOKS = Backoff(ms_min=20, ms_max=50)

ROOT = Path(__file__).parents[3]
ARGUMENTS = ("-m", "headrace", "events", "republish", "--app", "samples.bank:app")


class Bank:
    """The sample, its files in the world's folder."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.settings = world.settings()

    async def deposit(self, count: int, accounts: int = 5) -> None:
        async with bank.run(self.settings) as running:
            for number in range(accounts):
                await running.bus.execute(OpenAccount(account_id=f"a{number}", owner="o"))
            await asyncio.gather(
                *(
                    running.bus.execute(
                        Deposit(account_id=f"a{n % accounts}", transaction_id=f"t{n}", amount=1),
                        wait_for="handled",
                        timeout_ms=60_000,
                    )
                    for n in range(count)
                )
            )

    async def start(self, *options: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, *ARGUMENTS, *options, "--broker", self.world.address,
            "--event-store", self.settings.event_store, "--read-models", self.settings.read_models,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
            env=os.environ | {"PYTHONSAFEPATH": "1"},
        )  # fmt: skip

    async def republish(self, *options: str) -> tuple[int, str]:
        process = await self.start(*options)
        out, err = await asyncio.wait_for(process.communicate(), 100)
        return process.returncode or 0, out.decode() + (err.decode() if process.returncode else "")

    async def held(self) -> int:
        """How many messages the topic holds."""
        async with AdminClient(self.world.address) as admin:
            try:
                _, ranges = await admin.lineage("bank.events")
            except TopicNotFound:
                return 0
        return sum(each.end - each.first for each in ranges)

    async def versions(self) -> dict[str, list[str]]:
        """Of each aggregate the versions in the topic, in their order there."""
        found: dict[str, list[str]] = defaultdict(list)
        transport = QueueTransport(self.world.address)
        await transport.start()
        lineage = await transport.topic_lineage("bank.events")
        for number, (first, end) in lineage.ranges.items():
            if first < end:
                async for messages in transport.read(("bank.events", number), first, end):
                    for message in messages:
                        found[message.key].append(message.headers["version"])
        await transport.aclose()
        return dict(found)


@pytest.fixture
def filled(world: Any) -> Bank:
    return Bank(world)


async def test_republish_publishes_only_missing_streams(filled: Any) -> None:
    await filled.deposit(40)
    before = await filled.versions()
    assert await filled.republish("--dry-run") == (
        0,
        "0 of 45 streams are missing; the topic held 45 of them\n",
    )
    await filled.world.stop_broker()
    filled.world.lose(filled.world.mq)
    await filled.world.start_broker()
    status, said = await filled.republish()
    assert (status, said) == (
        0,
        "45 of 45 streams were missing and are there now; the topic held 0 of them\n",
    )
    assert await filled.versions() == before
    assert (await filled.republish())[1].startswith("0 of 45")
    assert await filled.versions() == before


async def test_republish_killed_anywhere_publishes_nothing_twice_when_run_again(
    filled: Any,
) -> None:
    await filled.deposit(400)
    before = await filled.versions()
    await filled.world.stop_broker()
    filled.world.lose(filled.world.mq)
    await filled.world.start_broker()
    for held in (1, 80, 200):
        process = await filled.start()
        while process.returncode is None and await filled.held() < held:
            await LOOKS.pause(1)
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.communicate()
    status, _ = await filled.republish()
    assert status == 0
    found = await filled.versions()
    # What was under way at the kill may stand twice, and is passed over; the order is kept.
    assert {key: list(dict.fromkeys(each)) for key, each in found.items()} == before
    assert (await filled.republish())[1].startswith("0 of 405")


async def test_republish_with_replace_is_refused_while_services_run(world: Any) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0", 2)
        with pytest.raises(HeadraceError, match=r"shop.events is being read .*stop the services"):
            await _delete(world.address, "shop.events")
        await world.stock(shop, "p0")
    async with AdminClient(world.address) as admin:
        assert (await admin.topic("shop.events")).unwritable == []


async def test_a_restored_store_becomes_the_truth_by_replacing(world: Any) -> None:
    """Handlers and processes meet the versions that the store gives anew; rows are reset here."""
    async with world.shop() as shop:
        await world.stock(shop, "p0", 3)
    yesterday = world.save(world.events)
    async with world.shop() as shop:
        await world.stock(shop, "p0", 2)
        await world.stock(shop, "gone")
    yesterday()
    handled = list(world.handled)

    await replace(world)

    models = ReadModels(world.settings().read_models)
    for projection in world.app.projections.values():
        await models.reset(projection, "test")
    await models.aclose()
    async with world.shop() as shop:
        await world.stock(shop, "p0")
        await world.stock(shop, "gone")
        assert await world.rows(shop) == await world.truth(shop) == {"p0": (4, 4), "gone": (1, 1)}
    # Versions 4 of p0 and 1 of the other were given to other events, and these were handled, too.
    assert world.handled == [*handled, "p0/4/1", "gone/1/1"]


async def replace(world: Any) -> None:
    """What the command does with `--replace`, for an application that has no import path."""
    settings, app = world.settings(), world.app
    store = await open_event_store(settings.event_store, app.serializer)
    await _delete(world.address, "shop.events")
    plain = QueueTransport(world.address)
    await plain.start()
    transport, _ = await seal_events(plain, app.name, store, app.serializer)
    await transport.ensure_topic("shop.events", queues=4, forever=True)
    done = await Republication(
        name=app.name,
        store=store,
        transport=transport,
        serializer=app.serializer,
        settings=settings,
    ).run()
    assert done.held == 0
    assert done.published == done.stored == 9
    models = ReadModels(settings.read_models)
    names = [name for name in app.readers.values() if name not in app.projections]
    assert await adopt_store(models, store, names=names, topic=topic_reader("shop.events")) == 8
    await models.aclose()
    await plain.aclose()
    await store.aclose()


async def test_republish_with_replace_recreates_the_topic(filled: Any) -> None:
    await filled.deposit(10)
    async with AdminClient(filled.world.address) as admin:
        before, _ = await admin.lineage("bank.events")
    assert (await filled.republish("--replace", "--dry-run"))[1].startswith("15 of 15 streams are")
    status, said = await filled.republish("--replace")
    assert (status, said) == (
        0,
        "15 of 15 streams were missing and are there now; the topic held 0 of them\n",
    )
    async with AdminClient(filled.world.address) as admin:
        after, ranges = await admin.lineage("bank.events")
    assert after != before
    assert sum(each.end - each.first for each in ranges) == 15
    await filled.deposit(3)
