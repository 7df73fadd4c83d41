"""Two values are alike in type and in all that they hold, or a sentence says where not."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.domain.difference import difference

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


class Plain:
    def __init__(self, number: int) -> None:
        self.number = number


class Pair(BaseModel):
    left: Any
    right: Any = None


@dataclass
class Point:
    x: int


@given(VALUES)
def test_nothing_is_different_from_itself(value: Any) -> None:
    assert difference(value, value) == ""


@given(VALUES, VALUES)
def test_a_difference_is_symmetric_and_finds_all_that_is_not_equal(one: Any, other: Any) -> None:
    found = difference(Pair(left=one), Pair(left=other))
    assert bool(found) is bool(difference(Pair(left=other), Pair(left=one)))
    if not found:
        assert repr(one) == repr(other) or one == other


@pytest.mark.parametrize(
    ("value", "again", "where"),
    [
        (True, 1, "field left holds a value of bool"),
        (1, 1.0, "field left holds a value of int"),
        (date(2026, 1, 1), "2026-01-01", "field left holds a value of date"),
        ([1, [2]], [1, [3]], "field left.1.0 holds a int"),
        ([1], [1, 2], "field left holds 1 values, of which 2 come back"),
        ({"a": {"b": 1}}, {"a": {"c": 1}}, "field left.a holds keys that do not"),
        (Pair(left=Pair(left=1)), Pair(left=Pair(left=2)), "field left.left.left holds a int"),
        (Plain(1), Plain(2), "field left.number holds a int"),
        (Point(1), Point(2), "field left holds a Point"),
        (Decimal(1), Decimal(2), "field left holds a Decimal"),
    ],
)
def test_the_sentence_says_where(value: Any, again: Any, where: str) -> None:
    assert difference(Pair(left=value), Pair(left=again)).startswith(where)


def test_what_has_no_equality_of_its_own_is_what_it_holds() -> None:
    assert difference(Plain(1), Plain(1)) == ""
