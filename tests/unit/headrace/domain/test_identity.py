"""Ids of any type become text once, and stay apart."""

from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.identity import check_id, id_text
from headrace.domain.value import ValueObject


class Country(Enum):
    SWEDEN = "se"


class Size(IntEnum):
    LARGE = 3


class Place(ValueObject):
    country: str
    number: int


@dataclass(frozen=True)
class Seat:
    row: str
    number: int


class Named(str):
    """Text that shows itself as something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "shown"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a-1", "a-1"),
        (Named("a-1"), "a-1"),
        (17, "17"),
        (-1, "-1"),
        (UUID(int=10), "00000000-0000-0000-0000-00000000000a"),
        (date(2026, 1, 31), "2026-01-31"),
        (Country.SWEDEN, "se"),
        (Size.LARGE, "3"),
        (("a", 1), "a:1"),
        ((("a", "b"), "c"), r"a\:b:c"),
        (Place(country="se", number=7), "se:7"),
        (Seat("a:b", 7), r"a\:b:7"),
    ],
)
def test_the_text_of_an_id_is_plain(value, text):
    assert id_text("an id", value) == text


parts = st.text(alphabet="ab:\\", min_size=1, max_size=4) | st.tuples(
    st.text(alphabet="ab:\\", min_size=1, max_size=3),
    st.text(alphabet="ab:\\", min_size=1, max_size=3),
)


@given(st.tuples(parts, parts), st.tuples(parts, parts))
def test_different_ids_of_one_shape_have_different_texts(one, other):
    same_shape = [type(part) for part in one] == [type(part) for part in other]
    if one != other and same_shape:
        assert id_text("an id", one) != id_text("an id", other)
    else:
        assert id_text("an id", one) == id_text("an id", one)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([1], "list is not; use a frozen type"),
        ((1, [2]), "is not; use a frozen type"),
        (True, "must not be True"),
        (None, "must not be None"),
        (object(), "give object a __str__"),
        ("", "1 to 255 characters"),
        ((), "1 to 255 characters"),
    ],
)
def test_what_cannot_be_an_id_says_why(value, sentence):
    with pytest.raises(ValueError, match=sentence):
        id_text("an id", value)


@pytest.mark.parametrize("text", ["a\x00", "\ud800", "a\udfff"])
def test_an_id_that_some_store_could_not_keep_is_refused_by_its_kind(text):
    with pytest.raises(
        ValueError, match="a command id must not contain NUL or half of a surrogate"
    ):
        check_id("a command id", text)


def test_an_id_has_one_to_255_characters():
    assert check_id("an id", "x" * 255) == "x" * 255
    for text in ("", "x" * 256):
        with pytest.raises(ValueError, match="1 to 255 characters"):
            check_id("an id", text)
