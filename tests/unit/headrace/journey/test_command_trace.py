"""Commands of an application that ran over a broker are followed, and what is shown is what the shop did."""

from typing import Any

import pytest

from headrace.aggregates import command_directory
from headrace.journey import consequences
from headrace.journey.command_trace import trace_application
from headrace.journey.trace import Trace, TraceTarget
from headrace.stores.open import open_event_store
from headrace_mq import Message, Producer
from tests.unit.headrace.journey.shop import shop

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def follow(world: Any, **wanted: Any) -> Trace:
    return await trace_application(world.admin, shop, world.settings, TraceTarget(**wanted))


def told(found: Trace) -> dict[tuple[str, str], Any]:
    """Hops by their step and the first word of their name."""
    return {(one.step, one.name.split(" ")[0]): one for one in found.journey.hops}


async def test_a_command_is_followed_from_its_sender_to_all_readers(world) -> None:
    found = await follow(world, command_id="c-ann")
    hops = told(found)
    assert found.command == {"id": "c-ann", "name": "Order", "aggregate_id": "ann", "caused_by": ""}
    command = await world.admin.message(found.message_id)
    assert hops["queued", found.message_id].at_ms == command.stored_at_ms
    store = await open_event_store(world.urls["event_store"], shop.serializer)
    stream = await store.find_command("ann", "c-ann")
    await store.aclose()
    assert stream is not None
    assert hops["handled", "order"].at_ms == round(stream.recorded_at.timestamp() * 1_000)
    assert hops["stored", "version"].name == "version 1: Ordered, Announced"
    (event,) = [one for one in hops if one[0] == "published"]
    published = await world.admin.message(event[1])
    assert (published.key, published.headers["command"]) == ("ann", "c-ann")
    assert hops[event].at_ms == published.stored_at_ms
    readers = {one: hops[one].state for one in hops if one[0] in {"applied", "reacted"}}
    assert readers == {
        ("applied", "lines"): "done",
        ("reacted", "parcels"): "done",
        ("reacted", "bills"): "done",
    }
    assert hops["read", "shop.messages"].state == "done"
    assert hops["answered", hops_name(hops, "answered")].state == "unknown"
    assert found.plain["stands"] == []


def hops_name(hops: dict[tuple[str, str], Any], step: str) -> str:
    return next(name for kind, name in hops if kind == step)


async def test_a_command_that_a_process_sent_follows_its_reaction(world) -> None:
    first = await follow(world, command_id="c-ann", aggregate_id="ann")
    sent = told(first)["commanded", "Pack"]
    assert first.journey.hops[sent.after - 1].name == "parcels ann"
    second = await follow(world, aggregate_id="ann", version=2)
    assert second.command is not None
    assert (second.command["name"], second.command["caused_by"]) == ("Pack", "c-ann")
    assert f"command={second.command['id']}" in sent.page
    third = told(second)["commanded", "to"]
    assert third.name == "to bill of ann"


async def test_messages_of_a_command_lead_to_the_same_journey(world) -> None:
    whole = await follow(world, command_id="c-ann")
    names = [
        one.name for one in whole.journey.hops if one.step in {"queued", "published", "announced"}
    ]
    assert len(names) == 3
    for name in names:
        found = await follow(world, message_id=name)
        assert found.journey.plain() == whole.journey.plain()


async def test_a_rejection_says_why_and_reaches_processes_alone(world) -> None:
    hops = told(await follow(world, command_id="c-bob"))
    assert hops["rejected", "order"].detail == "SoldOut: no tea is left"
    assert ("applied", "lines") not in hops
    assert hops["reacted", "parcels"].detail == "no instance reacts to it"


async def test_a_command_that_changed_nothing_is_not_published(world) -> None:
    steps = [one.step for one in (await follow(world, command_id="c-none")).journey.hops]
    assert steps == ["sent", "queued", "unchanged", "answered", "stored"]


async def test_a_parked_command_stops_with_its_cause_and_a_page(world) -> None:
    found = await follow(world, command_id="c-cid")
    last = found.journey.hops[-1]
    assert (last.step, last.state, last.cause) == ("parked", "stopped", "parked")
    assert last.detail == "ValueError: no such shelf; retry or skip it"
    assert last.page == "/parked?processor=commands"


