"""What declared folds ask of events, and what has to be folded event by event."""

from decimal import Decimal, Inexact
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from headrace.domain.message import DomainEvent, EventContext
from headrace.folds import count, field, last, max_, sum_
from headrace.projections.definition.declared import NotInColumns, declared_folds, joined
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.summaries import Operation
from headrace.subjects.personal import Personal


class Paid(DomainEvent):
    amount: int
    rate: float
    partner: str


class Refunded(Paid):
    pass


class Closed(DomainEvent):
    pass


class Row(BaseModel):
    key: str
    total: int = 3
    rate: float = 0.0
    most: int | None = None


TYPES = (Closed, Refunded, Paid)


@pytest.fixture
def tills() -> Projection[Row]:
    return Projection("tills", row=Row, key="key")


def test_subclasses_meet_the_rules_of_their_base_and_what_no_event_meets_is_left_out(
    tills: Projection[Row],
) -> None:
    tills.on(Paid, where=field("rate") > 0.0, total=sum_("amount"))
    tills.on(Paid, key="partner", most=max_("context.version"))
    tills.on(DomainEvent, key="context.command_id", total=count())
    tills.on(Closed, total=count())
    folds = declared_folds(tills, TYPES)
    assert folds.types == TYPES
    assert len(folds.rules) == 3
    assert folds.operations == {"total": Operation.SUM, "most": Operation.MAX}
    assert folds.paths_of(Refunded) == {
        "rate", "amount", "partner", "context.aggregate_id", "context.version",
    }  # fmt: skip
    assert folds.paths_of(Closed) == {"context.aggregate_id"}
    assert folds.start == {"total": 3, "rate": 0.0, "most": None}
    assert declared_folds(tills, [Paid]).types == (Paid,)


def closed(row: Row | None, event: Closed, context: EventContext) -> Row | None:
    return row


@pytest.mark.parametrize(
    ("define", "why"),
    [
        (lambda tills: tills.fold(closed), "has folds that are Python functions"),
        (
            lambda tills: tills.on(Paid, key=lambda event: event.partner, total=count()),
            "has a key that is a Python function",
        ),
        (lambda tills: tills.on(Paid, rate=sum_("rate")), "adds up floats in column rate"),
        (
            lambda tills: (
                tills.on(Paid, total=count()),
                tills.on(Closed, total=last("context.version")),
            ),
            "keeps two things in column total: sum_ and last",
        ),
        (lambda tills: tills.on(EventOfOthers, total=count()), "is touched by no event"),
    ],
)
def test_folds_that_need_each_event_are_refused_with_the_reason(
    tills: Projection[Row], define: Any, why: str
) -> None:
    define(tills)
    with pytest.raises(NotInColumns, match=f"projection tills {why}.*folded event by event"):
        declared_folds(tills, TYPES)


class EventOfOthers(DomainEvent):
    pass


class Named(DomainEvent):
    who: str
    name: Annotated[str, Personal(subject="who")]


def test_an_event_with_personal_fields_is_refused(tills: Projection[Row]) -> None:
    tills.on(Named, total=count())
    with pytest.raises(NotInColumns, match="reacts to Named, which has personal fields"):
        declared_folds(tills, [Named])


def test_values_are_joined_as_events_would_have_joined_them() -> None:
    assert joined(Operation.SUM, [3, None, 4]) == 7
    assert repr(joined(Operation.SUM, [Decimal("1.50"), Decimal("2")])) == "Decimal('3.50')"
    assert joined(Operation.FIRST, [None, "a", "b"]) == "a"
    assert joined(Operation.MIN, [None, 4, 3]) == 3
    assert repr(joined(Operation.MAX, [Decimal("2.0"), Decimal("2.00")])) == "Decimal('2.0')"
    assert joined(Operation.SUM, [None]) is None
    with pytest.raises(Inexact):
        joined(Operation.SUM, [Decimal(10) ** 37, Decimal("0.001")])
