"""A broker says how far its log is compacted, and which tombstones it has lost."""

from types import SimpleNamespace
from typing import Any

from headrace_mq.store.replication.compacted_log import CompactedState, piece_of, state_of
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES, Compacted


def segment(base: int, cleaned_ms: int | None, forgotten: int = 0) -> Any:
    """A segment of 100 positions; None: as it was written."""
    compacted = None
    if cleaned_ms is not None:
        compacted = Compacted(base + 50, base + 100, cleaned_ms, 0, 1, forgotten)
    return SimpleNamespace(base=base, compacted=compacted)


def test_a_log_that_was_never_compacted_is_clean_nowhere() -> None:
    assert state_of([]) == state_of([segment(0, None)]) == CompactedState(0, 0, 0, 1)


def test_a_log_is_clean_up_to_the_first_segment_that_is_not() -> None:
    state = state_of([segment(0, 5), segment(100, 6), segment(200, 0), segment(300, None)])
    assert state == CompactedState(clean=200, forgotten=0, end=300, version=1)
    assert state_of([segment(0, 0), segment(100, 6)]).clean == 0


def test_removed_tombstones_are_counted_with_their_place() -> None:
    state = state_of([segment(0, 5, 2), segment(100, 6, 3), segment(200, 7)])
    assert (state.forgotten, state.version) == (200, 6)


def test_the_beginning_of_another_file_is_no_beginning_of_this_one() -> None:
    size = SEGMENT_HEADER_BYTES + 50
    data = bytes(range(256)) * 17
    held = SimpleNamespace(
        base=1_000, limit=1_100, identity=7, file_bytes=size,
        read=lambda position, length: data[position - 1_000 + SEGMENT_HEADER_BYTES :][:length],
    )  # fmt: skip
    first: Any = piece_of(held, 0, 500, 4_000)  # type: ignore[arg-type]  # only what is used of it
    assert (first.at, first.size, first.covers, first.data) == (0, size, 1_100, data[:4_000])
    rest: Any = piece_of(held, 7, 4_000, 4_000)  # type: ignore[arg-type]  # only what is used of it
    assert (rest.at, rest.data) == (4_000, data[4_000:size])
