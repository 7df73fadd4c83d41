"""Pages as a person meets them: signing in, a question before each change, and what it says afterwards."""

import asyncio
import json
import re
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from headrace.alarms.settings import AlarmSettings
from headrace.console.verbs.alarm import AlarmVerbs
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.verb import Verb
from headrace.metrics import services
from headrace.settings import Settings
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from headrace_mq.errors import LoginFailed, RequestTimeout
from headrace_mq.metrics.listener import MetricsListener
from samples.bank import app
from samples.bank.accounts import OpenAccount


async def test_a_change_is_asked_about_and_then_done(browser, admin, broker) -> None:
    await admin.create_topic("orders", 1)
    async with Producer(broker) as producer:
        await producer.send_many([Message(topic="orders", body=b"tea")] * 3)
    await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    asked = await browser.send(
        "group reset", group="kitchen", to="latest", value="", back="/group?group=kitchen"
    )
    assert "3 are skipped" in asked.text
    assert "never given to it" in asked.text
    assert (await admin.lag("kitchen", ["orders"])).queues[0].lag == 3
    done = await browser.send("group reset", group="kitchen", to="latest", value="", confirmed="1")
    assert "0 messages are delivered again, 3 are skipped" in done.text
    assert (await admin.lag("kitchen", ["orders"])).queues[0].lag == 0


async def test_the_answer_to_the_question_is_about_the_move_that_was_shown(
    browser, admin, broker
) -> None:
    await admin.create_topic("orders", 1)
    async with Producer(broker) as producer:
        await producer.send_many([Message(topic="orders", body=b"tea")] * 3)
    await admin.reset_offsets("kitchen", "latest", topics=["orders"])
    asked = await browser.send("group undo", group="kitchen")
    (shown,) = re.findall(r'name="reset_at_ms" value="([0-9]+)"', asked.text)
    await admin.reset_offsets("kitchen", "offset", 1, topics=["orders"])
    done = await browser.send("group undo", group="kitchen", reset_at_ms=shown, confirmed="1")
    assert "was moved once more since you looked" in done.text
    assert (await admin.lag("kitchen", ["orders"])).queues[0].lag == 2


async def test_a_form_that_is_sent_twice_does_its_change_once(browser, admin, broker) -> None:
    await admin.create_topic("orders", 1)
    message = {"topic": "orders", "body": "pay"}
    for number in (1, 2):
        asked = await browser.send("message send", **message)
        once = re.search(r'name="once" value="([^"]+)"', asked.text)
        assert once
        fields = {**message, "once": once[1], "confirmed": "1"}
        assert "is stored" in (await browser.send("message send", **fields)).text
        again = await browser.send("message send", **fields)
        assert (again.status_code, "was sent already" in again.text) == (422, True)
        assert f"/change?number={number}" in again.text
        assert "is stored" in await browser.page("/change", number=number)
        assert (await admin.ranges(["orders"]))[0].end == number


