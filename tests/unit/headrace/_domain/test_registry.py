"""Names to classes."""

import pytest

from headrace._domain.message import DomainEvent
from headrace._domain.registry import Registry
from headrace.errors import DefinitionError, UnknownMessageType


class Deposited(DomainEvent):
    pass


class DepositedLater(DomainEvent, name="Deposited", version=2):
    pass


def test_a_class_is_found_by_its_name_and_version():
    registry: Registry[DomainEvent] = Registry("event")
    registry.add(Deposited)
    registry.add(DepositedLater)
    registry.add(Deposited)
    assert registry.find("Deposited", 1) is Deposited
    assert registry.find("Deposited", 2) is DepositedLater
    assert (len(registry), set(registry)) == (2, {Deposited, DepositedLater})


def test_two_classes_of_one_name_and_version_are_refused():
    registry: Registry[DomainEvent] = Registry("event")
    registry.add(Deposited)

    class Other(DomainEvent, name="Deposited"):
        pass

    with pytest.raises(DefinitionError, match="two event classes are named 'Deposited' version 1"):
        registry.add(Other)


def test_an_unknown_name_or_version_says_what_to_do():
    registry: Registry[DomainEvent] = Registry("event")
    registry.add(Deposited)
    for name, version in (("Withdrawn", 1), ("Deposited", 9)):
        with pytest.raises(
            UnknownMessageType, match=f"event '{name}' version {version} is not registered"
        ):
            registry.find(name, version)
