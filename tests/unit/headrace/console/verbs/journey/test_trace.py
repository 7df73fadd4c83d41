"""A trace on its page and for programs: what it shows is what the event store and the broker have."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import headrace.console
from headrace.console.problems import Mistake
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.journey import trace as journey_trace
from headrace.console.verbs.verb import values_of
from headrace.journey.hop import CAUSES, LANES, STEPS
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from headrace_mq import Message, Producer
from headrace_mq.errors import NotPermitted
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A bank in which an account was opened and a deposit to another one was rejected."""
    folder = tmp_path_factory.mktemp("bank")
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in ("event_store", "read_models")}

    async def fill() -> None:
        for url in urls.values():
            await upgrade(url)
        async with app.run_local(Settings(**urls)) as bank:
            await bank.bus.execute(
                OpenAccount(account_id="ann", owner="Ann"), command_id="c-1", wait_for="handled"
            )
            await bank.bus.execute(
                Deposit(account_id="<b>", transaction_id="t", amount=1), command_id="c-2"
            )

    asyncio.run(fill())
    return urls


@pytest.fixture
def verbs(urls) -> ApplicationVerbs:
    return ApplicationVerbs(app, **urls)


async def trace(verbs: ApplicationVerbs, admin: Any, **fields: Any) -> Any:
    verb = verbs.verbs["message trace"]
    return await verb.run(admin, values_of(verb, fields))


async def test_a_version_is_followed_though_its_messages_are_gone(verbs, admin) -> None:
    found = await trace(verbs, admin, aggregate="ann", version="1")
    assert found["command"]["id"] == "c-1"
    steps = {one["step"]: one for one in found["hops"]}
    assert steps["sent"]["cause"] == "not kept"
    assert steps["stored"]["name"] == "version 1: AccountOpened"
    assert steps["published"]["cause"] == "not published"
    assert {one["state"] for one in found["hops"] if one["step"] == "applied"} == {"done"}
    assert (found["kept"], found["steps"]) == (False, [])


async def test_a_rejection_is_found_by_the_id_of_its_command_alone(verbs, admin) -> None:
    found = await trace(verbs, admin, command="c-2")
    rejected = next(one for one in found["hops"] if one["step"] == "rejected")
    assert rejected["detail"] == "AggregateNotFound: there is no Account '<b>'"


async def test_fields_that_do_not_fit_are_mistakes(verbs, admin, run) -> None:
    for fields in ({}, {"id": "t:0:0", "command": "c"}, {"version": "1"}, {"id": "seven"}):
        with pytest.raises(Mistake):
            await trace(verbs, admin, **fields)
    with pytest.raises(Mistake, match="start it with --app"):
        await run("message trace", command="c-1")
    with pytest.raises(Mistake, match="orders:3:1042"):
        await run("message trace", id="seven")


async def test_a_user_who_may_not_consume_events_sees_no_words_of_errors(
    verbs, admin, monkeypatch
) -> None:
    async def need(*_: Any) -> str:
        return "needs consume on topic:bank.events"

    monkeypatch.setattr(journey_trace, "content_need", need)
    found = await trace(verbs, admin, command="c-2")
    rejected = next(one for one in found["hops"] if one["step"] == "rejected")
    assert rejected["detail"] == "hidden: needs consume on topic:bank.events"
    assert found["hidden"] == "needs consume on topic:bank.events"
    assert "there is no Account" not in str(found)


async def test_a_user_who_may_not_read_the_cluster_follows_no_command(verbs) -> None:
    class Refusing:
        """A connection of such a user."""

        async def status(self) -> None:
            raise NotPermitted("user 'ann' may not read cluster")

    with pytest.raises(NotPermitted):
        await trace(verbs, Refusing(), command="c-1")


async def test_a_page_draws_each_hop_and_lists_the_same(verbs, admin, console) -> None:
    browser = await console(admin.address, verbs.verbs)
    answer = (await browser.client.get("/api/message/trace", params={"command": "c-1"})).json()
    page = await browser.page("/trace", command="c-1")
    assert page.count("<rect ") == len(answer["hops"]) > 5
    listed = re.findall(r'<tr><td class="n">(\d+)</td><td class="n">(\d*)</td>', page)
    assert [(int(one), after) for one, after in listed] == [
        (one["number"], str(one["after"] or "")) for one in answer["hops"]
    ]
    assert "style=" not in page
    assert "&lt;b&gt;" in await browser.page("/trace", command="c-2")
    assert "跟踪" in (await browser.client.get("/trace", headers={"Accept-Language": "zh"})).text
    assert 'name="version"' in await browser.page("/trace")


async def test_a_page_without_an_application_follows_messages_alone(admin, console) -> None:
    await admin.create_topic("orders", 1)
    async with Producer(admin.address) as producer:
        await producer.send(Message(topic="orders", body=b"tea"))
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    browser = await console(admin.address)
    page = await browser.page("/trace", id="orders:0:0")
    assert "group kitchen has no member; start its consumers" in page
    assert page.count("/group?group=kitchen") == 3  # in the note, in the picture and in the list
    assert 'name="version"' not in await browser.page("/trace")
    assert "Nothing is known of it." in await browser.page("/trace", id="orders:0:9")


def test_each_word_of_a_journey_is_written_for_people() -> None:
    template = Path(headrace.console.__file__).parent / "templates" / "hops.html"
    text = template.read_text(encoding="utf-8")
    for word in (*STEPS, *CAUSES, *LANES):
        assert f'("{word}", "' in text, word
