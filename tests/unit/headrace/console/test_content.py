"""No page and no answer shows the content of messages and events to those who may not consume them."""

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import insert

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    Process,
    applies,
)
from headrace.console.content import content_need, hidden_failure
from headrace.console.live import _between
from headrace.console.pages import PAGES
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.catalogue import VERBS
from headrace.console.verbs.message import row_of
from headrace.console.verbs.verb import Verb
from headrace.parked import Parked, ParkedEntry
from headrace.settings import Settings
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import process_instances
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.client.retry_headers import ORIGIN_HEADER
from headrace_mq.client.trace.trace_events import TRACE_TOPIC, TraceStep, encode_step
from headrace_mq.errors import NotPermitted
from headrace_mq.message import QueueRef

SECRET = "planted-secret"
BEGUN = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEES = ("read topic:*", "read group:*", "read cluster", "update group:*", "publish topic:*", f"consume topic:{TRACE_TOPIC}")  # fmt: skip


class Note(Command):
    file: AggregateId
    text: str


class Noted(DomainEvent):
    text: str


class File(Aggregate):
    def initial_state(self) -> None:
        self.texts: list[str] = []

    @applies
    def _noted(self, event: Noted) -> None:
        self.texts.append(event.text)


class Delivery(BaseModel):
    text: str


class Ordered(DomainEvent):
    text: str


deliveries = Process("deliveries", state=Delivery)


@deliveries.on
def ordered(state: Delivery | None, event: Ordered, context: EventContext) -> Any:
    yield Delivery(text=event.text)


app = App("files")
app.add(File, Ordered, deliveries)


@app.handles
async def note(command: Note, context: CommandContext) -> None:
    file = await context.get_or_add(File, command.file, lambda: File(command.file))
    file.record(Noted(text=command.text))


PARKED = [
    ParkedEntry(
        processor="handlers:mail", aggregate_id="one", parked_at=BEGUN, attempts=2, error="KeyError",
        sentence=f"no {SECRET}", traceback=SECRET,
    )
]  # fmt: skip
# Of each verb that only reads and must have something: what shows the most of it.
ASKED: Mapping[str, Mapping[str, str]] = {
    "broker show": {}, "broker connections": {}, "cluster status": {}, "audit list": {},
    "topic list": {"system": "1"}, "topic show": {"topic": "orders"},
    "group list": {}, "group show": {"group": "kitchen"},
    "message show": {"id": "orders:0:0"}, "message trace": {"id": "orders:0:0"},
    "message find": {"topic": "orders", "key": "ann"}, "message list": {"topic": "orders", "offset": "0"},
    "message tail": {"topic": "orders"}, "message dead": {"group": "kitchen"},
    "aggregate list": {}, "stream show": {"id": "one"}, "aggregate show": {"id": "one"},
    "aggregate compare": {"id": "one", "from": "1", "to": "2"},
    "process list": {"name": "deliveries"}, "process show": {"name": "deliveries", "key": "one"},
    "parked list": {}, "projection list": {}, "producer list": {},
    "command list": {}, "command show": {"id": "c-1", "aggregate": "one"}, "command results": {},
}  # fmt: skip
# Where an administrator sees the secret, and so where it must be hidden.
TELLING = {
    "message show", "message trace", "message find", "message list", "message tail", "message dead",
    "command show", "stream show", "aggregate show", "aggregate compare", "process list", "process show", "parked list",
}  # fmt: skip


async def fill(address: str, urls: dict[str, str]) -> None:
    """Plants the secret wherever content may stand."""
    origin = {
        "topic": "orders", "queue_id": 0, "offset": 0, "born_at_ms": 1, "attempt": 3,
        "reason": f"ValueError: {SECRET}", "back_to": "orders",
    }  # fmt: skip
    step = TraceStep(kind="failed", at_ms=1, group="kitchen", client_id="c", detail=f"no {SECRET}")
    async with AdminClient(address) as admin, Producer(address) as producer:
        for topic in ("orders", "%DLQ%kitchen", TRACE_TOPIC):
            await admin.create_topic(topic, 1)
        secret = Message(topic="orders", key="ann", tag="hot", body=SECRET.encode(), headers={"note": SECRET})  # fmt: skip
        await producer.send(secret)
        headers = {ORIGIN_HEADER: json.dumps(origin), "note": SECRET}
        await producer.send(Message(topic="%DLQ%kitchen", body=SECRET.encode(), headers=headers))
        await producer.send(Message(topic=TRACE_TOPIC, key="orders:0:0", body=encode_step(step)))
        await admin.reset_offsets("kitchen", "earliest", topics=["orders"])
    for url in urls.values():
        await upgrade(url)
    async with app.run_local(Settings(**urls)) as running:
        for number in range(2):
            await running.bus.execute(
                Note(file="one", text=SECRET), command_id=f"c-{number}", items={"by": SECRET}
            )
    engine = create_engine(urls["read_models"])
    row = {
        "process": "deliveries", "instance": "one", "state": json.dumps({"text": SECRET}), "state_version": 1,
        "undo": "[]", "ended": False, "began_at": BEGUN, "changed_at": BEGUN, "last_event": "Noted",
        "last_aggregate_id": "one", "seen": 1, "sent": 0,
    }  # fmt: skip
    async with engine.begin() as connection:
        await connection.execute(insert(process_instances), [row])
    await engine.dispose()


