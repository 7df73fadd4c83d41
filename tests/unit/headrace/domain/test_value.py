"""Values are equal when their parts are, and never change."""

import pytest
from pydantic import ValidationError

from headrace.domain.identity import id_text
from headrace.domain.message import DomainEvent
from headrace.domain.value import ValueObject


class Money(ValueObject):
    cents: int
    currency: str = "EUR"


class Paid(DomainEvent):
    price: Money


def test_values_are_equal_and_hash_alike_when_their_parts_are():
    assert Money(cents=5) == Money(cents=5, currency="EUR")
    assert {Money(cents=5), Money(cents=5)} == {Money(cents=5)}
    assert Money(cents=5) != Money(cents=5, currency="CHF")


def test_a_value_never_changes_and_has_no_more_parts():
    with pytest.raises(ValidationError):
        Money(cents=5).cents = 6
    with pytest.raises(ValidationError):
        Money(cents=5, note="x")


def test_a_value_is_part_of_events_and_may_be_an_id():
    event = Paid(price=Money(cents=5))
    assert Paid.model_validate_json(event.model_dump_json()) == event
    assert id_text("an id", Money(cents=5)) == "5:EUR"
