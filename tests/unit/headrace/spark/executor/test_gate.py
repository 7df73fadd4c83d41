"""Each version passes once and in order, however the topic holds them."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.message import DomainEvent
from headrace.domain.stream import EventStream
from headrace.spark.executor.gate import MissingVersions, StreamGate

NOW = datetime(2026, 1, 31, tzinfo=UTC)


class Happened(DomainEvent):
    pass


def stream(aggregate_id: str, version: int) -> EventStream:
    return EventStream(
        aggregate_type="Thing",
        aggregate_id=aggregate_id,
        version=version,
        command_id=str(version),
        correlation_id=str(version),
        recorded_at=NOW,
        events=(Happened(), Happened()),
    )


def versions(streams: list[EventStream]) -> list[tuple[str, int | None]]:
    return [(one.aggregate_id, one.version) for one in streams]


def test_streams_in_order_pass_at_once() -> None:
    gate = StreamGate({})
    assert versions(gate.admit([stream("a", 1), stream("b", 1), stream("a", 2)])) == [
        ("a", 1), ("b", 1), ("a", 2),
    ]  # fmt: skip
    assert gate.versions == {"a": 2, "b": 1}
    assert (gate.events, gate.duplicates, gate.gaps) == (6, 0, 0)


def test_what_was_folded_before_is_a_duplicate() -> None:
    gate = StreamGate({"a": 2})
    assert versions(gate.admit([stream("a", 1), stream("a", 2), stream("a", 3)])) == [("a", 3)]
    assert gate.duplicates == 2


def test_a_late_version_releases_what_waited_for_it() -> None:
    gate = StreamGate({})
    assert gate.admit([stream("a", 3), stream("a", 2), stream("a", 3)]) == []
    assert versions(gate.admit([stream("a", 1)])) == [("a", 1), ("a", 2), ("a", 3)]
    assert gate.finish() == []
    assert (gate.events, gate.duplicates, gate.gaps) == (6, 1, 1)


def test_missing_versions_are_looked_for_at_the_end_all_at_once() -> None:
    asked: list[Sequence[MissingVersions]] = []

    def find(wanted: Sequence[MissingVersions]) -> list[EventStream]:
        asked.append(wanted)
        return [
            stream(aggregate_id, version)
            for aggregate_id, after, to in wanted
            for version in range(after + 1, to + 1)
        ]

    gate = StreamGate({"a": 1}, find=find)
    assert gate.admit([stream("a", 4), stream("b", 2), stream("a", 7)]) == []
    assert gate.holds_back == 3
    assert versions(gate.finish()) == [
        *(("a", version) for version in range(2, 8)), ("b", 1), ("b", 2),
    ]  # fmt: skip
    assert asked == [[("a", 1, 3), ("a", 4, 6), ("b", 0, 1)]]
    assert (gate.filled, gate.missing, gate.versions) == (5, [], {"a": 7, "b": 2})
    assert gate.finish() == []
    assert (len(asked), gate.holds_back) == (1, 0)


def test_a_caller_may_look_itself() -> None:
    gate = StreamGate({})
    gate.admit([stream("a", 3)])
    assert gate.lacking() == [("a", 0, 2)]
    assert versions(gate.finish([stream("a", 1), stream("a", 2)])) == [
        ("a", 1), ("a", 2), ("a", 3),
    ]  # fmt: skip
    assert gate.filled == 2


@pytest.mark.parametrize("found", [None, [], [2], [3], [2, 3], [1, 3]])
def test_what_cannot_be_found_is_named_and_passes_nothing(found: list[int] | None) -> None:
    def find(wanted: Sequence[MissingVersions]) -> list[EventStream]:
        return [stream("a", version) for version in found or []]

    gate = StreamGate({}, find=None if found is None else find)
    gate.admit([stream("a", 1), stream("a", 5), stream("b", 1)])
    assert gate.finish() == []
    assert gate.missing == [MissingVersions(aggregate_id="a", after_version=1, to_version=4)]
    assert str(gate.missing[0]) == "a versions 2 to 4"
    assert gate.finish() == []


def test_what_is_held_back_is_bounded() -> None:
    gate = StreamGate({}, held_max=2)
    gate.admit([stream("a", 2), stream("a", 3)])
    assert gate.missing == []
    gate.admit([stream("a", 4)])
    assert [str(one) for one in gate.missing] == ["a versions 1 to 1"]


def test_rejections_have_no_version_and_pass_nothing(ledger: Any) -> None:
    assert StreamGate({}).admit([ledger.rejection("a")]) == []


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 30),
    doubled=st.integers(0, 10),
    cut=st.integers(1, 5),
)
def test_any_order_with_any_duplicates_passes_each_version_once_in_order(
    lengths: list[int], seed: int, doubled: int, cut: int
) -> None:
    chance = random.Random(seed)
    history = [
        stream(f"a{number}", version)
        for number, length in enumerate(lengths)
        for version in range(1, length + 1)
    ]
    arrived = history + chance.choices(history, k=doubled)
    chance.shuffle(arrived)
    gate = StreamGate({})
    passed: list[EventStream] = []
    for start in range(0, len(arrived), cut):
        passed += gate.admit(arrived[start : start + cut])
    passed += gate.finish()
    for number, length in enumerate(lengths):
        own = [one.version for one in passed if one.aggregate_id == f"a{number}"]
        assert own == list(range(1, length + 1))
    assert gate.duplicates == doubled
    assert gate.events == 2 * len(history)
    assert gate.missing == []


@given(
    present=st.lists(st.sets(st.integers(1, 12), min_size=1), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 30),
    held_max=st.integers(1, 30),
)
def test_a_store_fills_any_holes_with_one_question_each_time(
    present: list[set[int]], seed: int, held_max: int
) -> None:
    asked: list[Sequence[MissingVersions]] = []

    def find(wanted: Sequence[MissingVersions]) -> list[EventStream]:
        asked.append(wanted)
        return [stream(key, at) for key, after, to in wanted for at in range(after + 1, to + 1)]

    arrived = [stream(f"a{number}", at) for number, own in enumerate(present) for at in own]
    random.Random(seed).shuffle(arrived)
    gate = StreamGate({}, find=find, held_max=held_max)
    passed = gate.admit(arrived) + gate.finish()
    for number, own in enumerate(present):
        found = [one.version for one in passed if one.aggregate_id == f"a{number}"]
        assert found == list(range(1, max(own) + 1))
    # What comes after it was filled stood in the topic all the same.
    lacking = sum(max(own) - len(own) for own in present)
    assert gate.filled == lacking + gate.duplicates
    assert len(asked) <= 1 + len(arrived) // (held_max + 1)
    assert gate.missing == []
