"""Readers that have not handled what a command did say why: paused, behind, without consumers, or parked."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import sqlite

from headrace._runtime.ids import derived_id
from headrace.domain.stream import EventStream
from headrace.journey.hop import Hop, Journey
from headrace.journey.readers import Reaction, ReaderHops, kept_commands, kept_query
from headrace.projections.definition.projection import projection_group
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.schema import upgrade
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.errors import NotPermitted, QueueFrozen, RequestTimeout
from tests.unit.headrace.journey.shop import Ordered, lines, shop

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STREAM = EventStream(
    aggregate_type="Basket", aggregate_id="ann", version=1, command_id="c-1", correlation_id="c-0",
    recorded_at=NOW, events=(Ordered(item="cup"),),
)  # fmt: skip


@pytest.fixture
async def models(tmp_path) -> AsyncIterator[ReadModels]:
    url = f"sqlite:///{tmp_path}/read.db"
    await upgrade(url)
    models = ReadModels(url)
    yield models
    await models.aclose()


async def hops(admin: Any, models: ReadModels, record: Any, hidden: str = "") -> dict[str, Hop]:
    journey = Journey()
    after = journey.add(None, "topic", "published", "shop.events:0:0")
    readers = ReaderHops(
        app=shop, models=models, admin=admin, journey=journey, stream=STREAM, record=record, after=after
    )  # fmt: skip
    await readers.add(hidden)
    return {one.name: one for one in journey.hops[1:]}


async def published(admin: AdminClient) -> Any:
    """The message of the event."""
    await admin.create_topic("shop.events", 1)
    async with Producer(admin.address) as producer:
        await producer.send(Message(topic="shop.events", key="ann", body=b"{}"))
    return await admin.message("shop.events:0:0")


async def test_readers_that_do_not_run_or_are_paused_say_so(admin, models) -> None:
    record = await published(admin)
    found = await hops(admin, models, record)
    assert {name: one.cause for name, one in found.items()} == {
        "lines": "no consumer", "parcels": "no consumer", "bills": "no consumer",
    }  # fmt: skip
    await models.ensure(lines)
    await models.pause("lines")
    paused = (await hops(admin, models, record))["lines"]
    assert (paused.state, paused.cause) == ("stopped", "projection paused")
    assert paused.page == "/projection?name=lines"
    await models.resume("lines")
    assert (await hops(admin, models, record))["lines"].cause == "no consumer"


async def test_readers_of_an_event_that_is_not_in_the_topic_wait(admin, models) -> None:
    await models.ensure(lines)
    found = await hops(admin, models, None)
    assert {one.cause for one in found.values()} == {"not published"}
    found = await hops(admin, models, None, "needs consume on topic:shop.events")
    assert {(one.state, one.cause) for one in found.values()} == {("unknown", "not permitted")}


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RequestTimeout("no answer within 5000 ms"), ""),
        (QueueFrozen("it is frozen"), ""),
        (NotPermitted("user 'ann' may not read group:shop.handlers"), "not permitted"),
    ],
)
@pytest.mark.parametrize("call", ["lag", "group"])
async def test_a_reader_of_which_the_broker_says_nothing_is_unknown_and_others_are_told(
    admin, models, monkeypatch, call: str, error: Exception, cause: str
) -> None:
    await models.ensure(lines)
    record = await published(admin)
    state = await models.state("lines")
    names = ("shop.process.bills", projection_group("shop", "lines", state.version))
    for name in names:
        await admin.reset_offsets(name, "earliest", topics=["shop.events"])
    ask = getattr(AdminClient, call)

    async def answer(self: AdminClient, name: str, *given: Any, **more: Any) -> Any:
        if name in names:
            raise error
        return await ask(self, name, *given, **more)

    monkeypatch.setattr(AdminClient, call, answer)
    found = await hops(admin, models, record)
    for name in ("bills", "lines"):
        assert (found[name].state, found[name].cause) == ("unknown", cause)
        assert str(error) in found[name].detail
    assert found["parcels"].cause == "no consumer"


async def test_readers_are_told_of_where_the_broker_does_not_say_what_consumers_did(
    admin, models, monkeypatch
) -> None:
    record = await published(admin)

    async def fail(*_: Any) -> None:
        raise RequestTimeout("no answer within 5000 ms")

    monkeypatch.setattr(AdminClient, "steps", fail)
    found = await hops(admin, models, record)
    assert {one.cause for one in found.values()} == {"no consumer"}


async def test_no_command_is_kept_of_a_process_that_sent_none(models) -> None:
    async with models.snapshot() as connection:
        assert await connection.run_sync(kept_commands, shop, ["c-1"]) == {}


async def test_commands_of_processes_are_found_by_the_key_of_their_table(models) -> None:
    query = kept_query(shop, ["c-1", "c-2"]).compile(
        dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}
    )
    async with models.snapshot() as connection:
        plan = (await connection.execute(text(f"EXPLAIN QUERY PLAN {query}"))).all()
    told = " ".join(str(step.detail) for step in plan)
    assert "(process=? AND command_id=?)" in told, told
    assert "SCAN" not in told, told


def test_a_reaction_knows_the_ids_of_its_commands() -> None:
    ids = Reaction("parcels", "ann", 3).command_ids(STREAM)
    assert ids[0] == derived_id("parcels", "ann", "ann", "c-1", "0")
    assert Reaction("bills", "", 3).command_ids(STREAM)[1] == derived_id("bills", "ann", "c-1", "1")
