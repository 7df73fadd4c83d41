from dataclasses import dataclass

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace_mq.broker.groups import members as subject
from headrace_mq.broker.groups.members import (
    CONTRACT_CHARACTERS_MAX,
    MEMBERS_PER_GROUP_MAX,
    MEMBERSHIPS_PER_SESSION_MAX,
    Groups,
)
from headrace_mq.errors import (
    GroupNotEmpty,
    InconsistentGroup,
    InvalidArgument,
    NameTaken,
    NotGroupMember,
)
from headrace_mq.protocol.bodies import GroupMember, Heartbeat, HeldQueues, JoinGroup, LeaveGroup

EXPIRY_MS = 30_000


@pytest.fixture
def groups() -> Groups[str]:
    return Groups[str](member_expiry_ms=EXPIRY_MS)


def join(
    groups: Groups[str],
    member: str,
    *,
    group: str = "g",
    topics: tuple[str, ...] = ("t",),
    session: str = "",
    now_ms: int = 0,
    contract: dict[str, str] | None = None,
):
    request = JoinGroup(group, member, list(topics), [], contract or {})
    return groups.join(request, session=session or f"session of {member}", now_ms=now_ms)


def test_a_join_is_seen_by_all_and_told_to_the_others(groups: Groups[str]) -> None:
    join(groups, "b")
    change = join(groups, "a")
    assert change is not None
    assert change.view.members == [GroupMember("a", ["t"]), GroupMember("b", ["t"])]
    assert change.tell == ["session of b"]
    assert groups.view("g").members == change.view.members


def test_members_have_a_budget_together_and_by_session_and_give_it_back() -> None:
    groups = Groups[str](member_expiry_ms=EXPIRY_MS, bytes_max=10_000, session_bytes_max=6_000)
    many = tuple(f"topic-{number}" for number in range(50))
    join(groups, "a", topics=many, session="one")
    before = groups.size
    assert before > 50 * 72
    with pytest.raises(InvalidArgument, match="members of this connection take"):
        join(groups, "b", topics=many, session="one")
    join(groups, "b", topics=many, session="two")
    with pytest.raises(InvalidArgument, match="members of all groups take"):
        join(groups, "c", topics=many, session="three")
    # Who is in already stays in, with the same or with less.
    join(groups, "a", topics=many, session="one")
    join(groups, "a", topics=("t",), session="one")
    assert groups.size < before + 1_000
    held = Heartbeat("g", "a", [HeldQueues("t", [*range(1_000)])])
    with pytest.raises(InvalidArgument, match="members of"):
        groups.heartbeat(held, session="one", now_ms=0)
    groups.disconnect("one", now_ms=0)
    groups.leave(LeaveGroup("g", "b"), session="two", now_ms=0)
    assert groups.size == 0
    assert groups._session_sizes == {}
    join(groups, "c", topics=many, session="three")


def test_a_group_is_no_larger_than_what_can_be_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "GROUP_BYTES_MAX", 1_000)
    groups = Groups[str](member_expiry_ms=EXPIRY_MS)
    join(groups, "a")
    join(groups, "b")
    with pytest.raises(InvalidArgument, match="members of this group take"):
        join(groups, "c")
    join(groups, "c", group="h")


def test_each_change_makes_a_greater_generation(groups: Groups[str]) -> None:
    first = join(groups, "a")
    second = join(groups, "b")
    third = groups.leave(LeaveGroup("g", "b"), session="session of b", now_ms=0)
    assert first
    assert second
    assert third
    assert first.view.generation < second.view.generation < third.view.generation


def test_all_views_of_a_generation_show_the_same_holdings(groups: Groups[str]) -> None:
    held = [HeldQueues("t", [0, 1])]
    join(groups, "a")
    beat = Heartbeat("g", "a", held)
    assert groups.heartbeat(beat, session="session of a", now_ms=0).members[0].held == []
    change = join(groups, "b")
    assert change is not None
    assert [member.held for member in change.view.members] == [held, []]
    groups.heartbeat(Heartbeat("g", "a"), session="session of a", now_ms=0)
    assert groups.view("g").members == change.view.members
    # Joining again from another connection is no change, but the next view shows what it holds.
    groups.join(JoinGroup("g", "a", ["t"], held[:0]), session="another", now_ms=0)
    assert groups.view("g").members == change.view.members
    assert groups.leave(LeaveGroup("g", "b"), session="session of b", now_ms=0)
    assert groups.view("g").members == [GroupMember("a", ["t"])]


