"""Every page in a real browser where people sign in: no serious fault for a screen reader, and a change without a mouse."""

import shutil
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import insert

from headrace.alarms.settings import AlarmSettings
from headrace.console.pages import PAGES
from headrace.console.server import serving_console
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs import cluster
from headrace.console.verbs.alarm import AlarmVerbs
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.cluster import ClusterVerbs
from headrace.figures.cluster import RecordPlace
from headrace.settings import Settings
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import process_instances
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.broker.server import Broker
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from headrace_mq.cluster.record import GroupRecord, Identity, LogPlace, Registration
from headrace_mq.metrics.listener import MetricsListener
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount

CHROMIUM = shutil.which("chromium")
axe = pytest.importorskip(
    "axe_playwright_python.async_playwright", reason="axe is not installed: make install-browser"
)
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
BEGUN = datetime(2026, 1, 1, 12, tzinfo=UTC)
PASSWORD = "a long pencil"
PROCESS = app.definition.managers[0].name
ORIGIN = '{"topic":"orders","queue_id":0,"offset":0,"born_at_ms":1,"attempt":3,"reason":"no tea","back_to":"orders"}'
ASKED: Mapping[str, str] = {
    "/topic": "?topic=orders", "/group": "?group=kitchen", "/message": "?id=orders:0:1",
    "/dead": "?group=kitchen", "/aggregate": "?id=ann", "/state": "?id=ann&version=2",
    "/difference": "?id=ann&from=1&to=2", "/projection": "?name=balances", "/process": f"?name={PROCESS}&key=t1",
    "/command": "?id=none", "/rules": "?user=ann", "/explain": "?user=ann&action=publish&resource=topic:orders",
}  # fmt: skip
# Pages of more than one verb, and one that tells of a change.
OTHERS = (
    "/letters", "/messages", "/messages?topic=orders", "/messages?topic=orders&filter=_bytes+%3E+1", "/change?number=1", "/trace", "/trace?id=orders:0:1",
    "/trace?aggregate=ann&version=2",
)  # fmt: skip
FIRST, SECOND, THIRD = (Identity(name, name) for name in ("a:1", "b:2", "c:3"))
# A group of brokers of which one is out of sync, and one was promoted with loss.
RECORD = GroupRecord(1, 3, FIRST.name, frozenset({FIRST, SECOND}), 2, 2, "x")
KNOWN = [Registration(one, (LogPlace("forever", 3, 7),), 5) for one in (FIRST, SECOND, THIRD)]


async def look(_: RecordPlace) -> tuple[GroupRecord, list[Registration]]:
    """In place of a read of the record, which stands in a database."""
    return RECORD, KNOWN


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """A broker with a login and something for each page; root may do everything."""
    add_user(tmp_path, "root", SecretStr(PASSWORD), admin=True)
    add_user(tmp_path, "ann", SecretStr(PASSWORD), admin=False)
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20)
    async with Broker(BrokerSettings(store=store, port=0, login=True)) as broker:
        own = f"tcp://{broker.address}?user=root&password_file={file}"
        async with AdminClient(own, timeout_ms=WAIT_MS) as admin, Producer(own) as producer:
            for topic in ("orders", "bank.events", "%DLQ%kitchen"):
                await admin.create_topic(topic, 1)
            await producer.send_many([Message(topic="orders", body=b'{"item": "tea"}')] * 3)
            letter = Message(topic="%DLQ%kitchen", body=b"tea", headers={ORIGIN_HEADER: ORIGIN})
            await producer.send(letter)
            await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
            yield broker.address


