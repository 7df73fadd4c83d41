"""Events touch the rows that rules say, and stand in an order that two numbers tell."""

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel

from headrace.domain.message import DomainEvent
from headrace.errors import ProjectionError
from headrace.folds import count, field, last, max_, sum_
from headrace.projections.definition.projection import Projection
from headrace.spark.columns.touches import EventTable, plan_columns


class Paid(DomainEvent):
    amount: int
    price: Decimal
    partner: str | None
    on: date


class Closed(DomainEvent):
    pass


class Row(BaseModel):
    key: str
    total: int
    said: str | None = None
    dearest: Decimal | None = None


@pytest.fixture
def tills() -> Projection[Row]:
    return Projection("tills", row=Row, key="key")


def table(partners: list[str | None], *, part: int = 1, queue_id: int = 0) -> EventTable:
    size = range(len(partners))
    columns = {
        "context": [{"aggregate_id": "a", "version": 1 + n, "sequence": 1} for n in size],
        "amount": list(size),
        "price": pa.array([Decimal(n) for n in size], pa.decimal128(38, 18)),
        "partner": partners,
        "_order": [{"moment": 100 + n, "turn": 1 + n} for n in size],
        "_places": pa.array([{"price": n} for n in size], pa.struct([("price", pa.int8())])),
    }
    return EventTable(pa.table(columns), part=part, queue_id=queue_id)


def test_only_what_rules_read_is_read(tills: Projection[Row]) -> None:
    tills.on(Paid, key="partner", where=field("amount") > 0, total=count())
    plan = plan_columns(tills, [Paid, Closed])
    assert plan.paths(Paid) == ["amount", "partner"]
    tills.on(Paid, total=sum_("amount"))
    tills.on(Closed, said=last("context.command_id"))
    tills.on(Paid, dearest=max_("price"))
    plan = plan_columns(tills, [Paid, Closed])
    assert plan.paths(Paid) == [
        "_order", "_places.price", "amount", "context.aggregate_id", "partner", "price",
    ]  # fmt: skip
    assert plan.paths(Closed) == ["_order", "context.aggregate_id", "context.command_id"]


def test_events_of_one_aggregate_need_no_order_of_the_topic(tills: Projection[Row]) -> None:
    tills.on(Paid, said=last("partner"))
    plan = plan_columns(tills, [Paid])
    assert plan.paths(Paid) == [
        "context.aggregate_id", "context.sequence", "context.version", "partner",
    ]  # fmt: skip
    [touches] = plan.touches(Paid, table(["x", "y"]))
    assert touches.keys.to_pylist() == ["a", "a"]
    major, minor = touches.kept["said"].order or ((), ())
    assert (list(major), list(minor)) == ([1, 2], [1, 1])


def test_an_event_without_a_key_or_for_which_a_condition_does_not_hold_touches_nothing(
    tills: Projection[Row],
) -> None:
    tills.on(
        Paid, key="partner", where=field("amount") > 1, total=sum_("amount"), said=last("partner")
    )
    tills.on(Paid, key="partner", where=field("amount") > 99, total=count())
    plan = plan_columns(tills, [Paid])
    [touches] = plan.touches(Paid, table(["p", "q", None, "r"]))
    assert touches.keys.to_pylist() == ["r"]
    assert touches.kept["total"].values.to_pylist() == [3]


def test_parts_come_before_moments_moments_before_queues_and_rules_last(
    tills: Projection[Row],
) -> None:
    tills.on(Paid, key="partner", said=last("partner"))
    tills.on(Paid, key="partner", said=last("context.command_id"))
    one, late, other = (
        table(["p", "p"], **at)
        for at in ({}, {"part": 2}, {"queue_id": 1})
    )  # fmt: skip
    orders = [one.order(0, 2, by_topic=True), one.order(1, 2, by_topic=True)]
    orders += [other.order(0, 2, by_topic=True), late.order(0, 2, by_topic=True)]
    found = [list(zip(*(each.tolist() for each in order), strict=True)) for order in orders]
    first, second, elsewhere, later = found
    assert first[0] < second[0] < elsewhere[0] < first[1] < second[1] < elsewhere[1] < later[0]


def test_a_key_that_no_column_holds_is_an_error(tills: Projection[Row]) -> None:
    tills.on(Paid, key="partner", total=count())
    plan: Any = plan_columns(tills, [Paid])
    assert len(list(plan.touches(Paid, table(["p", "é" * 255])))) == 1
    with pytest.raises(ProjectionError, match="projection tills: a key is a str of at most 255"):
        list(plan.touches(Paid, table(["p", "é" * 256])))
