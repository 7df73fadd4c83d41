from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.process_queue import ProcessQueue, WindowLimits


def take(window: ProcessQueue, offsets: Sequence[int]) -> None:
    """Takes offsets whose records have as many bytes as their number says."""
    window.take(offsets, offsets)


# A step takes some offsets after a gap, or finishes an offset near the door.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.just("finish"), st.integers(0, 12), st.just(0)),
    ),
    max_size=60,
)


@given(start=st.integers(0, 100), steps=steps)
def test_it_behaves_like_two_sets(start: int, steps: list[tuple[str, int, int]]) -> None:
    window = ProcessQueue(start)
    taken: set[int] = set()
    finished: set[int] = set()
    end = start
    for action, number, count in steps:
        if action == "take":
            offsets = list(range(end + number, end + number + count))
            take(window, offsets)
            taken.update(offsets)
            end = offsets[-1] + 1
        else:
            offset = start + number
            assert window.finish(offset) == (offset in taken - finished)
            finished.update({offset} & taken)
        assert window.lowest_unfinished == min(taken - finished, default=end)
        assert len(window) == len(taken - finished)
        assert window.end == end
        unfinished = taken - finished
        span = end - min(unfinished, default=end)
        for near in (0, 1):
            limits = (len(unfinished) + near, sum(unfinished) + near, span + near)
            assert window.is_full(WindowLimits(*limits)) == (near == 0)
        assert all((offset in window) == (offset in taken - finished) for offset in taken)


def test_the_door_stays_at_the_lowest_unfinished_offset() -> None:
    window = ProcessQueue(5)
    take(window, range(5, 9))
    window.finish(6)
    window.finish(8)
    assert window.lowest_unfinished == 5
    window.finish(5)
    assert window.lowest_unfinished == 7
    window.finish(7)
    assert window.lowest_unfinished == 9


def test_before_anything_is_taken_the_door_is_at_the_start() -> None:
    assert ProcessQueue(7).lowest_unfinished == 7


def test_a_gap_counts_as_finished_once_something_after_it_was_taken() -> None:
    window = ProcessQueue(0)
    take(window, [0])
    window.finish(0)
    assert window.lowest_unfinished == 1
    take(window, [10])
    assert window.lowest_unfinished == 10


def test_an_offset_is_taken_once() -> None:
    window = ProcessQueue(3)
    take(window, [3])
    for offset in (2, 3):
        with pytest.raises(
            ValueError, match=f"offset {offset} was taken before; the next one is 4"
        ):
            take(window, [offset])


@pytest.mark.parametrize(
    ("limits", "full"),
    [
        (WindowLimits(3, 99, 99), True),
        (WindowLimits(99, 9, 99), True),
        (WindowLimits(99, 99, 6), True),
        (WindowLimits(4, 10, 7), False),
    ],
)
def test_it_is_full_by_count_by_bytes_or_by_span(limits: WindowLimits, full: bool) -> None:
    window = ProcessQueue(0)
    window.take([0, 2, 5], [2, 3, 4])
    assert window.is_full(limits) == full


def test_a_slow_offset_fills_the_window_by_its_span_until_it_is_finished() -> None:
    window, limits = ProcessQueue(0), WindowLimits(99, 99, 4)
    window.take([0, 1, 2, 3], [1, 1, 1, 1])
    for offset in (3, 2, 1):
        window.finish(offset)
        assert window.is_full(limits)
    window.finish(0)
    assert not window.is_full(limits)


@given(
    taken=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    finished=st.lists(st.lists(st.integers(0, 50), max_size=12), max_size=5),
)
def test_finishing_many_is_finishing_each(taken: list[int], finished: list[list[int]]) -> None:
    one, many = ProcessQueue(3), ProcessQueue(3)
    offset, offsets = 2, []
    for gap in taken:
        offset += gap
        offsets.append(offset)
    for window in (one, many):
        take(window, offsets)
    for some in finished:
        each = [one.finish(offset) for offset in some]
        assert many.finish_all(some) == any(each)
        assert (len(many), many.lowest_unfinished) == (len(one), one.lowest_unfinished)
        assert many._bytes == one._bytes


@pytest.mark.parametrize("offsets", [[5, 5], [5, 7, 6], [4, 5], [7, 6]])
def test_what_does_not_ascend_is_refused_whole(offsets: list[int]) -> None:
    window = ProcessQueue(5)
    with pytest.raises(ValueError, match="was taken before"):
        take(window, offsets)
    assert (len(window), window.end) == (0, 5)


@pytest.mark.parametrize("offsets", [range(4, 8), range(7, 5, -1)])
def test_a_range_that_was_taken_before_or_does_not_ascend_is_refused_whole(offsets: range) -> None:
    window = ProcessQueue(5)
    with pytest.raises(ValueError, match="was taken before"):
        take(window, offsets)
    assert (len(window), window.end) == (0, 5)


def test_what_is_passed_over_counts_as_finished() -> None:
    window = ProcessQueue(5)
    window.pass_over(8)
    assert (window.end, window.lowest_unfinished, len(window)) == (8, 8, 0)
    window.take([9], [1])
    window.pass_over(20)
    assert (window.end, window.lowest_unfinished) == (20, 9)
    window.finish(9)
    assert window.lowest_unfinished == 20
    window.pass_over(3)
    assert window.end == 20
