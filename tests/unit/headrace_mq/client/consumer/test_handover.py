import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace_mq._net.link import Link
from headrace_mq.client.consumer import handover as handing_over_module
from headrace_mq.client.consumer.handover import HandingOver
from headrace_mq.client.fetch.assigned_queues import Shares
from headrace_mq.client.fetch.process_queue import WindowLimits
from headrace_mq.client.group.locks import QueueLocks
from headrace_mq.errors import BrokerStopping, ConnectionLost, StaleLock
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.bodies import UnlockQueues, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

A, B = QueueRef("t", 0), QueueRef("t", 1)
UNLOCK = RequestCode.UNLOCK_QUEUES
Until = Callable[[Callable[[], object]], Any]


def record(queue: QueueRef) -> Record:
    return Record(
        queue=queue, offset=0, key="", tag="", headers={}, body=b"", born_at_ms=0, stored_at_ms=0
    )


class Owner:
    """A member that holds queues A and B, with one record of each."""

    def __init__(self, link: Link, clock: Any) -> None:
        self.shares = Shares(WindowLimits(9, 1 << 30, 9))
        self.shares.assign([A, B])
        for queue in (A, B):
            self.shares.start(queue, 0, known=True, committed=0)
            share = self.shares.get(queue)
            assert share is not None
            self.shares.take(share, [record(queue)])
        self.locks = QueueLocks(link, group="g", settings=ConsumerSettings(), clock=clock)
        self.back = asyncio.Event()
        self.handing_over = HandingOver(
            self.shares, self.locks, commit=self._commit, on_back=self.back.set
        )
        self.commits: list[dict[QueueRef, int]] = []
        self.errors: list[Exception] = []
        self.meanwhile: Callable[[], None] | None = None

    async def _commit(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.commits.append(self.shares.to_commit())
        if self.meanwhile is not None:
            self.meanwhile()


@pytest.fixture
async def owner(
    broker: Any, link: Link, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Owner]:
    monkeypatch.setattr(handing_over_module, "TROUBLE_PAUSE_MS", 1)
    broker.members["me"] = (["t"], None)
    owner = Owner(link, clock)
    await owner.locks.acquire([A, B])
    task = asyncio.create_task(owner.handing_over.keep_handing_over())
    yield owner
    task.cancel()
    await asyncio.wait([task])


async def test_a_revoked_queue_is_committed_and_then_unlocked_and_the_others_stay(
    broker: Any, owner: Owner, until: Until
) -> None:
    owner.shares.finish(A, 0)
    owner.shares.assign([B])
    broker.held = {UNLOCK}
    owner.handing_over.soon()
    request = await broker.next(UNLOCK)
    assert owner.commits == [{A: 1}]
    broker.serve(request)
    assert list(broker.locks) == [B]
    assert owner.shares.holds(B, 0)


async def test_the_lock_stays_until_what_is_being_handled_is_finished_and_committed(
    broker: Any, owner: Owner, until: Until
) -> None:
    owner.shares.begin(A, 0)
    owner.shares.assign([])
    owner.handing_over.soon()
    await until(lambda: list(broker.locks) == [A])
    assert not owner.shares.begin(A, 0)
    assert owner.shares.end(A, 0, done=True)
    owner.handing_over.soon()
    await until(lambda: broker.locks == {})
    assert owner.commits[-1] == {A: 1}


async def test_records_that_are_finished_while_another_queue_is_committed_are_committed_too(
    broker: Any, owner: Owner, until: Until
) -> None:
    owner.shares.begin(A, 0)
    owner.shares.assign([])

    def finish() -> None:
        owner.meanwhile = None
        owner.shares.end(A, 0, done=True)
        owner.handing_over.soon()

    owner.meanwhile = finish
    broker.held = {UNLOCK}
    owner.handing_over.soon()
    request = await broker.next(UNLOCK)
    assert [name.queue_id for name in decode(UnlockQueues, request.body).queues] == [1]
    broker.serve(request)
    broker.serve(await broker.next(UNLOCK))
    assert broker.locks == {}
    assert owner.commits == [{}, {A: 1}]


async def test_a_queue_that_comes_back_meanwhile_keeps_its_lock(
    broker: Any, owner: Owner, until: Until
) -> None:
    owner.shares.begin(A, 0)
    owner.shares.assign([])
    owner.shares.assign([A])
    owner.handing_over.soon()
    await until(lambda: list(broker.locks) == [A])
    owner.shares.end(A, 0, done=True)
    owner.handing_over.soon()
    await owner.back.wait()
    assert list(broker.locks) == [A]
    assert owner.commits[-1] == {A: 1}
    assert owner.shares.to_start() == [A]


async def test_without_anything_to_hand_over_nothing_is_sent(
    broker: Any, owner: Owner, until: Until
) -> None:
    owner.handing_over.soon()
    await until(lambda: not owner.handing_over._wanted.is_set())
    assert owner.commits == []
    assert broker.count(UNLOCK) == 0


async def test_a_lock_that_came_after_the_queue_was_revoked_is_given_back(
    broker: Any, owner: Owner, until: Until
) -> None:
    too_late = QueueRef("t", 2)
    await owner.locks.acquire([too_late])
    owner.handing_over.soon()
    await until(lambda: too_late not in broker.locks)
    assert sorted(broker.locks) == [A, B]
    assert owner.commits == []


async def test_a_refused_commit_does_not_keep_the_lock(
    broker: Any, owner: Owner, until: Until
) -> None:
    owner.errors = [StaleLock("it is another's")]
    owner.shares.assign([])
    owner.handing_over.soon()
    await until(lambda: broker.locks == {})


async def test_a_refused_unlocking_is_no_end_of_hand_overs(
    broker: Any, owner: Owner, until: Until
) -> None:
    broker.held = {UNLOCK}
    owner.shares.assign([B])
    owner.handing_over.soon()
    (await broker.next(UNLOCK)).refuse(BrokerStopping("soon"))
    broker.serve(await broker.next(UNLOCK))
    assert list(broker.locks) == [B]


async def test_a_lost_connection_leaves_the_queue_to_the_next_turn(
    broker: Any, owner: Owner, until: Until
) -> None:
    owner.errors = [ConnectionLost("gone")]
    owner.shares.assign([B])
    owner.handing_over.soon()
    await until(lambda: not owner.errors)
    assert owner.shares.drained() == [A]
    owner.handing_over.soon()
    await until(lambda: list(broker.locks) == [B])
