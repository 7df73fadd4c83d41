from collections.abc import Awaitable, Callable

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.errors import GroupNotEmpty, GroupNotFound, OffsetOutOfRange
from headrace_mq.message import QueueRef

Send = Callable[[str, int], Awaitable[None]]


async def test_a_groups_offsets_are_listed_and_moved_forth_and_back(
    admin: AdminClient, send: Send
) -> None:
    await admin.create_topic("orders", queues=1)
    queue = QueueRef("orders", 0)
    await send("orders", 5)
    assert await admin.offsets("g", ["orders"]) == {queue: -1}
    for offset in (5, 2):
        await admin.set_offsets("g", {queue: offset})
        assert await admin.offsets("g", ["orders"]) == {queue: offset}
    with pytest.raises(OffsetOutOfRange):
        await admin.set_offsets("g", {queue: 6})


async def test_the_offsets_of_a_group_at_work_are_not_moved(
    broker: Broker, admin: AdminClient
) -> None:
    await admin.create_topic("orders", queues=1)
    async with Consumer(broker.address, group="g", topics=["orders"]):
        with pytest.raises(GroupNotEmpty, match="stop them"):
            await admin.set_offsets("g", {QueueRef("orders", 0): 0})


async def test_a_dry_run_tells_what_a_reset_then_does(admin: AdminClient, send: Send) -> None:
    await admin.create_topic("orders", queues=1)
    queue = QueueRef("orders", 0)
    await send("orders", 5)
    await admin.set_offsets("g", {queue: 3})
    would = await admin.reset_offsets("g", "shift", -2, dry_run=True)
    assert [(m.before, m.after, m.redelivered, m.skipped) for m in would.moves] == [(3, 1, 2, 0)]
    assert await admin.offsets("g", ["orders"]) == {queue: 3}
    done = await admin.reset_offsets("g", "shift", -2)
    assert (done.moved, done.moves) == (True, would.moves)
    assert await admin.offsets("g", ["orders"]) == {queue: 1}


async def test_a_reset_by_time_begins_with_the_message_stored_then(
    admin: AdminClient, send: Send
) -> None:
    await admin.create_topic("orders", queues=1)
    queue = QueueRef("orders", 0)
    await send("orders", 2)
    (described,) = await admin.queues(await admin.topics())
    later = described.last_stored_at_ms + 1
    assert await admin.offsets_at(["orders"], described.first_stored_at_ms) == {queue: 0}
    assert await admin.offsets_at(["orders"], later) == {queue: 2}
    await admin.reset_offsets("g", "time", later, topics=["orders"], queues=[0])
    assert await admin.offsets("g", ["orders"]) == {queue: 2}


async def test_a_group_is_cloned_and_deleted(admin: AdminClient, send: Send) -> None:
    await admin.create_topic("orders", queues=1)
    queue = QueueRef("orders", 0)
    await send("orders", 2)
    await admin.set_offsets("g", {queue: 1})
    assert (await admin.clone_offsets("g", "copy", dry_run=True)).moved is False
    assert (await admin.clone_offsets("g", "copy", topics=["orders"])).moved
    assert await admin.offsets("copy", ["orders"]) == {queue: 1}
    assert (await admin.delete_group("copy", dry_run=True)).moves[0].before == 1
    await admin.delete_group("copy")
    assert await admin.offsets("copy", ["orders"]) == {queue: -1}
    with pytest.raises(GroupNotFound):
        await admin.delete_group("copy")
    with pytest.raises(GroupNotFound):
        await admin.clone_offsets("copy", "g")


async def test_a_consumer_goes_on_where_it_was_reset_to(
    broker: Broker, admin: AdminClient, send: Send
) -> None:
    await admin.create_topic("orders", queues=1)
    await send("orders", 5)

    async def consumed(count: int) -> list[int]:
        async with Consumer(broker.address, group="g", topics=["orders"]) as consumer:
            got: list[int] = []
            while len(got) < count:
                for record in await consumer.poll():
                    got.append(record.offset)
                    consumer.ack(record)
            with pytest.raises(GroupNotEmpty, match="1 members at work"):
                await admin.reset_offsets("g", "earliest")
        return got

    assert await consumed(5) == [0, 1, 2, 3, 4]
    assert (await admin.reset_offsets("g", "offset", 3)).moves[0].redelivered == 2
    assert await consumed(2) == [3, 4]
