import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from headrace_mq.client.consumer import consumer as consumer_module
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.errors import (
    BrokerStopping,
    Closed,
    ConnectionLost,
    DataCorrupt,
    InvalidArgument,
    NotGroupMember,
    NotLeader,
)
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.bodies import Fetch, LockQueues, decode
from headrace_mq.protocol.codes import RequestCode

A, B = QueueRef("t", 0), QueueRef("t", 1)
JOIN, COMMIT = RequestCode.JOIN_GROUP, RequestCode.COMMIT_OFFSETS
CHANGE, LOCK = RequestCode.PUSHED_GROUP_CHANGE, RequestCode.LOCK_QUEUES
FETCH = RequestCode.FETCH
Until = Callable[[Callable[[], object]], Any]
Make = Callable[..., Consumer]


def offsets(records: list[Record]) -> list[tuple[int, int]]:
    return [(record.queue.queue_id, record.offset) for record in records]


async def test_the_assignment_is_known_after_the_start(consumer: Consumer) -> None:
    assert consumer.assignment == {A, B}


async def test_records_are_delivered_and_their_offsets_committed(
    broker: Any, consumer: Consumer
) -> None:
    broker.append(A, [b"a", b"b"])
    first, second = await consumer.poll()
    assert (first.body, second.body) == (b"a", b"b")
    consumer.ack(second)
    await consumer.commit()
    assert broker.offsets["g", A] == 0
    consumer.ack(first)
    await consumer.commit()
    assert broker.offsets["g", A] == 2


async def test_a_record_may_be_acknowledged_by_its_place(broker: Any, consumer: Consumer) -> None:
    broker.append(A, [b"a"])
    await consumer.poll()
    consumer.ack_offset(A, 0)
    await consumer.commit()
    assert broker.offsets["g", A] == 1


async def test_records_are_polled_as_columns_and_acknowledged_together(
    broker: Any, consumer: Consumer
) -> None:
    broker.append(A, [b"a", b"b"])
    (first,) = await consumer.poll_columns()
    assert (first.queue, list(first.offsets), list(first.bodies)) == (A, [0, 1], [b"a", b"b"])
    broker.append(A, [b"c"])
    (second,) = await consumer.poll_columns()
    consumer.ack_columns(second)
    await consumer.commit()
    assert broker.offsets["g", A] == 0
    consumer.ack_columns(first)
    await consumer.commit()
    assert broker.offsets["g", A] == 3
    broker.append(A, [b"d"])
    assert offsets(await consumer.poll()) == [(0, 3)]


async def test_a_consumer_goes_on_where_the_group_committed(broker: Any, make: Make) -> None:
    broker.topics["t"] = 2
    broker.append(A, [b"x"] * 5)
    broker.offsets["g", A] = 3
    async with make() as consumer:
        assert offsets(await consumer.poll()) == [(0, 3), (0, 4)]


async def test_acknowledging_makes_room_for_more(broker: Any, make: Make) -> None:
    broker.topics["t"] = 1
    for body in (b"a", b"b", b"c"):
        broker.append(A, [body])
    async with make(in_flight_max=3) as consumer:
        records = await consumer.poll()
        broker.append(A, [b"d"])
        while len(records) < 4:
            consumer.ack(records[0])
            records += await consumer.poll()
        assert offsets(records) == [(0, n) for n in range(4)]


async def test_another_member_takes_its_share_without_pausing_the_rest(
    broker: Any, consumer: Consumer
) -> None:
    broker.append(A, [b"a"] * 2)
    broker.append(B, [b"b"])
    records: list[Record] = []
    while len(records) < 3:
        records += await consumer.poll()
    consumer.ack(next(record for record in records if record.queue == B))
    broker.held = {COMMIT}
    broker.push(CHANGE, broker.join("zzz", ["t"]))
    broker.serve(await broker.next(COMMIT))
    assert consumer.assignment == {A}
    assert broker.offsets["g", B] == 1
    # What stays is neither delivered again nor forgotten.
    assert [consumer.holds(record) for record in records if record.queue == A] == [True, True]
    broker.append(B, [b"not ours"])
    broker.append(A, [b"ours"])
    assert [record.body for record in await consumer.poll()] == [b"ours"]


