"""The same verbs for programs."""

import asyncio
from typing import Any

from headrace.console.verbs.verb import Consequence, Verb, VerbField


async def post(browser: Any, path: str, **fields: Any) -> Any:
    headers = {"X-Headrace-Token": await browser.token()}
    return await browser.client.post(f"/api/{path}", json=fields, headers=headers)


async def test_a_program_reads_and_changes(browser, admin) -> None:
    looked = await post(browser, "topic/create", topic="orders", queues=2, dry_run=True)
    assert "is made with 2 queues" in looked.json()["sentences"][0]
    assert await admin.topics() == []
    made = await post(browser, "topic/create", topic="orders", queues=2)
    assert made.json()["queues"] == 2
    found = await browser.client.get("/api/topic/list", params={"search": "ord"})
    assert [one["topic"] for one in found.json()["topics"]] == ["orders"]


async def test_a_change_without_a_token_is_refused(browser, admin) -> None:
    await browser.token()
    answer = await browser.client.post("/api/topic/create", json={"topic": "orders"})
    assert (answer.status_code, await admin.topics()) == (403, [])
    assert "/api/token" in answer.json()["detail"]


async def test_a_change_is_never_a_get(browser, admin) -> None:
    answer = await browser.client.get("/api/topic/create", params={"topic": "orders"})
    assert (answer.status_code, await admin.topics()) == (405, [])


async def test_an_unknown_verb_and_field_are_named(browser) -> None:
    assert "no verb topic burn" in (await browser.client.get("/api/topic/burn")).json()["detail"]
    answer = await browser.client.get("/api/topic/list", params={"serach": "x"})
    assert (answer.status_code, "serach" in answer.json()["detail"]) == (422, True)


async def test_all_verbs_are_listed_with_their_fields(browser) -> None:
    verbs = {one["name"]: one for one in (await browser.client.get("/api")).json()["verbs"]}
    assert verbs["group reset"]["method"] == "POST"
    assert [one["name"] for one in verbs["topic show"]["fields"]] == ["topic", "page", "rows"]


async def test_an_error_of_the_broker_is_a_problem(browser) -> None:
    answer = await browser.client.get("/api/group/show", params={"group": "nowhere"})
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_program_does_not_run_a_slow_change_twice_at_once(broker, console) -> None:
    begun, go_on, made = asyncio.Event(), asyncio.Event(), []

    async def run(_admin: Any, given: Any, _tell: Any = None) -> Any:
        begun.set()
        await go_on.wait()
        made.append(given["pot"])
        return {"tea": given["pot"]}

    async def ahead(_admin: Any, _given: Any) -> Consequence:
        return Consequence(("Tea is made.",))

    verb = Verb("tea make", run, (VerbField("pot"),), ahead, slow=run)
    browser = await console(broker, {"tea make": verb})
    first = asyncio.create_task(post(browser, "tea/make", pot="red"))
    await begun.wait()
    second = await post(browser, "tea/make", pot="red")
    form = await browser.send("tea make", pot="red", confirmed="1")
    for refused in (second, form):
        assert (refused.status_code, "goes on already" in refused.text) == (422, True)
    go_on.set()
    assert (await first).json() == {"tea": "red"}
    assert made == ["red"]


async def test_a_number_that_no_database_has_is_a_sentence(browser) -> None:
    answer = await browser.client.get("/api/message/dead", params={"group": "x", "from": 2**63})
    assert (answer.status_code, "whole number up to" in answer.json()["detail"]) == (422, True)
