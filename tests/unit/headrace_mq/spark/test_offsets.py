"""Options and held ranges in, slices out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import (
    QueueSlice,
    deleted_before,
    parse_bound,
    parse_moment,
    plan_slices,
)

HELD = [QueueRange("orders", 0, 5, 20), QueueRange("orders", 1, 0, 3)]


def slices_of(pieces: list[QueueSlice]) -> list[tuple[int, int, int]]:
    return [(piece.queue.queue_id, piece.start, piece.end) for piece in pieces]


def test_without_bounds_everything_held_is_read_one_slice_per_queue() -> None:
    assert slices_of(plan_slices(HELD)) == [(0, 5, 20), (1, 0, 3)]


def test_a_queue_without_records_to_read_has_no_slice() -> None:
    assert plan_slices(HELD, starting="latest") == []
    assert plan_slices(HELD, ending="earliest") == []


def test_queues_that_a_mapping_leaves_out_keep_the_default() -> None:
    starting = parse_bound("startingOffsets", '{"orders": {"0": 7}}')
    ending = parse_bound("endingOffsets", '{"orders": {"1": 2}}')
    assert slices_of(plan_slices(HELD, starting=starting, ending=ending)) == [(0, 7, 20), (1, 0, 2)]


def test_a_slice_holds_at_most_split_records() -> None:
    assert slices_of(plan_slices(HELD, split_records=6)) == [
        (0, 5, 11), (0, 11, 17), (0, 17, 20), (1, 0, 3),
    ]  # fmt: skip


@given(
    first=st.integers(0, 50),
    length=st.integers(0, 200),
    split=st.one_of(st.none(), st.integers(1, 60)),
)
def test_the_slices_of_a_queue_cover_its_range_once_and_in_order(
    first: int, length: int, split: int | None
) -> None:
    pieces = plan_slices([QueueRange("t", 0, first, first + length)], split_records=split)
    covered = [offset for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == list(range(first, first + length))
    assert all(0 < piece.records <= (split or length) for piece in pieces)


@pytest.mark.parametrize("text", ["earliest", "Latest "])
def test_the_two_words_are_read_in_any_case(text: str) -> None:
    assert parse_bound("startingOffsets", text) == text.strip().lower()


@pytest.mark.parametrize(
    "text", ["soonest", "{", '{"orders": 3}', '{"orders": {"zero": 3}}', '{"orders": {"0": -1}}']
)
def test_an_unreadable_bound_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r'endingOffsets: use "earliest", "latest" or JSON'):
        parse_bound("endingOffsets", text)


@pytest.mark.parametrize(
    ("starting", "ending", "sentence"),
    [
        ({QueueRef("orders", 0): 4}, "latest", "asks for offset 4 of orders/0, which holds 5 to"),
        ({QueueRef("orders", 0): 21}, "latest", "asks for offset 21 of orders/0"),
        ("earliest", {QueueRef("orders", 1): 4}, "asks for offset 4 of orders/1, which ends at 3"),
        ({QueueRef("orders", 0): 9}, {QueueRef("orders", 0): 8}, "after its end at 8"),
        ({QueueRef("orders", 2): 0}, "latest", "startingOffsets names queues .*: orders/2"),
        ("earliest", {QueueRef("other", 0): 0}, "endingOffsets names queues .*: other/0"),
    ],
)
def test_a_bound_outside_what_is_held_is_refused(
    starting: object, ending: object, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        plan_slices(HELD, starting=starting, ending=ending)  # type: ignore[arg-type]  # parametrized


def test_a_slice_size_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="splitRecords is 1 or more, not 0"):
        plan_slices(HELD, split_records=0)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01 01:00:00.002+01:00", 2),
        ("1970-01-01T00:00:00.0000001Z", 0),
        ("1970-01-01T00:00:00.001001+00:00", 2),
        ("1969-12-31T23:59:59.999+00:00", -1),
    ],
)
def test_a_moment_is_milliseconds_or_a_time_with_its_zone(text: str, milliseconds: int) -> None:
    assert parse_moment("startingTimestamp", text) == milliseconds


@pytest.mark.parametrize("text", ["", "soon", "2026-01-31", "2026-01-31T09:00:00", "-5"])
def test_a_moment_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="endingTimestamp: use milliseconds since 1970 UTC or"):
        parse_moment("endingTimestamp", text)


def test_offsets_of_a_bound_below_the_first_one_held_are_deleted() -> None:
    zero, one = QueueRef("orders", 0), QueueRef("orders", 1)
    [lost] = deleted_before(HELD, {zero: 2, one: 0})
    assert (lost.queue, lost.start, lost.end) == (zero, 2, 5)
    assert deleted_before(HELD, "earliest") == []


def test_the_sentence_about_deleted_offsets_names_the_way_on() -> None:
    with pytest.raises(ValueError, match="set failOnDataLoss=false to go on from 5"):
        plan_slices(HELD, starting={QueueRef("orders", 0): 4})