@pytest.fixture
def root(guarded: str, tmp_path: Path) -> str:
    """The address of the broker with its administrator."""
    file = tmp_path / "root.txt"
    file.write_text("secret of root\n")
    file.chmod(0o600)
    return f"tcp://{guarded}?user=root&password_file={file}"


@pytest.fixture
async def verbs(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Verb]:
    """The verbs about an application that is full of secrets, as its broker is; ann may see heads."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    await fill(root, urls)

    async def read(self: Parked, **_: Any) -> list[ParkedEntry]:
        return PARKED

    monkeypatch.setattr(Parked, "read", read)
    async with AdminClient(root) as admin:
        for rule in SEES:
            action, resource = rule.split()
            await admin.set_rule("ann", action, resource, allows=True)
    return ApplicationVerbs(app, **urls).verbs


@pytest.fixture
async def signed_in(guarded: str, console: Any, verbs: Any) -> Callable[[str], Awaitable[Any]]:
    """Makes a browser in which a user has signed in."""

    async def make(user: str) -> Any:
        browser = await console(guarded, verbs)
        assert (await browser.sign_in(user, f"secret of {user}")).status_code == 303
        return browser

    return make


async def found(browser: Any, paths: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The text of each of these addresses, which are all there."""
    texts = {}
    for path, query in paths.items():
        answer = await browser.client.get(path, params=query or None)
        assert answer.status_code == 200, (path, answer.text)
        texts[path] = answer.text
    return texts


def asked(verbs: Mapping[str, Verb]) -> dict[str, Mapping[str, str]]:
    return {f"/api/{each.path}": ASKED[name] for name, each in verbs.items() if name in ASKED}


def shown() -> dict[str, Mapping[str, str]]:
    pages = {path: ASKED[one.verb] for path, one in PAGES.items() if one.verb in ASKED}
    del pages["/cluster"]
    return pages | {
        "/letters": {},
        "/messages?topic=orders": {},
        "/messages?topic=orders&key=ann": {},
        "/messages?topic=orders&since=2000-01-01": {},
    }


async def test_an_administrator_sees_content_wherever_there_is_some(signed_in, verbs) -> None:
    browser = await signed_in("root")
    answers = await found(browser, asked({**VERBS, **verbs}))
    telling = {path for path, text in answers.items() if SECRET in text}
    assert telling == {f"/api/{name.replace(' ', '/')}" for name in TELLING}
    pages = await found(browser, shown())
    assert {path for path, text in pages.items() if SECRET in text} >= {
        "/message", "/dead", "/trace", "/aggregate", "/state", "/difference", "/process", "/parked",
        "/messages?topic=orders", "/messages?topic=orders&key=ann",
    }  # fmt: skip


async def test_a_user_with_the_right_to_read_alone_finds_content_nowhere(signed_in, verbs) -> None:
    browser = await signed_in("ann")
    everything = {**VERBS, **verbs}
    texts = await found(browser, asked(everything)) | await found(browser, shown())
    assert [path for path, text in texts.items() if SECRET in text] == []
    # What is not content is there.
    message = json.loads(texts["/api/message/show"])["message"]
    assert (message["key"], message["tag"], message["bytes"]) == ("ann", "hot", len(SECRET))
    assert (message["body"], message["headers"]) == (None, {})
    assert message["hidden"] == "needs consume on topic:orders"
    (letter,) = json.loads(texts["/api/message/dead"])["letters"]
    assert (letter["origin"], letter["attempts"], letter["cause"]) == ("orders:0:0", 3, "ValueError")  # fmt: skip
    assert letter["message"]["hidden"] == "needs consume on group:kitchen"
    for path in ("/api/message/find", "/api/message/list", "/api/message/tail"):
        (row,) = json.loads(texts[path])["messages"]
        assert (row["key"], row["body"], row["bytes"]) == ("ann", "", len(SECRET))
    steps = json.loads(texts["/api/message/trace"])["steps"]
    assert [one["step"] for one in steps if one["group"]] == ["failed"]
    for path in ("/api/stream/show", "/api/aggregate/show", "/api/parked/list"):
        assert json.loads(texts[path])["hidden"] == "needs consume on topic:files.events"
    assert json.loads(texts["/api/process/show"])["instance"]["state"] is None
    assert "needs consume on topic:orders" in texts["/message"]
    assert "needs consume on topic:files.events" in texts["/state"]


