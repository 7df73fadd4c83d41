"""The broker's directory is lost, replaced, or restored from an older copy: it heals by itself."""

import asyncio
from typing import Any

import pytest

from headrace._runtime.backoff import Backoff
from headrace_mq.admin.client import AdminClient

LOOKS = Backoff(ms_min=20, ms_max=50)


async def notes_of(running: Any, world: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for stored in await running.store.read_all(limit=100_000):
        if stored.stream.aggregate_type == "Notes" and stored.stream.version:
            found[stored.stream.aggregate_id] = stored.stream.version
    return found


async def until_rows_are_true(running: Any, world: Any) -> None:
    async with asyncio.timeout(60):
        while await world.rows(running) != await world.truth(running):
            await LOOKS.pause(1)


async def test_a_lost_directory_is_made_whole_from_the_store(world: Any) -> None:
    async with world.shop() as shop:
        for number in range(8):
            await world.stock(shop, f"p{number}", 2)
        handled = sorted(world.handled)
    await world.stop_broker()
    world.lose(world.mq)
    await world.start_broker()
    async with world.shop() as shop:
        await world.stock(shop, "p0")
        await world.stock(shop, "new")
        await until_rows_are_true(shop, world)
        assert await world.rows(shop) == {
            **{f"p{number}": (2, 2) for number in range(1, 8)},
            "p0": (3, 3),
            "new": (1, 1),
        }
        # Nobody handled an event twice, and no command had its effect twice.
        assert sorted(world.handled) == sorted([*handled, "p0/3/1", "new/1/1"])
        assert await notes_of(shop, world) == {"manager": 18, "process": 18}


async def test_an_older_copy_is_completed_before_a_reader_reads_it(world: Any) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0", 3)
    await world.stop_broker()
    restore = world.save(world.mq)
    await world.start_broker()
    async with world.shop() as shop:
        await world.stock(shop, "p0", 4)
        await world.stock(shop, "p1", 4)
    await world.stop_broker()
    restore()
    await world.start_broker()
    async with world.shop() as shop:
        await world.stock(shop, "p0")
        await until_rows_are_true(shop, world)
        assert await world.rows(shop) == {"p0": (8, 8), "p1": (4, 4)}
        assert await notes_of(shop, world) == {"manager": 12, "process": 12}
    async with AdminClient(world.address) as admin:
        held = sum(each.end - each.first for each in await admin.ranges(["shop.events"]))
    # 12 stocked and 24 notes; commands that come again publish what they find in the store again.
    assert held >= 36


async def test_an_unchanged_topic_is_not_read_again(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.events.republication import Republication

    async with world.shop() as shop:
        await world.stock(shop, "p0", 3)

    async def must_not(*_: Any, **__: Any) -> None:
        raise AssertionError("an unchanged topic was compared")

    monkeypatch.setattr(Republication, "run", must_not)
    await world.stop_broker()
    await world.start_broker()
    async with world.shop() as shop:
        await world.stock(shop, "p0")
        assert await world.rows(shop) == {"p0": (4, 4)}


async def test_a_service_at_work_goes_on_over_another_directory(world: Any) -> None:
    async with world.shop() as shop:
        await world.stock(shop, "p0", 3)
        await world.stock(shop, "p1", 2)
        await world.stop_broker()
        world.lose(world.mq)
        await world.start_broker()
        await world.stock(shop, "p0")
        await world.stock(shop, "p2")
        await until_rows_are_true(shop, world)
        assert await world.rows(shop) == {"p0": (4, 4), "p1": (2, 2), "p2": (1, 1)}
        async with asyncio.timeout(60), AdminClient(world.address) as admin:
            assert (await admin.topic("shop.events")).retention == "forever"
            while sum(each.end - each.first for each in await admin.ranges(["shop.events"])) < 21:
                await LOOKS.pause(1)
        assert sorted(world.handled) == sorted(set(world.handled))
        assert await notes_of(shop, world) == {"manager": 7, "process": 7}


async def test_an_application_on_files_continues_at_its_second_and_third_start(world: Any) -> None:
    for number in range(1, 4):
        async with world.shop(broker=None) as shop:
            await world.stock(shop, "p0")
            assert await world.rows(shop) == {"p0": (number, number)}
            assert await notes_of(shop, world) == {"manager": number, "process": number}
    assert world.handled == ["p0/1/1", "p0/2/1", "p0/3/1"]
