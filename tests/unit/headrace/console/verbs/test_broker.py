"""The overview's figures are those of the broker, and its troubles are sentences."""

import msgspec
import pytest

from headrace.console.verbs.broker import figures, look, troubles
from headrace.figures.rates import rates
from headrace.figures.sample import TopSample
from headrace_mq import Message, Producer
from headrace_mq.errors import InvalidArgument
from headrace_mq.protocol.limits import LeaderDescription


async def test_the_overview_has_the_figures_of_the_broker(run, admin) -> None:
    await admin.create_topic("orders", 3)
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    async with Producer(admin._link.address) as producer:
        await producer.send_many([Message(topic="orders", body=b"tea")] * 7)
    shown = await run("broker show")
    status = await admin.status()
    told = shown["figures"]
    assert (told["topics"], told["queues"], told["backlog"]) == ("1", str(status.queues), "7")
    assert shown["furthest"][0].group == "kitchen"
    assert shown["troubles"] == ["Group kitchen has no members, and 7 messages wait"]
    assert shown["broker"].broker == admin._link.address


async def test_a_quiet_broker_has_no_trouble(admin) -> None:
    assert troubles(await look(admin)) == []


async def test_places_that_no_other_broker_can_repair_are_a_trouble(admin) -> None:
    sample = await look(admin)
    assert sample.status is not None
    status = msgspec.structs.replace(sample.status, repaired=4, unrepaired=2)
    assert troubles(sample._replace(status=status)) == [
        "No other broker has sound bytes for 2 damaged places"
    ]


async def test_a_leader_with_too_few_brokers_in_sync_is_a_trouble(admin) -> None:
    sample = await look(admin)
    assert sample.status is not None
    status = msgspec.structs.replace(sample.status, shortage="1 of 2 is there")
    assert troubles(sample._replace(status=status)) == [
        "The broker acknowledges nothing: 1 of 2 is there"
    ]


async def test_a_failover_that_would_lose_seconds_of_messages_is_a_trouble(admin) -> None:
    sample = await look(admin)
    assert sample.status is not None

    def told(loss_ms: int) -> list[str]:
        leads = LeaderDescription("leader", 2_000, loss_ms, 0, [])
        return troubles(
            sample._replace(status=msgspec.structs.replace(sample.status, leads=[leads]))
        )

    assert told(1_000) == []
    assert told(2_500) == [
        "A failover may lose 2,000 bytes of acknowledged messages, the oldest of 2.5 s ago"
    ]


def test_a_user_who_may_not_read_the_broker_sees_the_reason() -> None:
    sample = TopSample(0, None, [], [], {}, [], ("ann may not read cluster",))
    assert troubles(sample) == ["ann may not read cluster"]
    assert figures(rates(sample, sample)) == {"backlog": "0", "oldest": "-"}


async def test_a_paused_group_is_a_trouble(admin) -> None:
    await admin.set_group("kitchen", consume=False)
    assert any("paused 1 groups: kitchen" in one for one in troubles(await look(admin)))


async def test_a_broker_without_an_audit_says_how_to_get_one(run) -> None:
    with pytest.raises(InvalidArgument, match="keeps no audit"):
        await run("audit list", by="ann")


async def test_each_connection_is_listed_and_what_the_broker_keeps_back(run, admin) -> None:
    await admin.create_topic("orders", 1)
    async with Producer(admin.address) as producer:
        due = Message(topic="orders", body=b"x")
        await producer.schedule(due, delay_ms=3_600_000)
        found = await run("broker connections")
        assert found["total"] == 2
        assert [one.address.split(":")[0] for one in found["connections"]] == ["127.0.0.1"] * 2
        waiting = (await run("broker show"))["waiting"]
        assert waiting["scheduled"].pending == 1
        assert waiting["transactions"].undecided == 0


async def test_settings_are_searched_and_chosen(run) -> None:
    found = await run("config show", search="FLUSH")
    assert {one.name for one in found.settings} >= {"store.flush", "store.flush_interval_ms"}
    assert all("flush" in one.name for one in found.settings)
    assert "store.directory" in {
        one.name for one in (await run("config show", given=True)).settings
    }
    assert (await run("config show", differing=True)).settings == []


async def test_a_page_shows_where_settings_come_from(browser) -> None:
    page = await browser.page("/config", search="store.segment_bytes")
    assert "store.segment_bytes" in page
    assert "bytes" in page
    assert "only those that differ" not in page, "there is one broker"
    assert "There is no such setting." in await browser.page("/config", search="nothing")
    assert 'href="/config"' in await browser.page("/")
    found = (await browser.client.get("/api/config/show?search=store.flush_interval_ms")).json()
    (one,) = found["settings"]
    assert (one["unit"], one["default"], one["differs"]) == ("milliseconds", "500", False)
    assert one["brokers"][0]["source"] == "default"
