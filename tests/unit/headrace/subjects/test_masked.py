"""Personal values are masked in messages of the same class."""

from datetime import date
from typing import Annotated

from headrace.domain.message import DomainEvent
from headrace.subjects.masked import masked
from headrace.subjects.personal import FORGOTTEN, Personal


class Registered(DomainEvent):
    customer_id: str
    email: Annotated[str, Personal(subject="customer_id")]
    born: Annotated[date, Personal(subject="customer_id", placeholder=date(1, 1, 1))]


class Deposited(DomainEvent):
    amount: int


def test_a_text_is_masked_and_a_date_becomes_its_placeholder() -> None:
    found = masked(Registered(customer_id="c-1", email="ann@example.org", born=date(1990, 5, 1)))
    assert found == Registered(customer_id="c-1", email="[personal]", born=date(1, 1, 1))


def test_a_forgotten_value_stays_what_it_is() -> None:
    event = Registered(customer_id="c-1", email=FORGOTTEN, born=date(1, 1, 1))
    assert masked(event) is event


def test_a_message_without_personal_values_stays_the_same() -> None:
    event = Deposited(amount=5)
    assert masked(event) is event
