"""Which messages a filter selects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters.filter import Filter, filters_of

HEADERS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2.5", "-3", "x", "yy", "true", ""])
)


@pytest.mark.parametrize(
    ("text", "headers", "selected"),
    [
        ("price > 10", {"price": "10.5"}, True),
        ("price > 10", {"price": "9"}, False),
        ("price > 10", {"price": "dear"}, False),
        ("price > 10", {}, False),
        ("NOT price > 10", {}, False),
        ("10 < price", {"price": "11"}, True),
        ("price <> 10", {"price": "10.0"}, False),
        ("region IN ('EU', 'US')", {"region": "US"}, True),
        ("region NOT IN ('EU', 'US')", {"region": "US"}, False),
        ("region NOT IN ('EU')", {}, False),
        ("n IN (1, 2.5)", {"n": "2.50"}, True),
        ("note IS NOT NULL", {"note": ""}, True),
        ("note IS NULL", {}, True),
        ("d BETWEEN '2026-01' AND '2026-02'", {"d": "2026-01-15"}, True),
        ("n NOT BETWEEN 1 AND 3", {"n": "3"}, False),
        ("name LIKE 'A%z_'", {"name": "Abczd"}, True),
        ("name LIKE '100!%' ESCAPE '!'", {"name": "100%"}, True),
        ("name NOT LIKE '%x%'", {}, False),
        ("open", {"open": "TRUE"}, True),
        ("open = FALSE", {"open": "false"}, True),
        ("open", {"open": "yes"}, False),
        ("NOT open", {"open": "no"}, False),
        ("FALSE OR TRUE", {}, True),
        ("a < b", {"a": "9", "b": "10"}, True),
        ("a < b", {"a": "9", "b": "x"}, True),
        ("a = b", {"a": "9"}, False),
        ("\"x-y\" = 'it''s'", {"x-y": "it's"}, True),
        ("a = 1 OR b = 1 AND c = 1", {"a": "1"}, True),
        ("(a = 1 OR b = 1) AND c = 1", {"a": "1"}, False),
        ("_key = 'k' AND _tag = 't'", {}, True),
        ("_key IS NULL", {}, False),
    ],
)
def test_a_message_is_selected_or_not(text: str, headers: Any, *, selected: bool) -> None:
    assert Filter(text).selects(headers, "k", "t") is selected


def test_an_empty_key_and_tag_are_null() -> None:
    assert Filter("_key IS NULL AND _tag IS NULL").selects({})


def atoms() -> st.SearchStrategy[tuple[str, Any]]:
    """A test of one header, and the same in Python."""

    def number(name: str, limit: int) -> tuple[str, Any]:
        def holds(headers: dict[str, str]) -> bool | None:
            try:
                return float(headers[name]) > limit
            except (KeyError, ValueError):
                return None

        return f"{name} > {limit}", holds

    def text(name: str, other: str) -> tuple[str, Any]:
        return (
            f"{name} = '{other}'",
            lambda headers: headers[name] == other if name in headers else None,
        )

    def null(name: str) -> tuple[str, Any]:
        return f"{name} IS NULL", lambda headers: name not in headers

    names = st.sampled_from(["a", "b", "c"])
    return st.one_of(
        st.builds(number, names, st.integers(-5, 5)),
        st.builds(text, names, st.sampled_from(["x", "1", ""])),
        st.builds(null, names),
    )


def composed(inner: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    def negated(one: tuple[str, Any]) -> tuple[str, Any]:
        return f"NOT ({one[0]})", lambda h: None if one[1](h) is None else not one[1](h)

    def joined(word: str, one: tuple[str, Any], other: tuple[str, Any]) -> tuple[str, Any]:
        decisive = word == "OR"

        def holds(headers: dict[str, str]) -> bool | None:
            answers = [one[1](headers), other[1](headers)]
            if decisive in answers:
                return decisive
            return None if None in answers else not decisive

        return f"({one[0]} {word} {other[0]})", holds

    return st.one_of(
        st.builds(negated, inner), st.builds(joined, st.sampled_from(["AND", "OR"]), inner, inner)
    )


@given(st.recursive(atoms(), composed, max_leaves=8), st.lists(HEADERS, max_size=6))
def test_a_column_of_messages_is_judged_as_each_alone(
    condition: tuple[str, Any], headers: list[dict[str, str]]
) -> None:
    text, holds = condition
    wanted = Filter(text)
    expected = [place for place, one in enumerate(headers) if holds(one) is True]
    assert wanted.places(len(headers), headers, [], []) == expected
    assert [place for place, one in enumerate(headers) if wanted.selects(one)] == expected


def test_empty_columns_stand_for_defaults() -> None:
    assert Filter("_tag IS NULL AND x IS NULL").places(3, [], [], []) == [0, 1, 2]
    assert Filter("_tag = 'a'").places(3, [], [], []) == []
    assert Filter("_tag = 'a'").places(2, [], [], ["b", "a"]) == [1]


def test_values_that_come_again_are_answered_as_before() -> None:
    wanted = Filter("n >= 2 AND _tag <> 'x'")
    for _ in range(3):
        headers = [{"n": str(n)} for n in range(4)] + [{}]
        assert wanted.places(5, headers, [], ["a", "a", "a", "x", "a"]) == [2]


def test_the_memory_of_a_condition_is_bounded() -> None:
    wanted = Filter("n LIKE '%7'")
    for first in range(0, 5_000, 500):
        texts = [str(n) for n in range(first, first + 500)]
        assert len(wanted.places_in(500, [texts], [], [])) == 50
    assert len(wanted.places_in(3_000, [[str(n) for n in range(3_000)]], [], [])) == 300
    assert wanted.places_in(1, [["x" * 1_000 + "7"]], [], []) == [0]
    known = wanted._refused | wanted._selected
    assert 0 < len(known) == len(wanted._refused) + len(wanted._selected) <= 1_024
    assert max(map(len, known)) <= 64  # type: ignore[arg-type]  # all of them are texts


def test_values_that_are_always_new_are_judged_alike() -> None:
    wanted = Filter("n > 5 AND region = 'EU'")
    for first in range(0, 60_000, 300):
        headers = [
            {"n": str(n % 7 + n), "region": "EU" if n % 3 else "US"}
            for n in range(first, first + 300)
        ]
        expected = [
            place
            for place, one in enumerate(headers)
            if int(one["n"]) > 5 and one["region"] == "EU"
        ]
        assert wanted.places(300, headers, [], []) == expected
    # And when they begin to come again they are looked up again.
    headers = [{"n": str(n % 9), "region": "EU"} for n in range(300)]
    for _ in range(100):
        places = wanted.places(300, headers, [], [])
        assert places == [n for n in range(300) if n % 9 > 5]
    assert ("6", "EU") in wanted._selected


@pytest.mark.parametrize("others", ["'b'", "'b', 'c'", "'b', 'c', 'd', 'e'"])
def test_tags_are_found_whether_a_condition_names_few_or_many(others: str) -> None:
    wanted = Filter(f"_tag IN ('a', {others}) AND n = 1")
    headers = [{"n": str(place % 2)} for place in range(6)]
    for _ in range(2):
        assert wanted.places(6, headers, [], ["a", "a", "b", "b", "x", "x"]) == [1, 3]
        assert wanted.places(6, [], [], ["a"] * 6) == []
    assert Filter("_tag = 'a' AND _key = 'k'").places(3, [], ["k", "k", "l"], list("xaa")) == [1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("price > 10", {"price"}),
        ("region = 'EU'", {"EU"}),
        ("'EU' = region", {"EU"}),
        ("region IN ('EU', 'US')", {"EU", "US"}),
        ("n IN (1, 2)", {"n"}),
        ("a = b", {"a"}),
        ("name LIKE 'A%'", {"name"}),
        ("open", {"open"}),
        ("price > 10 AND region IN ('EU', 'US')", {"price"}),
        ("price > 10 OR region = 'EU'", {"price", "EU"}),
        ("price > 10 OR _tag = 'x'", None),
        ("note IS NULL", None),
        ("NOT price > 10", None),
        ("_key = 'k'", None),
    ],
)
def test_a_filter_knows_what_a_selected_message_has_among_its_headers(
    text: str, words: set[str] | None
) -> None:
    assert Filter(text).words == words


@given(st.recursive(atoms(), composed, max_leaves=8), HEADERS)
def test_a_message_without_any_of_the_words_is_not_selected(
    condition: tuple[str, Any], headers: dict[str, str]
) -> None:
    wanted = Filter(condition[0])
    texts = {*headers, *headers.values()}
    if wanted.words is not None and not any(w in t for w in wanted.words for t in texts):
        assert not wanted.selects(headers)


def test_topics_with_a_condition_get_a_filter() -> None:
    assert filters_of(["a", "b"]) == {}
    assert {topic: one.text for topic, one in filters_of({"a": "x > 1", "b": ""}).items()} == {
        "a": "x > 1"
    }
