import pytest

from headrace_mq.errors import (
    GroupNotEmpty,
    InvalidArgument,
    NotGroupMember,
    OffsetOutOfRange,
    QueueNotFound,
    TopicNotFound,
)
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    GetOffsets,
    GroupAnswer,
    JoinGroup,
    LeaveGroup,
    OffsetsAnswer,
    decode,
)
from headrace_mq.protocol.codes import RequestCode


@pytest.fixture
async def filled(client, batch):
    """Topic t with three messages in queue 0 and none in queue 1."""
    await client.create("t", 2)
    await client.produce(batch("t", 0, b"a", b"b", b"c"))
    return client


async def join(client, member: str = "m", group: str = "g") -> GroupAnswer:
    body = await client.ask(RequestCode.JOIN_GROUP, JoinGroup(group, member, ["t"]))
    return decode(GroupAnswer, body)


def commit(
    *offsets: tuple[str, int, int], member: str = "m", generation: int = 0, group: str = "g"
) -> CommitOffsets:
    return CommitOffsets(
        group, member, generation, [CommittedOffset(*offset) for offset in offsets]
    )


async def committed(client, group: str = "g") -> list[int]:
    body = await client.ask(RequestCode.GET_OFFSETS, GetOffsets(group, ["t"]))
    answer = decode(OffsetsAnswer, body)
    assert [(item.topic, item.queue_id) for item in answer.offsets] == [("t", 0), ("t", 1)]
    return [item.offset for item in answer.offsets]


async def test_a_member_commits_and_everyone_can_ask(filled) -> None:
    generation = (await join(filled)).generation
    assert await committed(filled) == [-1, -1]
    await filled.ask(
        RequestCode.COMMIT_OFFSETS, commit(("t", 0, 2), ("t", 1, 0), generation=generation)
    )
    assert await committed(filled) == [2, 0]
    assert await committed(filled, "other") == [-1, -1]


async def test_a_late_commit_of_a_member_moves_nothing_back(filled) -> None:
    await join(filled)
    await filled.ask(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 3)))
    await filled.ask(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 1)))
    assert await committed(filled) == [3, -1]


async def test_a_member_may_report_what_it_finished_before_the_group_changed(
    broker, connect, filled
) -> None:
    old = (await join(filled)).generation
    await join(await connect(broker, "other"), "other")
    await filled.ask(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 1), generation=old))
    assert await committed(filled) == [1, -1]


async def test_a_generation_that_never_was_is_refused(filled) -> None:
    generation = (await join(filled)).generation
    wrong = commit(("t", 0, 1), generation=generation + 1)
    assert isinstance(await filled.refusal(RequestCode.COMMIT_OFFSETS, wrong), NotGroupMember)


async def test_a_client_that_is_no_member_may_not_commit(broker, connect, filled) -> None:
    refused = await filled.refusal(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 1)))
    assert isinstance(refused, NotGroupMember)
    await join(filled)
    stranger = await connect(broker, "stranger")
    refused = await stranger.refusal(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 1)))
    assert isinstance(refused, NotGroupMember)
    await filled.ask(RequestCode.LEAVE_GROUP, LeaveGroup("g", "m"))
    refused = await filled.refusal(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 1)))
    assert isinstance(refused, NotGroupMember)
    assert await committed(filled) == [-1, -1]


async def test_an_administrator_sets_offsets_either_way_while_the_group_is_empty(filled) -> None:
    await filled.ask(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 3), member=""))
    await filled.ask(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 1), member=""))
    assert await committed(filled) == [1, -1]


async def test_administration_waits_until_the_members_have_left(filled) -> None:
    await join(filled)
    error = await filled.refusal(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 1), member=""))
    assert isinstance(error, GroupNotEmpty)
    assert "stop them" in str(error)
    await filled.ask(RequestCode.LEAVE_GROUP, LeaveGroup("g", "m"))
    await filled.ask(RequestCode.COMMIT_OFFSETS, commit(("t", 0, 1), member=""))
    assert await committed(filled) == [1, -1]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (("t", 0, 4), OffsetOutOfRange),
        (("t", 0, -1), OffsetOutOfRange),
        (("t", 2, 0), QueueNotFound),
        (("unknown", 0, 0), TopicNotFound),
    ],
)
async def test_one_wrong_entry_refuses_the_whole_commit(filled, wrong, error) -> None:
    request = commit(("t", 0, 1), wrong, member="")
    assert isinstance(await filled.refusal(RequestCode.COMMIT_OFFSETS, request), error)
    assert await committed(filled) == [-1, -1]


@pytest.mark.parametrize("group", ["", "g" * 300])
async def test_a_group_has_a_name_of_a_fair_length(filled, group: str) -> None:
    request = commit(("t", 0, 1), member="", group=group)
    refused = await filled.refusal(RequestCode.COMMIT_OFFSETS, request)
    assert isinstance(refused, InvalidArgument)


async def test_offsets_of_an_unknown_topic_are_refused(client) -> None:
    refused = await client.refusal(RequestCode.GET_OFFSETS, GetOffsets("g", ["unknown"]))
    assert isinstance(refused, TopicNotFound)
