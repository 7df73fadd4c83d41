"""Segments in order: where the next group stands, and reading across segments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.store.log.commit_log import CommitLog
from headrace_mq.store.segment.segment import MARK_BYTES, SEGMENT_HEADER_BYTES, Place, segment_name

SEGMENT_BYTES = 64 * 1024
ROOM = SEGMENT_BYTES - SEGMENT_HEADER_BYTES


@pytest.fixture
def log(tmp_path: Path, files: Any) -> Iterator[CommitLog]:
    made = CommitLog(files, tmp_path / "forever", segment_bytes=SEGMENT_BYTES, epoch=1)
    made.open()
    yield made
    made.close()


def filled(log: CommitLog, lengths: list[int]) -> list[tuple[Place, bytes]]:
    """Writes pieces one behind the other, each new segment where the last one is full."""
    pieces = []
    for number, length in enumerate(lengths):
        if log.tail + length > log.tail_limit:
            log.adopt(log.make_segment(log.plan_segment(length, now_ms=0)))
        data = bytes([number % 255 + 1]) * length
        assert log.active is not None
        log.active.write(log.tail, [data])
        pieces.append((Place(log.tail, length), data))
        log.tail += length
        log.end = log.tail
    return pieces


def read(log: CommitLog, places: list[Place]) -> list[bytes]:
    """Reads run by run and cuts the runs up again."""
    found, left = [], list(places)
    for run in log.runs(places):
        data = run.segment.read(run.position, run.length)
        assert run.places == left[: len(run.places)]
        for place in run.places:
            at = place.position - run.position
            found.append(data[at : at + place.length])
        del left[: len(run.places)]
    assert not left
    return found


def test_an_empty_log_has_no_segment_until_it_is_written_to(log: CommitLog, tmp_path: Path) -> None:
    assert log.active is None
    assert log.name == "forever"
    assert list((tmp_path / "forever").iterdir()) == []


def test_a_segment_begins_where_the_one_before_it_ends(log: CommitLog, tmp_path: Path) -> None:
    filled(log, [ROOM - 100, 200, 300])
    assert [segment.base for segment in log.segments] == [0, ROOM - 100]
    assert [path.name for path in sorted((tmp_path / "forever").iterdir())] == [
        segment_name(0),
        segment_name(ROOM - 100),
    ]


def test_a_batch_larger_than_a_segment_gets_a_larger_one(log: CommitLog) -> None:
    plan = log.plan_segment(SEGMENT_BYTES * 3, now_ms=5)
    assert plan.file_bytes == SEGMENT_HEADER_BYTES + MARK_BYTES + SEGMENT_BYTES * 3
    assert log.tail_limit == MARK_BYTES + SEGMENT_BYTES * 3


def test_forgetting_what_is_staged_goes_back_to_the_end(log: CommitLog) -> None:
    filled(log, [500])
    log.tail += 1_000
    log.plan_segment(ROOM, now_ms=0)
    log.forget_staged()
    assert (log.tail, log.tail_limit) == (500, ROOM)


def test_opening_finds_segments_and_removes_unfinished_ones(
    log: CommitLog, tmp_path: Path, files: Any
) -> None:
    size = ROOM - MARK_BYTES
    pieces = filled(log, [size, size, 100])
    (tmp_path / "forever" / (segment_name(ROOM * 3) + ".new")).write_bytes(b"half")
    (tmp_path / "forever" / "notes.txt").write_text("mine")
    again = CommitLog(files, tmp_path / "forever", segment_bytes=SEGMENT_BYTES, epoch=1)
    again.open()
    again.end_at(size * 2 + 100)
    assert [segment.base for segment in again.segments] == [0, size, size * 2]
    assert read(again, [place for place, _ in pieces]) == [data for _, data in pieces]
    assert again.tail == again.synced == size * 2 + 100
    assert again.tail_limit == size * 2 + ROOM
    names = {path.name for path in (tmp_path / "forever").iterdir()}
    assert "notes.txt" in names
    assert not any(name.endswith(".new") for name in names)
    again.close()


def test_neighbours_are_one_run_and_strangers_one_each(log: CommitLog) -> None:
    pieces = filled(log, [200, 200, 200, 10_000, 200])
    places = [place for place, _ in pieces]
    (run,) = log.runs(places[:3])
    assert run == (log.segments[0], places[0].position, 600, places[:3])
    # Behind a small batch of somebody else it is still cheaper to read on.
    assert [one.length for one in log.runs([places[0], places[2]])] == [600]
    assert [one.length for one in log.runs([places[0], places[4]])] == [200, 200]
    assert log.runs([]) == []


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 20_000), min_size=1, max_size=20),
    picks=st.sets(st.integers(0, 19)),
)
def test_any_selection_of_places_reads_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], picks: set[int]
) -> None:
    directory = tmp_path_factory.mktemp("log") / "forever"
    log = CommitLog(SystemFiles(), directory, segment_bytes=SEGMENT_BYTES, epoch=1)
    log.open()
    pieces = [piece for n, piece in enumerate(filled(log, lengths)) if n in picks]
    assert read(log, [place for place, _ in pieces]) == [data for _, data in pieces]
    log.close()


def test_segments_that_a_replica_may_lack_are_not_deleted(log: CommitLog) -> None:
    filled(log, [SEGMENT_BYTES] * 4)
    bases = [one.base for one in log.segments]
    assert log.deletable(log.end) == 3
    for kept_from, count in ((bases[2], 2), (bases[2] - 1, 1), (0, 0)):
        log.kept_from = kept_from
        assert log.deletable(log.end) == count
        assert sum(one.sealed for one in log.infos()) == count
