import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace_mq._net.link import Link
from headrace_mq.client.group.allocation import Strategy, average, circle, sticky
from headrace_mq.client.group.membership import Listeners, Membership, Subscription
from headrace_mq.client.group.rules import CurrentGroupRules
from headrace_mq.errors import ConnectionLost, InvalidArgument, NameTaken
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    GroupChanged,
    GroupMember,
    Heartbeat,
    HeldQueues,
    JoinGroup,
    LeaveGroup,
    decode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

JOIN, BEAT, DESCRIBE = RequestCode.JOIN_GROUP, RequestCode.HEARTBEAT, RequestCode.DESCRIBE_TOPICS
Until = Callable[[Callable[[], object]], Any]


def queues(*numbers: int, topic: str = "t") -> frozenset[QueueRef]:
    return frozenset(QueueRef(topic, number) for number in numbers)


class Watched:
    """A membership and what it told."""

    def __init__(
        self, link: Link, clock: Any, strategy: Strategy = average, **settings: Any
    ) -> None:
        self.errors: list[Exception] = []
        self.beats: list[int] = []
        self.changes: list[frozenset[QueueRef]] = []
        self.losses = 0
        self.rules = CurrentGroupRules("g")
        self.membership = Membership(
            link,
            Subscription("g", ["t", "t"], strategy, {"the handling": "per_key"}, self.rules),
            settings=ConsumerSettings(**settings),
            clock=clock,
            listeners=Listeners(
                on_change=self.changes.append,
                on_lost=self._lose,
                on_error=self.errors.append,
                on_beat=self.beats.append,
            ),
        )
        link._on_down = self.membership.lost

    def _lose(self) -> None:
        self.losses += 1


@pytest.fixture
async def watched(broker: Any, link: Link, clock: Any) -> AsyncIterator[Watched]:
    """A member that joined and beats each millisecond."""
    broker.topics["t"] = 4
    watched = Watched(link, clock, heartbeat_ms=1)
    await watched.membership.join()
    task = asyncio.create_task(watched.membership.stay())
    yield watched
    task.cancel()
    await asyncio.wait([task])


async def test_joining_tells_the_members_queues(broker: Any, watched: Watched) -> None:
    assert watched.changes == [queues(0, 1, 2, 3)]
    assert watched.membership.generation == broker.generation
    assert watched.membership.first_seen == queues(0, 1, 2, 3)
    assert list(broker.members) == ["me"]


async def test_a_push_tells_of_another_member_at_once(broker: Any, watched: Watched) -> None:
    watched.membership.changed(broker.join("you", ["t"]))
    watched.membership.changed(broker.leave("you"))
    assert watched.changes[1:] == [queues(0, 1), queues(0, 1, 2, 3)]


async def test_a_heartbeat_tells_of_another_member_when_the_push_was_lost(
    broker: Any, watched: Watched, until: Until
) -> None:
    broker.join("you", ["t"])
    await until(lambda: len(watched.changes) == 2)
    assert watched.changes[-1] == queues(0, 1)


async def test_the_rules_of_a_group_come_with_a_join_and_with_each_heartbeat(
    broker: Any, watched: Watched, until: Until
) -> None:
    assert watched.rules.consume
    broker.rules = (False, 3)
    await until(lambda: not watched.rules.consume)
    assert watched.rules.retries == 3
    broker.rules = (True, -1)
    broker.leave("me")
    await until(lambda: watched.rules.consume)
    assert watched.rules.retries is None
    # It is the same member with the same queues, whatever was said.
    assert watched.changes[-1] == queues(0, 1, 2, 3)


async def test_a_named_member_joins_under_its_name_and_goes_without_giving_up_its_place(
    broker: Any, link: Link, clock: Any
) -> None:
    broker.topics["t"] = 2
    broker.held = {JOIN}
    joins: list[JoinGroup] = []
    leaves: list[LeaveGroup] = []
    for settings in ({"name": "shelf", "away_ms": 70}, {"name": "shelf", "away_ms": 0}, {}):
        watched = Watched(link, clock, **settings)
        joining = asyncio.create_task(watched.membership.join())
        request = await broker.next(JOIN)
        joins.append(decode(JoinGroup, request.body))
        broker.serve(request)
        await joining
        broker.held = {RequestCode.LEAVE_GROUP}
        leaving = asyncio.create_task(watched.membership.leave())
        request = await broker.next(RequestCode.LEAVE_GROUP)
        leaves.append(decode(LeaveGroup, request.body))
        broker.serve(request)
        await leaving
        broker.held = {JOIN}
    assert [(one.member, one.away_ms) for one in joins] == [("shelf", 70), ("shelf", 0), ("me", -1)]
    assert [one.away for one in leaves] == [True, False, False]


