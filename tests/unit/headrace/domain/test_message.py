"""Commands, events and their names."""

import pickle
from datetime import UTC, datetime
from uuid import UUID

import pytest
from pydantic import ValidationError

from headrace.domain.message import (
    AggregateId,
    AggregateIdOf,
    Command,
    DomainEvent,
    EventContext,
)
from headrace.errors import DefinitionError


class Deposit(Command):
    account_id: AggregateId
    amount: int


class Deposited(DomainEvent):
    amount: int


def test_a_message_is_named_after_its_class_unless_it_says_otherwise():
    class Renamed(DomainEvent, name="money.in", version=3):
        pass

    assert (Deposited.message_name, Deposited.message_version) == ("Deposited", 1)
    assert (Renamed.message_name, Renamed.message_version) == ("money.in", 3)


def test_a_subclass_has_its_own_name_and_version():
    class Old(DomainEvent, name="old", version=4):
        pass

    class New(Old):
        pass

    assert (New.message_name, New.message_version) == ("New", 1)


@pytest.mark.parametrize("name", ["1st", "with space", "ü", "x" * 128, "-x"])
def test_a_malformed_name_is_refused(name):
    with pytest.raises(DefinitionError, match="start with a letter"):

        class Bad(DomainEvent, name=name):
            pass


def test_a_version_below_one_is_refused():
    with pytest.raises(DefinitionError, match="1 or more, not 0"):

        class Bad(DomainEvent, version=0):
            pass


def test_messages_are_frozen_and_refuse_unknown_fields():
    event = Deposited(amount=5)
    with pytest.raises(ValidationError):
        event.amount = 6
    with pytest.raises(ValidationError):
        Deposited(amount=5, more=1)


def test_a_command_finds_its_aggregate_by_the_marked_field():
    command = Deposit(account_id="a-1", amount=5)
    assert (Deposit.aggregate_id_field, command.aggregate_id) == ("account_id", "a-1")


def test_a_command_inherits_the_marked_field():
    class Bonus(Deposit):
        pass

    assert Bonus(account_id="a-1", amount=1).aggregate_id == "a-1"


def test_a_command_without_a_marked_field_or_with_two_is_refused():
    with pytest.raises(DefinitionError, match="exactly one field as AggregateId, not 0"):

        class Nobody(Command):
            amount: int

    with pytest.raises(DefinitionError, match="exactly one field as AggregateId, not 2"):

        class Both(Command):
            source: AggregateId
            target: AggregateId


@pytest.mark.parametrize("aggregate_id", ["", "x" * 256])
def test_an_aggregate_id_has_one_to_255_characters(aggregate_id):
    with pytest.raises(ValueError, match="1 to 255 characters"):
        _ = Deposit(account_id=aggregate_id, amount=1).aggregate_id


def test_a_command_names_its_aggregate_by_an_id_of_any_type():
    class Move(Command):
        place: AggregateIdOf[tuple[int, UUID]]

    place = (7, UUID(int=1))
    assert Move(place=place).aggregate_id == "7:00000000-0000-0000-0000-000000000001"
    assert Move.model_validate(Move(place=place).model_dump(mode="json")).place == place


CONTEXT = EventContext(
    aggregate_type="Account",
    aggregate_id="a-1",
    version=3,
    sequence=2,
    command_id="c",
    correlation_id="c",
    recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
)


def test_an_event_id_is_the_same_for_every_delivery():
    assert CONTEXT.event_id == "a-1/3/2"


def test_what_is_known_about_an_event_does_not_change_and_travels():
    with pytest.raises(AttributeError):
        CONTEXT.version = 4
    assert pickle.loads(pickle.dumps(CONTEXT)) == CONTEXT
