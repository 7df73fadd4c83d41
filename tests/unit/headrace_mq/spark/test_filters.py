"""What filters take away, together with what Spark is left to do, is what the filters say."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, assign, encode_batch, read_header, tag_bit
from headrace_mq.spark.filters import NumberRange, RowFilter, take_filters
from headrace_mq.spark.offsets import QueueSlice

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPICS, QUEUES, TAGS, COUNT = ("a", "b"), 3, ("", "x", "y"), 12


def at(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


# Batches of two records; all records of batch number n were stored at n // 2 ms.
BATCHES = []
for topic in TOPICS:
    for queue_id in range(QUEUES):
        for first in range(0, COUNT, 2):
            tags = [TAGS[(first + queue_id) % 3], TAGS[(first // 2) % 3]]
            batch = encode_batch(
                QueueRef(topic, queue_id), Columns([], tags, [], [b"", b""], []), born_first_ms=0
            )
            assign(batch, base_offset=first, position=0, appended_at_ms=first // 4, epoch=1)
            BATCHES.append((read_header(batch), tags))

ROWS = [
    {
        "topic": header.queue.topic,
        "queue_id": header.queue.queue_id,
        "offset": header.base_offset + index,
        "stored_at": at(header.appended_at_ms),
        "tag": tag,
    }
    for header, tags in BATCHES
    for index, tag in enumerate(tags)
]

COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, bound: bool(value == bound),
    EqualNullSafe: lambda value, bound: bool(value == bound),
    In: lambda value, bound: value in bound,
    LessThan: lambda value, bound: bool(value < bound),
    LessThanOrEqual: lambda value, bound: bool(value <= bound),
    GreaterThan: lambda value, bound: bool(value > bound),
    GreaterThanOrEqual: lambda value, bound: bool(value >= bound),
}


def passes(row: dict[str, Any], one: Any) -> bool:
    """What Spark would say."""
    if isinstance(one, Not):
        return not passes(row, one.child)
    if isinstance(one, IsNotNull | IsNull):
        return isinstance(one, IsNotNull)
    return COMPARE[type(one)](row[one.attribute[0]], one.value)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from([*TOPICS, "c"]),
    "tag": st.sampled_from([*TAGS, "z"]),
    "queue_id": st.integers(-1, QUEUES),
    "offset": st.integers(-1, COUNT + 1),
    "stored_at": st.builds(
        lambda ms, us: at(ms) + timedelta(microseconds=us), st.integers(-1, 4), st.integers(0, 1)
    ),
}


@st.composite
def some_filter(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from([*COMPARE, IsNotNull]))
    if kind is IsNotNull:
        one: Filter = IsNotNull((column,))
    elif kind is In:
        one = In((column,), tuple(draw(st.lists(VALUES[column], max_size=3))))
    else:
        one = kind((column,), draw(VALUES[column]))
    return Not(one) if draw(st.booleans()) and draw(st.booleans()) else one


@given(st.lists(some_filter(), max_size=4))
def test_rows_read_and_then_filtered_by_spark_match_the_filters(
    filters: list[Filter],
) -> None:
    wanted, left = take_filters(filters)
    assert all(any(one is given for given in filters) for one in left)
    whole = [
        QueueSlice(queue=QueueRef(topic, queue_id), start=0, end=COUNT)
        for topic in TOPICS
        for queue_id in range(QUEUES)
    ]
    slices = {piece.queue: range(piece.start, piece.end) for piece in wanted.narrow(whole)}
    keep = wanted.chooser() or (lambda header: True)
    read = [
        row
        for number, row in enumerate(ROWS)
        if keep(BATCHES[number // 2][0])
        and row["offset"] in slices.get(QueueRef(row["topic"], row["queue_id"]), ())
    ]
    expected = [row for row in ROWS if all(passes(row, one) for one in filters)]
    assert [row for row in read if all(passes(row, one) for one in left)] == expected


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("queue_id",), 1),
        In(("queue_id",), (1, 2)),
        LessThan(("offset",), 9),
        EqualTo(("topic",), "a"),
        GreaterThanOrEqual(("stored_at",), at(2)),
        In(("stored_at",), (at(2),)),
        IsNotNull(("key",)),
    ],
)
def test_a_filter_that_is_answered_for_is_not_left_to_spark(one: Filter) -> None:
    assert take_filters([one])[1] == []


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("tag",), "x"),
        In(("offset",), (1, 9)),
        EqualTo(("key",), "k"),
        Not(EqualTo(("topic",), "a")),
        IsNotNull(("headers",)),
        IsNull(("tag",)),
        GreaterThan(("topic",), "a"),
        EqualTo(("queue_id",), None),
        EqualTo(("queue_id",), True),
        LessThan(("stored_at",), datetime(2026, 1, 1)),  # noqa: DTZ001 - the case to be refused
        In(("topic",), ("a", None)),
        EqualTo(("offset", "inner"), 3),
    ],
)
def test_a_filter_that_is_not_answered_for_is_left_to_spark(one: Filter) -> None:
    assert take_filters([one])[1] == [one]


def test_tags_skip_batches_by_their_summary() -> None:
    keep = RowFilter(tags=frozenset({"x"})).chooser()
    assert keep is not None
    kept = [keep(header) for header, _ in BATCHES]
    assert kept == [bool(header.tag_summary & tag_bit("x")) for header, _ in BATCHES]
    assert set(kept) == {True, False}


def test_without_bounds_no_batch_is_looked_at() -> None:
    assert RowFilter(queue_ids=NumberRange(low=1)).chooser() is None
