"""The shape of a row model: which models fit, and that each row has one form."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from math import nan
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, create_model

from headrace.errors import DefinitionError
from headrace.projections.definition.shape import ColumnKind, RowShape


class Everything(BaseModel):
    key: str
    number: int
    ratio: float
    flag: bool
    amount: Decimal
    day: date
    at: datetime
    note: str | None = None
    paid: Annotated[Decimal, Field(ge=0)] | None = None


class Colour(Enum):
    RED = "red"


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROW = Everything(
    key="k", number=1, ratio=0.5, flag=True, amount=Decimal("1.50"), day=NOON.date(), at=NOON
)
SHAPE = RowShape("everything", Everything)


def test_each_field_type_has_a_kind_and_knows_whether_it_may_be_none() -> None:
    assert [(field.name, field.kind, field.optional) for field in SHAPE.fields] == [
        ("key", ColumnKind.TEXT, False),
        ("number", ColumnKind.INTEGER, False),
        ("ratio", ColumnKind.FLOAT, False),
        ("flag", ColumnKind.BOOLEAN, False),
        ("amount", ColumnKind.DECIMAL, False),
        ("day", ColumnKind.DATE, False),
        ("at", ColumnKind.TIMESTAMP, False),
        ("note", ColumnKind.TEXT, True),
        ("paid", ColumnKind.DECIMAL, True),
    ]


@pytest.mark.parametrize(
    "annotation", [set[str], dict[int, int], list[bytes], int | str, Any, None, timedelta]
)
def test_a_field_that_no_column_holds_is_named(annotation: Any) -> None:
    model = create_model("Row", key=(str, ...), odd=(annotation, ...))
    with pytest.raises(DefinitionError, match=r"projection p: field Row\.odd"):
        RowShape("p", model)


def test_fields_that_differ_in_case_alone_are_refused() -> None:
    with pytest.raises(DefinitionError, match="differ in case alone"):
        RowShape("p", create_model("Row", name=(str, ...), Name=(str, ...)))


def test_a_field_name_that_postgresql_would_cut_off_is_refused() -> None:
    with pytest.raises(DefinitionError, match="63 bytes"):
        RowShape("p", create_model("Row", **{"x" * 64: (str, ...)}))


def test_private_attributes_and_extra_fields_are_refused() -> None:
    class Private(BaseModel):
        key: str
        _cache: int = PrivateAttr(default=0)

    class Extra(BaseModel):
        model_config = ConfigDict(extra="allow")
        key: str

    for model in (Private, Extra):
        with pytest.raises(DefinitionError, match="which no column would keep"):
            RowShape("p", model)


def test_the_fingerprint_changes_with_name_type_order_and_optionality_only() -> None:
    def fingerprint(**fields: Any) -> str:
        return RowShape("p", create_model("Row", **fields)).fingerprint

    same = fingerprint(key=(str, ...), n=(int, ...))
    assert fingerprint(key=(str, ...), n=(int, 7)) == same
    others = [
        fingerprint(key=(str, ...), m=(int, ...)),
        fingerprint(key=(str, ...), n=(float, ...)),
        fingerprint(n=(int, ...), key=(str, ...)),
        fingerprint(key=(str, ...), n=(int | None, ...)),
        fingerprint(key=(str, ...)),
    ]
    assert len({same, *others}) == 6
    assert len(same) == 64


def test_a_row_in_its_one_form_is_returned_as_it_is() -> None:
    assert SHAPE.canonical(ROW) is ROW


def test_values_of_a_wider_type_get_the_fields_own_type() -> None:
    row = SHAPE.canonical(ROW.model_copy(update={"ratio": 2, "number": True}))
    assert (type(row.ratio), type(row.number)) == (float, int)


@pytest.mark.parametrize(
    "update", [{"number": "many"}, {"key": None}, {"day": "tomorrow"}, {"paid": "-1.5"}]
)
def test_a_value_that_does_not_fit_is_an_error_that_names_the_model(update: Any) -> None:
    with pytest.raises(DefinitionError, match="is no Everything"):
        SHAPE.canonical(ROW.model_copy(update=update))


def test_moments_are_in_utc() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    row = SHAPE.canonical(ROW.model_copy(update={"at": elsewhere}))
    assert row == ROW
    assert row.at.tzinfo is UTC


def test_a_moment_without_a_zone_is_an_error() -> None:
    naive = ROW.model_copy(update={"at": NOON.replace(tzinfo=None)})
    with pytest.raises(DefinitionError, match=r"at=.* has no time zone"):
        SHAPE.canonical(naive)


def test_decimals_are_written_out_and_finite() -> None:
    row = SHAPE.canonical(
        ROW.model_copy(update={"amount": Decimal("12E+3"), "paid": Decimal("-0")})
    )
    assert (str(row.amount), str(row.paid)) == ("12000", "0")
    with pytest.raises(DefinitionError, match="amount=Infinity"):
        SHAPE.canonical(ROW.model_copy(update={"amount": Decimal("Infinity")}))


def test_not_a_number_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="ratio=nan is no number"):
        SHAPE.canonical(ROW.model_copy(update={"ratio": nan}))


def test_a_subclass_becomes_the_row_model_itself() -> None:
    class More(Everything):
        more: int = 1

    assert type(SHAPE.canonical(More(**ROW.model_dump()))) is Everything


def test_aliases_play_no_part_in_stored_values() -> None:
    class Aliased(BaseModel):
        key: str = Field(alias="Key")

    assert RowShape("p", Aliased).load({"key": "a"}).key == "a"


@given(
    at=st.datetimes(timezones=st.timezones()),
    amount=st.decimals(allow_nan=False, allow_infinity=False),
    ratio=st.one_of(st.floats(allow_nan=False), st.integers(-(2**53), 2**53)),
)
def test_the_one_form_equals_the_row_and_is_its_own_one_form(
    at: datetime, amount: Decimal, ratio: float
) -> None:
    row = ROW.model_copy(update={"at": at, "amount": amount, "ratio": ratio})
    once = SHAPE.canonical(row)
    assert once == row.model_copy(update={"at": at.astimezone(UTC)})
    assert SHAPE.canonical(once) is once


@pytest.mark.parametrize("name", ["xmin", "tableoid", "true", "False"])
def test_a_name_that_a_database_keeps_for_itself_is_refused(name: str) -> None:
    model = create_model("Row", key=(str, ...), **{name: (int, 0)})
    with pytest.raises(DefinitionError, match=rf"words: field Row\.{name} .* another one"):
        RowShape("words", model)