async def test_no_question_before_a_change_shows_content(signed_in, verbs) -> None:
    browser = await signed_in("ann")
    values = {
        "topic": "orders", "group": "kitchen", "id": [0], "name": "files", "to": "earliest", "body": "x",
        "processor": "", "aggregate": "one", "queues": 2, "writing": True, "before": "2027-01-01",
        "user": "ann", "action": "read", "resource": "cluster", "generation": 1, "consume": "off",
    }  # fmt: skip
    token, answers = await browser.token(), []
    for name, verb in {**VERBS, **verbs}.items():
        if verb.changes:
            own = {each.name for each in verb.fields}
            fields = {name: each for name, each in values.items() if name in own}
            answer = await browser.client.post(
                f"/api/{verb.path}", json=fields | {"dry_run": True}, headers={"X-Headrace-Token": token}
            )  # fmt: skip
            answers.append((name, answer.status_code, answer.text))
    assert [name for name, _, text in answers if SECRET in text] == []
    done = {name for name, status, _ in answers if status == 200}
    assert {"parked retry", "parked skip", "message resend", "group reset"} <= done
    (resend,) = [text for name, _, text in answers if name == "message resend"]
    assert "it needs consume on group:kitchen" in json.loads(resend)["hindered"]


async def test_letters_that_are_hidden_cannot_be_sent_again(signed_in, root) -> None:
    browser = await signed_in("ann")
    for more in ({}, {"body": "other"}):
        answer = await browser.send(
            "message resend", group="kitchen", id="0", confirmed="1", **more
        )
        assert answer.status_code == 403
    async with AdminClient(root) as admin:
        (letter,) = await admin.dead_letters("kitchen")
        assert letter.resent_at_ms is None


async def test_new_messages_come_to_an_open_page_as_heads(root, verbs, guarded, tmp_path) -> None:
    file = tmp_path / "ann.txt"
    file.write_text("secret of ann\n")
    file.chmod(0o600)
    queue = QueueRef("orders", 0)
    async with AdminClient(f"tcp://{guarded}?user=ann&password_file={file}") as ann:
        (record,) = await _between(ann, {queue: 0}, {queue: 1})
        row = row_of(record)
        assert (row["hidden"], row["body"]) == ("needs consume on topic:orders", "")
        assert SECRET not in str(row)
        followed = ann.follow({queue: 0})
        assert SECRET not in str(await anext(followed))
        assert await content_need(ann, "files") == "needs consume on topic:files.events"
        # What explains a user's permission to an administrator says the same to the user.
        async with AdminClient(root) as admin:
            told = await admin.explain("ann", "consume", "topic:files.events")
            assert told == await ann.may("consume", "topic:files.events")
            assert not told.allowed
            await admin.set_rule("ann", "consume", "topic:files.events", allows=True)
        assert await content_need(ann, "files") == ""
        with pytest.raises(NotPermitted):
            await ann.explain("root", "consume", "topic:orders")


async def test_a_filter_over_what_is_hidden_is_refused(signed_in, verbs) -> None:
    browser = await signed_in("ann")
    for fit in ("body.text = 'x'", "note IS NOT NULL", f"_key = 'ann' OR note = '{SECRET}'"):
        for path in ("/api/message/search", "/api/message/tail", "/messages"):
            answer = await browser.client.get(path, params={"topic": "orders", "filter": fit})
            assert answer.status_code == 403
            assert "it needs consume on topic:orders" in answer.text.replace("&#39;", "'")
    page = await browser.page("/messages", topic="orders", filter=f"_bytes = {len(SECRET)}")
    assert "orders:0:0" in page
    assert "Searched 1 of 1 messages" in page


async def test_a_broker_without_a_login_hides_nothing(admin) -> None:
    assert await content_need(admin, "files") == ""


def test_a_failure_leaves_the_words_of_the_command_out() -> None:
    told = str(hidden_failure("needs consume on topic:files.events", 2))
    assert "status 2" in told
    assert "hidden: needs consume on topic:files.events" in told
