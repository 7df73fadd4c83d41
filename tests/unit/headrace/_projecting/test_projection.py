"""A projection is checked where it is defined."""

from typing import Any

import pytest
from pydantic import BaseModel

from headrace._domain.message import EventContext
from headrace._projecting.projection import Projection
from headrace.errors import DefinitionError


@pytest.mark.parametrize("name", ["balances", "a", "a1_b", "x" * 40])
def test_names_that_every_database_takes_unquoted_are_fine(domain: Any, name: str) -> None:
    assert Projection(name, row=domain.Total, key="counter_id").name == name


@pytest.mark.parametrize("name", ["", "Balances", "1a", "_a", "a__1", "a-b", "größe", "x" * 41])
def test_other_names_are_refused(domain: Any, name: str) -> None:
    with pytest.raises(DefinitionError, match="use lower-case letters"):
        Projection(name, row=domain.Total, key="counter_id")


@pytest.mark.parametrize("key", ["total", "nothing"])
def test_the_key_is_a_text_field_of_the_row(domain: Any, key: str) -> None:
    with pytest.raises(DefinitionError, match="must name a field of Total of type str"):
        Projection("p", row=domain.Total, key=key)


def test_a_field_that_no_column_holds_is_refused_at_once() -> None:
    class Listing(BaseModel):
        key: str
        tags: list[str]

    with pytest.raises(DefinitionError, match=r"field Listing\.tags"):
        Projection("p", row=Listing, key="key")


def test_a_fold_is_found_by_the_annotation_of_its_event(domain: Any, totals: Any) -> None:
    assert totals.event_types == {domain.Added, domain.Cleared}
    assert totals.folds(domain.Added(amount=1))
    assert not totals.folds(domain.Noted(text=""))


def test_a_second_fold_for_an_event_is_refused(domain: Any, totals: Any) -> None:
    def again(row: Any, event: domain.Added, context: EventContext) -> Any:
        return row

    with pytest.raises(DefinitionError, match="folds Added twice; remove again or added"):
        totals.fold(again)


@pytest.mark.parametrize(
    "function",
    [lambda row, event, context: row, lambda row: row],
)
def test_a_fold_without_an_event_type_is_refused(totals: Any, function: Any) -> None:
    with pytest.raises(DefinitionError, match="annotates event with a DomainEvent class"):
        totals.fold(function)


def test_a_fold_must_return_a_row_of_its_key(domain: Any) -> None:
    odd = Projection("odd", row=domain.Total, key="counter_id")

    @odd.fold
    def added(row: Any, event: domain.Added, context: EventContext) -> Any:
        return domain.Total(counter_id="somebody else")

    ((event, context),) = domain.stream("a", 1).contexts()
    with pytest.raises(DefinitionError, match="must return a Total with counter_id='a'"):
        odd.next_row(None, event, context)


def test_keys_are_the_aggregates_unless_said_otherwise(domain: Any, totals: Any) -> None:
    ((event, context),) = domain.stream("a", 1).contexts()
    assert totals.key_for(event, context) == "a"
    assert totals.keyed_by_aggregate
    other = Projection("p", row=domain.Total, key="counter_id", key_of=lambda e, c: f"{c.version}")
    assert other.key_for(event, context) == "1"
    assert not other.keyed_by_aggregate
