"""Which offsets may go: sealed ones, old ones, and only those that every reader is past."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProjectionError
from headrace.spark.history.trim import Trimmed, _check_files, _told, plan_trim
from headrace_mq.protocol.releases import ReleaseAnswer, ReleasedQueue

offsets = st.dictionaries(st.integers(0, 2), st.integers(0, 9))


@given(st.none() | offsets, offsets, offsets, st.dictionaries(st.sampled_from("ab"), offsets))
def test_nothing_goes_that_is_not_sealed_old_and_read(
    wanted: dict[int, int] | None,
    sealed: dict[int, int],
    old: dict[int, int],
    readers: dict[str, dict[int, int]],
) -> None:
    try:
        plan = plan_trim(wanted, sealed, old, readers)
    except ProjectionError:
        asked = {n: min(end, old.get(n, 0)) for n, end in sealed.items()}
        asked = asked if wanted is None else wanted
        limits = [sealed, *readers.values()]
        assert any(limit.get(n, 0) < offset for n, offset in asked.items() for limit in limits)
        return
    for queue, offset in plan.items():
        assert offset <= sealed.get(queue, 0)
        assert all(reader.get(queue, 0) >= offset for reader in readers.values())
        assert wanted is not None or offset <= old.get(queue, 0)
    if wanted is not None:
        assert plan == wanted


def test_the_reader_that_hinders_is_named() -> None:
    readers = {"projection stock": {0: 9}, "group shop.handlers.mail": {0: 4}}
    with pytest.raises(
        ProjectionError, match=r"group shop\.handlers\.mail is at offset 4 of queue 0"
    ):
        plan_trim(None, {0: 9}, {0: 5}, readers)
    assert plan_trim(None, {0: 9}, {0: 4}, readers) == {0: 4}
    with pytest.raises(
        ProjectionError, match=r"group shop\.handlers\.mail is at offset 0 of queue 1"
    ):
        plan_trim({1: 1}, {1: 9}, {}, readers)


def test_the_outcome_is_one_line_and_a_dry_run_tells_what_would_be() -> None:
    answer = ReleaseAnswer(
        [ReleasedQueue("t", 0, 3, 9, 5), ReleasedQueue("t", 1, 0, 0, 0)], 1, 7, ["u"]
    )
    done = _told("t", answer, {0: 8}, dry_run=False)
    assert (done.released, done.first, done.holding) == ({0: 5, 1: 0}, {0: 3, 1: 0}, ["u"])
    assert _told("t", answer, {0: 8}, dry_run=True).released == {0: 8, 1: 0}
    assert "\n" not in done.to_json()
    assert isinstance(done, Trimmed)


def test_parts_whose_files_were_changed_hold_up_what_is_in_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.spark.archive import ExportedPart

    parts: Any = [
        ExportedPart(number=n, app="", topic="t", start={0: 10 * n - 10}, end={0: 10 * n})
        for n in (1, 2, 3)
    ]
    looked: list[int] = []

    def changed(_folder: Path, part: ExportedPart) -> list[str]:
        looked.append(part.number)
        return ["x is missing"] if part.number == 2 else []

    monkeypatch.setattr("headrace.spark.history.trim.changed_files", changed)
    _check_files(tmp_path, parts, {0: 5}, {0: 10})
    assert looked == [1]
    with pytest.raises(ProjectionError, match="Nothing was released"):
        _check_files(tmp_path, parts, {0: 10}, {0: 25})
    assert looked == [1, 2]
