"""Typed events: the columns that a model asks for, and what is said where there are none."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError, ProjectionError
from headrace.spark import tasks
from headrace.spark.analysis.events import read_events, typed_columns
from headrace_mq.errors import ConnectionLost


class Paid(DomainEvent):
    amount: int
    price: Decimal
    on: date
    at: datetime
    tags: tuple[str, ...]


def test_each_field_is_a_column_of_its_own_type() -> None:
    context, *fields = typed_columns(Paid)
    assert context.startswith("named_struct('aggregate_type', `c_aggregate_type`")
    assert context.endswith("'recorded_at', timestamp_micros(`c_recorded_at`)) as context")
    assert fields == [
        "`e_amount_integer` as `amount`",
        "cast(`e_price_decimal` as decimal(38,18)) as `price`",
        "date_from_unix_date(`e_on_date`) as `on`",
        "timestamp_micros(`e_at_timestamp`) as `at`",
        "`e_tags_json` as `tags`",
    ]


def test_a_field_called_as_the_context_is_refused() -> None:
    class Odd(DomainEvent):
        context: str

    with pytest.raises(DefinitionError, match="a field called context"):
        typed_columns(Odd)


def test_a_broker_that_is_away_is_said(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise ConnectionLost("nobody listens")

    monkeypatch.setattr(tasks, "fetch_ranges", away)
    spark: Any = object()
    with pytest.raises(ProjectionError, match="the events of unit_ledger:app: nobody listens"):
        read_events(spark, ledger.path, broker="127.0.0.1:1")