def test_a_group_that_emptied_never_repeats_a_generation(groups: Groups[str]) -> None:
    before = join(groups, "a")
    assert groups.leave(LeaveGroup("g", "a"), session="session of a", now_ms=0) is None
    assert not groups.has_members("g")
    after = join(groups, "a")
    assert before
    assert after
    assert after.view.generation > before.view.generation


def test_generations_grow_across_broker_starts() -> None:
    older, newer = (
        Groups[str](member_expiry_ms=1, epoch=1),
        Groups[str](member_expiry_ms=1, epoch=2),
    )
    for number in range(100):
        join(older, f"m{number}")
    change = join(newer, "a")
    assert change
    assert change.view.generation > older.view("g").generation


def test_joining_again_with_the_same_topics_changes_nothing(groups: Groups[str]) -> None:
    join(groups, "a", topics=("x", "y"))
    before = groups.view("g")
    assert join(groups, "a", topics=("y", "x")) is None
    assert groups.view("g") == before


def test_joining_again_with_other_topics_is_a_change(groups: Groups[str]) -> None:
    join(groups, "a")
    join(groups, "b")
    change = join(groups, "a", topics=("other",))
    assert change
    assert change.tell == ["session of b"]
    assert change.view.members[0] == GroupMember("a", ["other"])


def test_two_members_on_one_connection_hear_of_each_other(groups: Groups[str]) -> None:
    join(groups, "a", session="shared")
    change = join(groups, "b", session="shared")
    assert change
    assert change.tell == ["shared"]


def test_a_member_that_joined_from_elsewhere_is_lost_to_its_old_session(
    groups: Groups[str],
) -> None:
    join(groups, "a", session="old")
    join(groups, "a", session="new")
    with pytest.raises(NotGroupMember, match="join again"):
        groups.heartbeat(Heartbeat("g", "a"), session="old", now_ms=0)
    assert groups.disconnect("old", now_ms=0) == []
    assert groups.has_members("g")


def test_a_disconnect_takes_all_members_of_the_session_in_one_change_per_group(
    groups: Groups[str],
) -> None:
    for group in ("g", "h"):
        join(groups, "stays", group=group)
        join(groups, "a", group=group, session="gone")
        join(groups, "b", group=group, session="gone")
    changes = groups.disconnect("gone", now_ms=0)
    assert [(change.view.group, change.tell) for change in changes] == [
        ("g", ["session of stays"]),
        ("h", ["session of stays"]),
    ]
    assert [member.member for member in groups.view("g").members] == ["stays"]


def named(groups: Groups[str], client: str, *, away_ms: int = 10_000, now_ms: int = 0):
    """Joins "a" of group "g" as a client of its own, on a connection of its own."""
    joining = JoinGroup("g", "a", ["t"], away_ms=away_ms)
    return groups.join(joining, session=f"session of {client}", client=client, now_ms=now_ms)


@pytest.fixture
def strict() -> Groups[str]:
    return Groups[str](member_expiry_ms=EXPIRY_MS, takeover_ms=1_000)


def test_a_member_that_comes_back_in_time_changes_no_other_members_view(
    strict: Groups[str],
) -> None:
    named(strict, "one")
    join(strict, "b")
    before = strict.view("g")
    assert strict.disconnect("session of one", now_ms=500) == []
    (away, _) = strict.members("g")
    assert (away.session, away.kept_until_ms) == (None, 10_500)
    with pytest.raises(GroupNotEmpty, match=r"2 members at work \(1 of them away"):
        strict.require_idle("g")
    with pytest.raises(NotGroupMember):
        strict.heartbeat(Heartbeat("g", "a"), session="session of one", now_ms=600)
    # It may be another process by now.
    assert named(strict, "another", now_ms=10_499) is None
    assert strict.view("g") == before
    strict.heartbeat(Heartbeat("g", "a"), session="session of another", now_ms=10_500)


