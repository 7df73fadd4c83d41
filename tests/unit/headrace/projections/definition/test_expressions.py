"""A term yields for an event what it says, and is refused where it cannot."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import DefinitionError
from headrace.projections.definition.expressions import Term, bind, day, field, fields_in, literal
from headrace.projections.definition.shape import ColumnKind


class Paid(DomainEvent):
    amount: int
    price: Decimal = Decimal("1.50")
    partner: str | None = None
    late: bool | None = None
    on: date = date(2026, 1, 31)
    at: datetime = datetime(2026, 1, 31, 23, 30, tzinfo=timezone(timedelta(hours=-2)))
    tags: tuple[str, ...] = ()


CONTEXT = EventContext(
    aggregate_type="Account",
    aggregate_id="ann",
    version=3,
    sequence=1,
    command_id="c",
    correlation_id="c",
    recorded_at=datetime(2026, 2, 1, tzinfo=UTC),
)


def value(term: Term, event: Paid | None = None) -> Any:
    return bind(term, Paid).read(event or Paid(amount=5), CONTEXT)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (field("amount"), 5),
        (field("context.aggregate_id"), "ann"),
        (field("context.version"), 3),
        (literal("cash"), "cash"),
        (-field("amount"), -5),
        (-field("price"), Decimal("-1.50")),
        (day("context.recorded_at"), "2026-02-01"),
        (day("at"), "2026-02-01"),
        (day("on"), "2026-01-31"),
        (field("amount") == 5, True),
        (field("amount") != 5, False),
        (field("amount") < 5, False),
        (field("amount") <= 5, True),
        (field("amount") > 4, True),
        (field("price") >= 2, False),
        (field("amount").is_in(4, 5), True),
        (field("amount").is_in(), False),
        (field("partner").is_none(), True),
        (~(field("amount") == 5), False),
    ],
)
def test_an_expression_yields_its_value(term: Term, expected: Any) -> None:
    assert value(term) == expected


@pytest.mark.parametrize(
    "term",
    [
        field("partner") == "bob",
        field("partner") != "bob",
        ~(field("partner") == "bob"),
        (field("partner") == "bob") & (field("amount") == 5),
        (field("amount") == 5) & (field("partner") == "bob"),
        (field("partner") == "bob") | (field("amount") == 6),
    ],
)
def test_a_comparison_with_none_is_neither_true_nor_false(term: Term) -> None:
    assert value(term) is None


def test_a_condition_can_be_decided_by_one_of_its_sides() -> None:
    unknown = field("partner") == "bob"
    assert value(unknown | (field("amount") == 5)) is True
    assert value((field("amount") == 5) | unknown) is True
    assert value(unknown & (field("amount") == 6)) is False
    assert value(field("late") | unknown, Paid(amount=1, late=True)) is True


@pytest.mark.parametrize(
    ("term", "sentence"),
    [
        (field("nothing"), "Paid has no field 'nothing'"),
        (field("context.nothing"), "there is no 'context.nothing'; there are context.aggregate_"),
        (field("tags"), r"Paid\.tags is a tuple"),
        (-field("partner"), "is no number"),
        (day("partner"), "is no moment and no date"),
        (field("amount") == "5", "cannot be compared"),
        (field("amount") & field("late"), "is no condition"),
    ],
)
def test_an_expression_that_does_not_fit_the_event_is_refused(term: Term, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        bind(term, Paid)


def test_a_value_that_no_column_holds_is_refused() -> None:
    with pytest.raises(DefinitionError, match="is_none"):
        literal(None)


def test_a_condition_without_an_event_is_neither_true_nor_false() -> None:
    with pytest.raises(DefinitionError, match="join conditions with"):
        bool(field("amount") == 5)


def test_the_day_of_a_moment_without_a_zone_is_nobodys() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        value(day("at"), Paid(amount=1, at=datetime.fromisoformat("2026-01-01")))


def test_a_bound_expression_knows_its_kind_and_whether_it_may_be_none() -> None:
    bound = bind(field("partner"), Paid)
    assert (bound.kind, bound.optional) == (ColumnKind.TEXT, True)
    assert not bind(day("at"), Paid).optional


@pytest.mark.parametrize(
    ("term", "paths"),
    [
        (-field("amount"), {"amount"}),
        (day("context.recorded_at"), {"context.recorded_at"}),
        (~(field("amount") > 5) | field("partner").is_none(), {"amount", "partner"}),
        (literal(1), set()),
    ],
)
def test_an_expression_names_the_fields_that_it_reads(term: Term, paths: Any) -> None:
    assert fields_in(term) == paths
