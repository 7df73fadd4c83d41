"""Wire columns become the Arrow columns that are asked for, and no others."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, Columns, assign, encode_batch, read_header
from headrace_mq.spark.columns import ARROW_SCHEMA, Gathered

QUEUE = QueueRef("orders", 3)
COLUMNS = Columns(["k", "l"], ["new", ""], [{"a": "1", "b": "2"}, {}], [b"xyz", b""], [0, 7])


@pytest.fixture
def header() -> BatchHeader:
    batch = encode_batch(QUEUE, COLUMNS, born_first_ms=1_000)
    assign(batch, base_offset=10, position=0, appended_at_ms=2_000, epoch=1)
    return read_header(batch)


def schema_of(*names: str) -> Any:
    return pa.schema([ARROW_SCHEMA.field(name) for name in names])


@pytest.mark.parametrize("name", ARROW_SCHEMA.names)
def test_a_column_alone_is_what_it_is_among_all(name: str, header: BatchHeader) -> None:
    every, one = Gathered(QUEUE, ARROW_SCHEMA), Gathered(QUEUE, schema_of(name))
    for gathered in (every, one):
        gathered.add(header, COLUMNS, 0, 2)
        gathered.add(header, COLUMNS, 1, 2)
    assert one.to_arrow().schema == schema_of(name)
    assert one.to_arrow().column(name).to_pylist() == every.to_arrow().column(name).to_pylist()


def test_columns_stand_in_the_order_asked_for(header: BatchHeader) -> None:
    gathered = Gathered(QUEUE, schema_of("stored_at", "offset"))
    gathered.add(header, COLUMNS, 1, 2)
    assert gathered.to_arrow().to_pylist() == [
        {"stored_at": datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), "offset": 11}
    ]


def test_headers_that_are_not_included_are_null_and_of_their_type(header: BatchHeader) -> None:
    gathered = Gathered(QUEUE, ARROW_SCHEMA, include_headers=False)
    gathered.add(header, COLUMNS, 0, 2)
    column = gathered.to_arrow().column("headers")
    assert (column.type, column.null_count) == (ARROW_SCHEMA.field("headers").type, 2)


def test_rows_and_body_bytes_are_counted(header: BatchHeader) -> None:
    with_bodies, without = Gathered(QUEUE, ARROW_SCHEMA), Gathered(QUEUE, schema_of("key"))
    for gathered in (with_bodies, without):
        gathered.add(header, COLUMNS, 0, 2)
    assert (with_bodies.rows, with_bodies.body_bytes) == (2, 3)
    assert (without.rows, without.body_bytes) == (2, 0)


HEADERS = st.sampled_from([{}, {"a": "1"}, {"a": "2"}, {"a": "1", "b": ""}])
RUNS = st.lists(
    st.tuples(
        st.integers(0, 3),  # offsets that are missing before it
        st.sampled_from([5, 6]),  # when it was stored
        st.booleans(),  # whether its records were born at one time
        st.lists(HEADERS, min_size=1, max_size=4) | st.just([{"a": "1"}] * 3) | st.just([{}] * 2),
        st.integers(0, 2),  # how many of the first are not wanted
    ),
    max_size=6,
)


@given(RUNS)
def test_values_that_many_records_share_appear_in_each_row(runs: list[Any]) -> None:
    gathered, wanted, at = Gathered(QUEUE, ARROW_SCHEMA), [], 10
    for missing, stored, together, headers, first in runs:
        at += missing
        count = len(headers)
        columns = Columns(
            [], [], headers if any(headers) else [], [b"x"] * count,
            [] if together else list(range(count)),
        )  # fmt: skip
        batch = encode_batch(QUEUE, columns, born_first_ms=at)
        assign(batch, base_offset=at, position=0, appended_at_ms=stored, epoch=1)
        gathered.add(read_header(batch), columns, first, count)
        wanted += [
            (at + place, headers[place], at + (0 if together else place), stored)
            for place in range(first, count)
        ]
        at += count
    if not wanted:
        return
    found = gathered.to_arrow()
    assert found.column("offset").to_pylist() == [each[0] for each in wanted]
    assert [dict(each) for each in found.column("headers").to_pylist()] == [
        each[1] for each in wanted
    ]
    for name, place in (("born_at", 2), ("stored_at", 3)):
        moments = found.column(name).cast(pa.int64()).to_pylist()
        assert moments == [each[place] * 1_000 for each in wanted]
