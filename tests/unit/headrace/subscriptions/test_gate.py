"""The version gate lets each version pass once and in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.subscriptions.gate import Arrival, Gap, VersionGate


def test_an_aggregate_never_seen_begins_at_version_1() -> None:
    gate = VersionGate({})
    assert gate.offer("a", 2) == Gap(after_version=0, to_version=1)
    assert gate.offer("a", 1) is Arrival.NEXT
    assert gate.offer("a", 2) is Arrival.NEXT


def test_a_known_aggregate_goes_on_after_its_last_version() -> None:
    gate = VersionGate({"a": 3})
    assert gate.offer("a", 4) is Arrival.NEXT


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_version_at_or_below_the_last_is_a_duplicate(version: int) -> None:
    assert VersionGate({"a": 3}).offer("a", version) is Arrival.DUPLICATE


def test_a_gap_names_the_missing_versions_and_does_not_move_the_gate() -> None:
    gate = VersionGate({"a": 3})
    assert gate.offer("a", 7) == Gap(after_version=3, to_version=6)
    assert gate.offer("a", 4) is Arrival.NEXT


def test_only_aggregates_with_a_passed_version_have_moved() -> None:
    gate = VersionGate({"a": 3, "b": 1})
    gate.offer("a", 4)
    gate.offer("a", 5)
    gate.offer("b", 1)
    gate.offer("c", 2)
    assert gate.moved == {"a": 5}


def test_moved_versions_are_taken_once_and_learned_ones_have_not_moved() -> None:
    gate = VersionGate({})
    gate.learn({"a": 3})
    assert gate.offer("a", 3) is Arrival.DUPLICATE
    gate.offer("a", 4)
    assert gate.take_moved() == {"a": 4}
    assert gate.take_moved() == gate.moved == {}
    assert gate.offer("a", 5) is Arrival.NEXT


def test_a_version_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match="begin at 1"):
        VersionGate({}).offer("a", 0)


def test_the_versions_given_are_not_changed() -> None:
    known = {"a": 1}
    VersionGate(known).offer("a", 2)
    assert known == {"a": 1}


DELIVERIES = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 8)), max_size=60)


@given(DELIVERIES, st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 4)))
def test_every_delivery_with_duplicates_passes_each_version_once_in_order(
    deliveries: list[tuple[str, int]], known: dict[str, int]
) -> None:
    gate = VersionGate(known)
    applied: dict[str, list[int]] = {}
    for aggregate_id, version in deliveries:
        arrival = gate.offer(aggregate_id, version)
        if isinstance(arrival, Gap):
            for late in range(arrival.after_version + 1, arrival.to_version + 1):
                assert gate.offer(aggregate_id, late) is Arrival.NEXT
                applied.setdefault(aggregate_id, []).append(late)
            arrival = gate.offer(aggregate_id, version)
        if arrival is Arrival.NEXT:
            applied.setdefault(aggregate_id, []).append(version)
    for aggregate_id, versions in applied.items():
        first = known.get(aggregate_id, 0) + 1
        highest = max(version for other, version in deliveries if other == aggregate_id)
        assert versions == list(range(first, highest + 1))
    assert gate.moved == {aggregate_id: versions[-1] for aggregate_id, versions in applied.items()}


@given(DELIVERIES, st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 4)))
def test_many_offers_at_once_are_answered_like_single_ones(
    deliveries: list[tuple[str, int]], known: dict[str, int]
) -> None:
    at_once, one_by_one = VersionGate(known), VersionGate(known)
    offers = [(name, version, (name, version)) for name, version in deliveries]
    passed: list[object] = []
    wanted: list[object] = []
    place, gap = at_once.admit(offers, passed)
    while gap is not None:
        # Left out, as one by one; what comes after it goes on.
        place, gap = at_once.admit(offers, passed, place + 1)
    assert place == len(offers)
    for name, version, comes in offers:
        if one_by_one.offer(name, version) is Arrival.NEXT:
            wanted += comes
    assert passed == wanted
    assert at_once.take_moved() == one_by_one.take_moved()
    assert len(at_once) == len(one_by_one)
