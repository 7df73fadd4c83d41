import pytest

from headrace_mq.errors import (
    InvalidArgument,
    NotGroupMember,
    QueueNotFound,
    StaleLock,
    TopicNotFound,
)
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LockQueues,
    LocksAnswer,
    QueueName,
    UnlockQueues,
    decode,
)
from headrace_mq.protocol.codes import RequestCode

LOCK, UNLOCK, COMMIT = (
    RequestCode.LOCK_QUEUES,
    RequestCode.UNLOCK_QUEUES,
    RequestCode.COMMIT_OFFSETS,
)


def asked(member: str, *numbers: int, topic: str = "t") -> LockQueues:
    return LockQueues("g", member, [QueueName(topic, number) for number in numbers])


async def lock(client, member: str, *numbers: int) -> dict[int, int]:
    """Number of each granted queue to its epoch."""
    answer = decode(LocksAnswer, await client.ask(LOCK, asked(member, *numbers)))
    return {held.queue_id: held.epoch for held in answer.locks}


def commit(member: str, offset: int, epoch: int) -> CommitOffsets:
    return CommitOffsets("g", member, 0, [CommittedOffset("t", 0, offset, epoch)])


@pytest.fixture
async def pair(broker, connect, batch):
    """Two members of group g; topic t has two queues, and three messages in queue 0."""
    clients = [await connect(broker, name) for name in ("one", "two")]
    await clients[0].create("t", 2)
    await clients[0].produce(batch("t", 0, b"a", b"b", b"c"))
    for client, member in zip(clients, ("one", "two"), strict=True):
        await client.ask(RequestCode.JOIN_GROUP, JoinGroup("g", member, ["t"]))
    return clients


async def test_a_queue_is_locked_by_one_member_until_it_gives_it_back(broker, pair) -> None:
    one, two = pair
    first = await lock(one, "one", 0, 1)
    assert sorted(first) == [0, 1]
    assert await lock(two, "two", 0, 1) == {}
    await one.ask(UNLOCK, UnlockQueues("g", "one", [QueueName("t", 0)]))
    second = await lock(two, "two", 0, 1)
    assert list(second) == [0]
    assert second[0] > max(first.values())


async def test_the_answer_says_how_long_a_lock_lives_without_a_heartbeat(pair) -> None:
    answer = decode(LocksAnswer, await pair[0].ask(LOCK, asked("one", 0)))
    assert answer.expiry_ms == 10_000


@pytest.mark.parametrize("way", ["leave", "disconnect"])
async def test_the_locks_of_a_member_that_is_gone_are_free_at_once(
    pair, until, broker, way
) -> None:
    one, two = pair
    await lock(one, "one", 0)
    if way == "leave":
        await one.ask(RequestCode.LEAVE_GROUP, LeaveGroup("g", "one"))
    else:
        one.writer.transport.abort()
        await until(lambda: len(broker._state.locks) == 0)
    assert list(await lock(two, "two", 0)) == [0]


async def test_heartbeats_keep_a_lock_and_without_them_it_expires(start, connect, clock) -> None:
    broker = await start(clock=clock, lock_expiry_ms=1_000)
    one, two = await connect(broker, "one"), await connect(broker, "two")
    await one.create("t", 1)
    for client, member in ((one, "one"), (two, "two")):
        await client.ask(RequestCode.JOIN_GROUP, JoinGroup("g", member, ["t"]))
    await lock(one, "one", 0)
    for _ in range(3):
        clock.monotonic += 999
        assert await lock(two, "two", 0) == {}
        await one.ask(RequestCode.HEARTBEAT, Heartbeat("g", "one"))
    clock.monotonic += 1_000
    assert list(await lock(two, "two", 0)) == [0]


async def test_a_commit_under_a_lock_that_was_lost_is_refused_and_stores_nothing(pair) -> None:
    one, two = pair
    old = (await lock(one, "one", 0))[0]
    await one.ask(COMMIT, commit("one", 1, old))
    await one.ask(UNLOCK, UnlockQueues("g", "one", [QueueName("t", 0)]))
    new = (await lock(two, "two", 0))[0]
    for epoch in (old, new, 0):
        refused = await one.refusal(COMMIT, commit("one", 3, epoch))
        assert isinstance(refused, StaleLock)
        assert "go on where the group stands" in str(refused)
    await two.ask(COMMIT, commit("two", 2, new))


async def test_a_lock_is_for_members_of_the_group(broker, connect, pair) -> None:
    stranger = await connect(broker, "stranger")
    assert isinstance(await stranger.refusal(LOCK, asked("one", 0)), NotGroupMember)
    # Giving back what one does not hold is no mistake: it may have expired.
    await stranger.ask(UNLOCK, UnlockQueues("g", "one", [QueueName("t", 0)]))


async def test_queues_that_do_not_exist_are_not_locked(pair) -> None:
    one, _ = pair
    assert isinstance(await one.refusal(LOCK, asked("one", 0, 2)), QueueNotFound)
    assert isinstance(await one.refusal(LOCK, asked("one", 0, topic="u")), TopicNotFound)
    assert isinstance(await one.refusal(LOCK, asked("one", *range(1_025))), InvalidArgument)
    many = UnlockQueues("g", "one", [QueueName("t", 0)] * 1_025)
    assert isinstance(await one.refusal(UNLOCK, many), InvalidArgument)
    assert sorted(await lock(pair[1], "two", 0, 1)) == [0, 1]
