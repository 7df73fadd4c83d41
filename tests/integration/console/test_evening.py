"""
An operator's evening: what went wrong is found and put right in the browser, each in at most five clicks from the overview.

A broker with real messages, and a group of two where one of them is to go. Typing is no click.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    Projection,
    applies,
)
from headrace.console.server import serving_console
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.cluster import ClusterVerbs
from headrace.figures import cluster
from headrace.figures.cluster import RecordPlace
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from headrace_mq.cluster.records.keeper import keeper_of
from headrace_mq.settings import BrokerSettings, GroupSettings, StoreSettings
from headrace_mq.testing.embedded import broker

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip(
    "playwright.async_api", reason="playwright is not installed: make install-browser"
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make install-browser"),
]
# A browser on a busy machine.
WAIT_MS = 60_000
CLICKS_MAX = 5
ORIGIN = '{"topic":"orders","queue_id":0,"offset":0,"born_at_ms":1,"attempt":3,"reason":"the till was shut","back_to":"orders"}'


class Operator:
    """A person at the overview, whose clicks are counted."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.clicks = 0

    async def follow(self, name: str, **how: Any) -> None:
        """Clicks a link."""
        await self._click(self.page.get_by_role("link", name=name, **how).first)

    async def press(self, name: str) -> None:
        """Clicks a button."""
        await self._click(self.page.get_by_role("button", name=name).first)

    async def fill(self, label: str, text: str, *, panel: str = "") -> None:
        """Types into a field, of the panel with that heading."""
        where = self.page.locator("section", has_text=panel) if panel else self.page
        await where.get_by_label(label, exact=True).first.fill(text)

    async def sees(self, text: str) -> None:
        """Finds a text on the page."""
        await self.page.get_by_text(text).first.wait_for()

    async def _click(self, what: Any) -> None:
        self.clicks += 1
        await what.click()


