"""Commands in flight: what waits in each queue, who has it, and what is done but not acknowledged."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.journey.command_result import newest_results
from headrace.journey.in_flight import commands_in_flight, parked_errors
from headrace.settings import Settings
from headrace.stores.base import LetterState
from headrace.stores.database.schema import upgrade
from headrace.stores.letters import DatabaseCommandLetters
from headrace.stores.open import open_event_store
from headrace_mq import AdminClient, Consumer, Message, Producer
from headrace_mq.access.heads import HEAD_HEADER, MessageHead
from headrace_mq.message import Record
from tests.unit.headrace.journey.shop import Ordered, shop

GROUP = "shop.commands"


@pytest.fixture
async def settings(tmp_path) -> Settings:
    """The command c-2 is stored."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    store = await open_event_store(urls["event_store"], shop.serializer)
    done = EventStream(
        aggregate_type="Basket", aggregate_id="a-2", version=1, command_id="c-2", correlation_id="c-2",
        recorded_at=datetime(2026, 1, 1, tzinfo=UTC), events=(Ordered(item="cup"),),
    )  # fmt: skip
    await store.append([done])
    await store.aclose()
    return Settings(**urls)


async def send(admin: Any, count: int) -> None:
    await admin.create_topic(GROUP, 1)
    async with Producer(admin.address) as producer:
        for number in range(count):
            told = {"name": "Order", "version": 1, "command_id": f"c-{number}", "correlation_id": "c", "data": {}}  # fmt: skip
            await producer.send(
                Message(topic=GROUP, key=f"a-{number}", tag="Order", body=json.dumps(told).encode())
            )


async def test_an_application_that_never_ran_has_nothing_in_flight(admin, settings) -> None:
    found = await commands_in_flight(admin, shop, settings)
    assert (found["members"], found["queues"], found["waiting"], found["total"]) == (0, [], [], 0)


async def test_commands_that_wait_come_a_page_at_a_time(admin, settings) -> None:
    await send(admin, 5)
    await admin.reset_offsets(GROUP, "offset", 1, topics=[GROUP])
    first = await commands_in_flight(admin, shop, settings, rows=3)
    (queue,) = first["queues"]
    assert (queue["waiting"], queue["done_up_to"], queue["end"]) == (4, 1, 5)
    stored = await admin.message(f"{GROUP}:0:1")
    assert queue["oldest_at_ms"] == stored.stored_at_ms
    told = [(one["command_id"], one["before"], one["state"]) for one in first["waiting"]]
    assert told == [("c-1", 0, "waits"), ("c-2", 1, "stored"), ("c-3", 2, "waits")]
    assert {one["handler"] for one in first["waiting"]} == {"order"}
    second = await commands_in_flight(admin, shop, settings, page=2, rows=3)
    assert [one["command_id"] for one in second["waiting"]] == ["c-4"]
    assert (second["page"], second["pages"], second["total"]) == (2, 2, 4)


async def test_the_first_command_of_a_queue_is_in_its_handler_or_next(admin, settings) -> None:
    await send(admin, 2)
    await admin.reset_offsets(GROUP, "earliest", topics=[GROUP])
    async with Consumer(admin.address, group=GROUP, topics=[GROUP]) as consumer:
        await consumer.poll()
        found = await commands_in_flight(admin, shop, settings)
        assert found["members"] == 1
        states = [one["state"] for one in found["waiting"]]
        assert states == (
            ["first", "waits"] if found["queues"][0]["member"] else ["waits", "waits"]
        )
    await admin.set_group(GROUP, consume=False)
    assert (await commands_in_flight(admin, shop, settings))["paused"]


async def test_whether_a_command_is_stored_is_unknown_to_those_who_may_not_see_its_id(
    admin, settings, monkeypatch
) -> None:
    await send(admin, 3)
    await admin.reset_offsets(GROUP, "offset", 2, topics=[GROUP])
    assert (await commands_in_flight(admin, shop, settings))["hidden"] == ""
    read = AdminClient.read

    async def heads(*given: Any) -> list[Record]:
        return [
            MessageHead(
                one.queue, one.offset, one.key, one.tag, {HEAD_HEADER: str(len(one.body))}, b"",
                one.born_at_ms, one.stored_at_ms,
            )
            for one in await read(*given)
        ]  # fmt: skip

    monkeypatch.setattr(AdminClient, "read", heads)
    found = await commands_in_flight(admin, shop, settings)
    (command,) = found["waiting"]
    assert (command["aggregate_id"], command["command_id"], command["state"]) == ("a-2", "", "unknown")  # fmt: skip
    assert found["hidden"] == f"needs consume on topic:{GROUP}"


async def test_more_parked_and_held_commands_than_one_page_of_letters_are_all_counted(
    admin, settings, monkeypatch
) -> None:
    counts = {
        ("KeyError", LetterState.PARKED): 1_500, ("KeyError", LetterState.HOLDING): 7,
        ("Held", LetterState.HELD): 2_000, ("Busy", LetterState.PARKED): 3,
    }  # fmt: skip

    async def tally(_: DatabaseCommandLetters) -> dict[tuple[str, LetterState], int]:
        return counts

    monkeypatch.setattr(DatabaseCommandLetters, "tally", tally)
    found = await commands_in_flight(admin, shop, settings)
    assert found["parked"] == [
        {"error": "KeyError", "commands": 1_507}, {"error": "Busy", "commands": 3},
    ]  # fmt: skip
    assert found["held"] == 2_000
    assert parked_errors(counts) == {"KeyError": 1_507, "Busy": 3}
    assert (await newest_results(shop, settings)).parked == {"KeyError": 1_507, "Busy": 3}
