import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.batch.batch import Place
from headrace_mq.client.producer.wait_line import InLine, Line
from headrace_mq.errors import TopicNotFound
from headrace_mq.message import Message


def one(body: bytes = b"x", *, topic: str = "t", size: int = 10, deadline_ms: int = 100) -> InLine:
    place: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
    return InLine(Message(topic=topic, body=body), size, 0, deadline_ms, place)


async def test_the_first_to_come_leaves_first_and_the_size_is_what_waits() -> None:
    line = Line()
    first, second = one(b"first", size=3), one(b"second", size=5)
    line.join(first)
    line.join(second)
    assert (line.head(), line.size) == (first, 8)
    assert (line.leave(), line.size) == (first, 5)
    assert (line.leave(), line.size, line.head()) == (second, 0, None)


async def test_a_message_whose_sender_was_cancelled_is_never_the_first() -> None:
    line = Line()
    gone, stays = one(b"gone"), one(b"stays")
    line.join(gone)
    line.join(stays)
    gone.place.cancel()
    assert line.head() is stays
    assert line.size == stays.size


async def test_messages_whose_time_is_up_leave_in_order_and_cancelled_ones_silently() -> None:
    line = Line()
    late, gone, later = one(b"late"), one(b"gone"), one(b"later", deadline_ms=101)
    for message in (late, gone, later):
        line.join(message)
    gone.place.cancel()
    assert line.expired(99) == []
    assert line.expired(100) == [late]
    assert list(line.waiting) == [later]
    assert line.size == later.size


async def test_a_refused_topic_fails_its_messages_each_with_an_error_of_its_own() -> None:
    line = Line()
    refused, other, also = one(topic="a"), one(topic="b"), one(topic="a")
    for message in (refused, other, also):
        line.join(message)
    line.refuse("a", TopicNotFound("no such topic"))
    errors = [message.place.exception() for message in (refused, also)]
    assert [type(error) for error in errors] == [TopicNotFound] * 2
    assert errors[0] is not errors[1]
    assert not other.place.done()
    assert (list(line.waiting), line.size) == ([other], other.size)


async def test_abandoning_fails_all_that_wait_and_leaves_cancelled_senders_alone() -> None:
    line = Line()
    waits, gone = one(), one()
    line.join(waits)
    line.join(gone)
    gone.place.cancel()
    line.abandon(TopicNotFound("closed"))
    with pytest.raises(TopicNotFound, match="closed"):
        waits.place.result()
    assert gone.place.cancelled()
    assert (len(line.waiting), line.size) == (0, 0)


@given(st.lists(st.tuples(st.integers(1, 100), st.sampled_from(["stay", "leave", "cancel"]))))
async def test_the_size_is_always_that_of_those_in_line(steps: list[tuple[int, str]]) -> None:
    line = Line()
    for size, step in steps:
        joined = one(size=size)
        line.join(joined)
        if step == "cancel":
            joined.place.cancel()
        elif step == "leave" and line.head() is not None:
            line.leave()
        assert line.size == sum(message.size for message in line.waiting)
