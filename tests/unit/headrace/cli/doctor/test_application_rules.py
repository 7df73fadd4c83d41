"""What is said of databases, of what is parked, and of projections."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.cli.doctor.application_rules import (
    DatabaseFacts,
    ParkedFacts,
    databases,
    parked,
    projections,
)
from headrace.watch.lag import ProjectionLag, QueueLag


@pytest.mark.parametrize(
    ("facts", "state", "said", "advice"),
    [
        (DatabaseFacts("event store", size=3 << 20), "ok", "3.0 MiB", ""),
        (DatabaseFacts("event store"), "ok", "schema", ""),
        (DatabaseFacts("x", "the schema is behind; run: headrace db upgrade"), "failed", "the schema is behind", "run: headrace db upgrade"),
        (DatabaseFacts("x", "it is strange"), "failed", "it is strange", "check its URL, and that it runs"),
        (DatabaseFacts("x", in_memory=True), "warning", "memory", "name a database"),
    ],
)  # fmt: skip
def test_a_database_answers_or_says_why_not(
    facts: DatabaseFacts, state: str, said: str, advice: str
) -> None:
    (found,) = databases([facts])
    assert (found.state, found.name) == (state, facts.what)
    assert said in found.finding
    assert found.advice.startswith(advice)


@pytest.mark.parametrize(
    ("found", "states"),
    [
        ([], ["ok"]),
        ([ParkedFacts("commands", 2, 5)], ["warning"]),
        ([ParkedFacts("commands", 1, 5)], []),
        ([ParkedFacts("commands", 1, 11)], ["warning"]),
        (
            [ParkedFacts("commands", 5, 0), ParkedFacts("projection:x", 1, 99)],
            ["warning", "warning"],
        ),
    ],
)
def test_parked_letters_are_a_warning_from_the_alarms_on(
    found: list[ParkedFacts], states: list[str]
) -> None:
    said = list(parked(found, count_min=2, ms_max=10))
    assert [each.state for each in said] == states
    if states == ["warning", "warning"]:
        assert said[1].advice.startswith("`headrace parked show --processor projection:x`")


def lag(messages: int = 0, age_ms: int = 0, **changed: Any) -> ProjectionLag:
    queue = QueueLag(queue=("t", 0), next_offset=0, end=messages, messages=messages, age_ms=age_ms)
    values: dict[str, Any] = {
        "projection": "p", "generation": 1, "version": 1, "obstacle": None, "paused_at": None,
        "queues": (queue,), "parked": (),
    }  # fmt: skip
    return ProjectionLag(**values | changed)


@pytest.mark.parametrize(
    ("one", "state", "said"),
    [
        (lag(), "ok", "every event"),
        (lag(10, 5), "ok", "10 messages behind"),
        (lag(101, 5), "warning", "101 messages behind"),
        (lag(1, 1_001), "warning", "the oldest for 1.0 s"),
        (
            lag(elsewhere="belongs to another event topic"),
            "failed",
            "it belongs to another event topic",
        ),
        (lag(obstacle="the rows are newer"), "warning", "it waits: the rows are newer"),
        (lag(paused_at=datetime(2026, 1, 2, tzinfo=UTC)), "warning", "paused since 2026-01-02"),
        (lag(group_paused="a.p"), "warning", "an operator has paused its group a.p"),
    ],
)
def test_a_projection_stands_somewhere(one: ProjectionLag, state: str, said: str) -> None:
    (found,) = projections([one], [], messages_max=100, ms_max=1_000)
    assert (found.state, found.name) == (state, "projection p")
    assert said in found.finding


def test_a_projection_without_tables_is_a_warning() -> None:
    (found,) = projections([], ["p"], messages_max=100, ms_max=1_000)
    assert (found.state, found.finding) == ("warning", "it has no tables yet")
