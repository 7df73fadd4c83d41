"""A command that was found is known by what the store, the letters or the broker has of it."""

import json
from datetime import UTC, datetime

import pytest

from headrace.journey import command_messages
from headrace.journey.command_result import command_found
from headrace.journey.command_search import FoundCommand
from headrace.settings import Settings
from headrace.stores.base import CommandLetter, LetterState
from headrace.stores.database.schema import upgrade
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.errors import NotPermitted
from tests.unit.headrace.journey.shop import shop

LETTER = CommandLetter(
    aggregate_id="ann", command_id="c-1", name="Order", state=LetterState.PARKED,
    parked_at=datetime(2026, 1, 1, tzinfo=UTC), error="KeyError", sentence="no", key="ann", headers={}, body=b"",
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (FoundCommand("ann", "c-1"), False),
        (FoundCommand("ann", "c-1", letter=LETTER), True),
        (FoundCommand("ann", "c-1", damage="its checksum differs"), True),
    ],
)
def test_a_command_is_known_if_anything_has_it(found: FoundCommand, known: bool) -> None:
    assert found.known is known


async def test_a_command_that_waits_behind_many_others_of_its_aggregate_is_found(
    admin, tmp_path, monkeypatch
) -> None:
    """Its id does not say when it was sent, so a search of the key begins with the oldest."""
    monkeypatch.setattr(command_messages, "FOUND_MAX", 2)
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    await admin.create_topic("shop.commands", 1)
    async with Producer(admin.address) as producer:
        for number in range(4):
            told = {"name": "Order", "version": 1, "command_id": f"c-{number}", "correlation_id": "c", "data": {}}  # fmt: skip
            await producer.send(Message(topic="shop.commands", key="ann", body=json.dumps(told).encode()))  # fmt: skip
    await admin.reset_offsets("shop.commands", "offset", 2, topics=["shop.commands"])
    found = await command_found(admin, shop, Settings(**urls), "c-3", "ann")
    assert ([one.offset for one in found.messages], found.name) == ([3], "Order")
    for aggregate_id, command_id in (("bob", "c-3"), ("ann", "c-9")):
        other = await command_found(admin, shop, Settings(**urls), command_id, aggregate_id)
        assert not other.known

    async def refuse(*_: object) -> None:
        raise NotPermitted("user 'ann' may not read group:shop.commands")

    monkeypatch.setattr(AdminClient, "lag", refuse)
    assert not (await command_found(admin, shop, Settings(**urls), "c-3", "ann")).known
