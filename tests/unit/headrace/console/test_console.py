"""What all requests share: the host, headers that allow nothing from elsewhere, one sentence for errors."""

import re

import httpx
import pytest

from headrace.console.console import Console
from headrace.console.pages import PAGES
from headrace.console.sessions import Sessions
from headrace.console.settings import ConsoleSettings
from headrace.console.verbs.catalogue import VERBS
from headrace_mq import AdminClient, Message, Producer
from headrace_mq._net.address import BrokerAddress
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.embedded import DIRECTORY
from headrace_mq.testing.embedded import broker as broker_of

PAGE_BYTES_MAX = 150_000
HOSTILE = '<script>alert("x")</script>'
ADDRESSES = re.compile(
    r"""(?:src|href|action|formaction)\s*=\s*["']([^"']*)|url\(([^)]*)|@import"""
)


def paths(topic: str) -> list[str]:
    """Every page, with a topic and a group that are there."""
    asked = {"/topic": f"?topic={topic}", "/group": "?group=kitchen", "/message": f"?id={topic}:0:0", "/trace": f"?id={topic}:0:0", "/dead": "?group=kitchen"}  # fmt: skip
    own = [
        path
        for path, one in PAGES.items()
        if one.verb in VERBS and one.tab not in {"audit", "users"}
    ]
    return [path + asked.get(path, "") for path in own] + [
        "/letters", "/messages", f"/messages?topic={topic}", f"/messages?topic={topic}&key=k",
    ]  # fmt: skip


async def fill(address: str, admin: AdminClient, body: bytes, count: int = 1) -> None:
    await admin.create_topic("orders", 1)
    async with Producer(address) as producer:
        message = Message(
            topic="orders", body=body, key=HOSTILE, tag=HOSTILE, headers={"h": HOSTILE}
        )
        await producer.send_many([message] * count)
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])


async def test_no_page_names_another_host_or_has_a_script_of_its_own(
    broker, admin, browser
) -> None:
    await fill(broker, admin, b"{}")
    for path in paths("orders"):
        answer = await browser.client.get(path)
        assert answer.status_code == 200, path
        for found in ADDRESSES.finditer(answer.text):
            address = found[1] or found[2] or found[0]
            assert address.startswith(("/", "#")), (path, address)
            assert not address.startswith("//"), (path, address)
        assert re.findall(r"<script(?! src=)|<style|\son[a-z]+=|style=", answer.text) == []
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    for name in ("console.css", "console.js", "icon.svg"):
        text = await browser.page(f"/static/{name}")
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []


async def test_a_hostile_message_is_shown_and_not_run(broker, admin, browser) -> None:
    await fill(broker, admin, HOSTILE.encode())
    for path in paths("orders"):
        assert HOSTILE not in await browser.page(path), path
    assert "&lt;script&gt;" in await browser.page("/message", id="orders:0:0")


async def test_a_page_stays_small_with_large_messages(broker, admin, browser) -> None:
    await fill(broker, admin, b"\xff" * 300_000, 60)
    for path in paths("orders"):
        assert len(await browser.page(path)) < PAGE_BYTES_MAX, path


async def test_ten_thousand_queues_come_in_pages(console) -> None:
    store = StoreSettings(directory=DIRECTORY, segment_bytes=1 << 20)
    settings = BrokerSettings(store=store, address_queues_per_minute=20_000)
    topics = [f"t{number}" for number in range(10)]
    async with broker_of(settings) as address, AdminClient(address, timeout_ms=60_000) as admin:
        for topic in topics:
            await admin.create_topic(topic, 1_000)
        # A group has offsets in 8,192 queues at most.
        for topic in topics[:8]:
            await admin.reset_offsets("kitchen", "earliest", topics=[topic])
        browser = await console(address, timeout_ms=60_000)
        first = await browser.page("/topic", topic="t0")
        assert len(first) < PAGE_BYTES_MAX
        assert "1,000 in all · page 1 of 5" in first
        assert first.count('<tr><td class="n">') == 200
        assert '<td class="n">999</td>' in await browser.page("/topic", topic="t0", page=5)
        group = await browser.page("/group", group="kitchen", page=40)
        assert len(group) < PAGE_BYTES_MAX
        assert "8,000 in all · page 40 of 40" in group
        assert group.count('<a href="/topic?topic=') == 200
        answer = (await browser.client.get("/api/group/show?group=kitchen&rows=3")).json()
        assert (len(answer["queues"]), answer["total"], answer["behind"]) == (3, 8_000, 0)


async def test_a_name_that_is_not_the_consoles_is_refused(browser) -> None:
    answer = await browser.client.get("/", headers={"host": "evil.example"})
    assert answer.status_code == 421
    assert "x-content-type-options" in answer.headers


async def test_an_error_is_a_page_with_its_sentence(browser) -> None:
    answer = await browser.client.get("/topic", params={"topic": "nowhere"})
    assert answer.status_code == 404
    assert "there is no topic" in answer.text


async def test_a_broker_that_is_away_is_a_page_with_what_to_check() -> None:
    settings = ConsoleSettings(timeout_ms=50)
    async with Sessions(BrokerAddress.parse("127.0.0.1:1"), settings) as sessions:
        transport = httpx.ASGITransport(Console(sessions, settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get("/")
            assert (answer.status_code, "check that it is running" in answer.text) == (503, True)
            assert (await client.get("/live")).status_code == 503


@pytest.mark.parametrize("path", ["/static/../console.py", "/static/%2e%2e/console.py", "/nowhere"])
async def test_nothing_else_is_served(browser, path: str) -> None:
    assert (await browser.client.get(path)).status_code == 404


ODD = ["", " ", "-1", "0", "9" * 18, "9" * 40, "<b>", "a:b", "%DLQ%", "\x00", "é" * 300, "orders:0:0", "orders:0:-1", "\ud7ff"]  # fmt: skip


@pytest.mark.parametrize("path", [*PAGES, "/letters", "/messages", "/live/", "/api/topic/show"])
async def test_an_odd_value_is_no_defect(broker, admin, browser, path: str) -> None:
    await fill(broker, admin, b"{}")
    names = ("topic", "group", "id", "key", "queue", "offset", "since", "from", "page", "search")
    for name in names:
        for value in ODD:
            known = {"topic": "orders", "group": "kitchen"} | {name: value}
            answer = await browser.client.get(path, params=known)
            assert answer.status_code < 500, (path, known, answer.text)
