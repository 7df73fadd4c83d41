"""Rows become columns of exact types, and what does not fit is named."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pydantic import BaseModel

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.spark.lake.columns import rows_to_arrow, schema_of, spark_columns


class Kinds(BaseModel):
    key: str
    number: int
    share: float
    yes: bool
    price: Decimal | None
    on: date
    at: datetime | None


kinds = Projection("kinds", row=Kinds, key="key")
ROW = (
    "a",
    1,
    0.5,
    True,
    Decimal("1.25"),
    date(2026, 1, 31),
    datetime(2026, 1, 31, 1, 2, 3, 4, UTC),
)


def test_values_come_back_as_they_were() -> None:
    table = rows_to_arrow(kinds, [ROW, ("b", 2, 1.0, False, None, date(1, 1, 1), None)])
    assert table.schema == schema_of(kinds)
    assert tuple(table.to_pylist()[0].values()) == ROW
    assert table.to_pylist()[1]["price"] is None
    assert rows_to_arrow(kinds, []).num_rows == 0
    assert spark_columns(kinds)[4:] == ["`price` decimal(38,18)", "`on` date", "`at` timestamp"]


@pytest.mark.parametrize(
    ("place", "value", "name"),
    [(1, 2**63, "number"), (4, Decimal(1) / 3, "price"), (4, Decimal(10) ** 21, "price")],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_its_column(
    place: int, value: object, name: str
) -> None:
    row = [*ROW]
    row[place] = value  # type: ignore[call-overload]  # of another type on purpose
    with pytest.raises(ProjectionError, match=f"kinds: a value of {name} does not fit"):
        rows_to_arrow(kinds, [row])
