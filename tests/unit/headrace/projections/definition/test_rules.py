"""Rules do to a row what was declared, and refuse what cannot be done."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.domain.message import EventContext
from headrace.errors import DefinitionError, ProjectionError
from headrace.projections.definition.expressions import field, literal
from headrace.projections.definition.fold import fold_streams
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.summaries import count, last, max_, sum_


class Tally(BaseModel):
    key: str
    total: int
    times: int = 100
    largest: int | None
    closed: bool = False
    price: Decimal


def make_tally(**options: Any) -> Projection[Tally]:
    return Projection("tally", row=Tally, key="key", **options)


def test_the_first_event_of_a_key_makes_its_row(domain: Any) -> None:
    tally = make_tally()
    tally.on(domain.Added, total=sum_("amount"), times=count(), largest=max_("amount"))
    tally.on(domain.Cleared, closed=last(literal(True)))
    streams = [
        domain.stream("a", 1),
        domain.stream("a", 2),
        domain.stream("b", 1, domain.Cleared()),
    ]
    assert fold_streams(tally, {}, streams) == {
        "a": Tally(key="a", total=3, times=102, largest=2, price=Decimal(0)),
        "b": Tally(key="b", total=0, largest=None, closed=True, price=Decimal(0)),
    }


def test_an_event_for_which_the_condition_does_not_hold_makes_no_row(domain: Any) -> None:
    tally = make_tally()
    tally.on(domain.Added, where=field("amount") >= 2, total=sum_("amount"))
    assert fold_streams(tally, {}, [domain.stream("a", 1)]) == {}
    assert fold_streams(tally, {}, [domain.stream("a", 2)])["a"].total == 2


def test_one_event_touches_every_row_that_its_rules_name(domain: Any) -> None:
    tally = make_tally()
    tally.on(domain.Noted, key="text", total=sum_(literal(1)))
    tally.on(domain.Noted, key=lambda event: ["all", "noted"], total=sum_(literal(10)))
    rows = fold_streams(tally, {}, [domain.stream("a", 1, domain.Noted(text="all"))])
    assert {key: row.total for key, row in rows.items()} == {"all": 11, "noted": 10}


def test_a_fold_gets_its_key_if_it_asks_for_it(domain: Any) -> None:
    tally = make_tally()

    @tally.fold(key=lambda event: event.text.split())
    def noted(row: Tally | None, event: domain.Noted, context: EventContext, key: str) -> Tally:
        before = row.total if row else 0
        return Tally(key=key, total=before + len(key), largest=None, price=Decimal(0))

    rows = fold_streams(tally, {}, [domain.stream("a", 1, domain.Noted(text="a bb a"))])
    assert {key: row.total for key, row in rows.items()} == {"a": 1, "bb": 2}


def test_two_folds_with_keys_of_their_own_serve_one_event(domain: Any) -> None:
    tally = make_tally()
    row = Tally(key="", total=0, largest=None, price=Decimal(0))

    @tally.fold(key="text")
    def first(before: Tally | None, event: domain.Noted, context: EventContext) -> Tally:
        return row.model_copy(update={"key": event.text, "total": 1})

    @tally.fold(key="context.aggregate_id")
    def second(before: Tally | None, event: domain.Noted, context: EventContext) -> Tally:
        return row.model_copy(update={"key": context.aggregate_id, "total": 2})

    rows = fold_streams(tally, {}, [domain.stream("a", 1, domain.Noted(text="t"))])
    assert {key: row.total for key, row in rows.items()} == {"t": 1, "a": 2}


def test_a_fold_and_a_declaration_share_a_row(domain: Any) -> None:
    tally = make_tally()
    tally.on(domain.Added, times=count())

    @tally.fold
    def added(row: Tally | None, event: domain.Added, context: EventContext) -> Tally | None:
        assert row is not None, "what was declared first has made it"
        return None if event.amount == 9 else row.model_copy(update={"total": row.total + 1})

    assert tally.summary_rules is None
    rows = fold_streams(tally, {}, [domain.stream("a", 1), domain.stream("a", 2)])
    assert (rows["a"].times, rows["a"].total) == (102, 2)


def test_a_fold_must_return_a_row_of_its_key(domain: Any) -> None:
    odd = Projection("odd", row=domain.Total, key="counter_id")

    @odd.fold
    def added(row: Any, event: domain.Added, context: EventContext) -> Any:
        return domain.Total(counter_id="somebody else")

    with pytest.raises(ProjectionError, match="must return a Total with counter_id='a'"):
        fold_streams(odd, {}, [domain.stream("a", 1)])


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"nothing": count()}, "Tally has no column nothing"),
        ({"key": last("text")}, "is no key"),
        ({"total": 5}, "total=5 is no summary"),
        ({"total": sum_("text")}, "projection tally: column total is integer"),
        ({"where": field("text")}, "is no condition"),
        ({"key_of": None}, "no column key_of"),
    ],
)
def test_a_declaration_that_does_not_fit_the_row_is_refused(
    domain: Any, columns: Any, sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        make_tally().on(domain.Noted, **columns)


def test_a_column_that_a_new_row_cannot_fill_is_refused(domain: Any) -> None:
    class Dated(BaseModel):
        key: str
        since: date

    dated = Projection("dated", row=Dated, key="key")
    with pytest.raises(DefinitionError, match=r"Dated\.since needs a default, or to admit None"):
        dated.on(domain.Added)


@pytest.mark.parametrize("event_types", [(), ("Added",), (int,)])
def test_a_declared_fold_is_for_a_type_of_events(event_types: Any) -> None:
    with pytest.raises(DefinitionError, match="on takes"):
        make_tally().on(*event_types, times=count())
