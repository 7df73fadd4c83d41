"""Terms become SQL that depends on no setting of a session."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from headrace.domain.message import DomainEvent
from headrace.projections.definition.expressions import KeyText, Term, day, field, literal
from headrace.projections.definition.shape import ColumnKind
from headrace.spark.executor.decode import EventField
from headrace.spark.executor.event_reader import ChosenType, Reading
from headrace.spark.sql import number, plain_columns, to_sql


class Paid(DomainEvent):
    amount: int
    price: Decimal
    partner: str | None = None
    cash: bool = False
    on: date
    at: datetime


AMOUNT = "`e_amount_integer`"
# A part of a key of several: % becomes %25, and then a comma %2C.
ESCAPED = (
    "replace(replace(cast(%s as string), cast(X'25' as string), cast(X'253235' as string)),"
    " cast(X'2c' as string), cast(X'253243' as string))"
)


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (field("amount"), AMOUNT),
        (field("context.version"), "`c_version`"),
        (-field("amount"), f"(- {AMOUNT})"),
        (-field("price"), "(- `e_price_decimal`)"),
        (literal("it's"), "cast(X'69742773' as string)"),
        (literal(-5), "cast('-5' as bigint)"),
        (literal(Decimal("1.50")), "cast('1.50' as decimal(38,18))"),
        (literal(value=True), "cast('True' as boolean)"),
        (literal(date(1970, 1, 3)), "cast('2' as int)"),
        (literal(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), "cast('1000000' as bigint)"),
        (field("amount") == 5, f"({AMOUNT} = cast('5' as bigint))"),
        (field("amount") != 5, f"({AMOUNT} <> cast('5' as bigint))"),
        (
            field("price") > 2,
            (
                "(cast(`e_price_decimal` as decimal(38,18)) >"
                " cast(cast('2' as bigint) as decimal(38,18)))"
            ),
        ),
        (~field("cash"), "(not `e_cash_boolean`)"),
        (field("cash") & field("cash"), "(`e_cash_boolean` and `e_cash_boolean`)"),
        (field("cash") | field("cash"), "(`e_cash_boolean` or `e_cash_boolean`)"),
        (field("partner").is_none(), "(`e_partner_text` is null)"),
        (day("on"), "cast(date_from_unix_date(`e_on_date`) as string)"),
        (KeyText((field("amount"),)), f"cast({AMOUNT} as string)"),
        (
            KeyText((field("partner"), -field("amount"))),
            (
                f"concat({ESCAPED % '`e_partner_text`'}, cast(X'2c' as string),"
                f" {ESCAPED % f'(- {AMOUNT})'})"
            ),
        ),
    ],
)
def test_a_term_has_its_sql(term: Term, text: str) -> None:
    assert to_sql(term, Paid).text == text


def test_the_day_of_a_moment_is_found_without_a_time_zone() -> None:
    found = to_sql(day("at"), Paid)
    assert found.kind is ColumnKind.TEXT
    assert "pmod(`e_at_timestamp`, cast('86400000000' as bigint))" in found.text


def test_digits_become_a_number() -> None:
    assert number("v1") == "cast(v1 as decimal(38,18))"


@pytest.mark.parametrize(
    ("term", "places"),
    [
        (field("price"), "`p_e_price_decimal`"),
        (-field("price"), "`p_e_price_decimal`"),
        (literal(Decimal("1.50")), "2"),
        (literal(Decimal("-0")), "0"),
        (field("amount"), ""),
    ],
)
def test_a_decimal_knows_how_many_places_it_was_written_with(term: Term, places: str) -> None:
    assert to_sql(term, Paid).places == places


def test_decimals_of_a_reading_become_a_number_and_its_places() -> None:
    price = EventField(name="price", kind=ColumnKind.DECIMAL)
    on = EventField(name="on", kind=ColumnKind.DATE)
    chosen = ChosenType(name="Paid", version=1, fields=(price, on))
    columns = plain_columns(Reading(types=(chosen,), context=("version",)))
    assert columns[-4:] == [
        "`c_version`",
        "cast(`e_price_decimal` as decimal(38,18)) as `e_price_decimal`",
        "length(split_part(`e_price_decimal`, '.', 2)) as `p_e_price_decimal`",
        "`e_on_date`",
    ]
    assert "`moment`" in columns
