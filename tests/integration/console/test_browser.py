"""The console in a real browser: live figures, a change that is asked about, and nothing from another host."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace.alarms.settings import AlarmSettings
from headrace.console.server import serving_console
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.alarm import AlarmVerbs
from headrace.console.verbs.application import ApplicationVerbs
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from headrace_mq.testing.embedded import broker
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount

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


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """A broker with a topic of three messages, and a group that has read none."""
    async with broker() as address, AdminClient(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 1)
        await admin.create_topic("bank.events", 1)
        await producer.send_many([Message(topic="orders", body=b'{"item": "<b>tea</b>"}')] * 3)
        await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
        yield address


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The databases of a bank with an account of three versions."""
    folder = tmp_path_factory.mktemp("bank")
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in ("event_store", "read_models")}

    async def fill() -> None:
        await upgrade(urls["read_models"])
        async with app.run_local(Settings(**urls)) as bank:
            await bank.bus.execute(OpenAccount(account_id="ann", owner="Ann"))
            for number in range(2):
                await bank.bus.execute(
                    Deposit(account_id="ann", transaction_id=f"t{number}", amount=100)
                )

    asyncio.run(fill())
    return urls


@pytest.fixture
def application(urls: dict[str, str]) -> ApplicationVerbs:
    return ApplicationVerbs(app, **urls)


@pytest.fixture
async def page(address: str, application: ApplicationVerbs, tmp_path: Path) -> AsyncIterator[Any]:
    """A page at the console's overview; what it complains about, and which hosts it asks, is looked at afterwards."""
    settings = ConsoleSettings(port=0, live_ms=200)
    target = {"url": "http://127.0.0.1:1/metrics"}
    alarms = AlarmVerbs(AlarmSettings.model_validate({"folder": tmp_path, "target": [target]}))
    async with (
        serving_console(address, settings, application, alarms) as served,
        playwright.async_playwright() as tools,
    ):
        chromium = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await chromium.new_page()
        page.set_default_timeout(WAIT_MS)
        complaints: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"http://{served.address}/")
        yield page
        await chromium.close()
        assert complaints == []
        assert [one for one in asked if not one.startswith(f"http://{served.address}/")] == []


async def test_an_open_overview_gets_new_figures_by_itself(address: str, page: Any) -> None:
    await page.get_by_text("Figures are new every second.").wait_for()
    async with Producer(address) as producer:
        await producer.send_many([Message(topic="orders", body=b"x")] * 4)
    await page.locator("[data-figure=backlog]", has_text="7").wait_for()


async def test_a_group_is_reset_from_the_overview_in_five_clicks(address: str, page: Any) -> None:
    await page.get_by_role("link", name="kitchen").click()
    await page.locator("select[name=to]").select_option("latest")
    await page.get_by_role("button", name="Look what changes").click()
    await page.get_by_text("3 are skipped").wait_for()
    await page.get_by_role("button", name="Do it").click()
    await page.get_by_role("status").wait_for()
    async with AdminClient(address) as admin:
        assert (await admin.lag("kitchen", ["orders"])).queues[0].lag == 0


async def test_each_tab_opens_and_a_message_is_shown_as_it_is(page: Any) -> None:
    for tab in ("Topics", "Groups", "Messages", "Dead letters"):
        await page.get_by_role("link", name=tab, exact=True).first.click()
        await page.get_by_role("heading", name=tab, level=1).wait_for()
    await page.get_by_role("link", name="Messages", exact=True).click()
    await page.get_by_label("Topic:queue:offset").fill("orders:0:1")
    await page.get_by_role("button", name="Show").first.click()
    assert await page.locator("pre").inner_text() == '{\n  "item": "<b>tea</b>"\n}'


async def test_new_messages_appear_on_an_open_page(address: str, page: Any) -> None:
    await page.goto(page.url.rstrip("/") + "/messages?topic=orders")
    await page.get_by_text("New messages appear below.").wait_for()
    async with Producer(address) as producer:
        await producer.send(Message(topic="orders", body=b"<i>later</i>", key="ann"))
    row = page.get_by_role("row").filter(has_text="<i>later</i>")
    await row.get_by_role("link", name="orders:0:3").click()
    await page.get_by_role("heading", name="Message orders:0:3").wait_for()


async def test_a_dead_letter_is_sent_again_with_another_body(address: str, page: Any) -> None:
    async with AdminClient(address) as admin, Producer(address) as producer:
        await admin.create_topic("%DLQ%kitchen", 1)
        origin = b'{"topic":"orders","queue_id":0,"offset":0,"born_at_ms":1,"attempt":3,"reason":"no tea","back_to":"orders"}'
        headers = {ORIGIN_HEADER: origin.decode()}
        await producer.send(Message(topic="%DLQ%kitchen", body=b'{"item":\n"te"}', headers=headers))
        await page.get_by_role("link", name="Dead letters", exact=True).click()
        await page.get_by_role("link", name="kitchen").click()
        await page.get_by_role("link", name="0", exact=True).click()
        box = page.get_by_label("Body").last
        assert await box.input_value() == '{"item":\n"te"}'
        await box.fill('{"item":\n"tea"}')
        await page.get_by_role("button", name="Look what changes").click()
        await page.get_by_role("button", name="Do it").click()
        await page.get_by_role("status").wait_for()
        sent = await admin.message("orders:0:3")
        assert sent is not None
        assert sent.body == b'{"item":\n"tea"}'


async def test_an_account_is_shown_as_it_was_before_its_last_command(page: Any) -> None:
    await page.get_by_role("link", name="Aggregates", exact=True).click()
    await page.get_by_role("link", name="ann", exact=True).click()
    await page.get_by_role("link", name="State at version 2").click()
    assert '"balance": 100' in await page.locator("pre").inner_text()
    await page.get_by_role("link", name="The next version").click()
    await page.get_by_role("button", name="Compare").click()
    await page.get_by_text("balance was 100 and is 200").wait_for()


async def test_a_projection_is_paused_after_a_question(page: Any) -> None:
    await page.get_by_role("link", name="Projections", exact=True).click()
    await page.get_by_role("link", name="balances", exact=True).click()
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_text("its lag grows").wait_for()
    await page.get_by_role("button", name="Do it").click()
    await page.get_by_text("projection balances is paused").wait_for()
    await page.get_by_role("link", name="Back").click()
    await page.get_by_text("paused", exact=True).first.wait_for()


async def test_an_alarm_is_silenced_from_its_page(page: Any) -> None:
    await page.get_by_role("link", name="Alarms", exact=True).click()
    form = page.locator("form[action='/do/alarms/silence']")
    await form.get_by_label("Alarm").fill("HeadraceDamage")
    await form.get_by_label("Reason").fill("a new disk comes")
    await form.get_by_role("button").click()
    await page.get_by_text("No message is sent about HeadraceDamage until").wait_for()
    await page.get_by_role("button", name="Do it").click()
    await page.get_by_role("status").wait_for()
    await page.get_by_role("link", name="Alarms", exact=True).click()
    await page.get_by_role("row").filter(has_text="a new disk comes").wait_for()


async def test_a_page_is_painted_within_a_second(page: Any) -> None:
    painted = await page.evaluate(
        "performance.getEntriesByType('paint').find(one => one.name === 'first-contentful-paint')?.startTime"
    )
    assert painted is None or painted < 1_000
