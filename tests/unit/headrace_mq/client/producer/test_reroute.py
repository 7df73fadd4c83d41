"""A producer under whose hands queues are frozen, deleted and opened again."""

import asyncio
import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.batch.batch import Batch
from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.client.producer import producer as producer_module
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.producer.reroute import spread
from headrace_mq.client.producer.route import Route, queue_for_key
from headrace_mq.errors import QueueFrozen, SendTimeout, StoreFull, TopicNotFound
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import decode_records
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ProducerSettings

PRODUCE, DESCRIBE = RequestCode.PRODUCE, RequestCode.DESCRIBE_TOPICS
QUICK = ProducerSettings(reconnect_ms_min=1, reconnect_ms_max=5, batch_messages_max=4)


def message(body: bytes = b"x", key: str = "") -> Message:
    return Message(topic="t", body=body, key=key)


def key_of(queue: int, queues: int) -> str:
    return next(key for key in map(str, range(999)) if queue_for_key(key, queues) == queue)


def records(broker: Any, queue: int) -> list[Any]:
    held = broker.batches[QueueRef("t", queue)]
    return [record for batch in held for record in decode_records(batch)]


def bodies(broker: Any, queue: int) -> list[bytes]:
    return [record.body for record in records(broker, queue)]


async def test_messages_that_wait_for_the_new_route_stay_in_order(broker: Any) -> None:
    broker.topics["t"], key = 2, key_of(0, 2)
    async with Producer(broker.address, QUICK) as producer:
        await producer.send(message(b"0", key))
        broker.frozen, broker.held = {QueueRef("t", 0)}, {DESCRIBE}
        first = [producer.send_soon(message(b"%d" % n, key)) for n in (1, 2)]
        asked = await broker.next(DESCRIBE)
        # They were refused and are nowhere; what comes now must not overtake them.
        later = [producer.send_soon(message(b"%d" % n, key)) for n in (3, 4, 5)]
        await producer.send(message(b"other", key_of(1, 2)))
        broker.held = set()
        broker.serve(asked)
        places = await asyncio.gather(*first, *later)
    assert bodies(broker, 0) == [b"0"]
    assert bodies(broker, 1) == [b"other", b"1", b"2", b"3", b"4", b"5"]
    assert [place.offset for place in places] == [1, 2, 3, 4, 5]