def test_a_place_is_kept_for_its_time_and_no_longer_than_a_silent_member_stays(
    strict: Groups[str],
) -> None:
    named(strict, "one", away_ms=EXPIRY_MS + 1)
    join(strict, "b", now_ms=EXPIRY_MS)
    strict.disconnect("session of one", now_ms=5)
    # Others who join meanwhile see the one who is away; it is told nothing.
    change = join(strict, "c", now_ms=EXPIRY_MS)
    assert change is not None
    assert [member.member for member in change.view.members] == ["a", "b", "c"]
    assert change.tell == ["session of b"]
    assert strict.expire(EXPIRY_MS + 4) == []
    (change,) = strict.expire(EXPIRY_MS + 5)
    assert [member.member for member in change.view.members] == ["b", "c"]


def test_a_member_may_say_that_it_goes_away(strict: Groups[str]) -> None:
    named(strict, "one")
    join(strict, "b")
    before = strict.view("g")
    away = LeaveGroup("g", "a", away=True)
    assert strict.leave(away, session="session of one", now_ms=7) is None
    assert strict.members("g")[0].kept_until_ms == 10_007
    # So its name is free before its connection ends.
    assert named(strict, "another", now_ms=8) is None
    assert strict.disconnect("session of one", now_ms=9) == []
    assert strict.view("g") == before
    # One that has no place to keep leaves.
    assert strict.leave(LeaveGroup("g", "b", away=True), session="session of b", now_ms=9)


def test_one_that_leaves_or_wants_no_place_is_gone_at_once(strict: Groups[str]) -> None:
    named(strict, "one")
    strict.leave(LeaveGroup("g", "a"), session="session of one", now_ms=0)
    assert not strict.has_members("g")
    named(strict, "one", away_ms=0)
    strict.disconnect("session of one", now_ms=0)
    assert not strict.has_members("g")


def test_a_second_client_of_a_name_is_refused_while_the_first_one_is_heard_of(
    strict: Groups[str],
) -> None:
    named(strict, "one")
    with pytest.raises(NameTaken, match="has a member 'a' at work, heard of 999 ms ago"):
        named(strict, "two", now_ms=999)
    strict.heartbeat(Heartbeat("g", "a"), session="session of one", now_ms=999)
    # The same client may come on another connection at any time: the first one may be dead.
    again = JoinGroup("g", "a", ["t"], away_ms=0)
    assert strict.join(again, session="newer", client="one", now_ms=999) is None
    with pytest.raises(NameTaken):
        named(strict, "two", now_ms=1_998)
    assert named(strict, "two", now_ms=1_999) is None
    with pytest.raises(NotGroupMember):
        strict.heartbeat(Heartbeat("g", "a"), session="newer", now_ms=2_000)


def test_silence_expires_a_member_at_its_time_and_not_before(groups: Groups[str]) -> None:
    join(groups, "silent", now_ms=1_000)
    join(groups, "alive", now_ms=1_000)
    groups.heartbeat(Heartbeat("g", "alive"), session="session of alive", now_ms=2_000)
    assert groups.expire(1_000 + EXPIRY_MS - 1) == []
    (change,) = groups.expire(1_000 + EXPIRY_MS)
    assert change.tell == ["session of alive"]
    with pytest.raises(NotGroupMember):
        groups.heartbeat(Heartbeat("g", "silent"), session="session of silent", now_ms=0)


def test_leaving_without_being_a_member_is_refused(groups: Groups[str]) -> None:
    with pytest.raises(NotGroupMember):
        groups.leave(LeaveGroup("g", "a"), session="s", now_ms=0)


