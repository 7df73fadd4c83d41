"""Three-valued logic over columns."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters import conditions
from headrace_mq.filters.conditions import Condition, Messages, NumberBounds
from headrace_mq.filters.filter import Filter

ANSWERS = [True, False, None]


def said(answers: list[bool | None]) -> Condition:
    return Condition(lambda messages: [answers[int(at or 0)] for at in messages.headers["at"]])


NINE = Messages(9, {"at": list("012345678")}, ["k"] * 9, ["t"] * 9)
THREE = Messages(3, {"at": list("012")})


def test_and_or_and_not_are_those_of_sql() -> None:
    left = [one for one in ANSWERS for _ in ANSWERS]
    right = ANSWERS * 3
    assert conditions.both(said(left), said(right)).ask(NINE) == [
        True, False, None, False, False, False, None, False, None,
    ]  # fmt: skip
    assert conditions.either(said(left), said(right)).ask(NINE) == [
        True, True, True, True, False, None, True, None, None,
    ]  # fmt: skip
    assert conditions.opposite(said(ANSWERS)).ask(THREE) == [False, True, None]


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


def test_the_second_condition_sees_only_what_the_first_leaves() -> None:
    asked: list[Messages] = []

    def second(messages: Messages) -> list[bool | None]:
        asked.append(messages)
        return [True] * messages.size

    messages = Messages(3, {"h": ["a", "b", None]}, ["x", "y", "z"], ["r", "s", "t"])
    condition = conditions.both(
        conditions.compare("=", conditions.header("h"), conditions.written("string", "b")),
        Condition(second),
    )
    assert condition.ask(messages) == [False, True, None]
    assert asked == [Messages(2, {"h": ["b", None]}, ["y", "z"], ["s", "t"])]
    assert condition.ask(Messages(1, {"h": ["c"]})) == [False]
    assert len(asked) == 1


TEXTS = st.one_of(
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.text("0123456789.+-e", max_size=5),
    st.sampled_from(["", "1_0", " 1", "²", "nan", "1" * 41, "x"]),
)


@given(st.lists(TEXTS, max_size=5))
def test_numbers_of_a_column_are_those_of_its_texts(texts: list[str]) -> None:
    alone = [conditions.number(text) for text in texts]
    together = conditions.numbers(texts)
    assert together == alone
    assert list(map(type, together)) == list(map(type, alone))


def test_each_distinct_text_is_decided_once() -> None:
    seen: list[str] = []

    def matches(text: str) -> bool:
        seen.append(text)
        return text == "a"

    condition = conditions.like(conditions.header("h"), matches)
    messages = Messages(4, {"h": ["a", "b", None, "a"]})
    assert condition.ask(messages) == [True, False, None, True]
    assert sorted(seen) == ["a", "b"]


def test_a_column_of_different_texts_is_decided_in_its_order() -> None:
    condition = conditions.like(conditions.header("h"), "b".__eq__)
    assert condition.ask(Messages(3, {"h": ["c", "b", "a"]})) == [False, True, False]
    above = conditions.compare(">", conditions.header("h"), conditions.written("number", 2))
    assert above.ask(Messages(4, {"h": ["1", "2.5", "x", "3"]})) == [False, True, None, True]
    assert above.ask(Messages(3, {"h": ["1", None, "3"]})) == [False, None, True]


SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(-(10**30), 10**30), st.floats(-1e9, 1e9))


@pytest.mark.parametrize(
    ("text", "name", "low", "high"),
    [
        ("price > 10", "price", 10, math.inf),
        ("10 > price", "price", -math.inf, 10),
        ("price = 10", "price", 10, 10),
        ("price BETWEEN 1 AND 2", "price", 1, 2),
        ("price IN (3, 1, 2.5)", "price", 1, 3),
        ("price > 1 AND price <= 9 AND region = 'EU'", "price", 1, 9),
        ("price > 1 AND weight > 2", "price", 1, math.inf),
        ("price = 1 OR price = 5", "price", 1, 5),
    ],
)
def test_a_filter_knows_between_which_numbers_a_header_must_be(
    text: str, name: str, low: float, high: float
) -> None:
    bounds = Filter(text).bounds
    assert bounds is not None
    assert bounds.name == name
    assert (bounds.low, bounds.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    "text",
    [
        "price <> 10", "NOT price > 10", "price > 1 OR weight > 2", "price > 1 OR region = 'EU'",
        "price = '10'", "price > weight", "_key > 10", "price IN ('1', '2')", "price IS NULL",
    ],
)  # fmt: skip
def test_a_filter_without_bounds_has_none(text: str) -> None:
    assert Filter(text).bounds is None


@given(SIGNS, NUMBERS, NUMBERS)
def test_every_selected_message_is_within_the_bounds(
    sign: str, limit: float, number: float
) -> None:
    # As SQL writes numbers: without an exponent's sign there is nothing that Python adds.
    wanted = Filter(f"n {sign} {limit!r}".replace("e+", "e"))
    if wanted.bounds is not None and wanted.selects({"n": repr(number)}):
        assert wanted.bounds.low <= float(repr(number)) <= wanted.bounds.high


def test_bounds_that_contradict_each_other_select_no_message() -> None:
    bounds = Filter("n > 5 AND n < 3").bounds
    assert isinstance(bounds, NumberBounds)
    assert bounds.low > bounds.high