async def test_batches_in_flight_are_answered_before_the_route_changes(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topics["t"], key = 2, key_of(0, 2)
    monkeypatch.setattr(producer_module, "ROUTE_REFRESH_MS", 1)
    async with Producer(broker.address, QUICK) as producer:
        await producer.send(message(b"0", key))
        broker.held = {PRODUCE}
        first = producer.send_soon(message(b"1", key))
        held = await broker.next(PRODUCE)
        broker.frozen = {QueueRef("t", 0)}
        seen = broker.count(DESCRIBE)
        while broker.count(DESCRIBE) < seen + 3:
            await asyncio.sleep(0)
        # The broker has said by now that the queue is closed; this one is behind the first.
        second = producer.send_soon(message(b"2", key))
        broker.held = set()
        broker.serve(held)
        await asyncio.gather(first, second)
    assert (bodies(broker, 0), bodies(broker, 1)) == ([b"0"], [b"1", b"2"])


async def test_keys_of_one_batch_part_and_each_sender_learns_its_place(broker: Any) -> None:
    broker.topics["t"] = 4
    keys = [key for key in map(str, range(60)) if queue_for_key(key, 4) == 3]
    async with Producer(broker.address, QUICK) as producer:
        await producer.send(message(b"0", keys[0]))
        broker.frozen = {QueueRef("t", 3)}
        many = producer.send_many([message(b"%d" % n, key) for n, key in enumerate(keys)])
        single = producer.send(message(b"one", keys[1]))
        stored, one = await asyncio.gather(many, single)
    for number, (place, key) in enumerate(zip(stored, keys, strict=True)):
        assert place.queue == QueueRef("t", queue_for_key(key, 3))
        assert records(broker, place.queue.queue_id)[place.offset].body == b"%d" % number
    assert records(broker, one.queue.queue_id)[one.offset].body == b"one"
    assert len({place.queue for place in stored}) == 3


async def test_messages_of_a_queue_that_is_gone_go_to_those_that_are_left(broker: Any) -> None:
    broker.topics["t"], key = 3, key_of(2, 3)
    async with Producer(broker.address, QUICK) as producer:
        assert (await producer.send(message(key=key))).queue == QueueRef("t", 2)
        broker.topics["t"] = 2
        assert (await producer.send(message(key=key))).queue == QueueRef("t", queue_for_key(key, 2))


async def test_messages_of_a_topic_that_is_gone_fail(broker: Any) -> None:
    broker.topics["t"], key = 2, key_of(0, 2)
    async with Producer(broker.address, QUICK) as producer:
        await producer.send(message(key=key))
        broker.frozen, broker.held = {QueueRef("t", 0)}, {DESCRIBE}
        results = [producer.send_soon(message(key=key))]
        asked = await broker.next(DESCRIBE)
        results.append(producer.send_soon(message(key=key)))
        del broker.topics["t"]
        broker.creates_topics, broker.held = False, set()
        broker.serve(asked)
        for result in results:
            with pytest.raises(TopicNotFound):
                await result


async def test_nothing_leaves_a_compacted_topic_or_a_selector_s_queue(broker: Any) -> None:
    broker.topics["t"], broker.compact, key = 2, {"t"}, key_of(0, 2)
    async with Producer(broker.address, QUICK) as producer:
        await producer.send(message(key=key))
        broker.frozen = {QueueRef("t", 0)}
        with pytest.raises(QueueFrozen):
            await producer.send(message(key=key))
    broker.compact = set()
    async with Producer(broker.address, QUICK, selector=lambda message, queues: 0) as producer:
        with pytest.raises(QueueFrozen):
            await producer.send(message(key=key))


async def test_without_a_new_route_the_messages_are_not_stored_in_time(
    broker: Any, clock: Any, until: Any
) -> None:
    broker.topics["t"], key = 2, key_of(0, 2)
    async with Producer(broker.address, QUICK, clock=clock) as producer:
        await producer.send(message(key=key))
        broker.frozen, broker.held = {QueueRef("t", 0)}, {DESCRIBE}
        refused = producer.send_soon(message(key=key))
        await broker.next(DESCRIBE)
        waiting = producer.send_soon(message(key=key))
        clock.time_ms += QUICK.send_timeout_ms
        with pytest.raises(SendTimeout, match=r"not stored.*frozen"):
            await refused
        with pytest.raises(SendTimeout, match="not sent"):
            await waiting


async def test_closing_ends_what_was_refused(broker: Any, clock: Any) -> None:
    broker.topics["t"], key = 2, key_of(0, 2)
    producer = Producer(broker.address, QUICK, clock=clock)
    await producer.start()
    await producer.send(message(key=key))
    broker.frozen, broker.held = {QueueRef("t", 0)}, {DESCRIBE}
    refused = producer.send_soon(message(key=key))
    await broker.next(DESCRIBE)
    closing = asyncio.create_task(producer.aclose())
    clock.time_ms += QUICK.send_timeout_ms
    await closing
    with pytest.raises(SendTimeout):
        await refused


@pytest.mark.parametrize("seed", range(40))
async def test_no_message_is_lost_doubled_or_out_of_order_when_queues_change(
    broker: Any, seed: int
) -> None:
    chosen, queues = random.Random(seed), 4
    broker.topics["t"] = queues
    keys = ["", *(f"k{n}" for n in range(12))]
    async with Producer(broker.address, QUICK) as producer:
        sent = []
        for number in range(300):
            key = chosen.choice(keys)
            sent.append((key, number, producer.send_soon(message(b"%d" % number, key))))
            match chosen.randrange(30):
                case 0:
                    broker.frozen = {QueueRef("t", chosen.randrange(queues))}
                case 1:
                    broker.frozen = set()
                case 2 if chosen.random() < 0.3:
                    broker.drop()
                case 3 if broker.topics["t"] > 2 and chosen.random() < 0.3:
                    broker.topics["t"] -= 1
                case 4 | 5 | 6 | 7 | 8:
                    for _ in range(chosen.randrange(12)):
                        await asyncio.sleep(0)
        places = await asyncio.gather(*(result for *_, result in sent))
    held = {queue: records(broker, queue) for queue in range(queues)}
    stored = Counter(record.body for its in held.values() for record in its)
    assert stored == {b"%d" % number: 1 for number in range(300)}
    for (key, number, _), place in zip(sent, places, strict=True):
        record = held[place.queue.queue_id][place.offset]
        assert (record.body, record.key) == (b"%d" % number, key)
    order: dict[str, list[int]] = defaultdict(list)
    for batch in broker.history:
        for record in decode_records(batch):
            order[record.key].append(int(record.body))
    # Over all queues: of what moves nothing is stored before all that was sent to the old queue.
    assert all(numbers == sorted(numbers) for key, numbers in order.items() if key)


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
        batch.encode(producer_id=1, first_sequence=0, codec="none")
        batch.attempts, batch.refusals = 1, ["why"]
    parts = spread(batch, route)
    assert {part.deadline_ms for part in parts} == {77}
    assert sum(part.size for part in parts) == size or parts == [batch]
    assert {(part.attempts, len(part.refusals)) for part in parts} == {(int(sent), int(sent))}
    found = {}
    for part in parts:
        encoded = part.encode(producer_id=2, first_sequence=0, codec="none")
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
