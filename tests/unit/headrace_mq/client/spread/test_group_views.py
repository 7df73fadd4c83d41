"""The members that all broker groups have, and what a consumer is told of them."""

from headrace_mq.client.spread.group_views import GroupViews
from headrace_mq.protocol.bodies import GroupAnswer, GroupChanged, GroupMember

ANN, BOB, CYD = (GroupMember(name, ["t"]) for name in ("ann", "bob", "cyd"))


def joined(**answers: GroupAnswer) -> GroupViews:
    views = GroupViews()
    views.join("g", answers, dict.fromkeys(answers, 1))
    return views


def test_the_members_are_those_that_all_groups_have() -> None:
    views = joined(g1=GroupAnswer(7, [ANN, BOB, CYD]), g2=GroupAnswer(3, [ANN, CYD]))
    assert views.merged() == GroupAnswer(1, [ANN, CYD])
    assert (views.generation("g1"), views.generation("g2"), views.generation("g3")) == (7, 3, 0)


def test_a_push_is_passed_on_when_the_members_changed_by_it() -> None:
    views = joined(g1=GroupAnswer(1, [ANN]), g2=GroupAnswer(1, [ANN]))
    assert views.pushed("g1", GroupChanged("g", 2, [ANN, BOB])) is None
    told = views.pushed("g2", GroupChanged("g", 2, [ANN, BOB]))
    assert told == GroupChanged("g", 2, [ANN, BOB])
    assert views.pushed("g2", GroupChanged("g", 2, [ANN])) is None
    assert views.pushed("g2", GroupChanged("other", 9, [])) is None
    assert views.pushed("g3", GroupChanged("g", 9, [])) is None


def test_an_answer_to_a_heartbeat_counts_unless_it_is_older() -> None:
    views = joined(g1=GroupAnswer(4, [ANN]))
    views.hear("g1", GroupAnswer(3, [ANN, BOB]))
    assert views.merged().members == [ANN]
    views.hear("g1", GroupAnswer(5, [ANN, BOB], consume=False, retries=3))
    assert views.merged() == GroupAnswer(2, [ANN, BOB], consume=False, retries=3)
    views.hear("g2", GroupAnswer(9, []))
    assert views.merged().members == [ANN, BOB]


def test_the_version_grows_over_joins_so_that_the_newest_view_is_taken() -> None:
    views = joined(g1=GroupAnswer(4, [ANN]), g2=GroupAnswer(9, [ANN]))
    first = views.merged().generation
    again = views.join("g", {"g2": GroupAnswer(9, [ANN, BOB])}, {"g2": 2})
    assert again.generation > first
    assert views.has_joined("g2", 2)
    assert not views.has_joined("g2", 1)
    assert not views.has_joined("g1", 1)


def test_a_consumer_that_no_group_has_let_in_has_no_members() -> None:
    assert GroupViews().merged().members == []
