"""Requests divided by group, and answers put together."""

import pytest

from headrace_mq.client.spread.merge import (
    MERGED,
    by_owner,
    fetched,
    is_empty,
    one_group,
    page_of_groups,
    same_identity,
)
from headrace_mq.client.spread.topic_map import TopicMap
from headrace_mq.errors import TopicExists
from headrace_mq.protocol.administration import (
    GroupDescription,
    GroupRules,
    GroupsAnswer,
    GroupSummary,
    LagAnswer,
    MemberDescription,
    QueuesAnswer,
    Traffic,
)
from headrace_mq.protocol.bodies import (
    Body,
    CommittedOffset,
    FetchAnswer,
    FetchedQueue,
    OffsetsAnswer,
    QueueName,
    QueueRange,
    QueueRangesAnswer,
    TopicDescription,
    TopicIdentity,
    decode,
    decode_fetch_answer,
    encode,
    encode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode


def merged(code: RequestCode, *answers: Body) -> bytes:
    return MERGED[code][1]([memoryview(encode(each)) for each in answers])


def test_entries_are_divided_by_the_group_of_their_queue() -> None:
    topics = TopicMap(["g1", "g2"])
    topics.hear("g1", ["t"], [TopicDescription("t", 3, "forever", [], [], [0])])
    topics.hear("g2", ["t"], [TopicDescription("t", 3, "forever", [], [], [1])])
    names = [QueueName("t", number) for number in (1, 0, 2, 1)]
    assert by_owner(names, topics) == {
        "g2": [names[0], names[3]], "g1": [names[1]], "": [names[2]],
    }  # fmt: skip


def test_ranges_and_offsets_come_in_the_order_of_queues() -> None:
    one = QueueRangesAnswer(
        [QueueRange("t", 2, 0, 5)], [TopicIdentity("t", "id", settled=True, queues=2)]
    )
    two = QueueRangesAnswer([QueueRange("t", 0, 0, 9)], [TopicIdentity("t", "id", queues=3)])
    assert decode(QueueRangesAnswer, merged(RequestCode.QUEUE_RANGES, one, two)) == (
        QueueRangesAnswer(
            [QueueRange("t", 0, 0, 9), QueueRange("t", 2, 0, 5)],
            [TopicIdentity("t", "id", settled=False, queues=3)],
        )
    )
    offsets = [OffsetsAnswer([CommittedOffset("t", number, 1)]) for number in (1, 0)]
    for code in (RequestCode.GET_OFFSETS, RequestCode.OFFSETS_AT):
        found = decode(OffsetsAnswer, merged(code, *offsets)).offsets
        assert [each.queue_id for each in found] == [0, 1]
    assert decode(LagAnswer, merged(RequestCode.DESCRIBE_LAG, LagAnswer(5, []), LagAnswer(7, []))) == LagAnswer(7, [])  # fmt: skip
    assert decode(QueuesAnswer, merged(RequestCode.DESCRIBE_QUEUES, QueuesAnswer([]))).queues == []


def test_topics_that_were_made_apart_are_not_one() -> None:
    with pytest.raises(TopicExists, match="made apart"):
        same_identity([TopicIdentity("t", "a"), TopicIdentity("t", "b")])


def test_fetched_parts_become_one_answer() -> None:
    states = [FetchedQueue("t", number, 0, 5) for number in (0, 2)]
    parts = [
        memoryview(encode_fetch_answer(FetchAnswer([one])) + b"b%d" % one.queue_id)
        for one in states
    ]
    told, batches = decode_fetch_answer(memoryview(fetched(parts)))
    assert (told.queues, bytes(batches)) == (states, b"b0b2")
    assert not is_empty(parts[0])
    assert is_empty(memoryview(encode_fetch_answer(FetchAnswer([]))))


def summary(name: str, lag: int, *, consume: bool = True, retries: int = -1) -> GroupSummary:
    return GroupSummary(name, 2, 4, lag, Traffic(1, 2, 3, 4), consume=consume, retries=retries)


def test_groups_are_added_up_as_far_as_all_pages_reach() -> None:
    one = GroupsAnswer([summary("a", 1), summary("b", 2)], more=True)
    two = GroupsAnswer([summary("a", 5, consume=False, retries=3), summary("c", 7)], more=False)
    assert page_of_groups([one, two]) == GroupsAnswer(
        [
            GroupSummary("a", 2, 8, 6, Traffic(2, 4, 6, 8), consume=False, retries=3),
            summary("b", 2),
        ],
        more=True,
    )
    assert page_of_groups([two]) == two


def test_a_group_has_the_members_and_topics_of_all_broker_groups() -> None:
    def member(name: str) -> MemberDescription:
        return MemberDescription(name, "", "", 0, 0, ["t"])

    one = GroupDescription("g", 3, [member("b")], ["t"], [GroupRules("g")])
    two = GroupDescription(
        "g", 5, [member("a"), member("b")], ["u"], [GroupRules("g", consume=False)]
    )
    assert one_group([one, two]) == GroupDescription(
        "g", 5, [member("a"), member("b")], ["t", "u"], [GroupRules("g", consume=False)]
    )
