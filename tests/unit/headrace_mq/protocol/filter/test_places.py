"""Entries of a column, without its neighbours."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.errors import DataCorrupt
from headrace_mq.protocol.filter.places import Chosen, Payload, Taken, decode_payload, taken

NO_HEADERS = msgspec.Raw(b"\x80")
COUNTS = st.sampled_from([1, 2, 15, 16, 17, 300])


def payload(columns: list[Any]) -> Payload:
    return decode_payload(msgspec.msgpack.encode(columns))


@given(COUNTS, st.data())
def test_the_entries_at_the_places_come_and_defaults_for_what_is_empty(
    count: int, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=6, unique=True))
    filled = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    full: list[Any] = [
        [f"k{n}" * (n % 7) for n in range(count)],
        [f"tag {n}" for n in range(count)],
        [{"n": str(n), "m": "x" * n} for n in range(count)],
    ]
    columns = [column if there else [] for column, there in zip(full, filled, strict=True)]
    bodies = [b"%d" % n * (n % 40) for n in range(count)]
    chosen = Chosen(sorted(places))
    found = taken(payload([*columns, bodies, []]), chosen, count)
    defaults: list[Any] = ["", "", {}]
    keys, tags, headers = (
        [column[place] if column else missing for place in sorted(places)]
        for column, missing in zip(columns, defaults, strict=True)
    )
    encoded = [msgspec.Raw(msgspec.msgpack.encode(one)) for one in headers]
    at = [bodies[place] for place in sorted(places)]
    assert found == list(map(Taken, keys, tags, encoded, at))
    named = [f"known {place}" for place in places]
    asked = [msgspec.Raw(msgspec.msgpack.encode({"known": one})) for one in named]
    known = chosen._replace(headers=asked, tags=named)
    assert taken(payload([*columns, bodies, []]), known, count) == [
        one._replace(headers=header, tag=tag)
        for one, header, tag in zip(found, asked, named, strict=True)
    ]


def test_arrays_in_a_longer_form_than_they_need_are_read_too() -> None:
    column = b"\xdd\x00\x00\x00\x02\xa1a\xa1b"
    rest = b"\xdc\x00\x00" + b"\x90" + b"\xdc\x00\x02\xc4\x01A\xc4\x01B" + b"\x90"
    found = taken(decode_payload(b"\x95" + column + rest), Chosen([1]), 2)
    assert found == [Taken("b", "", NO_HEADERS, b"B")]


@pytest.mark.parametrize("places", [[0], [0, 1, 2]])
@pytest.mark.parametrize(
    "columns",
    [
        [["a", "b"], [], [], [b"", b"", b""], []],
        [[], [], [{}] * 4, [b""] * 3, []],
    ],
)
def test_columns_of_different_lengths_are_corrupt(columns: list[Any], places: list[int]) -> None:
    with pytest.raises(DataCorrupt, match="differ in length"):
        taken(payload(columns), Chosen(places), 3)


@pytest.mark.parametrize("places", [[0], [0, 1, 2]])
@pytest.mark.parametrize(
    "columns",
    [
        [[1, 2, 3], [], [], [b""] * 3, []],
        [[], [None] * 3, [], [b""] * 3, []],
        [[], [], [{"a": 1}] * 3, [b""] * 3, []],
        [[], [], [], ["", "", ""], []],
    ],
)
def test_an_entry_of_another_kind_does_not_decode(columns: list[Any], places: list[int]) -> None:
    with pytest.raises(msgspec.DecodeError):
        taken(payload(columns), Chosen(places), 3)
