"""
Makes the pictures of the console in docs/images: `python docs/screenshots.py`, after `make install-browser`.

A broker and the bank in this process, with some hundred commands, a group that is late, and dead letters.
"""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.async_api import Page, async_playwright

from headrace.alarms.settings import AlarmSettings, AlarmTarget
from headrace.alarms.watcher import AlarmWatcher
from headrace.console.server import serving_console
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.alarm import AlarmVerbs
from headrace.console.verbs.application import ApplicationVerbs
from headrace.running_app import RunningApp
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from headrace.testing.history import FakeClock
from headrace_mq import AdminClient, Message, Producer, QueueRef
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from headrace_mq.testing.embedded import broker
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount, Withdraw
from samples.bank.read_models import balances

IMAGES = Path(__file__).parent / "images"
OWNERS = ("ann", "bob", "cem", "dora", "eve", "finn")
# A window that a page of a document shows without a loss.
SIZE = {"width": 1_200, "height": 800}
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "group": "/group?group=kitchen",
    "messages": "/messages?topic=orders",
    "letters": "/dead?group=kitchen",
    "aggregate": "/difference?id=ann&from=1&to=4",
    "projection": "/projection?name=balances",
    "alarms": "/alarms",
    "journey": "/trace?aggregate=ann&version=4",
    "commands": "/commands",
    "results": "/results",
    "settings": "/config?search=_bytes",
    "search": "/messages?topic=orders&filter=_tag+%3D+'tea'+AND+body.cups+%3E+893",
    "undo": "/group?group=bar",
}
# Of some pages a part is enough: from the top of an element on, so high; the file is smaller.
PARTS = {
    "journey": ("h1", 800), "commands": ("h1", 600), "results": ("h1", 440), "settings": ("h1", 440),
    "search": ("h2:has-text('that fit')", 420), "undo": ("h1", 550),
}  # fmt: skip
ORIGIN = (
    '{{"topic":"orders","queue_id":0,"offset":{n},"born_at_ms":1,"attempt":3,'
    '"reason":"{cause}","back_to":"orders"}}'
)
CAUSES = ("TillIsShut: the till opens at 9", "ValueError: no such tea: grey earl")


@asynccontextmanager
async def a_busy_bank(folder: Path) -> AsyncIterator[tuple[str, ApplicationVerbs]]:
    """Yields the address of a broker, and what can be asked of the bank that runs on it."""
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    async with broker() as address, app.run(Settings(broker=address, **urls)) as bank:
        for owner in OWNERS:
            await bank.bus.execute(OpenAccount(account_id=owner, owner=owner.title()))
        for number in range(240):
            owner = OWNERS[number % len(OWNERS)]
            paid = Deposit(account_id=owner, transaction_id=f"{owner}-{number}", amount=number + 1)
            await bank.bus.execute(paid, wait_for=[balances] if number == 239 else [])
        await commands(bank)
        await orders(address)
        async with AdminClient(address) as admin:
            # What is sent from now on waits.
            await admin.set_group("bank.commands", consume=False)
        for number in range(6):
            paid = Deposit(account_id=OWNERS[number], transaction_id=f"late-{number}", amount=1)
            await bank.bus.send(paid)
        yield address, ApplicationVerbs(app, **urls)


async def commands(bank: RunningApp) -> None:
    """Some that are refused."""
    for number, owner in enumerate(OWNERS):
        await bank.bus.execute(
            Withdraw(account_id=owner, transaction_id=f"out-{number}", amount=10**9)
        )
        await bank.bus.execute(Deposit(account_id=owner, transaction_id=f"no-{number}", amount=0))


async def orders(address: str) -> None:
    """A topic of orders, a group that is late, and letters that it gave up."""
    async with AdminClient(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 4)
        await producer.send_many(
            Message(
                topic="orders", key=f"o-{n}", tag="tea", body=b'{"item": "tea", "cups": %d}' % n
            )
            for n in range(900)
        )
        await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
        # Someone moved the bar to the end by mistake.
        await admin.set_offsets("bar", {QueueRef("orders", n): 150 + n for n in range(4)})
        await admin.reset_offsets("bar", "latest", topics=["orders"])
        await admin.create_topic("%DLQ%kitchen", 1)
        for n in range(12):
            origin = ORIGIN.format(n=n, cause=CAUSES[n % 3 > 1])
            await producer.send(
                Message(
                    topic="%DLQ%kitchen",
                    body=b'{"item": "tea", "cups": %d}' % n,
                    headers={ORIGIN_HEADER: origin},
                )
            )


async def a_night_with_alarms(folder: Path) -> AlarmVerbs:
    """A watcher that has looked for ten minutes at a broker that is away."""
    target = AlarmTarget(job="headrace-broker", url="http://127.0.0.1:1/metrics")
    settings = AlarmSettings(folder=folder / "alarms", target=(target,), timeout_ms=100)
    clock = FakeClock(datetime.now(UTC) - timedelta(minutes=10))
    watcher = AlarmWatcher(settings, clock=clock)
    for _ in range(11):
        await watcher.look()
        clock.advance(60_000)
    return AlarmVerbs(settings)


async def main(names: Sequence[str]) -> None:
    """Takes the pictures of these pages; of all, if none is named."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed: make install-browser")
    with tempfile.TemporaryDirectory() as folder:
        async with (
            a_busy_bank(Path(folder)) as (address, verbs),
            serving_console(
                address,
                ConsoleSettings(port=0),
                verbs,
                alarms=await a_night_with_alarms(Path(folder)),
            ) as served,
            async_playwright() as tools,
        ):
            browser = await tools.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = await browser.new_page(viewport=SIZE)
            for name in names or PAGES:
                found = await page.goto(f"http://{served.address}{PAGES[name]}")
                if found is None or not found.ok:
                    sys.exit(f"{name}: the page is not there")
                await take(page, name)
            await browser.close()


async def take(page: Page, name: str) -> None:
    """Takes the picture of a page that is open."""
    if name == "undo":
        await page.get_by_role("button", name="Take it back …").click()
        await page.get_by_role("heading", name="Before you do that").wait_for()
    # The second look at the overview has figures of the moment.
    await page.wait_for_timeout(2_500 if name == "overview" else 200)
    file = IMAGES / f"console-{name}.png"
    if name not in PARTS:
        await page.screenshot(path=file)
        return
    where, height = PARTS[name]
    top = await page.locator(where).first.bounding_box()
    if top is None:
        sys.exit(f"{name}: the page has no {where}")
    clip = {"x": 0, "y": max(0, top["y"] - 20), "width": SIZE["width"], "height": height}
    await page.screenshot(path=file, full_page=True, clip=clip)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