async def test_an_event_that_a_projection_parked_stops_there_alone(world) -> None:
    found = await follow(world, command_id="c-dora")
    hops = told(found)
    assert hops["applied", "lines"].cause == "parked"
    assert "no such item" in hops["applied", "lines"].detail
    assert hops["applied", "lines"].page == "/parked?processor=projection%3Alines"
    assert hops["reacted", "parcels"].state == "done"
    assert len(found.plain["stands"]) == 1


async def test_a_command_that_waits_for_a_service_is_found_by_its_id_alone(world) -> None:
    found = await follow(world, command_id="c-fay")
    assert found.command is not None
    assert found.command["aggregate_id"] == "fay"
    assert (found.journey.hops[-1].cause, len(found.journey.hops)) == ("no consumer", 3)


async def test_nothing_that_was_ever_sent_is_a_sentence(world) -> None:
    assert "nothing is known of command c-0" in (await follow(world, command_id="c-0")).missing
    assert "or you may not see it" in (await follow(world, command_id="c-0")).missing
    assert (await follow(world, aggregate_id="ann", version=9)).missing == "ann has no version 9"


async def test_a_message_of_no_command_is_followed_as_the_broker_knows_it(world) -> None:
    gone = await follow(world, message_id="shop.commands:0:999")
    assert gone.missing == "there is no message shop.commands:0:999, and no trace of it"


@pytest.mark.usefixtures("hidden")
async def test_an_event_whose_command_is_hidden_may_be_published_all_the_same(world) -> None:
    hops = (await follow(world, command_id="c-ann", aggregate_id="ann")).journey.hops
    told = {(one.step, one.name): (one.state, one.cause, one.detail) for one in hops}
    need = "needs consume on topic:shop."
    for step, topic in (("published", "shop.events"), ("announced", "shop.messages")):
        assert told[step, topic][:2] == ("unknown", "not permitted")
        assert told[step, topic][2].startswith(need)
    assert told["reacted", "bills"] == ("unknown", "not permitted", f"{need}events")
    assert "not published" not in {one.cause for one in hops}


@pytest.mark.usefixtures("hidden")
async def test_dead_letters_that_a_user_may_not_read_are_counted_and_none_is_left_out(
    world,
) -> None:
    dead = "shop.messages.dead"
    async with Producer(world.address) as producer:
        await producer.send_many([Message(topic=dead, key="ann", body=b"cup")] * 3)
    hops = (await follow(world, command_id="c-ann", aggregate_id="ann")).journey.hops
    (hop,) = (one for one in hops if one.step == "dead letter")
    assert (hop.name, hop.state, hop.cause) == (dead, "unknown", "not permitted")
    assert hop.detail == (
        "3 dead letters of ann that you may not read may be of this command: needs consume on"
        f" topic:{dead}"
    )
    assert hop.page == f"/messages?topic={dead}&key=ann"
    dora = (await follow(world, command_id="c-dora", aggregate_id="dora")).journey.hops
    assert not [one for one in dora if one.step == "dead letter"]


async def test_a_command_that_was_handled_long_after_it_was_sent_does_not_wait(
    world, monkeypatch
) -> None:
    """The row of a command that a process sent stays as long as its instance."""
    monkeypatch.setattr(command_directory, "_SPAN", 0)
    hops = (await follow(world, command_id="c-ann", aggregate_id="ann")).journey.hops
    sent = next(one for one in hops if one.step == "commanded")
    assert (sent.name, sent.state) == ("Pack to ann", "done")


async def test_all_messages_of_a_command_share_the_time_to_ask_groups(world, monkeypatch) -> None:
    monkeypatch.setattr(consequences, "ASKED_MS", 0)
    found = await follow(world, command_id="c-ann", aggregate_id="ann")
    hops = [one for one in found.journey.hops if one.step == "read"]
    assert [(one.name, one.state) for one in hops] == [("", "unknown")] * 2
    assert all("groups were not asked" in one.detail for one in hops)
