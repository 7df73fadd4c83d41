from collections.abc import Sequence
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.fetch.process_queue import ProcessQueue, WindowLimits


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
def test_a_window_behaves_like_two_sets(start: int, steps: list[tuple[str, int, int]]) -> None:
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
def test_a_window_is_full_by_count_by_bytes_or_by_span(limits: WindowLimits, full: bool) -> None:
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


def pieces_of(gaps: list[list[int]], *, as_ranges: bool) -> list[Sequence[int]]:
    """Offsets in pieces, each one so far behind the one before it; ranges where they are some."""
    pieces: list[Sequence[int]] = []
    offset = 2
    for gaps_of_one in gaps:
        piece = []
        for gap in gaps_of_one:
            offset += gap
            piece.append(offset)
        is_run = as_ranges and piece[-1] - piece[0] == len(piece) - 1
        pieces.append(range(piece[0], piece[-1] + 1) if is_run else piece)
    return pieces


@given(
    gaps=st.lists(st.lists(st.sampled_from([1, 1, 1, 3]), min_size=1, max_size=20), max_size=6),
    as_ranges=st.booleans(),
    data=st.data(),
)
def test_finishing_many_is_finishing_each(
    gaps: list[list[int]], as_ranges: bool, data: st.DataObject
) -> None:
    one, many = ProcessQueue(3), ProcessQueue(3)
    pieces = pieces_of(gaps, as_ranges=as_ranges)
    for piece in pieces:
        take(one, piece)
        take(many, piece)
    # Whole pieces one behind the other, in any order, and offsets of anywhere, some of them twice.
    whole = st.lists(st.sampled_from(pieces or [[]]), max_size=3).map(
        lambda found: [offset for piece in found for offset in piece]
    )
    some = st.lists(st.integers(0, 100), max_size=12)
    for _ in range(3):
        offsets: Sequence[int] = data.draw(
            st.one_of(whole, some, st.sampled_from(pieces or [[]]), st.builds(add, whole, some))
        )
        each = [one.finish(offset) for offset in offsets]
        assert many.finish_all(offsets) == any(each)
        assert (len(many), many.lowest_unfinished) == (len(one), one.lowest_unfinished)
        assert many._bytes == one._bytes
        assert [offset in many for offset in range(2)] == [False, False]
    held = [offset for piece in pieces for offset in piece]
    assert [offset in many for offset in held] == [offset in one for offset in held]


def test_a_window_wants_a_size_for_each_offset() -> None:
    window = ProcessQueue(0)
    with pytest.raises(ValueError, match="2 offsets have 1 sizes"):
        window.take([0, 1], [1])
    assert (len(window), window.end) == (0, 0)


def test_offsets_that_are_taken_and_finished_together_stay_one_range() -> None:
    window = ProcessQueue(0)
    window.take(range(50), [1] * 50)
    window.take([50, 52], [1, 1])
    window.take(range(53, 90), [1] * 37)
    assert window.finish_all([*range(51), 52])
    assert window.finish_all(range(53, 90))
    assert (len(window), window.lowest_unfinished) == (0, 90)
    assert not window._order
    assert not window.finish_all([0, 52, 89])


@pytest.mark.parametrize("taken", [range(100), [*range(50), *range(60, 110)]])
def test_the_first_of_what_was_taken_together_may_be_finished_first(taken: Sequence[int]) -> None:
    window = ProcessQueue(0)
    window.take(taken, [2] * 100)
    for first, end in ((0, 30), (30, 90), (90, 100)):
        assert window.finish_all([*taken[first:end]])
        assert (len(window), window._bytes) == (100 - end, 2 * (100 - end))
        assert window.lowest_unfinished == (taken[end] if end < len(taken) else taken[-1] + 1)
        assert not window._order


@pytest.mark.parametrize("offsets", [[5, 5], [5, 7, 6], [4, 5], [7, 6]])
def test_offsets_that_do_not_ascend_are_refused_whole(offsets: list[int]) -> None:
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


def test_offsets_that_are_passed_over_count_as_finished() -> None:
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
