"""Three-valued logic over columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters import conditions
from headrace_mq.filters.conditions import Condition, Messages

ANSWERS = [True, False, None]


def said(answers: list[bool | None]) -> Condition:
    return Condition(lambda _: answers)


NOBODY = Messages(0, {})


def test_and_or_and_not_are_those_of_sql() -> None:
    left = [one for one in ANSWERS for _ in ANSWERS]
    right = ANSWERS * 3
    assert conditions.both(said(left), said(right)).ask(NOBODY) == [
        True, False, None, False, False, False, None, False, None,
    ]  # fmt: skip
    assert conditions.either(said(left), said(right)).ask(NOBODY) == [
        True, True, True, True, False, None, True, None, None,
    ]  # fmt: skip
    assert conditions.opposite(said(ANSWERS)).ask(NOBODY) == [False, True, None]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("-7", -7), ("+1.50", 1.5), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0),
        ("12345678901234567890", 12345678901234567890),
        ("", None), ("1_000", None), ("nan", None), ("inf", None), ("0x1", None), (" 1", None),
        ("²", None), ("٣", None), ("1" * 41, None), ("1e9999", None),
    ],
)  # fmt: skip
def test_a_text_is_a_number_or_not(text: str, number: float | None) -> None:
    assert conditions.number(text) == number


@given(st.integers(-(10**38), 10**38))
def test_whole_numbers_are_exact(whole: int) -> None:
    assert conditions.number(str(whole)) == whole


def test_each_distinct_text_is_decided_once() -> None:
    seen: list[str] = []

    def matches(text: str) -> bool:
        seen.append(text)
        return text == "a"

    condition = conditions.like(conditions.header("h"), matches)
    messages = Messages(4, {"h": ["a", "b", None, "a"]})
    assert condition.ask(messages) == [True, False, None, True]
    assert sorted(seen) == ["a", "b"]
