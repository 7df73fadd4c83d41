"""What is moved to the disk comes back by aggregate, in order, and leaves no file."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from headrace.rebuild.event_topic import Portion
from headrace.spark.executor import spill as module
from headrace.spark.executor.spill import State, StateSpill


def body(aggregate_id: str, number: int) -> bytes:
    return msgspec.json.encode({"aggregate_id": aggregate_id, "number": number})


@pytest.fixture(params=[1, 1 << 20])
def spill(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StateSpill]:
    """One that writes each value alone, and one that writes them together."""
    monkeypatch.setattr(module, "_CHUNK_BYTES", request.param)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(StateSpill(0)) as made:
        yield made
    assert not list(tmp_path.iterdir())


def test_each_aggregate_comes_back_whole_and_in_order(spill: StateSpill) -> None:
    names = [f"a{number}" for number in range(100)]
    for name in names[:50]:
        spill.add_state(State(name, 3, touched=name != "a7", row=b"row" if name > "a3" else None))
    for turn in range(3):
        portion = Portion(range(100 * turn, 100 * turn + 100), [body(name, turn) for name in names])
        left = spill.add_messages(portion, but={"a5", "a6"})
        assert (left.offsets, left.bodies) == (
            [100 * turn + 5, 100 * turn + 6], [body("a5", turn), body("a6", turn)],
        )  # fmt: skip
    states: dict[str, State] = {}
    found: dict[str, list[int]] = {}
    parts = 0
    for before, portions in spill.parts():
        mine = {state.aggregate_id: state for state in before}
        states |= mine
        numbers = [
            (msgspec.json.decode(each), offset)
            for portion in portions
            for offset, each in zip(portion.offsets, portion.bodies, strict=True)
        ]
        here = {one["aggregate_id"] for one, _ in numbers}
        assert not here & found.keys(), "an aggregate is in one part"
        assert mine.keys() <= here | {"a5", "a6"}
        parts += bool(numbers)
        for one, offset in numbers:
            assert offset == 100 * one["number"] + int(one["aggregate_id"][1:])
            found.setdefault(one["aggregate_id"], []).append(one["number"])
    assert parts > 16
    assert states == {
        name: State(name, 3, touched=name != "a7", row=b"row" if name > "a3" else None)
        for name in names[:50]
    }
    assert found == {name: [0, 1, 2] for name in names if name not in {"a5", "a6"}}


def test_a_part_is_divided_again_by_the_next_level() -> None:
    names = [f"account-{number:07}" for number in range(4_000)]
    with closing(StateSpill(0)) as first, closing(StateSpill(1)) as second:
        part = [name for name in names if first._part(name) == 5]
        assert 60 < len(part) < 190
        assert len({second._part(name) for name in part}) > 16


def test_a_message_that_names_no_aggregate_is_kept(spill: StateSpill) -> None:
    assert not spill.add_messages(Portion([7], [b"{"]), but=()).bodies
    ((offset, kept),) = [
        (portion.offsets[0], portion.bodies[0]) for _, some in spill.parts() for portion in some
    ]
    assert (offset, kept) == (7, b"{")
