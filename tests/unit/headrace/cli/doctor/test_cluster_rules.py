"""What is said of a group of brokers: its record, its leader, which brokers are in sync and which are out."""

import pytest

from headrace.cli.doctor.broker_rules import PlaceFacts, PlaceKind
from headrace.cli.doctor.cluster_rules import ClusterFacts, cluster
from headrace_mq.cluster.record import GroupRecord, Identity

NAMES = ("h:1", "h:2", "h:3")


def facts(
    *members: str, named: tuple[str, ...] = NAMES, least: int = 1, **kinds: PlaceKind
) -> ClusterFacts:
    """A group that h:1 leads; `h2="silent"` is what a member answers, if it is not what it should be."""
    record = GroupRecord(7, 3, "h:1", frozenset(Identity(name, "s") for name in members))
    answers = {}
    for name in {*members, "h:1"}:
        kind = kinds.get(name.replace(":", ""), "leads" if name == "h:1" else "replica")
        answers[name] = PlaceFacts(name, kind, "no broker answers: check that it runs")
    return ClusterFacts(record, answers=answers, named=frozenset(named), min_in_sync=least)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (facts(*NAMES), {}),
        (facts("h:1", "h:2"), {"replica h:3": "warning"}),
        (facts("h:1"), {"in sync": "warning", "replica h:2": "warning", "replica h:3": "warning"}),
        (facts("h:1", named=("h:1",), least=2), {"in sync": "failed"}),
        (facts(*NAMES, named=("h:1", "h:2")), {"replica h:3": "warning"}),
        (facts(*NAMES, h1="silent"), {"leader": "failed"}),
        (facts(*NAMES, h1="replica"), {"leader": "failed"}),
        (facts(*NAMES, h2="silent"), {"replica h:2": "warning"}),
        (facts(*NAMES, h2="leads"), {"replica h:2": "warning"}),
    ],
)
def test_a_group_is_whole_or_says_what_is_missing(
    given: ClusterFacts, expected: dict[str, str]
) -> None:
    found = list(cluster(given))
    fine = {"record of the group": "ok", "leader": "ok", "in sync": "ok"}
    assert {each.name: each.state for each in found} == fine | expected
    assert all(each.advice for each in found if each.state != "ok")


def test_a_record_that_does_not_answer_is_a_failure() -> None:
    (found,) = cluster(ClusterFacts(None, "the record does not answer; start its database"))
    assert (found.state, found.advice) == ("failed", "start its database")


def test_a_leader_that_may_lack_messages_is_shown_as_long_as_it_leads() -> None:
    given = facts(*NAMES)

    def told(**changed: int | str) -> list[tuple[str, str]]:
        record = given.record._replace(**changed)
        found = list(cluster(given._replace(record=record)))
        return [(each.name, each.state) for each in found if "record of" not in each.name][:-2]

    assert told(lossy=2) == []
    assert told(lossy=3) == [("lost messages", "warning")]
    assert told(ack="leader") == [("acknowledged by", "ok")]
    # A promotion says so itself.
    assert told(lossy=3, unclean=3) == [("lost messages", "warning")]


@pytest.mark.parametrize(
    ("ack", "state"), [("in_sync", "failed"), ("leader", "warning"), ("to_in_sync", "failed")]
)
def test_a_leader_that_acknowledges_alone_needs_no_other_broker_in_sync(
    ack: str, state: str
) -> None:
    given = facts("h:1", named=("h:1",), least=2)
    found = list(cluster(given._replace(record=given.record._replace(ack=ack))))
    (told,) = [each for each in found if each.name == "in sync"]
    assert (told.state, "nothing is acknowledged" in told.finding) == (state, state == "failed")


def test_a_promotion_with_loss_is_shown_until_it_is_settled() -> None:
    given = facts(*NAMES)
    (told,) = [
        each
        for each in cluster(given._replace(record=given.record._replace(unclean=3)))
        if each.state != "ok"
    ]
    assert (told.name, told.state) == ("lost messages", "warning")
    assert "cluster settle" in told.advice