async def test_queues_that_stay_are_neither_fetched_again_nor_locked_again(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    broker.append(A, [b"a"] * 3)
    records = await consumer.poll()
    await until(lambda: broker.parked)
    share = consumer._shares.get(A)
    before = len(broker.seen)
    for view in (broker.join("zzz", ["t"]), broker.leave("zzz")):
        broker.push(CHANGE, view)
        await until(lambda: len(consumer.assignment) == len(broker.members) % 2 + 1)
    await until(lambda: not consumer._shares.to_start())
    broker.append(A, [b"a"])
    assert offsets(await consumer.poll()) == [(0, 3)]
    assert consumer._shares.get(A) is share
    since = broker.seen[before:]
    asked = [decode(Fetch, request.body).queues for request in since if request.code == FETCH]
    assert all(item.offset >= 3 for queues in asked for item in queues if item.queue_id == 0)
    locked = [decode(LockQueues, request.body).queues for request in since if request.code == LOCK]
    assert {name.queue_id for queues in locked for name in queues} <= {1}
    assert [consumer.holds(record) for record in records] == [True] * 3


async def test_a_queue_that_is_revoked_while_its_lock_is_asked_for_is_unlocked(
    broker: Any, make: Make, until: Until
) -> None:
    broker.topics["t"] = 2
    broker.held = {LOCK}
    async with make() as consumer:
        request = await broker.next(LOCK)
        broker.held = set()
        broker.push(CHANGE, broker.join("zzz", ["t"]))
        await until(lambda: consumer.assignment == {A})
        broker.serve(request)
        await until(lambda: list(broker.locks) == [A])
        await until(lambda: not consumer._shares.to_start())
        assert list(broker.locks) == [A]


async def test_a_revoked_queue_stays_locked_until_its_handler_has_finished(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def handle(record: Record) -> None:
        begun.set()
        await gate.wait()

    running = asyncio.create_task(consumer.run(handle))
    broker.append(B, [b"b", b"c"])
    await begun.wait()
    broker.push(CHANGE, broker.join("zzz", ["t"]))
    await until(lambda: consumer.assignment == {A})
    beats = broker.count(RequestCode.HEARTBEAT)
    await until(lambda: broker.count(RequestCode.HEARTBEAT) > beats + 1)
    assert B in broker.locks
    gate.set()
    await until(lambda: B not in broker.locks)
    # Both were being handled: records without a key do not wait for each other.
    assert broker.offsets["g", B] == 2
    await consumer.aclose()
    await running


async def test_records_of_a_revoked_queue_are_neither_delivered_nor_acknowledged(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    broker.append(B, [b"b"] * 2)
    records = await consumer.poll()
    broker.append(B, [b"buffered"])
    await until(lambda: consumer._shares.get(B).window.end == 3)  # type: ignore[union-attr]  # it is assigned
    broker.push(CHANGE, broker.join("zzz", ["t"]))
    await until(lambda: consumer.assignment == {A})
    consumer.ack(records[0])
    assert not consumer.holds(records[1])
    consumer.seek(B, 0)
    broker.append(A, [b"a"])
    assert [record.body for record in await consumer.poll()] == [b"a"]
    await consumer.commit()
    assert broker.offsets["g", B] == 0


async def test_a_queue_that_comes_back_is_read_from_where_the_group_stands(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    broker.append(B, [b"b"] * 4)
    await consumer.poll()
    broker.push(CHANGE, broker.join("zzz", ["t"]))
    await until(lambda: ("g", B) in broker.offsets)
    broker.offsets["g", B] = 3
    broker.push(CHANGE, broker.leave("zzz"))
    assert offsets(await consumer.poll()) == [(1, 3)]


async def test_seeking_goes_on_at_the_offset(broker: Any, consumer: Consumer) -> None:
    broker.append(A, [b"%d" % n for n in range(5)])
    records = await consumer.poll()
    consumer.seek(A, 3)
    assert offsets(await consumer.poll()) == [(0, 3), (0, 4)]
    consumer.ack(records[0])
    with pytest.raises(ValueError, match="0 or more"):
        consumer.seek(A, -1)


async def test_seeking_to_a_time_and_pausing_are_for_assigned_queues_too(
    broker: Any, consumer: Consumer
) -> None:
    for body in (b"0", b"1"):
        broker.now_ms += 10
        broker.append(A, [body])
    while offsets(await consumer.poll())[-1] != (0, 1):
        continue
    consumer.pause([A])
    await consumer.seek_to_time([A], broker.now_ms)
    broker.append(B, [b"b"])
    assert offsets(await consumer.poll()) == [(1, 0)]
    consumer.resume([A])
    assert offsets(await consumer.poll()) == [(0, 1)]


async def test_after_a_lost_connection_it_joins_again_and_resumes(
    broker: Any, consumer: Consumer
) -> None:
    broker.append(A, [b"a", b"b"])
    first, second = await consumer.poll()
    consumer.ack(first)
    broker.drop()
    broker.append(A, [b"c"])
    assert offsets(await consumer.poll()) == [(0, 2)]
    assert broker.count(JOIN) == 2
    consumer.ack(second)
    await consumer.commit()
    assert broker.offsets["g", A] == 2


async def test_nothing_is_delivered_while_the_membership_is_unknown(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    broker.append(A, [b"a"])
    await until(lambda: (share := consumer._shares.get(A)) and share.ready)
    broker.held = {JOIN}
    broker.drop()
    request = await broker.next(JOIN)
    polling = asyncio.create_task(consumer.poll())
    await asyncio.sleep(0)
    assert not polling.done()
    broker.serve(request)
    assert offsets(await polling) == [(0, 0)]


async def test_records_that_another_member_finished_meanwhile_are_not_delivered_again(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    broker.append(A, [b"x"] * 4)
    records = await consumer.poll()
    broker.held = {JOIN}
    broker.drop()
    request = await broker.next(JOIN)
    broker.offsets["g", A] = 3
    broker.serve(request)
    assert offsets(await consumer.poll()) == [(0, 3)]
    assert [consumer.holds(record) for record in records] == [False, False, False, True]


async def test_a_member_the_broker_forgot_joins_again(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    await until(lambda: not consumer._shares.to_start())
    broker.held = {COMMIT}
    commit = asyncio.create_task(consumer.commit())
    request = await broker.next(COMMIT)
    broker.held = set()
    broker.leave(next(iter(broker.members)))
    broker.serve(request)
    with pytest.raises(NotGroupMember):
        await commit
    await until(lambda: broker.count(JOIN) == 2)
    broker.append(A, [b"a"])
    assert offsets(await consumer.poll()) == [(0, 0)]


async def test_a_topic_that_does_not_exist_yet_is_waited_for_and_read_from_its_first_offset(
    broker: Any, make: Make
) -> None:
    async with make(start="latest") as consumer:
        assert consumer.assignment == frozenset()
        broker.append(A, [b"a"])
        broker.topics["t"] = 2
        assert offsets(await consumer.poll()) == [(0, 0)]


async def test_the_latest_start_skips_what_was_there(broker: Any, make: Make, until: Until) -> None:
    broker.topics["t"] = 2
    broker.append(A, [b"old"])
    async with make(start="latest") as consumer:
        await until(lambda: consumer._shares.get(A))
        broker.append(A, [b"new"])
        assert [record.body for record in await consumer.poll()] == [b"new"]


async def test_the_applications_own_offsets_are_used_and_none_committed(
    broker: Any, make: Make
) -> None:
    broker.topics["t"] = 2
    broker.append(A, [b"x"] * 5)

    async def load(queues: Sequence[QueueRef]) -> Mapping[QueueRef, int]:
        return {A: 4}

    consumer = make(load)
    async with consumer:
        (record,) = await consumer.poll()
        assert record.offset == 4
        consumer.ack(record)
        await consumer.commit()
    assert broker.count(COMMIT) == 0


async def test_an_error_of_the_loader_is_raised_by_poll_and_the_loader_called_again(
    broker: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "LOAD_PAUSE_MS", 1)
    broker.topics["t"] = 1
    broker.append(A, [b"a"])
    calls = 0

    async def load(queues: Sequence[QueueRef]) -> Mapping[QueueRef, int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise LookupError("the database is away")
        return {}

    async with make(load) as consumer:
        with pytest.raises(LookupError, match="the database is away"):
            await consumer.poll()
        assert offsets(await consumer.poll()) == [(0, 0)]


async def test_offsets_that_were_loaded_before_the_connection_ended_are_not_used(
    broker: Any, make: Make
) -> None:
    broker.topics["t"] = 1
    broker.append(A, [b"x"] * 4)
    loads: asyncio.Queue[asyncio.Future[Mapping[QueueRef, int]]] = asyncio.Queue()

    async def load(queues: Sequence[QueueRef]) -> Mapping[QueueRef, int]:
        answer: asyncio.Future[Mapping[QueueRef, int]] = asyncio.get_running_loop().create_future()
        loads.put_nowait(answer)
        return await answer

    async with make(load) as consumer:
        stale = await loads.get()
        broker.held = {JOIN}
        broker.drop()
        request = await broker.next(JOIN)
        stale.set_result({A: 1})
        broker.serve(request)
        (await loads.get()).set_result({A: 2})
        assert offsets(await consumer.poll()) == [(0, 2), (0, 3)]


async def test_offsets_that_the_broker_could_not_tell_are_asked_for_again(
    broker: Any, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "LOAD_PAUSE_MS", 1)
    broker.topics["t"] = 1
    broker.append(A, [b"a"])
    broker.held = {RequestCode.GET_OFFSETS}
    async with make() as consumer:
        (await broker.next(RequestCode.GET_OFFSETS)).refuse(InvalidArgument("not now"))
        broker.serve(await broker.next(RequestCode.GET_OFFSETS))
        assert offsets(await consumer.poll()) == [(0, 0)]


async def test_a_damaged_batch_is_raised_once_and_other_queues_go_on(
    broker: Any, consumer: Consumer
) -> None:
    broker.append(A, [b"a"])
    broker.batches[A][0] = broker.batches[A][0][:-1] + b"?"
    polling = asyncio.create_task(consumer.poll())
    with pytest.raises(DataCorrupt, match="queue t/0 cannot be read from offset 0"):
        await polling
    broker.append(B, [b"b"])
    assert [record.body for record in await consumer.poll()] == [b"b"]
    broker.append(A, [b"after"])
    consumer.seek(A, 1)
    assert [record.body for record in await consumer.poll()] == [b"after"]


async def test_closing_commits_what_was_finished_and_leaves_the_group(
    broker: Any, consumer: Consumer
) -> None:
    broker.append(A, [b"a", b"b"])
    for record in await consumer.poll():
        consumer.ack(record)
    polling = asyncio.create_task(consumer.poll())
    await asyncio.sleep(0)
    await consumer.aclose()
    assert broker.offsets["g", A] == 2
    assert broker.members == {}
    with pytest.raises(Closed):
        await polling
    with pytest.raises(Closed):
        await consumer.poll()
    await consumer.aclose()


async def test_closing_without_a_broker_ends_all_the_same(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    await broker.stop()
    await until(lambda: not consumer._link.is_up)
    await consumer.aclose()


async def test_a_goodbye_that_is_refused_does_not_keep_the_consumer_open(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    await until(lambda: not consumer._shares.to_start())
    broker.held = {COMMIT}
    closing = asyncio.create_task(consumer.aclose())
    (await broker.next(COMMIT)).refuse(NotGroupMember("join again"))
    await closing
    assert not consumer._link.is_up


async def test_starting_without_a_broker_says_what_to_check(broker: Any, make: Make) -> None:
    await broker.stop()
    with pytest.raises(ConnectionLost, match=f"no broker answers at {broker.address}"):
        await make(request_timeout_ms=30).start()


async def test_a_member_that_is_refused_does_not_start(broker: Any, make: Make) -> None:
    broker.held = {JOIN}
    consumer = make()
    starting = asyncio.create_task(consumer.start())
    (await broker.next(JOIN)).refuse(InvalidArgument("the group is full"))
    with pytest.raises(InvalidArgument, match="full"):
        await starting
    assert not consumer._link.is_up


@pytest.mark.parametrize("refusal", [None, NotLeader("ask again"), BrokerStopping("soon")])
async def test_a_join_that_is_lost_is_made_again(broker: Any, make: Make, refusal: Any) -> None:
    broker.topics["t"] = 1
    broker.append(A, [b"a"])
    broker.held = {JOIN}
    consumer = make()
    starting = asyncio.create_task(consumer.start())
    request = await broker.next(JOIN)
    broker.held = set()
    request.refuse(refusal) if refusal else broker.drop()
    await starting
    assert offsets(await consumer.poll()) == [(0, 0)]
    await consumer.aclose()


@pytest.mark.parametrize(
    ("group", "topics"), [("", ["t"]), ("g", []), ("g", "topic"), ("g", ["sp ace"])]
)
def test_a_group_and_topics_are_needed(group: str, topics: Any) -> None:
    with pytest.raises(ValueError, match="topic"):
        Consumer("127.0.0.1:1", group=group, topics=topics)


async def test_before_the_start_there_is_nothing_to_poll_or_close(make: Make) -> None:
    consumer = make()
    with pytest.raises(Closed):
        await consumer.poll()
    await consumer.aclose()


async def test_one_fetch_waits_for_all_queues_at_rest(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    await until(lambda: broker.parked)
    (request,) = broker.parked
    assert [item.queue_id for item in decode(Fetch, request.body).queues] == [0, 1]
