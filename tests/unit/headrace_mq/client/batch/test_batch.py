import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.batch.batch import Batch
from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.errors import InvalidArgument, SendTimeout
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import decode_records

QUEUE = QueueRef("t", 1)


def test_a_result_names_queue_and_offset() -> None:
    batch = Batch(QUEUE)
    batch.stored(40, duplicate=True)
    assert batch.result(2) == SendResult(QUEUE, 42, True)


def test_a_repeated_batch_whose_place_is_forgotten_has_no_offset() -> None:
    batch = Batch(QUEUE)
    batch.stored(-1, duplicate=True)
    assert batch.result(2) == SendResult(QUEUE, -1, True)


def test_every_sender_gets_an_error_of_its_own() -> None:
    batch = Batch(QUEUE)
    batch.failed(InvalidArgument("no"))
    errors = []
    for number in range(2):
        with pytest.raises(InvalidArgument, match="no") as caught:
            batch.result(number)
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert errors[0].__cause__ is errors[1].__cause__


async def test_settling_wakes_waiting_callers() -> None:
    batch = Batch(QUEUE)
    batch.waiter = asyncio.get_running_loop().create_future()
    batch.failed(SendTimeout("late"))
    await batch.waiter
    assert batch.settled


async def test_a_report_is_made_once_there_is_a_result() -> None:
    loop = asyncio.get_running_loop()
    early, late, given_up = loop.create_future(), loop.create_future(), loop.create_future()
    batch = Batch(QUEUE)
    batch.report(1, early)
    batch.report(0, given_up)
    given_up.cancel()
    batch.stored(7, duplicate=False)
    batch.report(2, late)
    assert [(await result).offset for result in (early, late)] == [8, 9]


async def test_a_report_of_a_given_up_batch_raises_why() -> None:
    result = asyncio.get_running_loop().create_future()
    batch = Batch(QUEUE)
    batch.report(0, result)
    batch.failed(SendTimeout("late"))
    with pytest.raises(SendTimeout, match="late"):
        await result


@given(
    steps=st.lists(st.tuples(st.integers(1, 3), st.integers(90, 110), st.booleans()), min_size=1)
)
def test_each_message_keeps_the_time_it_was_handed_over_at_and_none_is_older_than_the_first(
    steps: list[tuple[int, int, bool]],
) -> None:
    batch, born = Batch(QUEUE), list[int]()
    for count, born_ms, together in steps:
        bodies = [b"%d" % len(born)] * count
        if together:
            batch.extend(MessageColumns(bodies), born_ms)
        else:
            for body in bodies:
                batch.add(Message(topic="t", body=body), 1, born_ms)
        born += [max(born_ms, born[0] if born else 0)] * count
    batch.encode(producer_id=1, first_sequence=0, codec="none")
    again = decode_records(batch.encoded)
    assert [record.born_at_ms for record in again] == born
    # A batch that moves is taken out of its bytes, may take more, and is encoded again.
    batch.queue = QueueRef("t", 2)
    batch.open_up()
    batch.extend(MessageColumns([b"late"]), 120)
    moved = batch.encode(producer_id=1, first_sequence=0, codec="none")
    assert [record.born_at_ms for record in decode_records(moved)] == [*born, 120]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["", "t"]), st.booleans()), min_size=1))
def test_messages_keep_their_fields_however_they_come(
    steps: list[tuple[bool, str, bool]],
) -> None:
    batch, sent = Batch(QUEUE), list[Message]()
    for number, (together, tag, headed) in enumerate(steps):
        headers = {"n": str(number)} if headed else {}
        message = Message(topic="t", body=b"%d" % number, tag=tag, headers=headers)
        sent.append(message)
        if together:
            batch.extend(MessageColumns.of([message]), 5)
        else:
            batch.add(message, 10, 5)
    records = decode_records(batch.encode(producer_id=1, first_sequence=0, codec="none"))
    assert [(r.body, r.tag, dict(r.headers)) for r in records] == [
        (message.body, message.tag, dict(message.headers)) for message in sent
    ]
