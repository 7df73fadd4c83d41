"""Processes in the console: instances, their steps, and what was said before some are deleted."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from sqlalchemy import insert, text

from headrace import App, DomainEvent, EventContext, Process
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.verb import Consequence, values_of
from headrace.errors import InstanceNotFound, ProcessError
from headrace.stores.database.engines import create_engine
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import process_instances, process_journal
from headrace.subjects.personal import Personal
from headrace_mq import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.errors import NotPermitted
from headrace_mq.settings import BrokerSettings, StoreSettings

BEGUN = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Ordered(DomainEvent):
    customer: str


class Registered(DomainEvent):
    customer: str
    email: Annotated[str, Personal(subject="customer")]


class Delivery(BaseModel):
    customer: str


deliveries = Process("deliveries", state=Delivery)
greetings = Process("greetings", state=Delivery)


@deliveries.on
def ordered(state: Delivery | None, event: Ordered, context: EventContext) -> Any:
    yield Delivery(customer=event.customer)


@greetings.on
def registered(state: Delivery | None, event: Registered, context: EventContext) -> Any:
    yield Delivery(customer=event.customer)


app = App("parcels")
app.add(Ordered, Registered, deliveries, greetings)


def instance(process: str, key: str, *, ended: bool = False) -> dict[str, Any]:
    return {
        "process": process, "instance": key, "state": '{"customer": "ann"}', "state_version": 1, "undo": "[]",
        "ended": ended, "began_at": BEGUN, "changed_at": BEGUN, "last_event": "Ordered", "last_aggregate_id": key,
        "seen": 1, "sent": 0,
    }  # fmt: skip


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[AdminClient]:
    """A broker that keeps an audit without a login."""
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    async with (
        Broker(BrokerSettings(store=store, port=0, audit=True)) as broker,
        AdminClient(broker.address) as admin,
    ):
        yield admin


@pytest.fixture
async def urls(tmp_path: Path) -> dict[str, str]:
    """70 deliveries, of which ten have ended, and a greeting."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    engine = create_engine(urls["read_models"])
    rows = [instance("deliveries", f"p-{n:02}", ended=n < 10) for n in range(70)]
    steps = [
        {"process": "deliveries", "instance": "p-20", "number": n, "aggregate_id": "p-20", "command_id": f"c-{n}", "outcome": "done"}
        for n in range(1, 61)
    ]  # fmt: skip
    async with engine.begin() as connection:
        await connection.execute(insert(process_instances), [*rows, instance("greetings", "ann")])
        await connection.execute(insert(process_journal), steps)
    await engine.dispose()
    return urls


@pytest.fixture
def verbs(urls: dict[str, str]) -> ApplicationVerbs:
    return ApplicationVerbs(app, **urls)


async def run(verbs: ApplicationVerbs, admin: Any, word: str, /, **fields: Any) -> Any:
    verb = verbs.verbs[f"process {word}"]
    return await verb.run(admin, values_of(verb, fields))


async def ahead(verbs: ApplicationVerbs, admin: Any, **fields: Any) -> Consequence:
    verb = verbs.verbs["process prune"]
    assert verb.look_ahead is not None
    return await verb.look_ahead(admin, values_of(verb, fields))


async def count(url: str) -> int:
    engine = create_engine(url)
    async with engine.connect() as connection:
        found = (await connection.execute(text("SELECT count(*) FROM process_instances"))).scalar()
    await engine.dispose()
    return int(found or 0)


async def test_instances_are_listed_a_page_at_a_time(verbs, admin) -> None:
    first = await run(verbs, admin, "list", name="deliveries")
    assert first["counts"] == [
        {"process": "deliveries", "running": 60, "parked": 0, "ended": 10},
        {"process": "greetings", "running": 1, "parked": 0, "ended": 0},
    ]
    assert [one["key"] for one in first["instances"]] == [f"p-{n}" for n in range(10, 60)]
    assert first["next"] == {"name": "deliveries", "key": "p-59"}
    further = await run(verbs, admin, "list", after_name="deliveries", after_key="p-59")
    assert [one["key"] for one in further["instances"]][-2:] == ["p-69", "ann"]
    assert further["next"] is None
    every = await run(verbs, admin, "list", name="deliveries", ended="1", rows="5")
    assert every["instances"][0]["ended"]
    assert (await run(verbs, admin, "list", stuck="1"))["instances"] == []


async def test_an_instance_is_shown_with_its_steps(verbs, admin) -> None:
    found = await run(verbs, admin, "show", name="deliveries", key="p-20")
    assert found["instance"]["state"] == {"customer": "ann"}
    assert ([one["number"] for one in found["steps"]][-1], found["next"]) == (50, 50)
    further = await run(verbs, admin, "show", name="deliveries", key="p-20", step="50")
    assert (further["steps"][0]["command_id"], further["next"]) == ("c-51", None)
    with pytest.raises(InstanceNotFound):
        await run(verbs, admin, "show", name="deliveries", key="nothing")


async def test_texts_of_a_state_are_masked_where_events_are_personal(verbs, admin) -> None:
    found = await run(verbs, admin, "show", name="greetings", key="ann")
    assert found["instance"]["state"] == {"customer": "[personal]"}


async def test_ended_instances_are_deleted_after_a_question_and_noted(verbs, admin, urls) -> None:
    asked = await ahead(verbs, admin, name="deliveries", before="2026-02-01T00:00")
    assert asked.sentences[0].startswith("10 instances of deliveries")
    assert "no such" in (await ahead(verbs, admin, name="deliveries", before="2025-01-01")).hindered
    assert await run(verbs, admin, "prune", name="deliveries", before="2026-02-01T00:00") == 10
    assert await count(urls["read_models"]) == 61
    (noted,) = [one for one in await admin.audit(100) if one.action == "note_change"]
    assert (noted.resource, noted.detail) == (
        "group:parcels.process.deliveries",
        "what=process prune deliveries before 2026-02-01T00:00:00Z",
    )
    with pytest.raises(ProcessError):
        await ahead(verbs, admin, name="nothing", before="2026-02-01")


class Refusing:
    """A connection of a user who may not read the cluster, and change nothing."""

    async def status(self) -> None:
        raise NotPermitted("user 'ann' may not read cluster")

    async def note_change(self, what: str, *, group: str) -> None:
        raise NotPermitted(f"user 'ann' may not update group:{group}")


async def test_a_user_who_may_not_neither_sees_nor_deletes_instances(verbs, urls) -> None:
    for word, fields in (
        ("list", {}),
        ("show", {"name": "deliveries", "key": "p-20"}),
        ("prune", {"name": "deliveries", "before": "2026-02-01"}),
    ):
        with pytest.raises(NotPermitted):
            await run(verbs, Refusing(), word, **fields)
    assert await count(urls["read_models"]) == 71


async def test_pages_of_processes_show_instances_and_ask_before_they_are_deleted(
    verbs, admin, console
) -> None:
    browser = await console(admin.address, verbs.verbs)
    assert "/process?name=deliveries&amp;key=p-20" in await browser.page("/processes")
    assert "c-1" in await browser.page("/process", name="deliveries", key="p-20")
    asked = await browser.send("process prune", name="deliveries", before="2026-02-01T00:00")
    assert "10 instances of deliveries" in asked.text
