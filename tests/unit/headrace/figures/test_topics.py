"""Rows of topics: what their queues hold together, and which are frozen."""

import pytest

from headrace.figures.topics import frozen_queues, frozen_sides, topic_rows
from headrace_mq import AdminClient, Message, Producer
from headrace_mq.testing.embedded import broker


async def test_a_row_counts_over_all_queues_of_its_topic() -> None:
    async with broker() as address, AdminClient(address) as admin:
        await admin.create_topic("orders", 2)
        await admin.create_topic("empty", 1)
        async with Producer(address) as producer:
            await producer.send_many([Message(topic="orders", body=b"tea")] * 6)
        await admin.freeze("empty", writing=True)
        empty, orders = await topic_rows(admin, await admin.topics())
    assert (orders["topic"], orders["queues"], orders["messages"]) == ("orders", 2, 6)
    assert orders["produced"].messages_10s in {
        0,
        6,
    }  # those of the second that runs do not count yet
    assert (empty["topic"], empty["messages"], empty["unwritable"]) == ("empty", 0, [0])


async def test_no_topics_have_no_rows() -> None:
    async with broker() as address, AdminClient(address) as admin:
        assert await topic_rows(admin, []) == []


@pytest.mark.parametrize(
    ("unwritable", "unreadable", "shown"),
    [([], [], ""), ([0, 2], [], "writing: 0 2"), ([1], [3], "writing: 1, reading: 3")],
)
def test_frozen_queues_are_named_with_their_side(unwritable, unreadable, shown) -> None:
    assert frozen_queues(unwritable, unreadable) == shown


def test_a_queue_says_what_it_is_frozen_for() -> None:
    assert frozen_sides(writing=True, reading=True) == "writing, reading"
    assert frozen_sides(writing=False, reading=False) == ""
