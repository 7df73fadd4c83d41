"""What is said of a broker: its addresses, clock, groups and topics."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.doctor.broker_rules import (
    BrokerFacts,
    DeclaredTopic,
    NameFacts,
    PlaceFacts,
    PlaceKind,
    clock,
    groups,
    grows_per_day,
    health,
    names,
    places,
    service,
    topics,
)
from headrace_mq.protocol.administration import (
    NO_TRAFFIC,
    ArchiveDescription,
    BrokerStatus,
    CompactionDescription,
    GroupSummary,
    LogDescription,
    QueueDescription,
)
from headrace_mq.protocol.bodies import TopicDescription
from headrace_mq.protocol.limits import LeaderDescription

DAY_MS = 86_400_000


def status(**changed: Any) -> BrokerStatus:
    values: dict[str, Any] = {
        "now_ms": 10 * DAY_MS, "topics": 1, "queues": 1, "groups": 1, "connections": 1, "refuses": "",
        "produced": NO_TRAFFIC, "fetched": NO_TRAFFIC, "logs": [],
    }  # fmt: skip
    return BrokerStatus(**values | changed)


def group(name: str = "g", **changed: Any) -> GroupSummary:
    return GroupSummary(**{"group": name, "members": 1, "queues": 4, "lag": 0} | changed)


@pytest.mark.parametrize(
    ("kinds", "states"),
    [
        (["leads"], ["ok"]),
        (["silent"], ["failed"]),
        (["silent", "leads"], ["warning", "ok"]),
        (["replica", "leads", "replica"], ["ok", "ok", "ok"]),
        (["replica", "silent"], ["failed", "failed"]),
        (["login"], ["failed"]),
        (["version", "leads"], ["failed", "ok"]),
        (["tls", "leads"], ["failed", "ok"]),
    ],
)
def test_an_address_that_does_not_answer_is_harmless_where_another_one_serves(
    kinds: list[PlaceKind], states: list[str]
) -> None:
    asked = [PlaceFacts(f"h:{number}", kind, "it is away") for number, kind in enumerate(kinds)]
    found = list(places(asked))
    assert [each.state for each in found] == states
    assert [each.name for each in found] == [f"broker h:{number}" for number in range(len(kinds))]
    assert all(each.advice for each in found if each.state == "failed" and "replica" not in kinds)


def test_a_user_that_is_let_in_is_named_once() -> None:
    found = list(
        places([PlaceFacts("h:1", "leads", user="ann"), PlaceFacts("h:2", "leads", user="ann")])
    )
    assert [(each.name, each.finding) for each in found][2:] == [("login", "ann is let in")]


@pytest.mark.parametrize(
    ("ahead_ms", "unsure_ms", "state"),
    [
        (0, 1, "ok"),
        (999, 0, "ok"),
        (1_000, 0, "warning"),
        (-1_000, 0, "warning"),
        (1_000, 1, "ok"),
        (-60_000, 0, "failed"),
        (60_500, 1_000, "warning"),
    ],
)
def test_a_clock_may_differ_by_what_is_unsure_and_a_second(
    ahead_ms: int, unsure_ms: int, state: str
) -> None:
    (found,) = clock(BrokerFacts(status=status(), ahead_ms=ahead_ms, unsure_ms=unsure_ms))
    assert found.state == state
    assert ("ahead of" in found.finding) == (ahead_ms > 0)


@given(st.integers(-(10**9), 10**9), st.integers(0, 10_000), st.integers(1, 10**6))
def test_a_clock_that_is_unsure_is_never_worse(ahead_ms: int, unsure_ms: int, most_ms: int) -> None:
    order = ["ok", "warning", "failed"]
    sure, unsure = (
        next(clock(BrokerFacts(status=status(), ahead_ms=ahead_ms, unsure_ms=one), most_ms))
        for one in (0, unsure_ms)
    )
    assert order.index(unsure.state) <= order.index(sure.state)


def test_a_clock_that_was_set_and_one_that_is_not_known() -> None:
    was_set = BrokerFacts(status=status(clock_alarm="the clock was set by an hour"))
    assert [each.state for each in clock(was_set)] == ["ok", "warning"]
    assert list(clock(BrokerFacts())) == []


def queue(first_stored_at_ms: int) -> QueueDescription:
    return QueueDescription("t", 0, 0, 1, True, True, first_stored_at_ms, 0)


@pytest.mark.parametrize(
    ("since_ms", "size", "expected"),
    [
        (9 * DAY_MS, 1_000, 1_000.0),
        (8 * DAY_MS, 1_000, 500.0),
        (10 * DAY_MS - 1, 1_000, None),
        (0, 0, 0.0),
    ],
)
def test_messages_kept_for_ever_grow_by_their_size_over_their_age(
    since_ms: int, size: int, expected: float | None
) -> None:
    logs = [
        LogDescription("forever", 1, 1 << 20, 50, 50 + size),
        LogDescription("transient", 1, 9, 0, 9),
    ]
    facts = BrokerFacts(status=status(logs=logs), topics=[], forever=[queue(since_ms)])
    assert grows_per_day(facts) == expected
    assert grows_per_day(BrokerFacts()) is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, [("messages", "ok")]),
        ({"refuses": "the disk is full; make room"}, [("messages", "failed")]),
        ({"shortage": "1 of 2 is there; start another"}, [("messages", "failed")]),
        ({"damaged": 3}, [("messages", "ok"), ("damage", "warning")]),
        ({"repaired": 3}, [("messages", "ok")]),
        ({"unrepaired": 1}, [("messages", "ok"), ("damage", "warning")]),
        ({"leads": [LeaderDescription("leader", 9, 1_000, 0, [])]}, [("messages", "ok"), ("failover", "ok")]),
        ({"leads": [LeaderDescription("leader", 9, 1_001, 3, [])]}, [("messages", "ok"), ("failover", "warning"), ("lost messages", "warning")]),
        ({"compaction": CompactionDescription(trouble="no memory")}, [("messages", "ok"), ("compaction", "warning")]),
        ({"archive": [ArchiveDescription("d", 0, 5, 0, "", "", 0)]}, [("messages", "ok"), ("archive", "ok")]),
        ({"archive": [ArchiveDescription("d", 0, 5, 9, "it lags", "", 0)]}, [("messages", "ok"), ("archive", "warning")]),
        ({"archive": [ArchiveDescription("d", 0, 5, 9, "", "refused", 0)]}, [("messages", "ok"), ("archive", "warning")]),
    ],
)  # fmt: skip
def test_a_broker_says_how_it_is(changed: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = health(BrokerFacts(status=status(**changed)))
    assert [(each.name, each.state) for each in found] == expected


def test_a_leader_that_acknowledges_nothing_says_what_to_start() -> None:
    why = (
        "of the 2 brokers that must be in sync, 1 is there: a:1; start another broker of the group"
    )
    (found,) = health(BrokerFacts(status=status(shortage=why)))
    assert found.finding.startswith("nothing is acknowledged: of the 2 brokers")
    assert found.advice == "start another broker of the group"


def test_a_user_without_permission_to_read_is_a_warning() -> None:
    (found,) = health(BrokerFacts(denied=["ann may not read cluster"]))
    assert (found.state, found.name) == ("warning", "permissions")
    assert "acl allow" in found.advice


@pytest.mark.parametrize(
    ("changed", "oldest_ms", "said"),
    [
        ({"lag": 99}, 999, None),
        ({"lag": 101}, 0, "101 messages behind"),
        ({"lag": 1}, 1_001, "1 messages behind, the oldest for 1.0 s"),
        ({"lag": 5, "members": 0}, 0, "no members"),
        ({"lag": 0, "members": 0}, 0, None),
        ({"lag": 5, "members": 0, "commits": False}, 0, None),
        ({"consume": False}, 0, "paused"),
    ],
)
def test_a_group_is_behind_paused_or_without_members(
    changed: dict[str, Any], oldest_ms: int, said: str | None
) -> None:
    facts = BrokerFacts(groups=[group(**changed)], oldest_ms={"g": oldest_ms})
    (found,) = groups(facts, messages_max=100, ms_max=1_000)
    assert found.state == ("ok" if said is None else "warning")
    assert (said or "at most") in found.finding


def test_a_group_near_its_limit_and_dead_letters_are_warnings() -> None:
    facts = BrokerFacts(status=status(alarms=["g"]), groups=[group()], letters={"bad name": 7})
    limit, letters = groups(facts, messages_max=100, ms_max=1_000)
    assert "limit" in limit.finding
    assert letters.finding == "7 dead letters were not sent again"
    assert "dead 'bad name'" in letters.advice


def test_many_groups_end_with_a_line_for_the_rest() -> None:
    facts = BrokerFacts(groups=[group(f"g{number}", lag=1_000) for number in range(50)])
    found = list(groups(facts, messages_max=1, ms_max=1))
    assert len(found) == 21
    assert found[-1].finding == "30 more findings of this kind"


def test_no_group_is_no_finding() -> None:
    assert list(groups(BrokerFacts(), messages_max=1, ms_max=1)) == []


def topic(name: str, queues: int = 4, retention: str = "transient", **frozen: list[int]) -> Any:
    return TopicDescription(name, queues, retention, **frozen)


@pytest.mark.parametrize(
    ("there", "state", "said"),
    [
        ([topic("a.commands")], "ok", "4 queues"),
        ([topic("a.commands", 6)], "ok", "6 queues"),
        ([], "warning", "no such topic"),
        ([topic("a.commands", 2)], "warning", "2 queues, and the settings say 4"),
        ([topic("a.commands", retention="forever")], "failed", "'forever'"),
        ([topic("a.commands", unwritable=[3], unreadable=[1, 3])], "warning", "frozen: 1, 3"),
    ],
)
def test_a_declared_topic_is_compared_with_that_of_the_broker(
    there: list[Any], state: str, said: str
) -> None:
    declared = [DeclaredTopic("a.commands", 4, "transient")]
    (found,) = topics(BrokerFacts(topics=there), "a", declared)
    assert (found.state, found.name) == (state, "topic a.commands")
    assert said in found.finding


def test_a_command_topic_that_no_command_has_is_a_warning() -> None:
    facts = BrokerFacts(topics=[topic("a.commands.old"), topic("b.commands.own"), topic("a.other")])
    (found,) = topics(facts, "a", [])
    assert (found.state, found.name) == ("warning", "topic a.commands.old")


def test_topics_that_may_not_be_read_are_not_compared() -> None:
    assert list(topics(BrokerFacts(), "a", [DeclaredTopic("a.events", 4, "forever")])) == []
    assert list(service(BrokerFacts(), "a", "a.commands")) == []


@pytest.mark.parametrize(("members", "state"), [(0, "warning"), (2, "ok")])
def test_an_application_needs_a_process_that_handles_commands(members: int, state: str) -> None:
    facts = BrokerFacts(
        topics=[], groups=[group("a.commands", members=members), group("b.commands")]
    )
    (found,) = service(facts, "a", "a.commands")
    assert found.state == state


def test_a_name_server_that_knows_no_broker_fails_unless_another_one_knows_some() -> None:
    away, known = NameFacts("ns2:1", 0, "no answer"), NameFacts("ns1:1", 1)
    first, second = names([known, away])
    assert (first.state, first.name, first.finding) == (
        "ok",
        "name server ns1:1",
        "it knows 1 broker",
    )
    assert (second.state, second.finding) == ("warning", "no answer")
    assert "--nameservers" in second.advice
    assert [one.state for one in names([away])] == ["failed"]
    assert next(names([NameFacts("ns1:1", 3)])).finding == "it knows 3 brokers"
