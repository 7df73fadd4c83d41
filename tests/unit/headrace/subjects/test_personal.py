"""What may be declared personal."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, create_model

from headrace.domain.message import AggregateId, Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.errors import DefinitionError
from headrace.subjects.personal import FORGOTTEN, Personal

Email = Annotated[str, Personal(subject="customer_id")]


def test_a_personal_field_is_known_to_its_class():
    class Registered(DomainEvent):
        customer_id: str
        email: Email

    assert dict(Registered.message_personal) == {"email": Personal(subject="customer_id")}
    assert Registered.message_personal["email"].placeholder == FORGOTTEN


def test_a_subject_that_is_no_field_is_refused():
    with pytest.raises(DefinitionError, match="personal to 'customer_id', which is no field"):

        class Registered(DomainEvent):
            email: Email


def test_a_subject_cannot_be_personal():
    with pytest.raises(DefinitionError, match="customer_id names a subject"):

        class Registered(DomainEvent):
            customer_id: Email


@pytest.mark.parametrize("kind", ["list", "optional", "model"])
def test_a_declaration_inside_a_type_is_refused(kind: str):
    class Address(BaseModel):
        customer_id: str
        street: Email

    inner: Any = {"list": list[Email], "optional": Email | None, "model": tuple[Address, ...]}[kind]
    with pytest.raises(DefinitionError, match="Personal stands inside the type of value"):
        create_model("Registered", __base__=DomainEvent, customer_id=(str, ...), value=(inner, ...))


def test_a_placeholder_of_another_type_is_refused():
    class Born(DomainEvent):
        customer_id: str
        year: Annotated[int, Personal(subject="customer_id")]

    with pytest.raises(DefinitionError, match="the placeholder of year is no value of that field"):
        Registry[DomainEvent]("event").add(Born)


def test_the_id_of_an_aggregate_cannot_be_personal():
    with pytest.raises(DefinitionError, match="names the aggregate and cannot be personal"):

        class Register(Command):
            email: Annotated[AggregateId, Personal(subject="customer_id")]
            customer_id: str
