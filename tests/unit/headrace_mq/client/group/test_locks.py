import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._net.link import Link
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.group import locks as locks_module
from headrace_mq.client.group.locks import QueueLocks
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.errors import ConnectionLost, StaleLock
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.bodies import LockQueues, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings
from tests.unit.headrace_mq.client.two_groups import *  # noqa: F403 - the fixture is found by name

A, B = QueueRef("t", 0), QueueRef("t", 1)
LOCK = RequestCode.LOCK_QUEUES
Until = Callable[[Callable[[], object]], Any]
Make = Callable[..., Consumer]


@pytest.fixture
def locks(broker: Any, link: Link, clock: Any) -> QueueLocks:
    broker.members["me"] = (["t"], None)
    broker.lock_expiry_ms = 100
    return QueueLocks(link, group="g", settings=ConsumerSettings(), clock=clock)


async def test_a_free_lock_is_granted_with_its_epoch(broker: Any, locks: QueueLocks) -> None:
    broker.lock("another", A)
    assert await locks.acquire([B, A]) == [B]
    assert (locks.epoch(A), locks.epoch(B)) == (0, broker.locks[B][1])


async def test_a_lock_that_is_given_back_may_go_to_another_member(
    broker: Any, locks: QueueLocks
) -> None:
    await locks.acquire([A, B])
    await locks.release([A])
    assert list(broker.locks) == [B]
    assert locks.epoch(A) == 0
    assert locks.epoch(B) > 0


async def test_many_queues_are_asked_for_in_parts(
    broker: Any, locks: QueueLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks_module, "QUEUES_PER_REQUEST_MAX", 2)
    queues = [QueueRef("t", number) for number in range(5)]
    assert await locks.acquire(queues) == queues
    asked = [decode(LockQueues, r.body).queues for r in broker.seen if r.code == LOCK]
    assert [len(names) for names in asked] == [2, 2, 1]
    await locks.release(queues)
    assert broker.locks == {}
    assert broker.count(RequestCode.UNLOCK_QUEUES) == 3


async def test_locks_are_trusted_from_the_moment_they_were_asked_for(
    broker: Any, locks: QueueLocks, clock: Any
) -> None:
    assert not locks.stale
    await locks.acquire([A])
    clock.time_ms += 99
    assert not locks.stale
    clock.time_ms += 1
    assert locks.stale
    await locks.acquire([A])
    assert not locks.stale
    clock.time_ms += 100
    locks.lost()
    assert not locks.stale
    assert locks.epoch(A) == 0


async def test_a_heartbeat_keeps_the_trust_unless_it_comes_too_late(
    broker: Any, locks: QueueLocks, clock: Any
) -> None:
    await locks.acquire([A])
    sent_at_ms = clock.time_ms + 60
    clock.time_ms += 90
    locks.renewed(sent_at_ms)
    locks.renewed(sent_at_ms - 50)
    clock.time_ms = sent_at_ms + 99
    assert not locks.stale
    clock.time_ms += 1
    locks.renewed(clock.time_ms)
    assert locks.stale


async def test_queues_that_may_be_handled_in_any_order_are_not_locked(
    broker: Any, link: Link, clock: Any
) -> None:
    settings = ConsumerSettings(handling="parallel")
    locks = QueueLocks(link, group="g", settings=settings, clock=clock)
    assert await locks.acquire([B, A]) == [B, A]
    await locks.release([A])
    assert not locks.wanted
    assert broker.count(LOCK) == broker.count(RequestCode.UNLOCK_QUEUES) == 0


async def test_a_lost_connection_is_raised(broker: Any, locks: QueueLocks) -> None:
    broker.held = {LOCK}
    asking = asyncio.create_task(locks.acquire([A]))
    await broker.next(LOCK)
    broker.drop()
    with pytest.raises(ConnectionLost):
        await asking


# --- a consumer and its locks --------------------------------------------------------------------


def offsets(records: list[Record]) -> list[tuple[int, int]]:
    return [(record.queue.queue_id, record.offset) for record in records]


