"""A summary makes of a column what its name says, event by event."""

from datetime import UTC, datetime
from decimal import Decimal, Inexact
from functools import reduce
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import DefinitionError
from headrace.projections.definition.shape import RowField, RowShape
from headrace.projections.definition.summaries import (
    Summary,
    compile_summary,
    count,
    first,
    last,
    max_,
    min_,
    sum_,
)


class Seen(DomainEvent):
    number: int | None = None
    price: Decimal = Decimal(0)
    word: str = ""


class Row(BaseModel):
    number: int
    number_or_none: int | None
    price: Decimal
    word: str
    word_or_none: str | None


COLUMNS = {field.name: field for field in RowShape("p", Row).fields}
CONTEXT = EventContext(
    aggregate_type="A",
    aggregate_id="a",
    version=1,
    sequence=1,
    command_id="c",
    correlation_id="c",
    recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def after(summary: Summary, column: str, begin: Any, *events: Seen) -> Any:
    step = compile_summary(summary, COLUMNS[column], Seen)
    return reduce(lambda before, event: step(before, event, CONTEXT), events, begin)


NUMBERS = [Seen(number=3), Seen(), Seen(number=7), Seen(number=5)]


@pytest.mark.parametrize(
    ("summary", "begin", "expected"),
    [
        (count(), 0, 4),
        (sum_("number"), 0, 15),
        (sum_("number"), None, 15),
        (first("number"), None, 3),
        (first("number"), 1, 1),
        (min_("number"), None, 3),
        (max_("number"), None, 7),
        (last("number"), None, 5),
    ],
)
def test_a_column_keeps_what_its_summary_says(summary: Summary, begin: Any, expected: int) -> None:
    assert after(summary, "number_or_none", begin, *NUMBERS) == expected


def test_last_keeps_none_too() -> None:
    assert after(last("number"), "number_or_none", 3, Seen()) is None


def test_decimals_add_up_exactly_or_not_at_all() -> None:
    many = Seen(price=Decimal("12345678901234567890.123456789012345678"))
    assert after(sum_("price"), "price", Decimal(0), many) == many.price
    with pytest.raises(Inexact):
        after(sum_("price"), "price", Decimal("1e30"), many)


@pytest.mark.parametrize(
    ("summary", "column", "sentence"),
    [
        (sum_("word"), "word", "is text, which has no sum"),
        (sum_("number"), "price", "column price is decimal and .* is integer"),
        (last("number"), "number", "may be None and the column may not"),
        (first("word"), "word", "needs a column that may be None"),
        (min_("price"), "price", "needs a column that may be None"),
    ],
)
def test_a_column_that_cannot_keep_a_summary_is_refused(
    summary: Summary, column: str, sentence: str
) -> None:
    field: RowField = COLUMNS[column]
    with pytest.raises(DefinitionError, match=sentence):
        compile_summary(summary, field, Seen)
