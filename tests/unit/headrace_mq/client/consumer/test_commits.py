import asyncio
from typing import Any

import pytest

from headrace_mq._net.link import Link
from headrace_mq.broker.topics.topics import QUEUES_PER_REQUEST_MAX
from headrace_mq.client.consumer import commits as subject
from headrace_mq.client.consumer.commits import Commits
from headrace_mq.client.fetch.assigned_queues import Shares
from headrace_mq.client.fetch.process_queue import WindowLimits
from headrace_mq.client.group.locks import QueueLocks
from headrace_mq.errors import (
    BrokerStopping,
    ConnectionLost,
    NotGroupMember,
    OffsetOutOfRange,
    StaleLock,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import CommitOffsets, CommittedOffset, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

COMMIT = RequestCode.COMMIT_OFFSETS
MANY = 1 << 30
A, B = QueueRef("t", 0), QueueRef("t", 1)


@pytest.fixture
def shares(broker: Any) -> Shares:
    broker.topics["t"] = 2
    broker.members["me"] = (["t"], None)
    shares = Shares(WindowLimits(10, MANY, MANY))
    shares.assign([A, B])
    shares.start(A, 4, known=True, committed=4)
    shares.start(B, 7, known=False, committed=-1)
    return shares


class Committing:
    """The commits of a member that holds no lock, and how often they were found stale."""

    def __init__(self, link: Link, shares: Shares, clock: Any, **settings: Any) -> None:
        self.stale = 0
        chosen = ConsumerSettings(**settings)
        self.locks = QueueLocks(link, group="g", settings=chosen, clock=clock)
        self.commits = Commits(
            link,
            shares,
            group="g",
            settings=chosen,
            generation=lambda: 3,
            locks=self.locks,
            on_stale=self._on_stale,
        )

    def _on_stale(self) -> None:
        self.stale += 1


@pytest.fixture
def committing(link: Link, shares: Shares, clock: Any) -> Committing:
    return Committing(link, shares, clock)


@pytest.fixture
def commits(committing: Committing) -> Commits:
    return committing.commits


async def test_only_offsets_that_the_broker_does_not_hold_are_sent(
    broker: Any, commits: Commits
) -> None:
    await commits.commit()
    await commits.commit()
    (request,) = [r for r in broker.seen if r.code == COMMIT]
    assert decode(CommitOffsets, request.body) == CommitOffsets(
        "g", "me", 3, [CommittedOffset("t", 1, 7)]
    )
    assert broker.offsets == {("g", B): 7}


async def test_many_offsets_are_sent_in_parts_that_a_broker_takes(
    broker: Any, commits: Commits, shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert subject.OFFSETS_PER_COMMIT <= QUEUES_PER_REQUEST_MAX
    monkeypatch.setattr(subject, "OFFSETS_PER_COMMIT", 1)
    shares.seek(A, 9)
    await commits.commit()
    sent = [decode(CommitOffsets, r.body).offsets for r in broker.seen if r.code == COMMIT]
    assert sent == [[CommittedOffset("t", 0, 9)], [CommittedOffset("t", 1, 7)]]
    assert broker.offsets == {("g", A): 9, ("g", B): 7}


async def test_commits_take_turns_and_the_second_sends_what_changed_meanwhile(
    broker: Any, commits: Commits, shares: Shares
) -> None:
    broker.held = {COMMIT}
    both = [asyncio.create_task(commits.commit()) for _ in range(2)]
    first = await broker.next(COMMIT)
    shares.seek(A, 9)
    assert broker.count(COMMIT) == 1
    broker.serve(first)
    broker.serve(await broker.next(COMMIT))
    await asyncio.gather(*both)
    assert broker.offsets == {("g", A): 9, ("g", B): 7}


async def test_a_refused_commit_is_raised_and_sent_again(broker: Any, commits: Commits) -> None:
    broker.members.clear()
    with pytest.raises(NotGroupMember):
        await commits.commit()
    broker.members["me"] = (["t"], None)
    await commits.commit()
    assert broker.offsets == {("g", B): 7}


async def test_an_offset_of_a_revoked_queue_that_is_refused_is_given_up(
    broker: Any, commits: Commits, shares: Shares
) -> None:
    shares.assign([A])
    broker.held = {COMMIT}
    commit = asyncio.create_task(commits.commit())
    (await broker.next(COMMIT)).refuse(OffsetOutOfRange("ends at 5"))
    with pytest.raises(OffsetOutOfRange):
        await commit
    assert shares.to_commit() == {}


async def test_an_offset_of_a_revoked_queue_is_kept_where_the_refusal_may_pass(
    broker: Any, commits: Commits, shares: Shares
) -> None:
    shares.assign([A])
    broker.held = {COMMIT}
    commit = asyncio.create_task(commits.commit())
    (await broker.next(COMMIT)).refuse(BrokerStopping("soon"))
    with pytest.raises(BrokerStopping):
        await commit
    assert shares.to_commit() == {B: 7}


async def test_a_lost_connection_leaves_the_outcome_open(
    broker: Any, commits: Commits, shares: Shares
) -> None:
    broker.held = {COMMIT}
    commit = asyncio.create_task(commits.commit())
    await broker.next(COMMIT)
    broker.drop()
    with pytest.raises(ConnectionLost):
        await commit
    assert shares.to_commit() == {B: 7}


async def test_a_commit_names_the_epochs_of_the_locks(broker: Any, committing: Committing) -> None:
    await committing.locks.acquire([A, B])
    await committing.commits.commit()
    (request,) = [r for r in broker.seen if r.code == COMMIT]
    assert decode(CommitOffsets, request.body).offsets == [
        CommittedOffset("t", 1, 7, broker.locks[B][1])
    ]


async def test_a_lost_lock_is_reported(broker: Any, committing: Committing) -> None:
    await committing.locks.acquire([B])
    broker.lock("another", B)
    with pytest.raises(StaleLock):
        await committing.commits.commit()
    assert committing.stale == 1
    assert broker.offsets == {}


async def test_the_timer_commits_and_goes_on_after_failures(
    broker: Any, link: Link, shares: Shares, clock: Any
) -> None:
    commits = Committing(link, shares, clock, commit_interval_ms=1).commits
    task = asyncio.create_task(commits.keep_committing())
    broker.held = {COMMIT}
    broker.serve(await broker.next(COMMIT))
    shares.seek(A, 8)
    (await broker.next(COMMIT)).refuse(OffsetOutOfRange("no"))
    await broker.next(COMMIT)
    broker.drop()
    broker.serve(await broker.next(COMMIT))
    assert broker.offsets == {("g", A): 8, ("g", B): 7}
    task.cancel()
    await asyncio.wait([task])
