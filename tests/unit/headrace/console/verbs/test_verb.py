"""Fields of forms and of JSON are read the same way, or refused in one sentence."""

from typing import Any

import pytest

from headrace.console.problems import Mistake
from headrace.console.verbs.verb import Verb, VerbField, values_of


async def nothing(_admin: Any, _given: Any) -> None: ...


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        (VerbField("n", "number"), "-7", -7),
        (VerbField("n", "number"), 7, 7),
        (VerbField("n", "number"), 2**63 - 1, 2**63 - 1),
        (VerbField("n", "numbers"), "1,2", [1, 2]),
        (VerbField("n", "numbers"), [1, 2], [1, 2]),
        (VerbField("n", "texts"), "a, b", ["a", "b"]),
        (VerbField("n", "flag"), "on", True),
        (VerbField("n", "flag"), False, False),
        (VerbField("n", "time"), "1970-01-01T00:00:01Z", 1_000),
        (VerbField("n"), " tea ", "tea"),
        (VerbField("n", "number", 5), "", 5),
    ],
)
def test_a_value_is_read_in_its_type(field: VerbField, value: Any, read: Any) -> None:
    assert field.read(value) == read


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        (VerbField("n"), "", "n is missing"),
        (VerbField("n", "time"), "9" * 30, "after the year 9999"),
        (VerbField("n", "time"), "0001-01-01T00:00:00+14:00", "between the years 1 and 9999"),
        (VerbField("n", "number"), "x", "whole number"),
        (VerbField("n", "number"), "9" * 20, "whole number"),
        (VerbField("n", "number"), 2**63, "up to 9,223,372,036,854,775,807"),
        (VerbField("n", "numbers"), [1, -(2**63)], "up to 9,223,372,036,854,775,807"),
        (VerbField("n", "number"), True, "whole number"),
        (VerbField("n", "flag"), "maybe", "true or false"),
        (VerbField("n", "time"), "noon", "is no time"),
        (VerbField("n", choices=("a", "b")), "c", "one of a, b"),
        (VerbField("n"), {"a": 1}, "at most 1000 characters"),
        (VerbField("n"), "x" * 1_001, "at most 1000 characters"),
    ],
)
def test_a_value_that_does_not_fit_is_named(field: VerbField, value: Any, sentence: str) -> None:
    with pytest.raises(Mistake, match=sentence):
        field.read(value)


def test_an_unknown_field_is_refused_with_those_there_are() -> None:
    verb = Verb("topic show", nothing, (VerbField("topic"),))
    with pytest.raises(Mistake, match="no field 'topc'; it has topic"):
        values_of(verb, {"topc": "x"})
    assert values_of(verb, {"topic": "x"}) == {"topic": "x"}
    assert (verb.changes, verb.path) == (False, "topic/show")
