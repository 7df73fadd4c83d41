"""What is asked of which broker group, and what a client gets while one of them is away."""

from collections.abc import Callable

import pytest

from headrace_mq.client.fetch.start_offsets import TopicIdentities
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.errors import (
    ConnectionLost,
    GroupNotFound,
    InvalidArgument,
    NotGroupMember,
    NotLeader,
    QueueNotFound,
    ReplyUndeliverable,
    TopicInUse,
    TopicNotFound,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    DeleteQueues,
    FreezeQueues,
    GroupDescription,
    GroupsAnswer,
    QueueDeletion,
    QueueDeletions,
)
from headrace_mq.protocol.bodies import (
    Body,
    CommitOffsets,
    CommittedOffset,
    CreateTopic,
    DescribeTopics,
    Fetch,
    FetchAnswer,
    FetchedQueue,
    FetchFrom,
    GetOffsets,
    GroupAnswer,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LockQueues,
    LocksAnswer,
    OffsetsAnswer,
    QueueLock,
    QueueName,
    QueueRanges,
    QueueRangesAnswer,
    TopicDescription,
    TopicsAnswer,
    UnlockQueues,
    decode,
    decode_fetch_answer,
    encode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from tests.unit.headrace_mq.client.two_groups import *  # noqa: F403 - the fixture is found by name
from tests.unit.headrace_mq.client.two_groups import ME, ask, joined, known, links_of

Make = Callable[..., SpreadLink]


async def test_a_missing_topic_is_made_in_the_first_group_once_all_have_said_that_they_lack_it(
    two_groups: Make,
) -> None:
    link = two_groups()
    one, two = links_of(link)
    made = TopicsAnswer([TopicDescription("new", 1, "forever")])

    def describe(body: bytes) -> Body:
        return made if decode(DescribeTopics, body).create_missing else TopicsAnswer([])

    one.answers[RequestCode.DESCRIBE_TOPICS] = describe
    wanted = DescribeTopics(["new"], create_missing=True)
    two.is_up = False
    with pytest.raises(NotLeader, match="broker group g2"):
        await ask(link, RequestCode.DESCRIBE_TOPICS, wanted)
    two.is_up = True
    assert decode(TopicsAnswer, await ask(link, RequestCode.DESCRIBE_TOPICS, wanted)) == made
    assert not any(
        decode(DescribeTopics, body).create_missing
        for body in two.bodies(RequestCode.DESCRIBE_TOPICS)
    )


async def test_a_group_that_is_away_keeps_its_word(two_groups: Make) -> None:
    link = two_groups()
    _, two = await known(link)
    two.is_up = False
    answer = await ask(link, RequestCode.DESCRIBE_TOPICS, DescribeTopics(["t"]))
    (found,) = decode(TopicsAnswer, answer).topics
    assert (found.queues, link._map.unowned("t")) == (4, [])


@pytest.mark.parametrize("asked", [[], ["theirs"]])
async def test_a_topic_is_not_called_missing_while_a_group_that_may_have_it_is_away(
    two_groups: Make, asked: list[str]
) -> None:
    link, patient = two_groups(), two_groups(patient=True)
    for each in (link, patient):
        _, two = links_of(each)
        two.topics["theirs"] = TopicDescription("theirs", 1, "forever")
        two.is_up = False
    with pytest.raises(NotLeader, match="broker group g2"):
        await ask(link, RequestCode.DESCRIBE_TOPICS, DescribeTopics(asked))
    # A consumer asks again, and reads meanwhile what is there.
    answer = await ask(patient, RequestCode.DESCRIBE_TOPICS, DescribeTopics(asked))
    assert [each.topic for each in decode(TopicsAnswer, answer).topics] == ([] if asked else ["t"])
    links_of(link)[1].is_up = True
    answer = await ask(link, RequestCode.DESCRIBE_TOPICS, DescribeTopics(asked))
    assert "theirs" in {each.topic for each in decode(TopicsAnswer, answer).topics}


async def test_a_topic_of_the_queue_itself_needs_the_first_group_alone(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)
    made = TopicsAnswer([TopicDescription("%retry%g", 1, "forever")])
    one.answers[RequestCode.CREATE_TOPIC] = made
    two.is_up = False
    wanted = CreateTopic("%retry%g", 1, "forever")
    assert decode(TopicsAnswer, await ask(link, RequestCode.CREATE_TOPIC, wanted)) == made
    missing = DescribeTopics(["%retry%h"])
    assert decode(TopicsAnswer, await ask(link, RequestCode.DESCRIBE_TOPICS, missing)).topics == []
    await link.require_first("%retry%h")
    with pytest.raises(TopicNotFound):
        await ask(link, RequestCode.GET_OFFSETS, GetOffsets("g", ["%retry%h"]))
    with pytest.raises(NotLeader, match="broker group g2"):
        await ask(link, RequestCode.CREATE_TOPIC, CreateTopic("new", 1, "forever"))
    one.is_up, two.is_up = False, True
    with pytest.raises(NotLeader, match="broker group g1"):
        await ask(link, RequestCode.CREATE_TOPIC, CreateTopic("%retry%h", 1, "forever"))


async def test_a_loss_of_messages_in_any_group_is_answered_once(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)

    async def told(*epochs: tuple[int, int]) -> tuple[int, int]:
        for each, (epoch, lossy) in zip((one, two), epochs, strict=True):
            each.answers[RequestCode.QUEUE_RANGES] = QueueRangesAnswer([], [], epoch, lossy)
        answer = await ask(link, RequestCode.QUEUE_RANGES, QueueRanges(["t"]))
        found = decode(QueueRangesAnswer, answer)
        return found.epoch, found.lossy

    first, _ = await told((8, 2), (5, 0))
    same = await told((8, 2), (6, 0))
    assert same == (first, 0)
    # Its epoch is lower than those of the other group.
    after, lossy = await told((8, 2), (7, 7))
    assert first < lossy
    assert await told((8, 2), (7, 7)) == (after, lossy)
    assert lossy <= after


async def test_a_consumer_notices_a_loss_in_one_of_its_groups(two_groups: Make) -> None:
    link = two_groups(patient=True)
    one, two = links_of(link)
    one.answers[RequestCode.QUEUE_RANGES] = QueueRangesAnswer([], [], 8, 0)
    two.answers[RequestCode.QUEUE_RANGES] = QueueRangesAnswer([], [], 5, 0)
    identities = TopicIdentities(link, timeout_ms=60_000)
    queues = [QueueRef("t", number) for number in range(4)]
    assert await identities.ended(queues) == frozenset()
    two.answers[RequestCode.QUEUE_RANGES] = QueueRangesAnswer([], [], 7, 6)
    assert await identities.ended(queues) == {"t"}
    assert await identities.ended(queues) == frozenset()


async def test_a_topic_of_several_groups_is_confirmed_and_not_divided_by_a_client(
    two_groups: Make,
) -> None:
    link = two_groups()
    one, two = await known(link)
    two.answers[RequestCode.CREATE_TOPIC] = TopicsAnswer([two.topics["t"]])
    one.is_up = False
    answer = await ask(link, RequestCode.CREATE_TOPIC, CreateTopic("t", 4, "forever"))
    assert decode(TopicsAnswer, answer).topics == [TopicDescription("t", 4, "forever")]
    with pytest.raises(InvalidArgument, match="say which queues"):
        await ask(link, RequestCode.CREATE_TOPIC, CreateTopic("t", 4, "forever", [0], "id"))


@pytest.mark.parametrize("patient", [True, False])
async def test_a_question_about_a_topic_is_answered_in_part_for_patient_clients_alone(
    two_groups: Make, *, patient: bool
) -> None:
    link = two_groups(patient=patient)
    one, two = links_of(link)
    one.answers[RequestCode.GET_OFFSETS] = OffsetsAnswer([CommittedOffset("t", 1, 7)])
    two.answers[RequestCode.GET_OFFSETS] = OffsetsAnswer([CommittedOffset("t", 2, 8)])
    asked = GetOffsets("g", ["t"])
    whole = decode(OffsetsAnswer, await ask(link, RequestCode.GET_OFFSETS, asked))
    assert [each.offset for each in whole.offsets] == [7, 8]
    two.is_up = False
    if patient:
        part = decode(OffsetsAnswer, await ask(link, RequestCode.GET_OFFSETS, asked))
        assert [each.offset for each in part.offsets] == [7]
    else:
        with pytest.raises(NotLeader, match="broker group g2"):
            await ask(link, RequestCode.GET_OFFSETS, asked)
    two.is_up = True
    with pytest.raises(TopicNotFound):
        await ask(link, RequestCode.GET_OFFSETS, GetOffsets("g", ["none"]))


async def test_a_queue_that_no_group_has_is_named(two_groups: Make) -> None:
    link = two_groups()
    _, two = links_of(link)
    two.topics.clear()
    with pytest.raises(NotLeader, match="queue t/2 is in none of the broker groups g1, g2"):
        await ask(link, RequestCode.GET_OFFSETS, GetOffsets("g", ["t"]))


async def test_a_lock_is_asked_for_where_the_queue_is(two_groups: Make) -> None:
    link = two_groups()
    one, two = await joined(link)
    one.answers[RequestCode.LOCK_QUEUES] = LocksAnswer([QueueLock("t", 0, 11)], 900)
    two.answers[RequestCode.LOCK_QUEUES] = LocksAnswer([QueueLock("t", 3, 12)], 800)
    wanted = LockQueues("g", "me", [QueueName("t", 0), QueueName("t", 3)])
    answer = decode(LocksAnswer, await ask(link, RequestCode.LOCK_QUEUES, wanted))
    assert answer == LocksAnswer([QueueLock("t", 0, 11), QueueLock("t", 3, 12)], 800)
    (body,) = two.bodies(RequestCode.LOCK_QUEUES)
    assert decode(LockQueues, body).queues == [QueueName("t", 3)]
    # The locks in a group where nothing is asked for have to be vouched for, too.
    await ask(link, RequestCode.LOCK_QUEUES, LockQueues("g", "me", [QueueName("t", 0)]))
    assert decode(LockQueues, two.bodies(RequestCode.LOCK_QUEUES)[-1]).queues == []
    two.is_up = False
    answer = decode(LocksAnswer, await ask(link, RequestCode.LOCK_QUEUES, wanted))
    assert ([lock.queue_id for lock in answer.locks], answer.expiry_ms) == ([0], 900)
    nothing_here = LockQueues("g", "me", [QueueName("t", 3)])
    one.answers[RequestCode.LOCK_QUEUES] = LocksAnswer([], 900)
    answer = decode(LocksAnswer, await ask(link, RequestCode.LOCK_QUEUES, nothing_here))
    assert answer == LocksAnswer([], 900)
    await ask(link, RequestCode.UNLOCK_QUEUES, UnlockQueues("g", "me", wanted.queues))
    assert len(one.bodies(RequestCode.UNLOCK_QUEUES)) == 1
    one.connections = 2
    with pytest.raises(ConnectionLost, match="joins again"):
        await ask(link, RequestCode.LOCK_QUEUES, wanted)


async def test_a_fetch_is_answered_by_the_group_that_has_something(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)
    one.answers[RequestCode.FETCH] = encode_fetch_answer(FetchAnswer([]))
    state = FetchedQueue("t", 2, 0, 5)
    two.answers[RequestCode.FETCH] = encode_fetch_answer(FetchAnswer([state])) + b"batches"
    asked = Fetch([FetchFrom("t", 0, 0), FetchFrom("t", 2, 0)], 1, 1)
    told, batches = decode_fetch_answer(await ask(link, RequestCode.FETCH, asked))
    assert (told.queues, bytes(batches)) == ([state], b"batches")
    (body,) = two.bodies(RequestCode.FETCH)
    assert decode(Fetch, body).queues == [FetchFrom("t", 2, 0)]
    two.answers[RequestCode.FETCH] = one.answers[RequestCode.FETCH]
    told, _ = decode_fetch_answer(await ask(link, RequestCode.FETCH, asked))
    assert told.queues == []
    with pytest.raises(QueueNotFound, match="no queue t/4"):
        await ask(link, RequestCode.FETCH, Fetch([FetchFrom("t", 4, 0)], 1, 1))


async def test_offsets_are_stored_by_each_group_under_its_own_generation(two_groups: Make) -> None:
    link = two_groups()
    one, two = await joined(link)
    offsets = [CommittedOffset("t", 0, 3), CommittedOffset("t", 2, 4)]
    wanted = CommitOffsets("g", "me", 1, offsets)
    await ask(link, RequestCode.COMMIT_OFFSETS, wanted)
    for each, generation, offset in ((one, 5, offsets[0]), (two, 9, offsets[1])):
        (body,) = each.bodies(RequestCode.COMMIT_OFFSETS)
        assert decode(CommitOffsets, body) == CommitOffsets("g", "me", generation, [offset])
    two.is_up = False
    with pytest.raises(NotLeader, match="broker group g2 does not answer"):
        await ask(link, RequestCode.COMMIT_OFFSETS, wanted)
    assert len(one.bodies(RequestCode.COMMIT_OFFSETS)) == 2


async def test_a_member_joins_again_where_a_group_is_back(two_groups: Make) -> None:
    link = two_groups()
    _, two = await joined(link)
    beat = Heartbeat("g", "me")
    answer = decode(GroupAnswer, await ask(link, RequestCode.HEARTBEAT, beat))
    assert answer.members == [ME]
    two.is_up = False
    await ask(link, RequestCode.HEARTBEAT, beat)
    two.is_up, two.connections = True, 2
    with pytest.raises(NotGroupMember, match="g2 answers again"):
        await ask(link, RequestCode.HEARTBEAT, beat)
    await ask(link, RequestCode.JOIN_GROUP, JoinGroup("g", "me", ["t"]))
    await ask(link, RequestCode.HEARTBEAT, beat)
    await ask(link, RequestCode.LEAVE_GROUP, LeaveGroup("g", "me"))
    assert len(two.bodies(RequestCode.LEAVE_GROUP)) == 1
    assert decode(GroupAnswer, await ask(link, RequestCode.HEARTBEAT, Heartbeat())).members == []


async def test_a_reply_goes_over_a_group_that_reaches_its_receiver(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)
    one.answers[RequestCode.REPLY] = ReplyUndeliverable("not connected")
    await link.request(RequestCode.REPLY, b"r", timeout_ms=60_000)
    assert len(two.bodies(RequestCode.REPLY)) == 1
    two.is_up = False
    with pytest.raises(ReplyUndeliverable):
        await link.request(RequestCode.REPLY, b"r", timeout_ms=60_000)


async def test_queues_are_frozen_in_their_groups(two_groups: Make) -> None:
    link = two_groups()
    one, two = await known(link)
    two.answers[RequestCode.FREEZE_QUEUES] = TopicsAnswer(
        [TopicDescription("t", 4, "forever", [3], [], [2, 3])]
    )
    wanted = FreezeQueues("t", [3], writing=True, reading=False, frozen=True)
    answer = decode(TopicsAnswer, await ask(link, RequestCode.FREEZE_QUEUES, wanted))
    assert answer.topics[0].unwritable == [3]
    assert not one.bodies(RequestCode.FREEZE_QUEUES)
    wrong = FreezeQueues("t", [4], writing=True, reading=False, frozen=True)
    with pytest.raises(QueueNotFound):
        await ask(link, RequestCode.FREEZE_QUEUES, wrong)


@pytest.mark.parametrize("queues", [[], [3]])
async def test_queues_are_not_frozen_in_part_if_a_group_was_away_from_the_start(
    two_groups: Make, queues: list[int]
) -> None:
    link = two_groups()
    one, two = links_of(link)
    two.is_up = False
    wanted = FreezeQueues("t", queues, writing=True, reading=False, frozen=True)
    with pytest.raises(NotLeader, match="broker group g2"):
        await ask(link, RequestCode.FREEZE_QUEUES, wanted)
    two.topics.clear()
    two.is_up = True
    with pytest.raises(NotLeader, match="queue t/2 is in none of the broker groups g1, g2"):
        await ask(link, RequestCode.FREEZE_QUEUES, wanted)
    assert not one.bodies(RequestCode.FREEZE_QUEUES)


async def test_a_topic_is_not_deleted_in_part_if_a_group_was_away_from_the_start(
    two_groups: Make,
) -> None:
    link = two_groups()
    one, two = links_of(link)
    two.is_up = False
    with pytest.raises(NotLeader, match="broker group g2"):
        await ask(link, RequestCode.DELETE_QUEUES, DeleteQueues("t"))
    assert not one.bodies(RequestCode.DELETE_QUEUES)


async def test_a_topic_is_deleted_in_all_groups_or_in_none(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)
    for each, number in ((one, 0), (two, 2)):
        doomed = [QueueDeletion("t", number, 0, 0, [])]
        each.answers[RequestCode.DELETE_QUEUES] = QueueDeletions(deleted=False, queues=doomed)
    done = decode(QueueDeletions, await ask(link, RequestCode.DELETE_QUEUES, DeleteQueues("t")))
    assert (done.deleted, [each.queue_id for each in done.queues]) == (True, [0, 2])
    hindered = [QueueDeletion("t", 2, 0, 5, ["takes messages"])]
    two.answers[RequestCode.DELETE_QUEUES] = QueueDeletions(deleted=False, queues=hindered)
    one.asked.clear()
    with pytest.raises(TopicInUse, match="t/2 takes messages"):
        await ask(link, RequestCode.DELETE_QUEUES, DeleteQueues("t"))
    assert [decode(DeleteQueues, body).dry_run for body in one.bodies(RequestCode.DELETE_QUEUES)] == [True]  # fmt: skip


async def test_groups_of_consumers_are_looked_for_in_all_broker_groups(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)
    for each in (one, two):
        each.answers[RequestCode.LIST_GROUPS] = GroupsAnswer([], more=False)
    one.answers[RequestCode.DESCRIBE_GROUP] = GroupNotFound("none")
    two.answers[RequestCode.DESCRIBE_GROUP] = GroupDescription("g", 1, [], ["t"])
    answer = await link.request(RequestCode.DESCRIBE_GROUP, b"", timeout_ms=60_000)
    assert decode(GroupDescription, answer).topics == ["t"]
    await link.request(RequestCode.LIST_GROUPS, b"", timeout_ms=60_000)
    two.answers[RequestCode.DESCRIBE_GROUP] = GroupNotFound("none")
    with pytest.raises(GroupNotFound):
        await link.request(RequestCode.DESCRIBE_GROUP, b"", timeout_ms=60_000)
    two.is_up = False
    with pytest.raises(NotLeader):
        await link.request(RequestCode.SET_GROUP, b"", timeout_ms=60_000)


async def test_a_request_about_one_broker_is_refused(two_groups: Make) -> None:
    with pytest.raises(InvalidArgument, match=r"broker status .* \(g1, g2\); name one of them"):
        await two_groups().request(RequestCode.BROKER_STATUS, b"", timeout_ms=60_000)


async def test_a_connection_that_ends_meanwhile_fails_the_request_if_none_answers(
    two_groups: Make,
) -> None:
    link = two_groups()
    one, two = await joined(link)
    two.answers[RequestCode.HEARTBEAT] = ConnectionLost("gone")
    await ask(link, RequestCode.HEARTBEAT, Heartbeat("g", "me"))
    one.answers[RequestCode.HEARTBEAT] = ConnectionLost("gone")
    with pytest.raises(ConnectionLost):
        await ask(link, RequestCode.HEARTBEAT, Heartbeat("g", "me"))


async def test_messages_are_scheduled_for_topics_of_the_first_group(two_groups: Make) -> None:
    link = two_groups()
    one, two = links_of(link)
    with pytest.raises(InvalidArgument, match="first of the address"):
        await link.require_first("t")
    one.topics["mine"] = TopicDescription("mine", 1, "forever")
    two.topics["theirs"] = TopicDescription("theirs", 1, "forever")
    await link.require_first("mine")
    await link.require_first("new")
    with pytest.raises(InvalidArgument, match="first of the address"):
        await link.require_first("theirs")
