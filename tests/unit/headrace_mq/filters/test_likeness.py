"""LIKE: the same as a regular expression says, in bounded time."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace_mq.filters.likeness import compile_pattern


def by_regex(pattern: str, text: str) -> bool:
    signs = {"%": ".*", "_": "."}
    expression = "".join(signs.get(sign) or re.escape(sign) for sign in pattern)
    return re.fullmatch(expression, text, re.DOTALL) is not None


@given(st.text("ab%_.\n", max_size=7), st.text("ab.\n", max_size=9))
@example("a%a", "a")
@example("%a%a", "a")
@example("%ab%b", "ab")
def test_a_pattern_matches_as_the_regular_expression_does(pattern: str, text: str) -> None:
    assert compile_pattern(pattern)(text) == by_regex(pattern, text)


@given(st.text("ab%_!\\\0", max_size=7))
def test_an_escaped_text_matches_itself_alone(text: str) -> None:
    pattern = "".join("!" + sign if sign in "%_!" else sign for sign in text)
    matches = compile_pattern(pattern, "!")
    assert matches(text)
    assert not matches(text + "a")
    assert not matches("x" + text[1:]) or text[:1] == "x"


@pytest.mark.parametrize(("escape", "what"), [("!", "nothing follows"), ("!!", "one character")])
def test_an_escape_that_means_nothing_is_refused(escape: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        compile_pattern("a!", escape)


def test_a_pattern_made_to_take_for_ever_does_not() -> None:
    # A regular expression of so many `.*` would try about 10^24 ways.
    assert compile_pattern("%a" * 40 + "%b")("a" * 2_000) is False