async def test_a_name_that_another_member_took_meanwhile_is_raised_to_the_application(
    broker: Any, watched: Watched, until: Until
) -> None:
    broker.held = {JOIN}
    broker.leave("me")
    (await broker.next(JOIN)).refuse(NameTaken("'me' is at work"))
    broker.serve(await broker.next(JOIN))
    await until(lambda: len(watched.changes) == 2)
    assert [type(error) for error in watched.errors] == [NameTaken]


async def test_every_answered_heartbeat_is_reported_with_the_moment_it_was_sent(
    broker: Any, watched: Watched, clock: Any, until: Until
) -> None:
    broker.held = {BEAT}
    await broker.next(BEAT)
    broker.drop()
    watched.beats.clear()
    request = await broker.next(BEAT)
    sent_at_ms, clock.time_ms = clock.time_ms, clock.time_ms + 700
    assert watched.beats == []
    broker.serve(request)
    await until(lambda: watched.beats)
    assert watched.beats[0] == sent_at_ms


async def test_old_views_and_those_of_other_groups_are_ignored(
    broker: Any, watched: Watched
) -> None:
    old = broker.join("you", ["t"])
    new = broker.leave("you")
    watched.membership.changed(new)
    watched.membership.changed(old)
    watched.membership.changed(GroupChanged("other", 99, [GroupMember("you", ["t"])]))
    assert watched.changes == [queues(0, 1, 2, 3)]


async def test_members_of_other_topics_take_nothing_away(broker: Any, watched: Watched) -> None:
    watched.membership.changed(broker.join("you", ["u"]))
    assert watched.changes == [queues(0, 1, 2, 3)]


async def test_a_newer_view_that_overtook_the_join_answer_stays(
    broker: Any, link: Link, clock: Any
) -> None:
    broker.topics["t"] = 2
    watched = Watched(link, clock)
    broker.held = {JOIN}
    joining = asyncio.create_task(watched.membership.join())
    request = await broker.next(JOIN)
    broker.held = set()
    broker.serve(request)
    watched.membership.changed(broker.join("a", ["t"]))
    await joining
    assert watched.changes[-1] == queues(1)


async def test_a_member_the_broker_forgot_joins_again(
    broker: Any, watched: Watched, until: Until
) -> None:
    broker.leave("me")
    await until(lambda: len(watched.changes) == 2)
    assert watched.losses == 1
    assert watched.changes[-1] == queues(0, 1, 2, 3)
    assert list(broker.members) == ["me"]


async def test_a_lost_connection_is_reported_at_once_and_followed_by_a_new_join(
    broker: Any, watched: Watched, until: Until
) -> None:
    broker.drop()
    await until(lambda: watched.losses == 1)
    assert watched.membership.generation == -1
    await until(lambda: len(watched.changes) == 2)
    assert broker.count(JOIN) == 2


async def test_a_connection_lost_while_joining_fails_the_join(
    broker: Any, link: Link, clock: Any
) -> None:
    broker.topics["t"] = 2
    watched = Watched(link, clock)
    broker.held = {DESCRIBE}
    joining = asyncio.create_task(watched.membership.join())
    await broker.next(DESCRIBE)
    broker.drop()
    with pytest.raises(ConnectionLost):
        await joining
    assert watched.changes == []


async def test_queues_that_a_push_told_of_are_lost_with_a_join_that_fails(
    broker: Any, link: Link, clock: Any
) -> None:
    broker.topics["t"] = 2
    watched = Watched(link, clock)
    broker.held = {DESCRIBE}
    joining = asyncio.create_task(watched.membership.join())
    request = await broker.next(DESCRIBE)
    watched.membership.changed(broker.join("you", ["t"]))
    request.refuse(InvalidArgument("no"))
    with pytest.raises(InvalidArgument):
        await joining
    assert watched.losses == 1
    assert watched.membership.generation == -1


async def test_a_join_that_is_refused_is_tried_again(
    broker: Any, watched: Watched, until: Until
) -> None:
    broker.held = {JOIN}
    broker.leave("me")
    (await broker.next(JOIN)).refuse(InvalidArgument("the group is full"))
    broker.serve(await broker.next(JOIN))
    await until(lambda: len(watched.changes) == 2)


async def test_a_broker_that_answers_no_heartbeat_gets_a_new_connection(
    broker: Any, link: Link, clock: Any, until: Until
) -> None:
    watched = Watched(link, clock, heartbeat_ms=1)
    await watched.membership.join()
    watched.membership._settings = ConsumerSettings(heartbeat_ms=1, request_timeout_ms=50)
    task = asyncio.create_task(watched.membership.stay())
    broker.held = {BEAT}
    await broker.next(BEAT)
    broker.held = set()
    await until(lambda: broker.count(RequestCode.HELLO) >= 2)
    await until(lambda: len(watched.changes) >= 2)
    task.cancel()
    await asyncio.wait([task])


