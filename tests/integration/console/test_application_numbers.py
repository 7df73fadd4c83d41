"""Each number of the pages about an application is what SQL finds in its databases, and what the test put there."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from headrace_mq import Consumer, QueueRef
from tests.integration.console.shown import Shown
from tests.integration.console.tea_shop import BROKEN, LAST, NONE, SPILLED, Brew, app
from tests.integration.console.world import WAIT_MS, World, a_world, consoled, sign_in

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip(
    "playwright.async_api", reason="playwright is not installed: make install-browser"
)
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make install-browser"),
]
# Pots with one version, versions of the red pot, commands that are refused, that are parked, that wait; instances that
# ended; events that wait behind a parked one; and events that the projection has not applied.
POTS, RED, REFUSED, PARKED, WAITING, ENDED, BEHIND, LATE = 23, 6, 3, 2, 9, 5, 4, 8


async def fill(world: World) -> None:
    """A tea shop that ran, stopped, and got some commands afterwards."""
    async with app.run(world.settings) as shop:
        brewed = [Brew(pot=f"p-{n}", cups=LAST if n < ENDED else 1) for n in range(POTS)]
        brewed += [Brew(pot="red", cups=1)] * RED
        brewed += [Brew(pot=f"none-{n}", cups=NONE) for n in range(REFUSED)]
        brewed += [Brew(pot=f"black-{n}", cups=BROKEN) for n in range(PARKED)]
        for one in brewed:
            await shop.bus.execute(one)
        await shop.bus.execute(Brew(pot="blue", cups=SPILLED))
        for _ in range(BEHIND):
            await shop.bus.execute(Brew(pot="blue", cups=1))
        async with asyncio.timeout(2 * WAIT_MS / 1_000):
            while await world.scalar("read_models", "SELECT sum(held) FROM parked") != 1 + BEHIND:
                await asyncio.sleep(0)
            # Rejections stand in the topic as well.
            while await applied(world) < await stored(world):
                await asyncio.sleep(0)
            counted = "SELECT sum(seen) FROM process_instances"
            while await world.scalar("read_models", counted) != POTS + RED + 1 + BEHIND:
                await asyncio.sleep(0)
    async with app.client(world.settings) as bus:
        for n in range(WAITING):
            await bus.send(Brew(pot=f"late-{n}", cups=1))
    # As if the projection had stopped before: some events are ahead of it.
    await world.change(
        "read_models",
        f"UPDATE projection_offsets SET next_offset = next_offset - {LATE} WHERE name = 'cups' AND next_offset ="
        " (SELECT max(next_offset) FROM projection_offsets WHERE name = 'cups')",
    )


async def positions(world: World) -> dict[int, int]:
    """What the projection applies next in each queue."""
    found = "SELECT queue_id, next_offset FROM projection_offsets WHERE name = 'cups'"
    return {queue: offset for queue, offset in await world.rows("read_models", found)}  # noqa: C416 - rows are no pairs


async def stored(world: World) -> int:
    """How many messages the topic of events has in all queues."""
    return sum(one.end for one in await world.admin.ranges(["tea.events"]))


async def applied(world: World) -> int:
    """How many events the projection has seen in all queues."""
    found = "SELECT sum(next_offset) FROM projection_offsets WHERE name = 'cups'"
    return int(await world.scalar("read_models", found) or 0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with a_world(tmp_path_factory.mktemp("numbers")) as made:
        await fill(made)
        async with consoled(made):
            yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(world: World) -> AsyncIterator[Shown]:
    async with playwright.async_playwright() as tools:
        browser = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Shown(await sign_in(browser, world.home, "root"), world)
        await browser.close()


async def test_aggregates_have_their_versions(world: World, shown: Shown) -> None:
    versions = "SELECT aggregate_id, max(version) FROM event_streams WHERE version IS NOT NULL GROUP BY aggregate_id"
    expected = {one: str(last) for one, last in await world.rows("event_store", versions)}
    assert len(expected) == POTS + 2
    assert (expected["red"], expected["blue"]) == (str(RED), str(1 + BEHIND))
    await shown.open("/aggregates?type=Pot")
    assert dict(await shown.rows(0, 0, 2)) == expected
    told = await shown.json("aggregate list", type="Pot")
    assert {one["id"]: str(one["version"]) for one in told["aggregates"]} == expected
    await shown.open("/aggregate?id=red")
    assert (await shown.facts())["Version"] == str(RED)
    assert [row[0] for row in await shown.rows()] == [str(n + 1) for n in range(RED)]
    await shown.open(f"/state?id=red&version={RED - 1}")
    assert f'"cups": {RED - 1}' in await shown.text()
    assert (await shown.facts())["Last version"] == str(RED)


async def test_projections_say_how_far_behind_they_are(world: World, shown: Shown) -> None:
    rows = await world.scalar("read_models", "SELECT count(*) FROM cups")
    parked = await world.scalar("read_models", "SELECT count(*) FROM parked WHERE name = 'cups'")
    held = await world.scalar("read_models", "SELECT held FROM parked WHERE name = 'cups'")
    assert (rows, parked, held) == (POTS + 1, 1, 1 + BEHIND)
    offsets = await positions(world)
    ends = {one.queue_id: one.end for one in await world.admin.ranges(["tea.events"])}
    lags = {queue: end - offsets.get(queue, 0) for queue, end in ends.items()}
    assert sum(lags.values()) == LATE
    (told,) = (await shown.json("projection list"))["projections"]
    assert (told["rows"], told["messages"], told["parked"], told["generation"]) == (
        rows,
        LATE,
        1,
        1,
    )
    await shown.open("/projections")
    assert await shown.rows(0, 0, 1, 2, 4, 5) == [("cups", str(rows), str(LATE), "1", "1")]
    await shown.open("/projection?name=cups")
    facts = await shown.facts()
    assert facts["Rows"] == str(rows)
    assert facts["Behind"].startswith(f"{LATE} messages")
    assert sorted(await shown.rows(0, 0, 1, 2, 3)) == [
        (str(queue), str(offsets.get(queue, 0)), str(ends[queue]), str(lags[queue]))
        for queue in sorted(ends)
    ]
    assert await shown.rows(1, 0, 1) == [("blue", str(held))]


async def test_processes_have_their_instances(world: World, shown: Shown) -> None:
    ended = await world.scalar("read_models", "SELECT count(*) FROM process_instances WHERE ended")
    running = await world.scalar(
        "read_models", "SELECT count(*) FROM process_instances WHERE NOT ended"
    )
    assert (ended, running) == (ENDED, POTS + 2 - ENDED)
    (told,) = (await shown.json("process list"))["counts"]
    assert (told["running"], told["parked"], told["ended"]) == (running, 0, ended)
    await shown.open("/processes")
    assert await shown.rows(0) == [("rounds", str(running), "0", str(ended))]
    assert len(await shown.rows(1)) == running
    await shown.open("/processes?ended=1&name=rounds")
    assert len(await shown.rows(1)) == running + ended
    await shown.open("/process?name=rounds&key=red")
    steps = "SELECT count(*) FROM process_journal WHERE instance = 'red'"
    assert len(await shown.rows(1)) == await world.scalar("read_models", steps) == RED


async def test_commands_in_flight_are_counted_and_so_is_what_is_parked(
    world: World, shown: Shown
) -> None:
    parked = dict(
        await world.rows("event_store", "SELECT error, count(*) FROM parked GROUP BY error")
    )
    assert parked == {"ValueError": PARKED}
    offsets = await world.admin.offsets("tea.commands", ["tea.commands"])
    ranges = await world.admin.ranges(["tea.commands"])
    done = {
        one.queue_id: max(one.first, offsets.get(("tea.commands", one.queue_id), 0))
        for one in ranges
    }
    waiting = {one.queue_id: one.end - done[one.queue_id] for one in ranges}
    assert sum(waiting.values()) == WAITING
    told = await shown.json("command list")
    assert {one["queue_id"]: one["waiting"] for one in told["queues"]} == waiting
    assert (told["total"], len(told["waiting"]), told["parked"]) == (
        WAITING, WAITING, [{"error": "ValueError", "commands": PARKED}],
    )  # fmt: skip
    await shown.open("/commands")
    assert sorted(await shown.rows(0, 1, 2, 4)) == [
        (str(queue), str(count), str(done[queue])) for queue, count in sorted(waiting.items())
    ]
    rows = await shown.rows(1, 2, 4)
    assert sorted(pot for pot, _ in rows) == [f"late-{n}" for n in range(WAITING)]
    assert sorted(int(before) for _, before in rows) == sorted(
        before for count in waiting.values() for before in range(count)
    )
    assert f"{WAITING} in all" in await shown.text()
    assert await shown.rows(2) == [("ValueError", str(PARKED))]
    await shown.open("/parked")
    assert {row[:3] for row in await shown.rows(0)} == {
        ("projection:cups", "ProjectionError", "1"), ("commands", "ValueError", str(PARKED)),
    }  # fmt: skip
    assert f"{1 + PARKED} in all" in await shown.text()
    assert {(row[1], row[4]) for row in await shown.rows(1) if row[1] == "blue"} == {
        ("blue", str(1 + BEHIND))
    }


async def test_results_say_what_commands_came_to(world: World, shown: Shown) -> None:
    stored = await world.scalar("event_store", "SELECT count(*) FROM event_streams")
    executed = await world.scalar(
        "event_store", "SELECT count(*) FROM event_streams WHERE version IS NOT NULL"
    )
    assert (stored, executed) == (executed + REFUSED, POTS + RED + 1 + BEHIND)
    told = await shown.json("command results")
    counts = {(one["status"], one["error"]): one["commands"] for one in told["outcomes"]}
    assert counts == {("executed", ""): executed, ("rejected", "Empty"): REFUSED}
    assert (told["counted"], told["conflicts"]) == (stored, 0)
    await shown.open("/results")
    assert f"Of the newest {stored}" in await shown.text()
    assert await shown.rows(0) == [
        ("executed", "", str(executed)),
        ("rejected", "Empty", str(REFUSED)),
    ]
    assert await shown.rows(1) == [("ValueError", str(PARKED))]
    assert len(await shown.rows(2)) == stored


async def test_a_journey_says_how_many_are_before_it(world: World, shown: Shown) -> None:
    events = await world.admin.ranges(["tea.events"])
    offsets = await positions(world)
    (late,) = (one for one in events if one.end != offsets.get(one.queue_id, 0))
    begin = offsets[late.queue_id]
    records = await world.admin.read(QueueRef("tea.events", late.queue_id), begin, LATE)
    assert len(records) == LATE
    # What waits behind the parked event of the blue pot has another cause, and no projection reads what was refused.
    record = next(one for one in reversed(records) if one.key.startswith(("p-", "red")))
    place = f"tea.events:{late.queue_id}:{record.offset}"
    forgotten = f"DELETE FROM projection_versions WHERE aggregate_id = '{record.key}'"
    await world.change("read_models", forgotten)
    before = record.offset - begin
    # A member of the projection's group that takes nothing: without one the cause would be another.
    async with Consumer(world.own, group="tea.projection.cups", topics=["tea.events"]):
        await shown.open(f"/trace?id={place}")
        assert f"{before} messages of the queue before it are not applied" in await shown.text()
        hops: Any = (await shown.json("message trace", id=place))["hops"]
        assert len(await shown.rows()) == len(hops)
