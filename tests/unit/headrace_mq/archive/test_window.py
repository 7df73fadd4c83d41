from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.archive.window import beyond_window
from headrace_mq.message import QueueRef


class Segment(NamedTuple):
    base: int
    end: int
    bytes: int
    last_ms: int | None
    sealed: bool
    next_offsets: Mapping[QueueRef, int]


def log(count: int) -> list[Segment]:
    return [Segment(n * 10, n * 10 + 10, 10, 0, n < count - 1, {}) for n in range(count)]


def before(count: int, archived: int, window_bytes: int = 0, segments_max: int = 99) -> int:
    return beyond_window(log(count), archived, window_bytes=window_bytes, segments_max=segments_max)


def test_only_what_is_archived_as_a_whole_goes() -> None:
    assert before(5, archived=29) == 20
    assert before(5, archived=30) == 30


def test_the_segment_that_is_written_to_stays() -> None:
    assert before(3, archived=30) == 20
    assert before(1, archived=10) == 0


def test_the_window_stays() -> None:
    assert before(5, archived=50, window_bytes=30) == 20
    assert before(5, archived=50, window_bytes=29) == 30


def test_few_go_at_a_time() -> None:
    assert before(9, archived=90, segments_max=2) == 20


def test_an_empty_log_has_nothing_to_give() -> None:
    assert beyond_window([], 5, window_bytes=0, segments_max=1) == 0


@given(
    count=st.integers(1, 9), archived=st.integers(0, 99), window=st.integers(0, 99),
    most=st.integers(1, 9),
)  # fmt: skip
def test_nothing_goes_that_is_not_archived(
    count: int, archived: int, window: int, most: int
) -> None:
    found = before(count, archived, window, most)
    assert 0 <= found <= max(archived, 0)
    assert found % 10 == 0
    assert found // 10 <= most
