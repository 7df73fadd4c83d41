"""Commands are found in their topics by aggregate and id, and among those that wait by id alone."""

import json
from datetime import UTC, datetime

from headrace._runtime.ids import derived_id, new_id
from headrace.journey import command_messages as command_messages_module
from headrace.journey.command_messages import (
    backlog_of,
    begun_ms,
    command_messages,
    find_waiting,
    head_of,
)
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.message import QueueRef, Record

STORED = datetime(2026, 1, 10, tzinfo=UTC)
TOPICS = ("shop.commands", "shop.commands.bills")


def body(command_id: str) -> bytes:
    told = {
        "name": "Order",
        "version": 1,
        "command_id": command_id,
        "correlation_id": "c-0",
        "data": {"item": "tea"},
    }
    return json.dumps(told).encode()  # fmt: skip


async def put(admin: AdminClient, *command_ids: str) -> None:
    await admin.create_topic("shop.commands", 1)
    async with Producer(admin.address) as producer:
        for one in command_ids:
            await producer.send(Message(topic="shop.commands", key="ann", body=body(one)))
        await producer.send(Message(topic="shop.commands", key="ann", body=b"no json"))


async def test_a_command_is_found_with_all_messages_that_brought_it(admin) -> None:
    await put(admin, "c-1", "c-2", "c-1")
    found = await command_messages(admin, TOPICS, "ann", "c-1")
    assert [one.offset for one in found] == [0, 2]
    head = head_of(found[0])
    assert head is not None
    assert (head.name, head.command_id, head.correlation_id) == ("Order", "c-1", "c-0")
    assert await command_messages(admin, TOPICS, "ann", "c-3") == []
    assert await command_messages(admin, TOPICS, "ann", "c-1", STORED) == []


async def test_a_message_without_a_command_has_no_head(admin) -> None:
    await put(admin)
    record = await admin.message("shop.commands:0:0")
    assert record is not None
    assert head_of(record) is None


async def test_a_command_that_waits_is_found_by_its_id_alone(admin) -> None:
    await put(admin, "c-1", "c-2")
    await admin.reset_offsets("shop.commands", "offset", 1, topics=["shop.commands"])
    (queue,) = await backlog_of(admin, "shop.commands", TOPICS)
    assert (queue.committed, queue.end, queue.lag) == (1, 3, 2)
    found = await find_waiting(admin, "shop.commands", TOPICS, "c-2")
    assert found is not None
    assert found.offset == 1
    assert await find_waiting(admin, "shop.commands", TOPICS, "c-1") is None


async def test_messages_that_wait_are_searched_an_answer_at_a_time_up_to_a_limit(
    admin, monkeypatch
) -> None:
    """Bodies may have megabytes: many of them are not in memory at once."""
    await put(admin, "c-1", "c-2", "c-3")
    await admin.reset_offsets("shop.commands", "earliest", topics=["shop.commands"])
    page, asked = AdminClient.page, list[int]()

    async def one(self: AdminClient, queue: QueueRef, offset: int) -> tuple[list[Record], int]:
        asked.append(offset)
        records, _ = await page(self, queue, offset)
        return records[:1], offset + 1

    with monkeypatch.context() as patch:
        patch.setattr(AdminClient, "page", one)
        found = await find_waiting(admin, "shop.commands", TOPICS, "c-3")
        assert found is not None
        assert (found.offset, asked) == (2, [0, 1, 2])
        asked.clear()
        assert await find_waiting(admin, "shop.commands", TOPICS, "c-9") is None
        assert asked == [0, 1, 2, 3]
    monkeypatch.setattr(command_messages_module, "SEARCHED_WAITING_MAX", 2)
    assert await find_waiting(admin, "shop.commands", TOPICS, "c-2") is not None
    assert await find_waiting(admin, "shop.commands", TOPICS, "c-3") is None


async def test_a_search_ends_where_the_broker_does_not_go_on(admin, monkeypatch) -> None:
    await put(admin, "c-1")
    await admin.reset_offsets("shop.commands", "earliest", topics=["shop.commands"])

    async def stay(_: AdminClient, __: QueueRef, offset: int) -> tuple[list[Record], int]:
        return [], offset

    monkeypatch.setattr(AdminClient, "page", stay)
    assert await find_waiting(admin, "shop.commands", TOPICS, "c-1") is None


def test_an_id_of_the_framework_says_since_when_its_messages_may_be_there() -> None:
    now_ms = datetime.now(UTC).timestamp() * 1_000
    assert now_ms - 120_000 < begun_ms(new_id()) <= now_ms
    week_before = round(datetime(2026, 1, 3, tzinfo=UTC).timestamp() * 1_000)
    assert begun_ms(derived_id("a"), STORED) == begun_ms("c-1", STORED) == week_before
    assert begun_ms("c-1") == 0