@pytest.fixture
async def application(tmp_path: Path) -> ApplicationVerbs:
    """A bank with an account, and an instance of its process."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    await upgrade(urls["read_models"])
    async with app.run_local(Settings(**urls)) as bank:
        await bank.bus.execute(OpenAccount(account_id="ann", owner="Ann"))
        await bank.bus.execute(Deposit(account_id="ann", transaction_id="t1", amount=100))
    engine = create_engine(urls["read_models"])
    async with engine.begin() as connection:
        row = {
            "process": PROCESS, "instance": "t1", "state": '{"note": "x"}', "state_version": 1, "undo": "[]", "ended": False,
            "began_at": BEGUN, "changed_at": BEGUN, "last_event": "Opened", "last_aggregate_id": "ann", "seen": 1, "sent": 0,
        }  # fmt: skip
        await connection.execute(insert(process_instances), [row])
    await engine.dispose()
    return ApplicationVerbs(app, **urls)


@pytest.fixture
async def home(
    address: str, application: ApplicationVerbs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """Where a console is that has every page."""
    monkeypatch.setattr(cluster, "look", look)
    rows = b'[{"name": "retry_ms_min", "value": "7", "default": "50", "source": "--set"}]'
    listener = MetricsListener("127.0.0.1:0", no_figures, rows)
    await listener.start()
    targets = [
        {"url": "http://127.0.0.1:1/metrics"},
        {"job": "headrace-run", "url": f"http://{listener.address}/metrics"},
        {"job": "headrace-run", "url": "http://127.0.0.1:2/metrics"},
    ]
    alarms = AlarmVerbs(
        AlarmSettings.model_validate({"folder": tmp_path / "alarms", "target": targets})
    )
    settings = ConsoleSettings(port=0, timeout_ms=WAIT_MS)
    group = ClusterVerbs(RecordPlace("postgresql://unused/record"))
    async with serving_console(address, settings, application, group, alarms) as served:
        yield f"http://{served.address}"
    await listener.aclose()


async def no_figures() -> bytes:
    """What a process answers that has none."""
    return b""


async def signed_in(tools: Any, home: str, **how: str) -> Any:
    """A page of a browser in which root has signed in; at the door it was looked at, too."""
    chromium = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    page = await (await chromium.new_context(**how)).new_page()
    page.set_default_timeout(WAIT_MS)
    await page.goto(f"{home}/sign-in")
    assert await faults(page) == []
    await page.locator("input[name=user]").fill("root")
    await page.locator("input[name=password]").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await page.locator("nav").wait_for()
    return page


async def faults(page: Any) -> list[tuple[str, str, str]]:
    """What keeps people with a screen reader or a keyboard from using a page."""
    found = (await axe.Axe().run(page)).response["violations"]
    return [
        (one["id"], one["nodes"][0]["html"], one["nodes"][0]["failureSummary"])
        for one in found
        if one["impact"] in {"serious", "critical"}
    ]


@pytest.mark.parametrize(("locale", "scheme"), [("en-US", "dark"), ("zh-CN", "light")])
async def test_no_page_has_a_serious_fault_where_people_sign_in(
    home: str, locale: str, scheme: str
) -> None:
    async with playwright.async_playwright() as tools:
        page = await signed_in(tools, home, locale=locale, color_scheme=scheme)
        await page.goto(f"{home}/topics")
        await page.locator("form[action='/do/topic/create'] input[name=topic]").fill(locale)
        await page.keyboard.press("Enter")
        await page.locator("button[name=confirmed]").wait_for()
        found = {"the question": await faults(page)}
        await page.locator("button[name=confirmed]").click()
        await page.locator(".told").wait_for()
        for path in [*(each + ASKED.get(each, "") for each in PAGES), *OTHERS]:
            shown = await page.goto(home + path)
            assert shown.ok, (path, await page.locator("main").inner_text())
            assert await page.locator("html").get_attribute("lang") == locale[:2]
            found[path] = await faults(page)
        assert {path: each for path, each in found.items() if each} == {}


async def test_a_topic_is_made_with_the_keyboard_alone(address: str, home: str) -> None:
    async def reach(page: Any, name: str) -> None:
        for _ in range(100):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.name") == name:
                return
        raise AssertionError(f"no way leads to {name}")

    async with playwright.async_playwright() as tools:
        page = await signed_in(tools, home)
        await page.goto(f"{home}/topics")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.getAttribute('href')") == "#main"
        await page.keyboard.press("Enter")
        await reach(page, "topic")
        await page.keyboard.type("by-keyboard")
        await page.keyboard.press("Enter")
        await page.locator("button[name=confirmed]").wait_for()
        await reach(page, "confirmed")
        await page.keyboard.press("Enter")
        await page.locator(".told").wait_for()
        await page.goto(f"{home}/topics?search=by-keyboard")
        await page.get_by_role("link", name="by-keyboard").wait_for()
