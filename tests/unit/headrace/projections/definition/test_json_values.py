"""JSON has one form, whatever way its value was made."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from headrace.projections.definition.json_values import JsonForm, json_text


class Part(BaseModel):
    number: int = Field(alias="Number", default=0)
    rates: dict[str, float] | None = None


LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(LETTERS, max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(LETTERS, max_size=3), each, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(JSON)
def test_a_text_is_its_own_one_form(value: Any) -> None:
    form = JsonForm(Any)
    text = json_text(value)
    assert form.text(form.value(text)) == text
    assert form.value(text) == value


def test_the_order_of_keys_and_the_sign_of_zero_do_not_count() -> None:
    form = JsonForm(dict[str, Part])
    one, other = (form.text(form.value(text)) for text in (
        '{"b":{"number":1,"rates":{"y":-0.0,"x":1}},"a":{}}',
        '{"a":{"rates":null},"b":{"rates":{"x":1.0,"y":0},"number":1}}',
    ))  # fmt: skip
    assert (
        one
        == other
        == ('{"a":{"number":0,"rates":null},"b":{"number":1,"rates":{"x":1.0,"y":0.0}}}')
    )


@pytest.mark.parametrize("value", ["\x00", "\ud800", float("nan"), float("inf")])
def test_values_that_no_database_keeps_are_refused(value: Any) -> None:
    for nested in ([value], {"a": value}):
        with pytest.raises(ValueError, match=r"."):
            json_text(nested)
    assert json_text(["\\u0000", "-0.0"]) == '["\\\\u0000","-0.0"]'


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected"):
        JsonForm(list[Part]).text(["x"])
    with pytest.raises(ValueError, match="validation error"):
        JsonForm(list[Part]).value('["x"]')
