"""Memory folds what one fold over everything folds, however it is cut and forgotten."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import Projection
from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.folds import count, field, sum_
from headrace.projections.definition.fold import fold_streams
from headrace.rebuild.decode import Told, tell
from headrace.rebuild.local.memory import Memory, OwnRows, SharedRows, remember
from headrace.subscriptions.gate import Gap

STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["book", "note", "end"]), st.integers(0, 5)),
    max_size=30,
)


def told(streams: list[EventStream]) -> list[Told]:
    return [tell(stream, lambda _: True) for stream in streams]


def history(ledger: Any, steps: list[Any]) -> list[EventStream]:
    """A stream per step, each aggregate's versions in order."""
    versions: dict[str, int] = {}
    streams = []
    for key, kind, number in steps:
        versions[key] = versions.get(key, 0) + 1
        event = {
            "book": ledger.Booked(partner=f"p{number % 2}", amount=number),
            "note": ledger.Noted(text=str(number)),
            "end": ledger.Ended(),
        }[kind]
        streams.append(ledger.stream(key, versions[key], event))
    return streams


def existing(rows: Any) -> Any:
    return {key: row for key, row in rows.items() if row is not None}


class Tables:
    """What a database would hold, and a memory in front of it."""

    def __init__(self, memory: Memory[Any]) -> None:
        self.memory = memory
        self.versions: dict[str, int] = {}
        self.rows: dict[str, Any] = {}

    def add(self, some: list[Told]) -> None:
        unknown = self.memory.unknown_aggregates(some)
        self.memory.learn_versions(
            unknown, {k: v for k, v in self.versions.items() if k in unknown}
        )
        self._learn_rows(some)
        assert self.memory.take(some) == (len(some), None)
        self._learn_rows(some)
        self.memory.fold()

    def _learn_rows(self, some: list[Told]) -> None:
        self.memory.learn_rows({k: self.rows.get(k) for k in self.memory.unknown_keys(some)})

    def write(self) -> None:
        versions, rows = self.memory.take_changes()
        self.versions |= versions
        self.rows = existing(self.rows | rows)


# The fixture is a value that no example changes.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, size=st.integers(1, 8), forgets=st.booleans(), which=st.integers(0, 2))
def test_any_cut_gives_the_rows_and_versions_of_one_fold(
    ledger: Any, steps: list[Any], size: int, forgets: bool, which: int
) -> None:
    projection = ledger.accounts if which else ledger.partners
    # A memory for rows of any key keeps those of aggregates as well.
    memory = OwnRows(projection) if which == 1 else SharedRows(projection)
    streams = history(ledger, steps)
    tables = Tables(memory)
    for place in range(0, len(streams), size):
        # Each piece comes twice: what was seen changes nothing.
        tables.add(told(streams[place : place + size] * 2))
        if forgets:
            tables.write()
            memory.clear()
            assert len(memory) == 0
    tables.write()
    assert tables.rows == existing(fold_streams(projection, {}, streams))
    assert tables.versions == {each.aggregate_id: each.version for each in streams}
    assert memory.take_changes() == ({}, {})


@pytest.mark.parametrize("kind", [OwnRows, SharedRows])
def test_a_gap_stops_it_and_it_goes_on_when_the_gap_is_filled(ledger: Any, kind: Any) -> None:
    streams = [
        ledger.stream(key, version, ledger.Booked(partner="p", amount=version))
        for key, version in (("a", 1), ("b", 3), ("a", 2), ("b", 1), ("b", 2))
    ]
    memory = kind(ledger.accounts)
    assert memory.take(told(streams[:3])) == (1, Gap(after_version=0, to_version=2))
    assert memory.take(told(streams[3:])) == (2, None)
    assert memory.take(told(streams[:3]), 1) == (3, None)
    memory.fold()
    versions, rows = memory.take_changes()
    assert versions == {"a": 2, "b": 3}
    in_order = [streams[place] for place in (0, 2, 3, 4, 1)]
    assert rows == fold_streams(ledger.accounts, {}, in_order)


@pytest.mark.parametrize("kind", [OwnRows, SharedRows])
def test_an_event_that_cannot_be_folded_is_named(ledger: Any, kind: Any) -> None:
    tables = Tables(kind(ledger.accounts))
    failing = told([ledger.stream("a", 1, ledger.Noted(text="fail"))])
    with pytest.raises(ProjectionError, match="accounts cannot fold Noted a/1/1: RuntimeError"):
        tables.add(failing)


@pytest.mark.parametrize("kind", [OwnRows, SharedRows])
def test_an_aggregate_whose_events_nobody_folds_changes_its_version_alone(
    ledger: Any, kind: Any
) -> None:
    memory = kind(ledger.accounts)
    assert memory.take([("a", 1, ())]) == (1, None)
    memory.fold()
    assert memory.take_changes() == ({"a": 1}, {})


def test_a_condition_of_a_declared_column_keeps_events_out(ledger: Any) -> None:
    kept = Projection("kept", row=ledger.Partner, key="partner")
    kept.on(ledger.Booked, where=field("amount") > 1, total=sum_("amount"))
    kept.on(ledger.Noted, total=count())
    streams = [
        ledger.stream("a", 1, ledger.Booked(partner="p", amount=1)),
        ledger.stream("a", 2, ledger.Booked(partner="p", amount=4), ledger.Noted(text="x")),
    ]
    memory = remember(kept)
    memory.take(told(streams))
    assert isinstance(memory, OwnRows)
    assert memory.take_changes()[1] == {"a": ledger.Partner(partner="a", total=5)}


def test_only_rows_of_aggregates_are_kept_beside_their_versions(ledger: Any) -> None:
    assert isinstance(remember(ledger.accounts), OwnRows)
    assert isinstance(remember(ledger.partners), SharedRows)
