"""A row comes back from its bytes as it was, whatever its values."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.projections.definition.projection import Projection
from headrace.spark.rows import RowCodec


class Everything(BaseModel):
    name: str
    count: int
    ratio: float
    done: bool
    price: Decimal
    day: date
    moment: datetime
    maybe: Decimal | None = None
    seen: datetime | None = None


CODEC = RowCodec(Projection("everything", row=Everything, key="name"))
MOMENTS = st.datetimes(timezones=st.just(UTC))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False).map(
    lambda number: Decimal(format(number, "f")).copy_abs()
)

ROWS = st.builds(
    Everything,
    name=st.text(),
    count=st.integers(-(1 << 63), (1 << 63) - 1),
    ratio=st.floats(allow_nan=False),
    done=st.booleans(),
    price=DECIMALS,
    day=st.dates(),
    moment=MOMENTS,
    maybe=st.none() | DECIMALS,
    seen=st.none() | MOMENTS,
)


@given(row=ROWS)
def test_a_row_survives_its_encoding_with_exact_types(row: Everything) -> None:
    data = CODEC.encode(row)
    again = CODEC.row(data)
    assert again == row
    assert [type(value) for value in again.__dict__.values()] == [
        type(value) for value in row.__dict__.values()
    ]
    assert str(again.price) == str(row.price)
    assert CODEC.values(data) == tuple(row.__dict__.values())
    assert CODEC.encode_values(CODEC.values(data)) == data


def test_not_a_number_and_the_infinities_survive() -> None:
    for ratio in (math.nan, math.inf, -math.inf):
        row = Everything(
            name="a",
            count=1,
            ratio=ratio,
            done=True,
            price=Decimal("1.50"),
            day=date(2026, 1, 31),
            moment=datetime(2026, 1, 31, tzinfo=UTC),
        )
        again = CODEC.row(CODEC.encode(row))
        assert again.ratio == ratio or (math.isnan(again.ratio) and math.isnan(ratio))


def test_the_columns_are_the_fields_in_order() -> None:
    assert CODEC.columns == tuple(Everything.model_fields)