def test_a_full_group_refuses_one_more_but_lets_its_members_join_again(groups: Groups[str]) -> None:
    for number in range(MEMBERS_PER_GROUP_MAX):
        join(groups, f"m{number}")
    with pytest.raises(InvalidArgument, match="at most"):
        join(groups, "one more")
    assert join(groups, "m0", topics=("other",)) is not None


def test_a_session_has_a_limited_number_of_memberships(groups: Groups[str]) -> None:
    for number in range(MEMBERSHIPS_PER_SESSION_MAX):
        join(groups, "a", group=f"g{number}", session="s")
    with pytest.raises(InvalidArgument, match="another connection"):
        join(groups, "a", group="one more", session="s")
    assert not groups.has_members("one more")


@dataclass
class Modelled:
    """What is to be true of a member; without a session it is away until `kept_until_ms`."""

    session: int | None
    topics: list[str]
    heard_at_ms: int
    away_ms: int
    kept_until_ms: int = 0

    def is_over(self, now_ms: int) -> bool:
        if self.session is None:
            return now_ms >= self.kept_until_ms
        return now_ms >= self.heard_at_ms + 100


class AnyHistory(RuleBasedStateMachine):
    """Random joins, leaves, disconnects and expiries against a model of two dicts.

    Each session is a client of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left: list[tuple[str, str]] = []
        self.groups = Groups[int](
            member_expiry_ms=100, takeover_ms=40, on_left=lambda *who: self.left.append(who)
        )
        self.model: dict[tuple[str, str], Modelled] = {}
        self.generations: dict[str, int] = {}
        self.now_ms = 0

    names = st.sampled_from(["a", "b", "c"])
    sessions = st.integers(0, 2)

    def check(self, before: dict[str, list[GroupMember]]) -> None:
        for group, old in before.items():
            view = self.groups.view(group)
            changed = view.members != old
            if view.members:
                last = self.generations.get(group, 0)
                assert view.generation > last if changed else view.generation == last
                self.generations[group] = view.generation

    def views(self) -> dict[str, list[GroupMember]]:
        return {group: self.groups.view(group).members for group in ("g", "h")}

    @rule(
        group=st.sampled_from(["g", "h"]), member=names, session=sessions, topic=names,
        away_ms=st.sampled_from([-1, 0, 50, 1_000]),
    )  # fmt: skip
    def joins(self, group: str, member: str, session: int, topic: str, away_ms: int) -> None:
        before, known = self.views(), self.model.get((group, member))
        joining = JoinGroup(group, member, [topic], away_ms=away_ms)
        taken = (
            known is not None
            and known.session not in {None, session}
            and away_ms >= 0
            and self.now_ms < known.heard_at_ms + 40
        )
        try:
            self.groups.join(joining, session=session, client=f"{session}", now_ms=self.now_ms)
            assert not taken
            kept_ms = min(away_ms, 100)
            self.model[group, member] = Modelled(session, [topic], self.now_ms, kept_ms)
        except NameTaken:
            assert taken
        self.check(before)

    @rule(group=st.sampled_from(["g", "h"]), member=names, session=sessions)
    def leaves(self, group: str, member: str, session: int) -> None:
        before, known = self.views(), self.model.get((group, member))
        mine = known is not None and known.session == session
        try:
            self.groups.leave(LeaveGroup(group, member), session=session, now_ms=0)
            assert mine
            del self.model[group, member]
        except NotGroupMember:
            assert not mine
        self.check(before)

    @rule(session=sessions)
    def disconnects(self, session: int) -> None:
        before = self.views()
        mine = [key for key, held in sorted(self.model.items()) if held.session == session]
        self.left.clear()
        self.groups.disconnect(session, now_ms=self.now_ms)
        # Whatever becomes of its place, its locks are free.
        assert sorted(self.left) == mine
        for key in mine:
            held = self.model[key]
            if held.away_ms > 0:
                held.session, held.kept_until_ms = None, self.now_ms + held.away_ms
            else:
                del self.model[key]
        self.check(before)

    @rule(later_ms=st.integers(0, 60))
    def time_passes(self, later_ms: int) -> None:
        before = self.views()
        self.now_ms += later_ms
        self.groups.expire(self.now_ms)
        self.model = {
            key: held for key, held in self.model.items() if not held.is_over(self.now_ms)
        }
        self.check(before)

    @invariant()
    def sizes_are_those_of_the_members(self) -> None:
        entries = [e for group in self.groups._groups.values() for e in group.members.values()]
        assert self.groups.size == sum(entry.size for entry in entries)
        here = [entry for entry in entries if entry.session is not None]
        assert sum(self.groups._session_sizes.values()) == sum(entry.size for entry in here)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        for group, members in self.views().items():
            expected = sorted(
                (member, held.topics)
                for (name, member), held in self.model.items()
                if name == group
            )
            assert [(entry.member, entry.topics) for entry in members] == expected
            assert self.groups.has_members(group) == bool(expected)


AnyHistory.TestCase.settings = hypothesis_settings(
    max_examples=50, stateful_step_count=30, deadline=None
)
TestAnyHistory = AnyHistory.TestCase


def test_groups_are_found_by_what_their_members_subscribed_to(groups: Groups[str]) -> None:
    join(groups, "b", group="two", topics=("t", "u"))
    join(groups, "a", group="one", topics=("t",))
    join(groups, "c", group="one", topics=("u",))
    assert (groups.subscribed("t"), groups.subscribed("u")) == (["one", "two"], ["one", "two"])
    groups.leave(LeaveGroup("one", "a"), session="session of a", now_ms=0)
    assert groups.subscribed("t") == ["two"]


def test_members_are_described_with_their_session_and_last_heartbeat(groups: Groups[str]) -> None:
    join(groups, "b", topics=("u", "t"), now_ms=5)
    join(groups, "a", session="session of b", now_ms=6)
    join(groups, "a", group="h", session="session of b", now_ms=7)
    groups.heartbeat(Heartbeat("g", "b"), session="session of b", now_ms=9)
    assert groups.members("g") == [
        ("a", "session of b", ("t",), 6, 0),
        ("b", "session of b", ("t", "u"), 9, 0),
    ]
    assert groups.members("nobody") == []
    assert sorted(groups.names()) == groups.groups_of("session of b") == ["g", "h"]
    assert groups.groups_of("another") == []


def test_a_member_that_differs_is_refused_and_changes_nothing(groups: Groups[str]) -> None:
    join(groups, "a", contract={"the allocation": "average", "the handling": "per_key"})
    before = groups.view("g")
    with pytest.raises(
        InconsistentGroup, match=r"group 'g' have the allocation 'average'.*has 'circle'"
    ):
        join(groups, "b", contract={"the allocation": "circle", "the handling": "per_key"})
    assert groups.view("g") == before


def test_parts_that_one_of_two_members_leaves_out_are_not_compared(groups: Groups[str]) -> None:
    join(groups, "old")
    join(groups, "a", contract={"the filter of topic t": "x > 1"})
    join(groups, "b", contract={"the filter of topic u": "x > 2"})
    assert len(groups.members("g")) == 3
    with pytest.raises(InconsistentGroup):
        join(groups, "c", contract={"the filter of topic u": ""})


def test_the_only_member_may_change_its_mind_and_a_group_that_emptied_too(
    groups: Groups[str],
) -> None:
    join(groups, "a", contract={"the handling": "per_key"})
    join(groups, "a", contract={"the handling": "parallel"})
    groups.leave(LeaveGroup("g", "a"), session="session of a", now_ms=0)
    join(groups, "b", contract={"the handling": "per_queue"})


def test_equal_contracts_are_kept_once(groups: Groups[str]) -> None:
    for member in "abc":
        join(groups, member, contract={"the handling": "per_key"})
    held = groups._groups["g"].members.values()
    assert len({id(member.contract) for member in held}) == 1


def test_a_contract_without_end_is_refused(groups: Groups[str]) -> None:
    with pytest.raises(InvalidArgument, match="contract has at most"):
        join(groups, "a", contract={"w": "x" * CONTRACT_CHARACTERS_MAX})
