"""A console whose broker is busy: pages open, changes are made, live parts go on, and in the end each number is exact."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace_mq import Consumer, Message
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from tests.integration.console.actions import ACTIONS
from tests.integration.console.shown import Shown, answer, ask, refusal
from tests.integration.console.world import WAIT_MS, World, a_world, consoled, sign_in

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip(
    "playwright.async_api", reason="playwright is not installed: make install-browser"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make install-browser"),
]
# Messages that are sent at once, and that may be on their way: what is handled lets more in, so a slow machine has less.
TOGETHER, ON_WAY = 500, 2_000
# So many are there before the first page is opened.
FIRST = 4_000
LETTERS = 13
ORIGIN = '{"topic":"orders","queue_id":0,"offset":0,"born_at_ms":1,"attempt":3,"reason":"late","back_to":"orders"}'
PAGES = (
    "/", "/topics", "/topic?topic=orders", "/groups", "/group?group=kitchen", "/messages?topic=orders",
    "/messages?topic=orders&key=k-1", "/messages?topic=orders&filter=_key+%3D+'k-2'", "/message?id=orders:0:1",
    "/trace?id=orders:0:1", "/letters", "/dead?group=kitchen", "/producers", "/connections", "/config", "/audit", "/users",
    "/rules", "/alarms", "/cluster", "/commands", "/results", "/aggregates", "/projections", "/processes", "/parked",
)  # fmt: skip
DONE = {"topic create", "group set", "message send", "topic freeze", "topic thaw"}


class Load:
    """A producer and two members of a group, as fast as they can, until it is told to end.

    Attributes:
        sent: messages that the broker has taken.
        handled: bodies of those that a member has handled.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._ends = False
        self._moved = asyncio.Event()
        self.sent = 0
        self.handled: set[bytes] = set()

    async def send(self) -> None:
        """Sends until it ends."""
        while not self._ends:
            numbers = range(self.sent, self.sent + TOGETHER)
            await self._world.producer.send_many(
                [Message(topic="orders", key=f"k-{n % 97}", body=b"%d" % n) for n in numbers]
            )
            self.sent += TOGETHER
            await self.until(lambda: self.sent - len(self.handled) < ON_WAY or self._ends)

    async def take(self, member: Consumer) -> None:
        """Handles what a member gets."""
        while True:
            records = await member.poll()
            self.handled.update(one.body for one in records)
            member.ack_all(records)
            self._moved.set()

    async def until(self, true: Any) -> None:
        """Waits until something is true that changes with what is handled."""
        while not true():
            self._moved.clear()
            await self._moved.wait()

    def end(self) -> None:
        """Sends no more."""
        self._ends = True
        self._moved.set()


@asynccontextmanager
async def loaded(world: World) -> AsyncIterator[Load]:
    """Yields a load; it has ended, and all is handled and committed, when the block ends."""
    load = Load(world)
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(Consumer(world.own, group="kitchen", topics=["orders"]))
            for _ in range(2)
        ]
        takes = [asyncio.create_task(load.take(one)) for one in members]
        sends = asyncio.create_task(load.send())
        try:
            async with asyncio.timeout(2 * WAIT_MS / 1_000):
                await load.until(lambda: len(load.handled) > FIRST)
            yield load
            load.end()
            await sends
            async with asyncio.timeout(2 * WAIT_MS / 1_000):
                await load.until(lambda: len(load.handled) > load.sent + LETTERS)
            for one in members:
                await one.commit()
        finally:
            for task in (*takes, sends):
                task.cancel()
            await asyncio.gather(*takes, sends, return_exceptions=True)


async def live(shown: Shown) -> None:
    """Figures and messages change on pages that stay open."""
    page = shown.page
    await shown.open("/")
    await page.get_by_text("Figures are new every second.").wait_for()
    await page.wait_for_function(
        "[...document.querySelectorAll('[data-figure=in]')].some(one => one.textContent !== '0')"
    )
    await shown.open("/messages?topic=orders")
    before = await page.locator("tbody tr:last-child a").inner_text()
    await page.wait_for_function(
        "before => document.querySelector('tbody tr:last-child a').textContent !== before",
        arg=before,
    )


@asynccontextmanager
async def a_page(world: World) -> AsyncIterator[Shown]:
    """Yields a page of root, which complains about nothing."""
    complaints: list[str] = []
    async with playwright.async_playwright() as tools:
        browser = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown = Shown(await sign_in(browser, world.home, "root"), world)
        shown.page.on("console", lambda message: complaints.append(message.text))
        shown.page.on("pageerror", lambda error: complaints.append(str(error)))
        yield shown
        await browser.close()
    assert complaints == []


async def change(shown: Shown, world: World) -> None:
    """Presses buttons of the group that is busy, and of others."""
    for action in ACTIONS:
        if action.verb in DONE or "Send all again" in action.within:
            await ask(shown.page, world.home, action)
            await answer(shown.page)
            assert await refusal(shown.page) == "", action.verb
            assert await shown.page.locator(".told").count() == 1, action.verb
    assert all(one.consume for one in await world.admin.groups())


async def test_a_busy_broker_is_shown_and_changed_and_its_numbers_are_exact(tmp_path: Path) -> None:
    async with a_world(tmp_path) as made, consoled(made, live_ms=200) as world:
        await world.admin.create_topic("orders", 4)
        await world.admin.create_topic("%DLQ%kitchen", 1)
        headers = {ORIGIN_HEADER: ORIGIN}
        bodies = [b"letter %d" % n for n in range(LETTERS)]
        letters = [Message(topic="%DLQ%kitchen", body=one, headers=headers) for one in bodies]
        await world.producer.send_many(letters)
        async with a_page(world) as shown:
            async with loaded(world) as load:
                for path in PAGES:
                    await shown.open(path)
                await change(shown, world)
                await live(shown)
            await exact(world, shown, load.sent + LETTERS + 1)


async def exact(world: World, shown: Shown, total: int) -> None:
    """Compares what is shown when all is still with the broker, and with what was sent."""
    held = sum(one.end - one.first for one in await world.admin.ranges(["orders"]))
    assert held == total
    await shown.open("/topics?search=orders")
    assert await shown.rows(0, 0, 1, 3) == [("orders", "4", f"{total:,}")]
    assert sum(one.lag for one in (await world.admin.lag("kitchen", ["orders"])).queues) == 0
    await shown.open("/group?group=kitchen")
    assert "0 messages behind" in await shown.text()
    rows = await shown.rows(1, 3, 4, 5)
    assert {row[2] for row in rows} == {"0"}
    assert sum(int(end.replace(",", "")) for end, *_ in rows) == total
    assert [end for end, *_ in rows] == [offset for _, offset, _ in rows]
    produced = {one.client_id: one.produced for one in await world.admin.connections("producer")}
    await shown.open("/producers")
    assert {row[0]: row[5] for row in await shown.rows()} == {name: f"{count:,}" for name, count in produced.items()}  # fmt: skip
    assert total - 1 in produced.values()
    assert (await shown.json("message dead", group="kitchen", unsent=1))["letters"] == []
