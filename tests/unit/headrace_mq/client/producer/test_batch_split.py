import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.batch.batch import Batch, encode
from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.client.producer.batch_split import spread
from headrace_mq.client.producer.route import Route
from headrace_mq.errors import StoreFull
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import decode_records

QUEUE = QueueRef("t", 3)


@given(
    messages=st.lists(
        st.tuples(st.sampled_from(["", "a", "b", "c", "d", "ü"]), st.booleans(), st.integers(0, 9)),
        min_size=1,
        max_size=20,
    ),
    sent=st.booleans(),
    left=st.integers(1, 3),
)
async def test_every_message_comes_through_whole_and_in_its_order(
    messages: list[tuple[str, bool, int]], sent: bool, left: int
) -> None:
    batch, route = Batch(QUEUE), Route("t", 4)
    route.update(4, set(range(left, 4)))
    made = [
        Message(topic="t", body=b"%d" % n, key=key, tag="x" * headed, headers={"n": key} if headed else {})
        for n, (key, headed, _) in enumerate(messages)
    ]  # fmt: skip
    for one, (*_, born) in zip(made, messages, strict=True):
        batch.add(one, MessageColumns.of([one]).size, 100 + born)
    size, batch.deadline_ms = batch.size, 77
    if sent:
        batch.encoded = encode(batch, producer_id=1, first_sequence=0, codec="none")
        batch.attempts, batch.refusals = 1, ["why"]
    parts = spread(batch, route)
    assert {part.deadline_ms for part in parts} == {77}
    assert sum(part.size for part in parts) == size or parts == [batch]
    assert {(part.attempts, len(part.refusals)) for part in parts} == {(int(sent), int(sent))}
    found = {}
    for part in parts:
        encoded = encode(part, producer_id=2, first_sequence=0, codec="none")
        for record in decode_records(encoded):
            assert record.queue == part.queue
            found[int(record.body)] = record
            if record.key:
                assert record.queue.queue_id == route.choose_by_key(record.key)
        numbers = [int(record.body) for record in decode_records(encoded)]
        assert numbers == sorted(numbers)
    assert sorted(found) == list(range(len(made)))
    for n, one in enumerate(made):
        record = found[n]
        assert (record.key, record.tag, dict(record.headers)) == (one.key, one.tag, one.headers)
        assert record.born_at_ms == max(100 + messages[n][2], 100 + messages[0][2])


async def test_a_failure_reaches_the_senders_of_its_messages_alone() -> None:
    batch, route = Batch(QUEUE), Route("t", 2)
    for key in ("a", "b", "c", "d"):
        batch.add(Message(topic="t", body=b"", key=key), 33, 5)
    first, second = spread(batch, route)
    where = [part for part, _ in batch.places or ()]
    first.stored(10, duplicate=False)
    assert not batch.settled
    second.failed(StoreFull("full"))
    assert first.queue.queue_id != second.queue.queue_id
    batch.waiter = asyncio.get_running_loop().create_future()
    await batch.waiter
    assert batch.settled
    for number, part in enumerate(where):
        if part is first:
            batch.check(number, 1)
            assert batch.result(number).queue == first.queue
            assert batch.result(number).offset in (10, 11, 12)
        else:
            with pytest.raises(StoreFull):
                batch.check(number, 1)
            with pytest.raises(StoreFull):
                batch.result(number)