async def test_a_missing_topic_is_waited_for(
    broker: Any, link: Link, clock: Any, until: Until
) -> None:
    watched = Watched(link, clock, heartbeat_ms=1)
    await watched.membership.join()
    task = asyncio.create_task(watched.membership.stay())
    assert watched.changes == [frozenset()]
    broker.topics["t"] = 2
    await until(lambda: watched.changes[-1] == queues(0, 1))
    assert watched.membership.first_seen == frozenset()
    task.cancel()
    await asyncio.wait([task])


async def test_added_queues_are_found_at_the_next_refresh(
    broker: Any, watched: Watched, clock: Any, until: Until
) -> None:
    broker.topics["t"] = 6
    beats = broker.count(BEAT)
    await until(lambda: broker.count(BEAT) > beats + 2)
    assert len(watched.changes) == 1
    clock.time_ms += ConsumerSettings().topics_refresh_ms
    await until(lambda: len(watched.changes) == 2)
    assert watched.changes[-1] == queues(*range(6))
    assert watched.membership.first_seen == queues(*range(4))


async def test_queues_that_are_frozen_for_reading_have_no_owner_until_they_are_thawed(
    broker: Any, watched: Watched, clock: Any, until: Until
) -> None:
    broker.unreadable = {QueueRef("t", 1)}
    clock.time_ms += ConsumerSettings().topics_refresh_ms
    await until(lambda: len(watched.changes) == 2)
    assert watched.changes[-1] == queues(0, 2, 3)
    assert watched.membership.first_seen == queues(0, 1, 2, 3)
    broker.unreadable = set()
    clock.time_ms += ConsumerSettings().topics_refresh_ms
    await until(lambda: len(watched.changes) == 3)
    assert watched.changes[-1] == queues(0, 1, 2, 3)


async def test_leaving_needs_no_expiry(broker: Any, link: Link, clock: Any) -> None:
    watched = Watched(link, clock)
    await watched.membership.leave()
    assert broker.count(RequestCode.LEAVE_GROUP) == 0
    await watched.membership.join()
    await watched.membership.leave()
    assert broker.members == {}
    watched.membership.changed(broker.join("you", ["t"]))
    assert len(watched.changes) == 1


async def test_the_strategy_decides(broker: Any, link: Link, clock: Any) -> None:
    broker.topics["t"] = 4
    broker.join("you", ["t"])
    watched = Watched(link, clock, circle)
    await watched.membership.join()
    assert watched.changes == [queues(0, 2)]


async def test_a_sticky_member_says_what_it_holds_at_once_and_keeps_what_the_view_shows(
    broker: Any, link: Link, clock: Any
) -> None:
    broker.topics["t"] = 4
    watched = Watched(link, clock, sticky, heartbeat_ms=60_000)
    broker.held = {BEAT}
    await watched.membership.join()
    staying = asyncio.create_task(watched.membership.stay())
    request = await broker.next(BEAT)
    assert decode(Heartbeat, request.body).held == [HeldQueues("t", [0, 1, 2, 3])]
    broker.serve(request)
    me = GroupMember("me", ["t"], [HeldQueues("t", [0, 1, 2, 3])])
    watched.membership.changed(GroupChanged("g", 9, [GroupMember("a", ["t"]), me]))
    assert watched.changes[-1] == queues(0, 1)
    request = await broker.next(BEAT)
    assert decode(Heartbeat, request.body).held == [HeldQueues("t", [0, 1])]
    broker.held = {JOIN}
    broker.drop()
    request = await broker.next(JOIN)
    assert decode(JoinGroup, request.body).held == [HeldQueues("t", [0, 1])]
    staying.cancel()
    await asyncio.wait([staying])


async def test_other_members_say_nothing_of_what_they_hold(
    broker: Any, watched: Watched, until: Until
) -> None:
    await until(lambda: broker.count(BEAT))
    (join,) = [request for request in broker.seen if request.code == JOIN]
    assert decode(JoinGroup, join.body).held == []
    beats = [request for request in broker.seen if request.code == BEAT]
    assert decode(Heartbeat, beats[0].body).held == []


async def test_a_failure_of_the_strategy_is_reported_and_the_queues_stay(
    broker: Any, link: Link, clock: Any
) -> None:
    error = LookupError("no such room")

    def strategy(member: str, members: Any, queues: Any) -> Any:
        if len(members) > 1:
            raise error
        return queues

    broker.topics["t"] = 2
    watched = Watched(link, clock, strategy)
    await watched.membership.join()
    watched.membership.changed(broker.join("you", ["t"]))
    assert watched.errors == [error]
    assert watched.changes == [queues(0, 1)]