async def test_a_queue_that_another_member_still_holds_is_waited_for_and_others_flow(
    broker: Any, make: Make, until: Until
) -> None:
    broker.topics["t"] = 2
    broker.append(A, [b"a"])
    broker.append(B, [b"b"])
    broker.lock("the old owner", B)
    async with make() as consumer:
        assert offsets(await consumer.poll()) == [(0, 0)]
        asked = broker.count(LOCK)
        await until(lambda: broker.count(LOCK) > asked + 1)
        assert consumer._shares.get(B) is None
        broker.offsets["g", B] = 1
        broker.append(B, [b"b"])
        del broker.locks[B]
        assert offsets(await consumer.poll()) == [(1, 1)]


async def test_a_commit_under_a_lost_lock_suspends_until_the_broker_was_asked(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    broker.append(A, [b"a"] * 2)
    for record in await consumer.poll():
        consumer.ack(record)
    broker.lock("another", A)
    with pytest.raises(StaleLock):
        await consumer.commit()
    assert ("g", A) not in broker.offsets
    broker.append(A, [b"a"])
    broker.append(B, [b"b"])
    assert offsets(await consumer.poll()) == [(1, 0)]
    broker.offsets["g", A] = 3
    broker.append(A, [b"a"])
    del broker.locks[A]
    assert offsets(await consumer.poll()) == [(0, 3)]


async def test_after_a_long_stop_nothing_is_delivered_until_the_locks_are_sure(
    broker: Any, clock: Any, until: Until
) -> None:
    broker.topics["t"] = 1
    broker.lock_expiry_ms = 1_000
    settings = ConsumerSettings(heartbeat_ms=60_000)
    async with Consumer(
        broker.address, group="g", topics=["t"], settings=settings, clock=clock
    ) as consumer:
        broker.append(A, [b"a"])
        await until(lambda: (share := consumer._shares.get(A)) and share.ready)
        clock.time_ms += 1_000
        broker.lock("another", A)
        polling = asyncio.create_task(consumer.poll())
        asked = broker.count(LOCK)
        await until(lambda: broker.count(LOCK) > asked)
        assert not polling.done()
        del broker.locks[A]
        assert offsets(await polling) == [(0, 0)]


async def test_records_that_may_be_handled_in_any_order_need_no_locks(
    broker: Any, make: Make
) -> None:
    broker.topics["t"] = 2
    broker.lock("another", A)
    broker.append(A, [b"a"])
    async with make(handling="parallel") as consumer:
        assert offsets(await consumer.poll()) == [(0, 0)]
    assert broker.count(LOCK) == 0


async def test_a_doubted_lock_counts_for_nothing_and_is_still_given_back(
    broker: Any, locks: QueueLocks
) -> None:
    await locks.acquire([A, B])
    locks.doubt()
    assert (locks.epoch(A), locks.epoch(B)) == (0, 0)
    assert locks.held == [A, B]
    await locks.acquire([B])
    assert locks.epoch(B) == broker.locks[B][1]
    await locks.release([A])
    assert list(broker.locks) == [B]
    assert locks.held == [B]


async def test_a_doubted_lock_that_another_member_got_is_forgotten(
    broker: Any, locks: QueueLocks
) -> None:
    await locks.acquire([A])
    locks.doubt()
    broker.lock("another", A)
    assert await locks.acquire([A]) == []
    assert locks.held == []
    locks.doubt()
    locks.lost()
    assert locks.held == []


def test_over_several_broker_groups_queues_are_locked_however_records_are_handled(
    two_groups: Callable[..., SpreadLink], link: Link, clock: Any
) -> None:
    def wanted(over: Link, settings: ConsumerSettings) -> bool:
        return QueueLocks(over, group="g", settings=settings, clock=clock).wanted

    parallel = ConsumerSettings(handling="parallel")
    assert (wanted(two_groups(), parallel), wanted(link, parallel)) == (True, False)
    broadcast = ConsumerSettings(handling="parallel", broadcast_file=Path("offsets"))
    assert not wanted(two_groups(), broadcast)
