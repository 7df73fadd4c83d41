"""Which groups are asked, and which are left out for what they refused."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from headrace_mq._net.link import Link
from headrace_mq.client.spread import parts
from headrace_mq.client.spread.parts import BEATS_ASIDE_MAX, Parts
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.errors import (
    ConnectionLost,
    InconsistentGroup,
    MessageQueueError,
    NotGroupMember,
    NotLeader,
    NotPermitted,
    RequestTimeout,
    TopicNotFound,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    Body,
    DescribeTopics,
    GroupAnswer,
    Heartbeat,
    JoinGroup,
    LockQueues,
    LocksAnswer,
    QueueLock,
    QueueName,
    decode,
)
from headrace_mq.protocol.codes import RequestCode
from tests.unit.headrace_mq.client.two_groups import *  # noqa: F403 - the fixture is found by name
from tests.unit.headrace_mq.client.two_groups import ME, FakeLink, ask, joined


def two(*, patient: bool = True) -> tuple[Parts, FakeLink, FakeLink]:
    links = {group: FakeLink(f"h:1/c/{group}") for group in ("g1", "g2")}
    return Parts(cast("dict[str, Link]", links), patient=patient), links["g1"], links["g2"]


def beats_until_asked(asked: Parts, link: FakeLink) -> int:
    """How many heartbeats a group is left alone."""
    before = asked._asides[link.group].left
    for number in range(1, 100):
        asked.try_again(b"")
        if asked._asides[link.group].trial is not None:
            return number
    raise AssertionError(before)


@pytest.mark.parametrize(
    ("error", "patient", "impatient"),
    [
        (ConnectionLost("gone"), True, True),
        (NotLeader("another leads"), True, False),
        (NotPermitted("may not"), True, False),
        (RequestTimeout("late"), True, False),
        (TopicNotFound("none"), False, False),
    ],
)
def test_a_patient_client_goes_on_without_a_group_that_refuses_for_itself(
    error: MessageQueueError, *, patient: bool, impatient: bool
) -> None:
    assert two()[0].may_lack(error) is patient
    assert two(patient=False)[0].may_lack(error) is impatient


async def test_all_groups_are_asked_and_one_that_refuses_is_named() -> None:
    asked, one, other = two(patient=False)
    one.answers[RequestCode.HEARTBEAT] = b"one"
    other.answers[RequestCode.HEARTBEAT] = NotLeader("another leads")
    answers, failures = await asked.ask_each(RequestCode.HEARTBEAT, {"g1": b"", "g2": b""})
    assert ({group: bytes(each) for group, each in answers.items()}, list(failures)) == (
        {"g1": b"one"},
        ["g2"],
    )
    with pytest.raises(NotLeader):
        await asked.ask_up(RequestCode.HEARTBEAT, b"")
    assert asked.late == set()


async def test_a_group_that_was_set_aside_is_tried_more_and_more_rarely() -> None:
    asked, _, other = two()
    other.answers[RequestCode.JOIN_GROUP] = NotLeader("another leads")
    asked.set_aside({"g2": NotLeader("another leads")})
    assert asked.up == ["g1"]
    found = []
    for _ in range(6):
        found.append(beats_until_asked(asked, other))
        trial = asked._asides["g2"].trial
        assert trial is not None
        await trial
    assert found == [1, 2, 4, 8, BEATS_ASIDE_MAX, BEATS_ASIDE_MAX]
    other.answers.clear()
    beats_until_asked(asked, other)
    trial = asked._asides["g2"].trial
    assert trial is not None
    await trial
    assert asked.up == ["g1", "g2"]


def test_a_new_connection_ends_what_a_group_was_set_aside_for() -> None:
    asked, _, other = two()
    asked.set_aside({"g2": NotLeader("another leads")})
    assert asked.is_aside("g2")
    other.connections += 1
    assert not asked.is_aside("g2")


def test_a_group_is_asked_in_any_case_if_there_is_no_other() -> None:
    asked, one, _ = two()
    asked.set_aside({"g2": NotLeader("another leads"), "g1": ConnectionLost("gone")})
    one.is_up = False
    assert asked.up == ["g2"]
    asked.let_in(["g1", "g2"])
    assert not asked.is_aside("g2")


async def test_a_trial_ends_with_its_client() -> None:
    asked, _, other = two()
    asked.set_aside({"g2": NotLeader("another leads")})
    beats_until_asked(asked, other)
    trial = asked._asides["g2"].trial
    assert trial is not None
    asked.close()
    await asyncio.wait([trial])
    assert trial.cancelled()


Make = Callable[..., SpreadLink]
BEAT = Heartbeat("g", "me")


async def beats(link: SpreadLink, count: int) -> None:
    for _ in range(count):
        await ask(link, RequestCode.HEARTBEAT, BEAT)
        await asyncio.sleep(0)


@pytest.mark.parametrize("refusal", [NotLeader("another leads"), NotPermitted("may not consume")])
async def test_a_group_that_refuses_the_member_does_not_end_its_membership_in_the_others(
    two_groups: Make, refusal: Exception
) -> None:
    link = two_groups(patient=True)
    one, two = await joined(link)
    for code in (RequestCode.HEARTBEAT, RequestCode.JOIN_GROUP, RequestCode.DESCRIBE_TOPICS):
        two.answers[code] = refusal
    # Once, so that no lock in that group counts any more.
    with pytest.raises(NotGroupMember, match="g2 was set aside"):
        await ask(link, RequestCode.HEARTBEAT, BEAT)
    await ask(link, RequestCode.JOIN_GROUP, JoinGroup("g", "me", ["t"]))
    await ask(link, RequestCode.DESCRIBE_TOPICS, DescribeTopics(["t"]))
    await beats(link, 5)
    assert (link.serves(QueueRef("t", 0)), link.serves(QueueRef("t", 2))) == (True, False)
    one.answers[RequestCode.LOCK_QUEUES] = LocksAnswer([QueueLock("t", 0, 1)], 900)
    wanted = LockQueues("g", "me", [QueueName("t", 0), QueueName("t", 2)])
    answer = decode(LocksAnswer, await ask(link, RequestCode.LOCK_QUEUES, wanted))
    assert answer == LocksAnswer([QueueLock("t", 0, 1)], 900)
    assert not two.bodies(RequestCode.LOCK_QUEUES)
    two.answers |= {RequestCode.JOIN_GROUP: GroupAnswer(10, [ME])}
    with pytest.raises(NotGroupMember, match="g2 answers again"):
        await beats(link, 40)
    await ask(link, RequestCode.JOIN_GROUP, JoinGroup("g", "me", ["t"]))
    assert link.serves(QueueRef("t", 2))


@pytest.mark.parametrize(
    "code", [RequestCode.HEARTBEAT, RequestCode.JOIN_GROUP, RequestCode.DESCRIBE_TOPICS]
)
async def test_a_group_that_does_not_answer_holds_up_the_others_for_a_part_of_the_time(
    two_groups: Make, monkeypatch: pytest.MonkeyPatch, code: RequestCode
) -> None:
    link = two_groups(patient=True)
    _, two = await joined(link)
    monkeypatch.setattr(parts, "LATE_MS", 1)
    at_once = two.request

    async def request(asked: RequestCode, body: bytes, *, timeout_ms: int) -> memoryview:
        if asked == code:
            await asyncio.Event().wait()
        return await at_once(asked, body, timeout_ms=timeout_ms)

    monkeypatch.setattr(two, "request", request)
    bodies: dict[RequestCode, Body] = {
        RequestCode.JOIN_GROUP: JoinGroup("g", "me", ["t"]),
        RequestCode.DESCRIBE_TOPICS: DescribeTopics(["t"]),
    }
    if code == RequestCode.HEARTBEAT:
        with pytest.raises(NotGroupMember, match="g2 was set aside"):
            await ask(link, code, BEAT)
    else:
        await ask(link, code, bodies[code])


async def test_a_group_that_grants_no_locks_is_set_aside_with_the_next_heartbeat(
    two_groups: Make,
) -> None:
    link = two_groups(patient=True)
    one, two = await joined(link)
    one.answers[RequestCode.LOCK_QUEUES] = LocksAnswer([QueueLock("t", 0, 1)], 900)
    two.answers[RequestCode.LOCK_QUEUES] = NotLeader("another leads")
    with pytest.raises(NotLeader):
        await ask(link, RequestCode.LOCK_QUEUES, LockQueues("g", "me", [QueueName("t", 0)]))
    with pytest.raises(NotGroupMember, match="g2 was set aside"):
        await ask(link, RequestCode.HEARTBEAT, BEAT)


async def test_a_refusal_that_concerns_the_member_itself_is_raised(two_groups: Make) -> None:
    link = two_groups(patient=True)
    _, two = await joined(link)
    two.answers[RequestCode.HEARTBEAT] = NotGroupMember("expired")
    with pytest.raises(NotGroupMember, match="expired"):
        await ask(link, RequestCode.HEARTBEAT, BEAT)
    two.answers[RequestCode.JOIN_GROUP] = InconsistentGroup("other filter")
    with pytest.raises(InconsistentGroup):
        await ask(link, RequestCode.JOIN_GROUP, JoinGroup("g", "me", ["t"]))
