"""Whether a payload is built as one of a batch."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.errors import UndecodableBatch
from headrace_mq.protocol.structure import check_structure

encode = msgspec.msgpack.encode
Lengths = tuple[int, int, int, int, int]


@given(st.tuples(*[st.integers(0, 20)] * 5), st.integers(1, 20))
def test_every_column_is_empty_or_as_long_as_the_batch_and_bodies_are_never_empty(
    lengths: Lengths, count: int
) -> None:
    payload = encode([[0] * length for length in lengths])
    sound = lengths[3] == count and set(lengths) <= {0, count}
    if sound:
        check_structure(payload, count)
        return
    with pytest.raises(UndecodableBatch, match="differ in length"):
        check_structure(payload, count)


@given(st.binary(max_size=60), st.integers(1, 70_000))
def test_bytes_of_any_kind_are_judged_and_nothing_else_is_raised(data: bytes, count: int) -> None:
    with pytest.raises(UndecodableBatch):
        check_structure(data, count)


def test_arrays_in_arrays_without_end_are_refused() -> None:
    with pytest.raises(UndecodableBatch, match="recursion"):
        check_structure(b"\x95" + b"\x91" * 100_000, 1)


@pytest.mark.parametrize("head", [b"\x91", b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01"])
def test_a_length_may_be_written_in_each_of_its_forms(head: bytes) -> None:
    check_structure(b"\x95\x90\x90\x90" + head + b"\xc4\x00\x90", 1)