@pytest.fixture
async def brokers(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[list[ReplicatedBroker]]:
    """Two brokers of a group in sync: the first leads."""
    async with AsyncExitStack() as stack:
        made: list[ReplicatedBroker] = []
        for name in "ab":
            settings = BrokerSettings(
                store=StoreSettings(directory=tmp_path / name), port=free_port(),
                group=GroupSettings(record=postgres_database),
            )  # fmt: skip
            made.append(ReplicatedBroker(settings))
            await made[-1].start()
            stack.push_async_callback(made[-1].aclose)
            async with AdminClient(made[0].address, timeout_ms=WAIT_MS) as admin:
                await admin.create_topic(f"of-{name}", 1)
        record = keeper_of(postgres_database, cluster="default", group="g1", timeout_ms=WAIT_MS)
        async with asyncio.timeout(2 * WAIT_MS / 1_000):
            while len((await record.read()).in_sync) < len(made):
                await asyncio.sleep(0)
        await record.aclose()
        yield made


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with broker() as address:
        yield address


@asynccontextmanager
async def an_operator(
    address: str, group: ClusterVerbs | None = None, application: ApplicationVerbs | None = None
) -> AsyncIterator[Operator]:
    """Yields an operator at the overview of a console."""
    async with (
        serving_console(address, ConsoleSettings(port=0), application, group) as served,
        playwright.async_playwright() as tools,
    ):
        chromium = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await chromium.new_page()
        page.set_default_timeout(WAIT_MS)
        await page.goto(f"http://{served.address}/")
        operator = Operator(page)
        yield operator
        await chromium.close()


async def test_why_a_group_is_late(address: str) -> None:
    async with AdminClient(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 2)
        await producer.send_many([Message(topic="orders", body=b"tea")] * 30)
        await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    async with an_operator(address) as operator:
        await operator.follow("kitchen")
        await operator.sees("30 messages behind")
        await operator.sees("It has no members.")


async def test_an_order_that_is_said_to_be_lost(address: str) -> None:
    async with AdminClient(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 2)
        await producer.send_many(
            [Message(topic="orders", body=b"%d" % n, key=f"o-{n}") for n in range(500)]
        )
        sent = await producer.send(Message(topic="orders", body=b"pepper", key="o-77"))
    async with an_operator(address) as operator:
        await operator.follow("Messages", exact=True)
        await operator.fill("Topic", "orders", panel="By key")
        await operator.fill("Key, none for the last ones", "o-77")
        await operator.press("Search")
        await operator.sees("pepper")
        await operator.follow(f"orders:{sent.queue.queue_id}:{sent.offset}")
        await operator.follow("What happened to it")
        await operator.sees("In the queue")


async def test_five_hundred_dead_letters_come_back_at_fifty_a_second(address: str) -> None:
    letter = Message(topic="%DLQ%kitchen", body=b"tea", headers={ORIGIN_HEADER: ORIGIN})
    async with AdminClient(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 1)
        await admin.create_topic("%DLQ%kitchen", 1)
        await producer.send_many([letter] * 500)
    async with an_operator(address) as operator:
        await operator.follow("Dead letters", exact=True)
        await operator.follow("kitchen")
        await operator.sees("the till was shut")
        await operator.fill("Letters a second", "50")
        await operator.press("Send all again …")
        await operator.sees("At 50 a second it takes about 10 s.")
        await operator.press("Do it")
        await operator.sees("letters were sent again so far")
        await operator.sees("group kitchen: 500 letters were sent again")
        async with AdminClient(address) as admin:
            assert [one.end for one in await admin.ranges(["orders"])] == [500]


async def test_a_group_goes_back_to_a_time(address: str) -> None:
    async with AdminClient(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 1)
        await producer.send_many([Message(topic="orders", body=b"before")] * 3)
        last = await admin.message("orders:0:2")
        assert last is not None
        after = last
        # The time has milliseconds: a message of the next one is needed.
        while after.stored_at_ms == last.stored_at_ms:
            sent = await producer.send(Message(topic="orders", body=b"after"))
            found = await admin.message(f"orders:0:{sent.offset}")
            assert found is not None
            after = found
        await admin.reset_offsets("kitchen", "latest", topics=["orders"])
    time = datetime.fromtimestamp(after.stored_at_ms / 1_000, UTC)
    async with an_operator(address) as operator:
        await operator.follow("kitchen")
        await operator.fill("Time, offset or number", time.isoformat(timespec="milliseconds"))
        await operator.press("Look what changes …")
        await operator.sees("1 messages are delivered again")
        await operator.press("Do it")
        await operator.page.get_by_role("status").wait_for()
        async with AdminClient(address) as admin:
            assert (await admin.offsets("kitchen", ["orders"]))["orders", 0] == after.offset


class Brewed(DomainEvent):
    cups: int


class Brew(Command):
    pot: AggregateId
    cups: int


class Pot(Aggregate):
    def initial_state(self) -> None:
        self.cups = 0

    @applies
    def _brewed(self, event: Brewed) -> None:
        self.cups += event.cups


class Cups(BaseModel):
    pot: str
    cups: int


def a_tea_room() -> tuple[App, Projection]:
    """An application whose projection cannot apply the events of a large pot."""
    room = App("tea")
    cups = Projection("cups", row=Cups, key="pot")

    @cups.fold
    def brewed(_: Cups | None, event: Brewed, context: EventContext) -> Cups:
        if event.cups > 10:
            raise ValueError("no pot holds that many cups")
        return Cups(pot=context.aggregate_id, cups=event.cups)

    @room.handles
    async def brew(command: Brew, context: CommandContext) -> None:
        pot = Pot(command.pot)
        pot.record(Brewed(cups=command.cups))
        context.add(pot)

    room.add(Pot, cups)
    return room, cups


async def test_why_a_projection_stands(address: str, tmp_path: Path) -> None:
    room, cups = a_tea_room()
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    settings = Settings(broker=address, error_retries_max=0, **urls)
    async with room.run(settings) as running:
        await running.bus.execute(Brew(pot="red", cups=4), wait_for=[cups])
        await running.bus.execute(Brew(pot="blue", cups=40))
        async with asyncio.timeout(2 * WAIT_MS / 1_000):
            while not await running.projection_letters(cups).all():
                await asyncio.sleep(0)
    async with an_operator(address, application=ApplicationVerbs(room, **urls)) as operator:
        await operator.follow("Projections", exact=True)
        await operator.follow("cups", exact=True)
        await operator.sees("Aggregates that it has parked")
        await operator.follow("1", exact=True)
        await operator.sees("no pot holds that many cups")


async def test_another_broker_takes_over(
    brokers: list[ReplicatedBroker], postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ",".join(one.address for one in brokers)
    group = ClusterVerbs(RecordPlace(postgres_database))
    async with an_operator(address, group) as operator:
        await operator.follow("Brokers", exact=True)
        await operator.press("Let it lead …")
        await operator.sees("No message is lost.")
        with monkeypatch.context() as patch:  # on a busy machine
            patch.setattr(f"{ReplicatedBroker.__module__}.HAND_OVER_MS_MAX", WAIT_MS)
            patch.setattr(cluster, "SWITCH_S_MAX", WAIT_MS / 1_000)
            await operator.press("Do it")
            await operator.sees(f"{brokers[1].address} leads in epoch")
        async with AdminClient(address, timeout_ms=WAIT_MS) as admin:
            assert (await admin.describe()).broker == brokers[1].address
