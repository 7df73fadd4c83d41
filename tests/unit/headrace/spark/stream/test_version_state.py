"""Versions pass once and in order, however they come and however they are cut into micro-batches."""

import random
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as some

from headrace.errors import ProjectionError
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.stream import version_state
from headrace.spark.stream.version_state import Waiting, gate_versions, next_streams


def nothing(_after: int, _to: int) -> dict[int, bytes]:
    return {}


@given(
    versions=some.lists(some.integers(1, 12), max_size=40),
    cuts=some.sets(some.integers(0, 40)),
    stored=some.booleans(),
)
def test_each_version_passes_once_and_in_order(
    versions: list[int], cuts: set[int], stored: bool
) -> None:
    def lacking(after: int, to: int) -> dict[int, bytes]:
        return {each: b"%d" % each for each in range(after + 1, to + 1)} if stored else {}

    version, waiting, passed = 0, Waiting(), []
    for place, each in enumerate(versions):
        waiting.setdefault(each, (0, 0, place, b"%d" % each))
        if place in cuts or place == len(versions) - 1:
            version, some_more = next_streams(version, waiting, lacking)
            passed += [int(body) for *_, body in some_more]
            assert version == len(passed)
            assert all(each > version for each in waiting)
    assert passed == list(range(1, len(passed) + 1))
    if stored:
        assert len(passed) == max(versions, default=0)
    else:
        whole = next(each for each in range(1, 14) if each not in versions)
        assert len(passed) == whole - 1


class Kept:
    """Spark's state of one key."""

    def __init__(self) -> None:
        self.kept: Any = None

    @property
    def exists(self) -> bool:
        return self.kept is not None

    @property
    def get(self) -> Any:
        return self.kept

    def update(self, value: Any) -> None:
        self.kept = value


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> FoldPlan:
    """A plan without an event store."""
    application = SimpleNamespace(serializer_at=lambda _url: None)
    monkeypatch.setattr(version_state, "load_application", lambda *_: application)
    return FoldPlan(app="a:b", folder="", projection="", broker="", event_store=None, slices=())


def frame(*versions: int) -> pd.DataFrame:
    bodies = [b'{"version": %d}' % each for each in versions]
    return pd.DataFrame({
        "moment": [7] * len(bodies), "queue": [1] * len(bodies), "offset": versions, "data": bodies,
    })  # fmt: skip


def passed(plan: FoldPlan, state: Kept, *versions: int) -> list[int]:
    made = list(gate_versions(plan, "a", [frame(*versions)], state))
    return [number for each in made for number in each["offset"].tolist()]


def test_the_state_goes_from_one_micro_batch_to_the_next(plan: FoldPlan) -> None:
    state = Kept()
    assert passed(plan, state, 2, 1, 2, 5) == [1, 2]
    assert passed(plan, state, 4, 5) == []
    assert passed(plan, state, 3) == [3, 4, 5]
    assert passed(plan, state, 1, 2, 3, 4, 5) == []
    assert state.kept == (5, b"")
    order = list(range(6, 40))
    random.Random(7).shuffle(order)
    assert sorted(each for one in order for each in passed(plan, state, one)) == list(range(6, 40))


def test_a_version_that_is_nowhere_is_not_waited_for_without_a_limit(
    plan: FoldPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_state, "HELD_MAX", 3)
    state = Kept()
    assert passed(plan, state, 3, 4, 5) == []
    with pytest.raises(
        ProjectionError, match=r"aggregate a lacks version 1, .*more than 3 streams"
    ):
        passed(plan, state, 6)


def test_a_stream_that_does_not_decode_is_named_with_its_place(plan: FoldPlan) -> None:
    broken = frame(1).assign(data=[b"{"])
    with pytest.raises(ProjectionError, match=r"queue 1 offset 1 \(aggregate a\) does not decode"):
        list(gate_versions(plan, "a", [broken], Kept()))
