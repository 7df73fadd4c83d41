"""The columns of types, without a session."""

import pytest

from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError
from headrace.spark.lake.increment import _columns, type_columns


class Paid(DomainEvent, name="lake.Paid"):
    amount: int


class PaidBefore(DomainEvent, name="lake.Paid", version=2):
    amount: int


class Closed(DomainEvent, name="lake.Closed"):
    pass


class Day(DomainEvent, name="day"):
    pass


def test_a_type_has_a_column_of_its_name_and_of_its_version_where_two_share_it() -> None:
    assert type_columns([Paid, Closed]) == ["lake.Paid", "lake.Closed"]
    assert type_columns([Paid, PaidBefore]) == ["lake.Paid_v1", "lake.Paid_v2"]
    with pytest.raises(
        DefinitionError, match="Day is stored as day, which is the name of a column"
    ):
        type_columns([Paid, Day])


def test_a_type_without_fields_has_no_column() -> None:
    names = [text.rpartition(" as ")[2] for text in _columns([Closed, Paid])]
    assert names == ["event_type", "day", "context", "`lake.Paid`"]
