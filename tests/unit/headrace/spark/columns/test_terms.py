"""Terms over columns yield what they yield of events."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.domain.message import DomainEvent
from headrace.errors import ProjectionError
from headrace.folds import day, field, literal
from headrace.projections.definition.shape import ColumnKind
from headrace.spark.columns.terms import COLUMN_TYPES, evaluate, spread


class Paid(DomainEvent):
    amount: int
    price: Decimal
    at: datetime
    on: date
    cash: bool
    partner: str


PAYMENTS = {
    "amount": pa.array([1, -(1 << 63), None]),
    "price": pa.array([Decimal("1.5"), Decimal(-2), None], pa.decimal128(38, 18)),
    "at": pa.array([-1, 86_400_000_000, None], COLUMN_TYPES[ColumnKind.TIMESTAMP]),
    "on": pa.array([date(1, 1, 1), date(1969, 12, 31), None]),
    "cash": pa.array([True, False, None]),
    "partner": pa.array(["é", "z", None]),
}


class Events:
    """Three payments, the last one without anything."""

    def field(self, path: str) -> pa.Array:
        return PAYMENTS[path]

    def places(self, name: str) -> pa.Array:
        assert name == "price"
        return pa.array([2, 0, None], pa.int8())


def found(term: Any) -> list[Any]:
    values = evaluate(term, Paid, Events()).values
    return spread(values, 3).to_pylist()  # type: ignore[no-any-return]  # pyarrow is untyped


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (day("at"), ["1969-12-31", "1970-01-02", None]),
        (day("on"), ["0001-01-01", "1969-12-31", None]),
        (field("partner") < "z", [False, False, None]),
        (field("cash") < literal(value=True), [False, True, None]),
        (field("price") > field("amount"), [True, True, None]),
        (field("price") == Decimal("1.50"), [True, False, None]),
        (field("cash") & (field("price") > 9), [False, False, None]),
        (field("cash") | literal(value=True), [True, True, True]),
        (~field("cash"), [False, True, None]),
        (field("amount").is_none(), [False, False, True]),
        (field("at") >= datetime(1970, 1, 2, tzinfo=UTC), [False, True, None]),
        (literal(5), [5, 5, 5]),
        (-field("price"), [Decimal("-1.5"), Decimal(2), None]),
    ],
)
def test_a_term_is_computed_for_all_events_at_once(term: Any, expected: list[Any]) -> None:
    assert found(term) == expected


def test_a_decimal_has_its_places_with_it() -> None:
    price = evaluate(-field("price"), Paid, Events())
    assert price.places.to_pylist() == [2, 0, None]
    constant = evaluate(literal(Decimal("2.500")), Paid, Events())
    assert (constant.places.as_py(), constant.kind) == (3, ColumnKind.DECIMAL)


def test_a_number_that_no_column_holds_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        evaluate(-field("amount"), Paid, Events())
    with pytest.raises(ProjectionError, match="after the point"):
        evaluate(literal(Decimal("1e-19")), Paid, Events())
    with pytest.raises((OverflowError, pa.ArrowInvalid)):
        evaluate(field("amount") > 1 << 70, Paid, Events())
