"""Rows may grow by columns and fields; what has another type is named and refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProjectionError
from headrace.spark.lake.schema import is_wider

LEAVES = st.sampled_from(["long", "string", "decimal(38,18)"])
KINDS: Any = st.recursive(
    LEAVES, lambda inner: st.dictionaries(st.sampled_from("abcd"), inner), max_leaves=8
)
ROWS: Any = st.dictionaries(st.sampled_from("abcd"), KINDS)


def written(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    fields = [{"name": name, "type": written(inner)} for name, inner in kind.items()]
    return {"type": "struct", "fields": fields}


def merged(one: Any, other: Any) -> Any:
    """Returns a type with the fields of both; None where they differ."""
    if isinstance(one, str) or isinstance(other, str):
        return one if one == other else None
    found = {**one, **other}
    for name in one.keys() & other.keys():
        found[name] = merged(one[name], other[name])
    return None if None in found.values() else found


@given(ROWS, ROWS)
def test_rows_that_fit_are_wider_exactly_when_the_table_has_to_grow(stored: Any, new: Any) -> None:
    texts = json.dumps(written(stored)), json.dumps(written(new))
    together = merged(stored, new)
    if together is None:
        with pytest.raises(ProjectionError, match="write into an empty folder"):
            is_wider("lake", *texts)
    else:
        assert is_wider("lake", *texts) == (together != stored)


def test_a_field_of_another_type_is_named() -> None:
    stored, new = ({"Paid": {"amount": kind}} for kind in ("long", "string"))
    sentence = "lake: Paid.amount is long there, and string in the application now"
    with pytest.raises(ProjectionError, match=sentence):
        is_wider("lake", json.dumps(written(stored)), json.dumps(written(new)))
