"""Contributions become one for each key, in whatever parts and order they are reduced."""

from decimal import Decimal
from itertools import starmap
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProjectionError
from headrace.projections.definition.shape import ColumnKind
from headrace.projections.definition.summaries import Operation
from headrace.spark.columns.groups import Brought, ColumnAim, Groups, reduced
from headrace.spark.columns.terms import COLUMN_TYPES


def aim(kind: ColumnKind, operation: Operation) -> ColumnAim:
    return ColumnAim(name="c", kind=kind, operation=operation)


def groups(one: ColumnAim, *touches: tuple[str, Any, int]) -> Groups:
    """Contributions: a key, a value, and where the event stands."""
    keys, values, places = zip(*touches, strict=True) if touches else ((), (), ())
    array = pa.array(values, COLUMN_TYPES[one.kind])
    order = np.array(places, np.int64)
    decimal = one.kind is ColumnKind.DECIMAL
    last = one.operation is Operation.LAST
    return Groups(
        keys=pa.array(keys, pa.large_string()),
        kept={
            "c": Brought(
                values=array,
                has=np.array([last or value is not None for value in values], np.bool_),
                places=np.array([-value.as_tuple().exponent if value else 0 for value in values])
                if decimal
                else None,
                order=(order // 3, order % 3) if one.ordered else None,
            )
        },
    )


def found(whole: Groups) -> dict[str, tuple[Any, bool]]:
    kept = whole.kept["c"]
    return dict(
        zip(
            whole.keys.to_pylist(),
            zip(kept.values.to_pylist(), kept.has.tolist(), strict=True),
            strict=True,
        )
    )


VALUES = {
    ColumnKind.INTEGER: st.integers(-9, 9),
    ColumnKind.TEXT: st.sampled_from(["a", "b", "z", "é", "😀"]),
    ColumnKind.FLOAT: st.sampled_from([-1.5, 0.0, 2.25]),
    ColumnKind.BOOLEAN: st.booleans(),
}


def in_python(operation: Operation, values: list[Any]) -> Any:
    some = [each for each in values if each is not None]
    match operation:
        case Operation.LAST:
            return values[-1]
        case Operation.SUM:
            return sum(some)
        case Operation.FIRST:
            return some[0] if some else None
        case Operation.MIN:
            return min(some, default=None)
    return max(some, default=None)


@given(st.data())
def test_it_does_not_matter_in_which_parts_contributions_are_reduced(data: st.DataObject) -> None:
    operation = data.draw(st.sampled_from(list(Operation)))
    kinds = [ColumnKind.INTEGER] if operation is Operation.SUM else list(VALUES)
    one = aim(data.draw(st.sampled_from(kinds)), operation)
    touch = st.tuples(st.sampled_from("pqr"), st.none() | VALUES[one.kind])
    touches = [(*each, place) for place, each in enumerate(data.draw(st.lists(touch, min_size=1)))]
    mixed = data.draw(st.permutations(touches))
    cut, other = sorted(data.draw(st.tuples(*[st.integers(0, len(mixed))] * 2)))
    parts = [mixed[:cut], mixed[cut:other], mixed[other:]]
    some = [reduced([groups(one, *part)], [one]) for part in parts if part]
    whole = reduced([reduced(some[:2], [one]), *some[2:]], [one])
    expected: dict[str, list[Any]] = {}
    for key, value, _ in touches:
        expected.setdefault(key, []).append(value)
    result = {key: (value if has else None) for key, (value, has) in found(whole).items()}
    if operation is Operation.SUM:
        result = {key: value or 0 for key, value in result.items()}
    assert result == {key: in_python(operation, values) for key, values in expected.items()}


def test_of_equal_decimals_the_first_one_keeps_its_places() -> None:
    one = aim(ColumnKind.DECIMAL, Operation.MAX)
    first, second = (
        groups(one, *starmap(lambda text, place: ("k", Decimal(text), place), some))
        for some in ([("2.00", 5), ("1.0", 1)], [("2.0", 4), ("1", 0)])
    )
    whole = reduced([reduced([first], [one]), reduced([second], [one])], [one])
    assert found(whole)["k"] == (Decimal(2), True)
    assert whole.kept["c"].places.tolist() == [1]  # type: ignore[union-attr]  # it is a decimal


def test_a_column_that_one_part_brings_nothing_to_is_empty_there() -> None:
    one = aim(ColumnKind.INTEGER, Operation.LAST)
    bare = Groups(keys=pa.array(["x", "y"], pa.large_string()), kept={})
    whole = reduced([bare, groups(one, ("y", 7, 0))], [one])
    assert found(whole) == {"x": (None, False), "y": (7, True)}
    assert reduced([bare], [one]).kept == {}


@pytest.mark.parametrize(
    ("kind", "number"), [(ColumnKind.INTEGER, 1 << 61), (ColumnKind.DECIMAL, Decimal(10) ** 18 * 9)]
)
def test_a_sum_that_may_leave_its_digits_is_refused_and_not_wrong(
    kind: ColumnKind, number: Any
) -> None:
    one = aim(kind, Operation.SUM)
    # Large numbers of several keys are no large sum.
    kept = reduced([groups(one, *((f"k{place}", number, place) for place in range(9)))], [one])
    assert found(kept)["k3"] == (number, True)
    with pytest.raises(ProjectionError, match="in column c may have more digits than columns hold"):
        reduced([groups(one, *(("k", number, place) for place in range(9)))], [one])
