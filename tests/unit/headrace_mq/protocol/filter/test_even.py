"""Entries of one size, found by counting."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.protocol.filter.even import even_entries
from headrace_mq.protocol.filter.places import array_head

encode = msgspec.msgpack.encode

SIZES = st.sampled_from([0, 1, 31, 32, 255, 256, 70_000])


@given(SIZES, st.integers(1, 20), st.booleans(), st.data())
def test_entries_of_one_size_are_found_where_they_stand(
    size: int, count: int, texts: bool, data: st.DataObject
) -> None:
    # Every byte of a length among the contents too.
    entries = [bytes([n % 128]) * size for n in range(count)]
    column = encode([str(one, "ascii") for one in entries] if texts else entries)
    places = data.draw(st.lists(st.integers(0, count - 1), max_size=4))
    found = even_entries(column, array_head(count), count, places, texts=texts)
    assert found == [entries[place] for place in places]


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=6), st.booleans())
def test_what_is_found_is_what_a_decoder_finds(entries: list[bytes], texts: bool) -> None:
    column = encode([str(one, "latin-1") for one in entries] if texts else entries)
    count = len(entries)
    found = even_entries(column, array_head(count), count, range(count), texts=texts)
    if found is not None:
        decoded = msgspec.msgpack.decode(column)
        assert found == ([one.encode() for one in decoded] if texts else decoded)


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize(
    "entries",
    [
        [],
        ["a", "bb"],
        # As long as three of the first size, and other entries all the same.
        ["a", "bbb", ""],
        ["ab", b"", "a"],
        [1, 2, 3],
        [None] * 3,
        [{}] * 3,
    ],
)
def test_entries_of_several_sizes_or_kinds_are_unknown(entries: list[Any], texts: bool) -> None:
    assert even_entries(encode(entries), array_head(3), 3, [0], texts=texts) is None


def test_texts_are_no_bodies_and_an_array_may_begin_in_another_way() -> None:
    texts, bodies = encode(["a", "b"]), encode([b"a", b"b"])
    assert even_entries(texts, array_head(2), 2, [0], texts=False) is None
    assert even_entries(bodies, array_head(2), 2, [0], texts=True) is None
    assert even_entries(b"\xdc\x00\x02" + bodies[1:], array_head(2), 2, [0], texts=False) is None
    assert even_entries(bodies, array_head(3), 3, [0], texts=False) is None