@pytest.mark.parametrize("wait_ms", [0, 60_000])
async def test_a_form_leads_to_a_page_that_does_not_send_it_again(
    broker: str, console, admin, wait_ms: int
) -> None:
    browser = await console(broker, change_wait_ms=wait_ms)
    fields = {"topic": "orders", "queues": "1", "confirmed": "1", "token": await browser.token()}
    answer = await browser.client.post("/do/topic/create", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/change?number=1")
    for _ in range(2):
        async with asyncio.timeout(60):
            while "topic orders: done" not in await browser.page("/change", number=1):
                await asyncio.sleep(0)
    assert [one.topic for one in await admin.topics()] == ["orders"]


async def test_a_change_that_fails_says_why_on_the_page_that_it_leads_to(browser, admin) -> None:
    await admin.create_topic("orders", 1)
    answer = await browser.send("topic create", topic="orders", retention="forever", confirmed="1")
    assert (answer.history[0].status_code, answer.status_code) == (303, 409)
    assert "which cannot change" in answer.text


async def test_lines_of_a_form_are_stored_with_lf_and_those_of_a_program_as_they_came(
    browser, admin
) -> None:
    await admin.create_topic("orders", 1)
    message = {"topic": "orders", "body": "two\r\nlines"}
    await browser.send("message send", **message, confirmed="1")
    headers = {"X-Headrace-Token": await browser.token()}
    await browser.client.post("/api/message/send", json=message, headers=headers)
    bodies = [(await admin.message(f"orders:0:{offset}")).body for offset in (0, 1)]
    assert bodies == [b"two\nlines", b"two\r\nlines"]


async def test_a_change_that_cannot_be_done_has_no_button(browser, admin) -> None:
    await admin.create_topic("orders", 1)
    asked = await browser.send("topic delete", topic="orders")
    assert "It cannot be done now" in asked.text
    assert 'name="confirmed"' not in asked.text


@pytest.mark.parametrize("back", ["https://evil.example", "//evil.example", "/\\evil.example"])
async def test_the_way_back_stays_in_the_console(browser, admin, back: str) -> None:
    asked = await browser.send("topic create", topic="new", back=back)
    assert "evil.example" not in asked.text


async def test_a_form_without_its_token_changes_nothing(browser, admin) -> None:
    await browser.page("/topics")
    for token in ("", "0" * 64):
        fields = {"topic": "new", "confirmed": "1", "token": token}
        answer = await browser.client.post("/do/topic/create", data=fields)
        assert answer.status_code == 403
        assert "open the page again" in answer.text
    assert await admin.topics() == []


async def test_a_form_of_another_site_changes_nothing(browser, admin) -> None:
    token = await browser.token()
    fields = {"topic": "new", "confirmed": "1", "token": token}
    answer = await browser.client.post(
        "/do/topic/create", data=fields, headers={"sec-fetch-site": "cross-site"}
    )
    assert answer.status_code == 403
    assert await admin.topics() == []


async def test_a_wrong_value_is_a_sentence(browser) -> None:
    answer = await browser.send("group reset", group="kitchen", to="time", value="noon")
    assert answer.status_code == 422
    assert "is no time; write 2026-01-31T14" in answer.text


async def test_a_form_that_is_too_large_is_refused(browser) -> None:
    answer = await browser.send("topic create", topic="x" * 100_000)
    assert answer.status_code == 413


async def test_a_thousand_topics_come_in_pages(browser, admin) -> None:
    for number in range(1_000):
        await admin.create_topic(f"topic-{number:04}", 1)
    first = await browser.page("/topics")
    assert first.count("/topic?topic=") == 50
    assert "1,000 in all · page 1 of 20" in first
    assert "topic-0999" in await browser.page("/topics", page=20)
    found = await browser.page("/topics", search="-07", page=2)
    assert found.count("/topic?topic=topic-07") == 50


async def test_pages_ask_to_sign_in_where_the_broker_has_a_login(guarded, console) -> None:
    browser = await console(guarded)
    for path in ("/", "/topics", "/letters", "/messages?topic=x"):
        answer = await browser.client.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in"), path
    assert (await browser.client.get("/api/topic/list")).status_code == 401
    assert (await browser.client.get("/live")).status_code == 401


async def test_a_user_signs_in_and_out(guarded, console) -> None:
    browser = await console(guarded)
    before = await browser.token()
    with capture_logs() as logs:
        answer = await browser.sign_in("root", "secret of root")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert await browser.token() != before
    assert "root" in await browser.page("/")
    assert "Outcome" in await browser.page("/audit")
    assert "secret" not in str(logs)
    await browser.client.post("/sign-out", data={"token": await browser.token()})
    assert (await browser.client.get("/")).status_code == 303


async def test_a_wrong_password_is_a_sentence_at_the_door(guarded, console) -> None:
    browser = await console(guarded)
    answer = await browser.sign_in("root", "wrong password")
    assert answer.status_code == 401
    assert 'role="alert"' in answer.text
    assert "wrong password" not in answer.text
    assert (await browser.client.get("/")).status_code == 303


async def test_signing_in_needs_the_token_of_its_form(guarded, console) -> None:
    browser = await console(guarded)
    fields = {"user": "root", "password": "secret of root", "token": "0"}
    assert (await browser.client.post("/sign-in", data=fields)).status_code == 403


async def refused_at(browser: Any, path: str, *, confirmed: str = "") -> httpx.Response:
    """Asks for a change, on a page or as a program."""
    token = await browser.token()
    if path.startswith("/api"):
        fields = {"topic": "x", "dry_run": not confirmed}
        answer = await browser.client.post(path, json=fields, headers={"X-Headrace-Token": token})
    else:
        fields = {"topic": "x", "confirmed": confirmed, "token": token}
        answer = await browser.client.post(path, data=fields, follow_redirects=True)
    found: httpx.Response = answer
    return found


@pytest.mark.parametrize("path", ["/do/topic/create", "/api/topic/create"])
@pytest.mark.parametrize("confirmed", ["", "1"])
async def test_no_way_of_a_change_names_the_file_of_a_password(
    guarded, console, monkeypatch, path: str, confirmed: str
) -> None:
    async def away(admin: AdminClient, *_: Any, **__: Any) -> None:
        raise RequestTimeout(f"no answer from {admin.address}")

    browser = await console(guarded)
    await browser.sign_in("root", "secret of root")
    for name in ("create_topic", "topic", "topics"):
        monkeypatch.setattr(AdminClient, name, away)
    answer = await refused_at(browser, path, confirmed=confirmed)
    assert answer.status_code == 503
    assert f"no answer from {guarded}" in answer.text
    assert "password_file" not in answer.text


@pytest.mark.parametrize("path", ["/do/topic/create", "/api/topic/create"])
@pytest.mark.parametrize("confirmed", ["", "1"])
async def test_each_way_of_a_change_ends_the_session_of_a_user_who_is_let_in_no_more(
    guarded, console, monkeypatch, path: str, confirmed: str
) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise RequestTimeout("no answer")

    browser = await console(guarded)
    await browser.sign_in("root", "secret of root")
    for name in ("create_topic", "topic", "topics"):
        monkeypatch.setattr(AdminClient, name, away)
    monkeypatch.setattr(AdminClient, "trouble", LoginFailed("user 'root' is disabled"))
    await refused_at(browser, path, confirmed=confirmed)
    assert (await browser.client.get("/api/topic/list")).status_code == 401


async def test_a_permission_that_is_missing_is_a_sentence(guarded, console) -> None:
    root, ann = await console(guarded), await console(guarded)
    await root.sign_in("root", "secret of root")
    await root.send("topic create", topic="orders", confirmed="1")
    await ann.sign_in("ann", "secret of ann")
    answer = await ann.client.get("/topic", params={"topic": "orders"})
    assert answer.status_code == 403
    assert "may not" in answer.text
    refused = await ann.send("topic delete", topic="orders", confirmed="1")
    assert refused.status_code == 403


async def test_a_change_stands_in_the_audit_under_its_user(guarded, console) -> None:
    browser = await console(guarded)
    await browser.sign_in("root", "secret of root")
    await browser.send("topic create", topic="orders", confirmed="1")
    page = await browser.page("/audit", action="create_topic")
    assert "topic:orders" in page
    assert "<td>root</td>" in page


async def test_a_broker_without_a_login_has_no_door(browser) -> None:
    answer = await browser.client.get("/sign-in")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


async def test_a_page_is_in_the_language_of_its_browser(browser) -> None:
    chinese = await browser.client.get("/", headers={"accept-language": "zh-CN,zh;q=0.9"})
    assert '<html lang="zh">' in chinese.text
    assert "\u6982\u89c8" in chinese.text
    assert '<html lang="en">' in await browser.page("/")


async def test_messages_of_a_time_are_listed(browser, admin, broker) -> None:
    await admin.create_topic("orders", 1)
    async with Producer(broker) as producer:
        await producer.send(Message(topic="orders", body=b"tea"))
    page = await browser.page("/messages", topic="orders", queue=0, since="2000-01-01")
    assert "<code>tea</code>" in page
    page = await browser.page("/messages", topic="orders", queue=0, since="2999-01-01")
    assert "No message was found" in page


async def test_a_message_is_found_by_its_queue_and_offset(browser) -> None:
    answer = await browser.client.get(
        "/messages", params={"topic": "orders", "queue": "0", "offset": "7"}
    )
    assert answer.headers["location"].endswith("/message?id=orders%3A0%3A7")


async def test_the_page_of_an_application_is_there_where_one_is_named(broker, console) -> None:
    async def parked(_admin: object, _given: object) -> object:
        entry = {
            "processor": "commands", "aggregate_id": "<b>", "command": "Deposit", "command_id": "c-1", "state": "parked", "waiting": 1,
            "parked_at": "2026-01-01T00:00:00", "attempts": 1, "error": "KeyError", "sentence": "<i>",
        }  # fmt: skip
        causes = [{"processor": "commands", "cause": "KeyError", "parked": 1}]
        return {
            "parked": [entry],
            "causes": causes,
            "hidden": "",
            "page": 1,
            "pages": 1,
            "total": 1,
            "rows": 50,
        }

    browser = await console(broker, {"parked list": Verb("parked list", parked)})
    page = await browser.page("/parked")
    assert "KeyError" in page
    assert "<b>" not in page
    assert 'href="/parked"' in await browser.page("/")
    assert 'href="/parked"' not in await (await console(broker)).page("/")


async def test_a_signed_in_user_sends_dead_letters_again(guarded, console) -> None:
    browser = await console(guarded)
    await browser.sign_in("root", "secret of root")
    for topic in ("%DLQ%kitchen", "orders"):
        await browser.send("topic create", topic=topic, queues=1, confirmed="1")
    done = await browser.send("message resend", group="kitchen", all="1", confirmed="1")
    assert "0 letters were sent again" in done.text
    looked = await browser.send("message resend", group="kitchen", all="1")
    assert "it has none that were not sent again" in looked.text


async def test_a_resend_that_takes_long_goes_on_and_its_page_says_how_far_it_is(
    broker: str, admin, console
) -> None:
    await admin.create_topic("orders", 1)
    await admin.create_topic("%DLQ%kitchen", 1)
    origin = '{"topic":"orders","queue_id":0,"offset":0,"born_at_ms":1,"attempt":3,"reason":"no tea","back_to":"orders"}'
    async with Producer(broker) as producer:
        letter = Message(topic="%DLQ%kitchen", body=b"x", headers={ORIGIN_HEADER: origin})
        await producer.send_many([letter] * 3)
    browser = await console(broker, change_wait_ms=0)
    answer = await browser.send(
        "message resend", group="kitchen", all="1", rate="1", confirmed="1", back="/letters"
    )
    (sent,) = answer.history
    assert (sent.status_code, sent.headers["location"]) == (303, "/change?number=1")
    page = answer.text
    assert "Under way" in page
    assert "data-again" in page
    again = await browser.send("message resend", group="kitchen", all="1", rate="1", confirmed="1")
    assert "goes on already" in again.text
    async with asyncio.timeout(120):
        while "data-again" in (page := await browser.page("/change", number=1)):
            await asyncio.sleep(0)
    assert "group kitchen: 3 letters were sent again" in page
    assert "/letters" in page
    assert "you have no change 9" in (await browser.client.get("/change?number=9")).text


async def test_pages_of_an_application_are_there_with_an_application_alone(
    browser, broker, console, tmp_path
) -> None:
    assert "Aggregates" not in await browser.page("/topics")
    assert (await browser.client.get("/aggregates")).status_code == 404
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    async with app.run_local(Settings(**urls)) as bank:
        await bank.bus.execute(OpenAccount(account_id="ann", owner="<b>Ann</b>"))
    shown = await console(broker, ApplicationVerbs(app, **urls).verbs)
    assert "Aggregates" in await shown.page("/topics")
    assert 'href="/aggregate?id=ann"' in await shown.page("/aggregates")
    text = await shown.page("/aggregate", id="ann")
    assert "&lt;b&gt;Ann&lt;/b&gt;" in text
    assert "<b>Ann" not in text
    assert "balance" in await shown.page("/state", id="ann")
    assert "The states are the same" in await shown.page("/difference", id="ann", **{"from": 1, "to": 1})  # fmt: skip
    missing = await shown.client.get("/aggregate", params={"id": "eve"})
    assert (missing.status_code, "there is no aggregate" in missing.text) == (404, True)


async def test_a_user_is_added_with_a_password_that_no_page_repeats(guarded, console) -> None:
    browser = await console(guarded)
    await browser.sign_in("root", "secret of root")
    assert 'href="/users"' in await browser.page("/users")
    fields = {"name": "bob", "roles": "clerks", "password": "a long secret"}
    asked = await browser.send("user add", **fields)
    assert 'type="password"' in asked.text
    assert "a long secret" not in asked.text
    done = await browser.send("user add", **fields, confirmed="1")
    assert "user bob: done" in done.text
    assert "a long secret" not in done.text
    assert "clerks" in await browser.page("/users", search="bob")
    page = await browser.page("/audit", by="root")
    assert "bob" in page


async def test_a_page_explains_why_something_is_denied(guarded, console) -> None:
    browser = await console(guarded)
    await browser.sign_in("root", "secret of root")
    rule = {"user": "ann", "action": "publish", "resource": "topic:orders"}
    assert "ann may not publish topic:orders" in await browser.page("/explain", **rule)
    await browser.send("acl allow", **rule, confirmed="1")
    assert "ann may publish topic:orders" in await browser.page("/explain", **rule)
    assert "topic:orders" in await browser.page("/rules", user="ann")


async def test_users_are_no_page_where_the_broker_has_no_login(browser) -> None:
    assert 'href="/users"' not in await browser.page("/producers")
    answer = await browser.client.get("/users")
    assert (answer.status_code, "no login" in answer.text) == (422, True)


async def test_settings_of_processes_have_a_page_where_the_file_of_alarms_names_some(
    broker, console, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(services, "_WITHIN_S", 60.0)

    async def figures() -> bytes:
        return b""

    def told(value: str) -> bytes:
        row = {"name": "retry_ms_min", "value": value, "default": "50", "source": "<b>.toml"}
        return json.dumps([row]).encode()

    async with AsyncExitStack() as stack:
        targets = [{"job": "headrace-run", "url": "http://127.0.0.1:1/metrics"}]
        for value in ("7", "8"):
            listener = MetricsListener("127.0.0.1:0", figures, told(value))
            await listener.start()
            stack.push_async_callback(listener.aclose)
            url = f"http://{listener.address}/metrics"
            targets.append({"job": "headrace-run", "url": url})
        settings = AlarmSettings.model_validate({"folder": tmp_path, "target": targets})
        browser = await console(broker, AlarmVerbs(settings).services)
        page = await browser.page("/services")
        assert "127.0.0.1:1 does not answer:" in page
        assert ("&lt;b&gt;.toml" in page, "differs</span>" in page, "milliseconds" in page) == (
            True,
            True,
            True,
        )
        assert "There is no such setting." in await browser.page("/services", search="lag")
        assert 'href="/services"' in await browser.page("/")
    plain = await console(broker)
    assert (await plain.client.get("/services")).status_code == 404
    assert 'href="/services"' not in await plain.page("/")


async def test_alarms_have_a_page_where_a_file_of_them_is_named(broker, console, tmp_path) -> None:
    target = {"url": "http://127.0.0.1:1/metrics"}
    settings = AlarmSettings.model_validate({"folder": tmp_path, "target": [target]})
    browser = await console(broker, AlarmVerbs(settings).verbs)
    assert "HeadraceBrokerDown" in await browser.page("/alarms")
    silence = {"name": "HeadraceDamage", "for": "2h", "why": "<b>a new disk</b>"}
    asked = await browser.send("alarms silence", **silence)
    assert "No message is sent about HeadraceDamage until" in asked.text
    await browser.send("alarms silence", **silence, confirmed="1")
    page = await browser.page("/alarms")
    assert "&lt;b&gt;a new disk" in page
    assert 'href="/alarms"' in page
    assert (await (await console(broker)).client.get("/alarms")).status_code == 404
