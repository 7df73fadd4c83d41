"""What is a condition, and what each mistake is told."""

import pytest

from headrace_mq.filters.grammar import CHARACTERS_MAX, DEPTH_MAX, parse
from headrace_mq.filters.tokens import InvalidFilter


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("", 1, "expected a header's name"),
        ("a =", 4, "found the end"),
        ("a = = 1", 5, "found '='"),
        ("a = 1 b", 7, "expected AND, OR or the end, found 'b'"),
        ("(a = 1", 7, r"expected \)"),
        ("a NOT = 1", 7, "expected BETWEEN, IN or LIKE"),
        ("a IS 1", 6, "expected NULL"),
        ("a IN ()", 7, "expected a number, a text in quotes, TRUE or FALSE"),
        ("a IN (b)", 7, "found 'b'"),
        ("a IN (1, 'x')", 7, "one kind"),
        ("1 IN (1)", 7, "a header, _key or _tag"),
        ("a LIKE 3", 8, "a text in single quotes"),
        ("'a' LIKE 'b'", 10, "before LIKE"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "nothing follows"),
        ("a BETWEEN 1 AND 'x'", 11, "one kind"),
        ("a BETWEEN TRUE AND FALSE", 11, "one kind"),
        ("a BETWEEN 10 AND 0", 11, "write the lower one first"),
        ("a NOT BETWEEN 'b' AND 'a'", 15, "write the lower one first"),
        ("a BETWEEN 1 OR 2", 13, "expected AND"),
        ("1 = 1", 3, "compare with a header"),
        ("1 = 'x'", 3, "a number cannot be compared with a string"),
        ("a < TRUE", 3, "compared with = or <>"),
        ("a = NULL", 5, "found 'NULL'"),
        ("'text'", 1, "no condition"),
        ("a = " + "1" * 41, 5, "at most 40 characters"),
    ],
)
def test_each_error_names_its_column(text: str, column: int, what: str) -> None:
    with pytest.raises(InvalidFilter, match=what) as caught:
        parse(text)
    assert caught.value.column == column


def test_a_condition_has_a_longest_text() -> None:
    longest = "a=1 OR " * (CHARACTERS_MAX // 7) + "a=1"
    parse(longest[-CHARACTERS_MAX:].removeprefix("OR "))
    with pytest.raises(InvalidFilter, match="shorten"):
        parse("a" * (CHARACTERS_MAX + 1))


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("NOT ", ""), ("NOT (", ")")])
def test_a_condition_has_a_greatest_depth(before: str, after: str) -> None:
    levels = DEPTH_MAX // (1 + before.endswith("T (")) - 1
    parse(before * levels + "a" + after * levels)
    with pytest.raises(InvalidFilter, match="flatter"):
        parse(before * (DEPTH_MAX + 1) + "a" + after * (DEPTH_MAX + 1))


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("_tag = 'a'", {"a"}),
        ("'a' = _tag", {"a"}),
        ("_tag IN ('a', 'b') AND price > 3", {"a", "b"}),
        ("price > 3 AND _tag IN ('a', 'b') AND _tag = 'b'", {"b"}),
        ("_tag = 'a' OR _tag = 'b'", {"a", "b"}),
        ("_tag = 'a' OR price > 3", None),
        ("NOT _tag = 'a'", None),
        ("_tag <> 'a'", None),
        ("_tag = 1", None),
        ("\"_tag\" = 'a'", None),
    ],
)
def test_the_tags_that_can_be_selected_are_known(text: str, tags: set[str] | None) -> None:
    assert parse(text).tags == tags
