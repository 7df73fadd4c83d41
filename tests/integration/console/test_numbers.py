"""Each number of the pages about a broker is what its admin API says, and what the test put there."""

import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from headrace_mq import Decision, Message, QueueRef, TransactionalProducer, Undecided
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from tests.integration.console.shown import Shown
from tests.integration.console.world import (
    KNOWN,
    LOSS_BYTES,
    LOSS_MS,
    RECORD,
    World,
    a_world,
    consoled,
    sign_in,
)

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
# All of them differ, so that none is taken for another.
ORDERS, OF_ANN, LAGS = 1_137, 23, (17, 19, 5)
LETTERS, LATE, RESENT, PURGED = 13, 5, 3, 2
SCHEDULED, UNDECIDED = 7, 4
# As far ahead as a test cannot take.
FAR_MS = 300 * 86_400_000
ORIGIN = '{{"topic":"orders","queue_id":{n},"offset":{n},"born_at_ms":1,"attempt":{n},"reason":"{why}","back_to":"orders"}}'


async def fill(world: World) -> None:
    """Orders in three queues, two groups that are behind, letters, and what the broker keeps back."""
    admin, producer = world.admin, world.producer
    await admin.create_topic("orders", 3)
    await admin.create_topic("menu", 2, "forever")
    keys = ["ann"] * OF_ANN + [f"k-{n}" for n in range(ORDERS - OF_ANN)]
    await producer.send_many(
        [Message(topic="orders", key=key, body=b"cup %d" % n) for n, key in enumerate(keys)]
    )
    ends = {one.queue_id: one.end for one in await admin.ranges(["orders"])}
    await admin.set_offsets(
        "kitchen", {QueueRef("orders", n): ends[n] - lag for n, lag in enumerate(LAGS)}
    )
    await admin.reset_offsets("bar", "earliest", topics=["orders"])
    await admin.set_group("bar", consume=False)
    await admin.freeze("menu", (1,), reading=True)
    await admin.create_topic("%DLQ%kitchen", 1)
    for n in range(LETTERS):
        origin = ORIGIN.format(n=n % 3, why="late" if n < LATE else "cold")
        letter = Message(topic="%DLQ%kitchen", body=b"cup", headers={ORIGIN_HEADER: origin})
        await producer.send(letter)
    await admin.purge("kitchen", ids=list(range(PURGED)))
    await admin.resend("kitchen", list(range(PURGED, PURGED + RESENT)))
    for _ in range(SCHEDULED):
        await producer.schedule(Message(topic="menu", body=b"later"), delay_ms=FAR_MS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with a_world(tmp_path_factory.mktemp("numbers")) as made:
        await fill(made)
        async with TransactionalProducer(made.own, group="tills", checker=unsure) as tills:
            for _ in range(UNDECIDED):
                await tills.begin([Message(topic="menu", body=b"perhaps")])
            async with consoled(made):
                yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(world: World) -> AsyncIterator[Shown]:
    async with playwright.async_playwright() as tools:
        browser = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Shown(await sign_in(browser, world.home, "root"), world)
        await browser.close()


async def unsure(_: Undecided) -> Decision:
    return Decision.UNKNOWN


async def behind(world: World, group: str) -> dict[int, tuple[int, int, int]]:
    """End, offset and lag of a group in each queue of the orders, from offsets and ranges alone."""
    offsets = await world.admin.offsets(group, ["orders"])
    return {
        one.queue_id: (
            one.end,
            offsets["orders", one.queue_id],
            one.end - offsets["orders", one.queue_id],
        )
        for one in await world.admin.ranges(["orders"])
    }


async def test_the_overview_has_the_figures_of_the_broker(world: World, shown: Shown) -> None:
    status = await world.admin.status()
    lags = {name: sum(one[2] for one in (await behind(world, name)).values()) for name in ("kitchen", "bar")}  # fmt: skip
    assert lags == {"kitchen": sum(LAGS) + RESENT, "bar": ORDERS + RESENT}
    told = (await shown.json("broker show"))["figures"]
    backlog = f"{sum(lags.values()):,}"
    assert (told["backlog"], told["topics"], told["queues"], told["groups"]) == (
        backlog, f"{status.topics:,}", f"{status.queues:,}", f"{status.groups:,}",
    )  # fmt: skip
    await shown.open("/")
    for figure, text in {"backlog": backlog, "topics": status.topics, "queues": status.queues}.items():  # fmt: skip
        assert await shown.page.locator(f"[data-figure={figure}]").inner_text() == str(text)
    rows = {row[0]: row[2] for row in await shown.rows()}
    assert {name: rows[name] for name in lags} == {name: f"{lag:,}" for name, lag in lags.items()}
    scheduled, undecided = await world.admin.scheduled(), await world.admin.transactions()
    assert (scheduled.pending, undecided.undecided) == (SCHEDULED, UNDECIDED)
    facts = await shown.facts()
    due = datetime.fromtimestamp(scheduled.next_due_at_ms / 1_000, UTC).strftime(
        "%Y-%m-%d %H:%M:%S"
    )
    assert facts["Scheduled messages"].startswith(f"{SCHEDULED}, the next one is due at {due}")
    assert facts["Undecided transactions"] == str(UNDECIDED)
    assert len(await shown.rows(1)) == UNDECIDED
    assert "An operator paused 1 groups: bar" in await shown.text()


async def test_topics_have_their_queues_and_messages(world: World, shown: Shown) -> None:
    ranges = await world.admin.ranges(["orders", "menu"])
    held = Counter[str]()
    for one in ranges:
        held[one.topic] += one.end - one.first
    assert held["orders"] == ORDERS + RESENT
    told = {one["topic"]: (one["queues"], one["messages"]) for one in (await shown.json("topic list"))["topics"]}  # fmt: skip
    assert told == {"orders": (3, ORDERS + RESENT), "menu": (2, 0)}
    await shown.open("/topics")
    assert await shown.rows(0, 0, 1, 2, 3, 6) == [
        ("menu", "2", "forever", "0", "reading: 1"), ("orders", "3", "transient", f"{ORDERS + RESENT:,}", ""),
    ]  # fmt: skip
    assert "2 in all" in await shown.text()
    await shown.open("/topic?topic=orders")
    assert await shown.rows(1, 0, 1, 2, 3) == [
        (str(one.queue_id), f"{one.first:,}", f"{one.end:,}", f"{one.end - one.first:,}")
        for one in ranges
        if one.topic == "orders"
    ]
    assert {row[:3] for row in await shown.rows(0)} == {
        ("bar", "0", f"{ORDERS + RESENT:,}"), ("kitchen", "0", str(sum(LAGS) + RESENT)),
    }  # fmt: skip


async def test_groups_say_how_far_behind_they_are(world: World, shown: Shown) -> None:
    told = {one["group"]: (one["members"], one["queues"], one["lag"]) for one in (await shown.json("group list"))["groups"]}  # fmt: skip
    assert told == {"kitchen": (0, 3, sum(LAGS) + RESENT), "bar": (0, 3, ORDERS + RESENT)}
    await shown.open("/groups?sort=name")
    assert await shown.rows(0, 0, 1, 2, 3) == [
        ("bar", "0", "3", f"{ORDERS + RESENT:,}"), ("kitchen", "0", "3", str(sum(LAGS) + RESENT)),
    ]  # fmt: skip
    for name in ("kitchen", "bar"):
        expected = await behind(world, name)
        count = sum(one[2] for one in expected.values())
        assert (await shown.json("group show", group=name))["behind"] == count
        await shown.open(f"/group?group={name}")
        assert f"{count:,} messages behind" in await shown.text()
        assert {row[1]: row[3:6] for row in await shown.rows(1)} == {
            str(queue): tuple(f"{each:,}" for each in one) for queue, one in expected.items()
        }


async def test_letters_are_counted_without_those_off_the_list(world: World, shown: Shown) -> None:
    letters = await world.admin.dead_letters("kitchen")
    assert [one.id for one in letters] == list(range(PURGED, LETTERS))
    await shown.open("/letters")
    assert await shown.rows() == [
        ("kitchen", str(LETTERS - PURGED), str(LETTERS - PURGED - RESENT))
    ]
    told = await shown.json("message dead", group="kitchen")
    causes = {one["cause"]: one["letters"] for one in told["causes"]}
    assert causes == {"late": LATE - PURGED, "cold": LETTERS - LATE}
    await shown.open("/dead?group=kitchen")
    assert dict(await shown.rows(0)) == {name: str(count) for name, count in causes.items()}
    rows = await shown.rows(1)
    assert [(row[1], row[3]) for row in rows] == [(str(one.id), str(one.origin.attempt)) for one in letters if one.origin]  # fmt: skip
    assert sum(bool(row[5]) for row in rows) == RESENT
    await shown.open("/dead?group=kitchen&unsent=1")
    assert len(await shown.rows(1)) == LETTERS - PURGED - RESENT


async def test_messages_are_found_and_counted(world: World, shown: Shown) -> None:
    assert len(await world.admin.find("orders", "ann", limit=1_000)) == OF_ANN
    await shown.open("/messages?topic=orders&key=ann")
    assert len(await shown.rows()) == OF_ANN
    await shown.open("/messages?topic=orders&filter=_key+%3D+'ann'")
    total = f"{ORDERS + RESENT:,}"
    assert f"Searched {total} of {total} messages, queue by queue." in await shown.text()
    assert len(await shown.rows()) == OF_ANN
    told = await shown.json("message search", topic="orders", filter="_key = 'ann'")
    assert (told["searched"], told["of"]) == (ORDERS + RESENT, ORDERS + RESENT)


async def test_producers_say_how_much_they_sent(world: World, shown: Shown) -> None:
    expected = {one.client_id: one.produced for one in await world.admin.connections("producer")}
    told = {one["client_id"]: one["produced"] for one in (await shown.json("producer list"))["producers"]}  # fmt: skip
    assert told == expected
    assert ORDERS + LETTERS + SCHEDULED in expected.values()
    await shown.open("/producers")
    assert {row[0]: row[5] for row in await shown.rows()} == {name: f"{count:,}" for name, count in expected.items()}  # fmt: skip
    # Pages of people who have signed in come and go; the test's own stay.
    before = {one.client_id for one in await world.admin.connections()}
    await shown.open("/connections")
    after = {one.client_id for one in await world.admin.connections()}
    rows = {row[0] for row in await shown.rows()}
    assert before & after
    assert before & after <= rows <= before | after


async def test_settings_users_rules_the_audit_and_alarms_are_all_there(
    world: World, shown: Shown
) -> None:
    await shown.open("/config")
    told = await world.admin.settings()
    rows = {row[0]: row[1] for row in await shown.rows()}
    assert rows.keys() == {one.name for one in told.settings}
    assert {one.name: one.value or "-" for one in told.settings} == rows
    await shown.open("/users")
    assert f"{len(await world.admin.users())} in all" in await shown.text()
    await shown.open("/rules")
    assert f"{len(await world.admin.rules())} in all" in await shown.text()
    assert len(await shown.rows()) == len(await world.admin.rules())
    entries = await world.admin.audit(200)
    await shown.open("/audit")
    rows_of_audit = await shown.rows(0, 1, 2, 5)
    # What the console itself asked meanwhile may have come on top.
    for entry in entries:
        assert (entry.user, entry.action, entry.outcome) in rows_of_audit
    await shown.open("/alarms")
    state = world.folder.state()
    assert len(await shown.rows(0, 0)) == max(1, sum(bool(one.fired_s) for one in state.alarms))
    waiting = sum(not one.fired_s for one in state.alarms)
    assert waiting
    assert f"{waiting} may soon." in await shown.text()
    assert world.folder.silences(time.time()) == []


async def test_brokers_have_the_figures_of_their_record(world: World, shown: Shown) -> None:
    await shown.open("/cluster")
    facts = await shown.facts()
    assert (facts["Epoch"], facts["A failover may lose"]) == (
        str(RECORD.epoch), f"{LOSS_BYTES:,} bytes, the oldest of {LOSS_MS / 1_000} s ago",
    )  # fmt: skip
    expected = [
        (one.member.name, f"{one.age_ms // 1_000} s ago", str(log.epoch), f"{log.end:,}")
        for one in KNOWN
        for log in one.logs
    ]
    assert await shown.rows(0, 0, 2, 3, 4) == expected
    told = {one["name"]: one["bytes"] for one in (await shown.json("cluster status"))["replicas"]}
    assert told == {one.member.name: log.end for one in KNOWN for log in one.logs}
