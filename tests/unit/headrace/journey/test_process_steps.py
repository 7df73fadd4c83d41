"""Instances that have seen a stream are found by keys: of events, of who sent a command, of what ended soon after."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, Select, delete, insert, text, update
from sqlalchemy.dialects import sqlite

from headrace import EventContext, Process
from headrace.domain.stream import EventStream, Rejection
from headrace.journey import process_steps as subject
from headrace.journey.hop import Journey
from headrace.journey.process_steps import ended_query, journal_query, seen_by
from headrace.journey.readers import ReaderHops
from headrace.processes.instances import take
from headrace.processes.overview import parked_behind_query
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.schema import upgrade
from headrace.stores.database.tables import process_commands, process_instances, process_journal
from tests.unit.headrace.journey.shop import Ordered, Parcel, parcels, shop

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHY = Rejection(
    error="SoldOut", sentence="no tea", command_name="Pack", command_version=1, command_data={}
)


def stream(aggregate_id: str, command_id: str, **more: Any) -> EventStream:
    told: dict[str, Any] = {
        "aggregate_type": "Basket", "aggregate_id": aggregate_id, "version": 1, "command_id": command_id,
        "correlation_id": "c-0", "recorded_at": NOW, "events": (Ordered(item="cup"),),
    }  # fmt: skip
    return EventStream(**told | more)


def rejected(aggregate_id: str, command_id: str) -> EventStream:
    return stream(aggregate_id, command_id, version=None, events=(), rejection=WHY)


@pytest.fixture
async def models(tmp_path) -> AsyncIterator[ReadModels]:
    """The instances `ann` and `bob` have seen an order each, and each sent a command."""
    url = f"sqlite:///{tmp_path}/read.db"
    await upgrade(url)
    models = ReadModels(url)
    await models.transact(
        lambda connection: connection.execute(text("INSERT INTO processes VALUES ('parcels')"))
    )
    streams = [stream("ann", "c-1"), stream("bob", "c-2")]
    given = {"process": parcels, "serializer": shop.serializer, "now": NOW}
    await models.transact(partial(take, streams=streams, **given))
    yield models
    await models.aclose()


async def seen(models: ReadModels, one: EventStream) -> list[tuple[str, str]]:
    found = await models.transact(partial(seen_by, process=parcels, stream=one))
    return list(found)


def note(connection: Connection, instance: str, one: EventStream) -> None:
    """The instance has seen a rejection, too."""
    connection.execute(
        insert(process_journal).values(
            process="parcels", instance=instance, number=2, aggregate_id=one.aggregate_id,
            command_id=one.command_id, outcome="done",
        )
    )  # fmt: skip


def end(connection: Connection, instance: str, *, after: timedelta) -> None:
    """The instance ended, so rows of what it sent are gone."""
    columns = process_instances.c
    connection.execute(
        update(process_instances)
        .where(columns.instance == instance)
        .values(ended=True, changed_at=NOW + after)
    )
    connection.execute(delete(process_commands).where(process_commands.c.instance == instance))


async def test_an_event_is_found_in_the_instance_of_its_key(models) -> None:
    assert await seen(models, stream("ann", "c-1")) == [("ann", "done")]
    assert await seen(models, stream("ann", "c-9")) == []
    assert await seen(models, stream("eve", "c-1")) == []


async def test_a_rejection_is_found_in_the_instance_that_sent_the_command(models) -> None:
    command_id = await models.transact(
        lambda connection: connection.execute(
            text("SELECT command_id FROM process_commands WHERE instance = 'bob'")
        ).scalar_one()
    )
    one = rejected("bob", command_id)
    assert await seen(models, one) == []
    await models.transact(partial(note, instance="bob", one=one))
    assert await seen(models, one) == [("bob", "done")]


async def test_a_rejection_is_found_where_its_instance_ended_since(models, monkeypatch) -> None:
    one = rejected("bob", "c-gone")
    await models.transact(partial(note, instance="bob", one=one))
    assert await seen(models, one) == []
    await models.transact(partial(end, instance="bob", after=timedelta(seconds=2)))
    assert await seen(models, one) == [("bob", "done")]
    # One that ended first takes the only place of those that are looked at.
    await models.transact(partial(end, instance="ann", after=timedelta(seconds=1)))
    monkeypatch.setattr(subject, "ENDED_LOOKED_MAX", 1)
    assert await seen(models, one) == []


async def test_an_instance_that_ended_long_before_a_rejection_is_not_looked_at(models) -> None:
    one = rejected("bob", "c-gone")
    await models.transact(partial(note, instance="bob", one=one))
    await models.transact(partial(end, instance="bob", after=timedelta(minutes=-2)))
    assert await seen(models, one) == []


@pytest.mark.parametrize(
    "query",
    [
        journal_query("parcels", stream("ann", "c-1"), ["ann", "bob"]),
        ended_query("parcels", rejected("ann", "c-1")),
        parked_behind_query("parcels", "ann", "c-1", ["ann", "bob"]),
    ],
    ids=["journal", "ended", "parked behind"],
)
async def test_no_search_for_instances_reads_a_whole_table(models, query: Select[Any]) -> None:
    compiled = query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
    async with models.snapshot() as connection:
        plan = (await connection.execute(text(f"EXPLAIN QUERY PLAN {compiled}"))).all()
    told = " ".join(str(step.detail) for step in plan)
    assert "SCAN" not in told, told
    assert told.count("SEARCH process_journal USING") == told.count("SEARCH process_journal")
    if "process_journal" in told:
        assert "(process=? AND instance=? AND aggregate_id=? AND command_id=?)" in told, told


def keyed(key: Callable[..., str]) -> Process[Parcel]:
    """The process after a release that changes its keys."""
    process = Process("parcels", state=Parcel)
    handler: Callable[..., Any] = process.on(key=key)

    @handler
    def begin(state: Parcel | None, event: Ordered, context: EventContext) -> Parcel:
        return Parcel(order="ann")

    return process


def hops_of(models: ReadModels, admin: Any, one: EventStream) -> ReaderHops:
    return ReaderHops(
        app=shop, models=models, admin=admin, journey=Journey(), stream=one, record=None, after=1
    )


async def test_a_function_for_keys_that_raises_is_said_in_the_journey_without_data(
    models, admin
) -> None:
    def key(event: Ordered, context: EventContext) -> str:
        raise KeyError(event.item)

    hops = hops_of(models, admin, stream("ann", "c-1"))
    async with models.snapshot() as connection:
        found, why = await connection.run_sync(hops._journal, keyed(key))
    assert (found, why) == (
        [],
        "its instances are not known: the function for keys raised KeyError",
    )


async def test_an_event_of_other_keys_is_said_to_be_looked_for_by_those_of_this_version(
    models, admin
) -> None:
    one = stream("ann", "c-1")
    renamed = keyed(lambda event, context: f"order-{context.aggregate_id}")
    assert await models.transact(partial(seen_by, process=renamed, stream=one)) == []
    by_key = "no instance reacts to it, by the keys of this version"
    assert hops_of(models, admin, one)._unseen() == by_key
    of_sender = hops_of(models, admin, rejected("ann", "c-1"))
    assert of_sender._unseen() == "no instance reacts to it"
