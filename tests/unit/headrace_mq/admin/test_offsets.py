from collections.abc import Awaitable, Callable

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer import Consumer
from headrace_mq.errors import InvalidArgument, OffsetOutOfRange
from headrace_mq.message import QueueRef

Send = Callable[[str, int], Awaitable[None]]


async def test_a_groups_offsets_are_told_and_moved_forth_and_back(
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
        with pytest.raises(InvalidArgument, match="stop them"):
            await admin.set_offsets("g", {QueueRef("orders", 0): 0})
