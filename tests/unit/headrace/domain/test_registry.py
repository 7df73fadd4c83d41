"""Names to classes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.message import DomainEvent
from headrace.domain.registry import Registry
from headrace.errors import DefinitionError, SerializationError, UnknownMessageType


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
    for name, version in (("Withdrawn", 1), ("Deposited", 0)):
        with pytest.raises(
            UnknownMessageType, match=f"event '{name}' version {version} is not registered"
        ):
            registry.find(name, version)


class DepositedNow(DomainEvent, name="Deposited", version=3):
    amount: int
    currency: str


def with_currency(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "currency": "EUR"}


def in_cents(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "amount": data["amount"] * 100}


def chain() -> Registry[DomainEvent]:
    registry: Registry[DomainEvent] = Registry("event")
    registry.add(DepositedNow)
    registry.upcast("Deposited", 1, with_currency)
    registry.upcast("Deposited", 2, in_cents)
    registry.check(every_version=True)
    return registry


def test_an_old_version_takes_every_step_to_the_newest_class():
    registry = chain()
    assert registry.resolve("Deposited", 1, {"amount": 5}) == (
        DepositedNow,
        {"amount": 500, "currency": "EUR"},
    )
    assert registry.resolve("Deposited", 2, {"amount": 5, "currency": "CHF"}) == (
        DepositedNow,
        {"amount": 500, "currency": "CHF"},
    )


def test_the_newest_version_is_left_as_it_is():
    data = {"amount": 5, "currency": "CHF"}
    assert chain().resolve("Deposited", 3, data) == (DepositedNow, data)


def test_a_version_newer_than_every_class_says_to_deploy_newer_code():
    with pytest.raises(UnknownMessageType, match=r"newer than version 3.*deploy the code"):
        chain().resolve("Deposited", 4, {})


@given(newest=st.integers(1, 6), kept=st.sets(st.integers(1, 6)), steps=st.sets(st.integers(1, 6)))
def test_what_the_check_lets_pass_can_be_read_in_every_version(newest, kept, steps):
    registry: Registry[DomainEvent] = Registry("event")
    for version in kept | {newest}:
        if version <= newest:
            registry.add(type("E", (DomainEvent,), {"__module__": __name__}, version=version))
    for version in steps:
        registry.upcast("E", version, lambda data: {"steps": data["steps"] + 1})

    def resolve_all() -> None:
        for version in range(1, newest + 1):
            found, data = registry.resolve("E", version, {"steps": 0})
            assert found.message_version == version + data["steps"]

    try:
        registry.check(every_version=True)
    except DefinitionError:
        double = any(registry_has(registry, version) for version in steps)
        beyond = any(version >= newest for version in steps)
        if not double and not beyond:
            with pytest.raises(UnknownMessageType):
                resolve_all()
    else:
        resolve_all()


def registry_has(registry: Registry[DomainEvent], version: int) -> bool:
    return any(found.message_version == version for found in registry)


def test_a_gap_in_the_chain_is_found_before_anything_is_read():
    registry: Registry[DomainEvent] = Registry("event")
    registry.add(DepositedNow)
    registry.upcast("Deposited", 1, with_currency)
    with pytest.raises(DefinitionError, match=r"version 1 cannot be read.*from version 2 to 3"):
        registry.check(every_version=True)


def test_a_first_version_without_class_or_upcaster_matters_only_where_all_versions_are_kept():
    registry: Registry[DomainEvent] = Registry("event")
    registry.add(DepositedLater)
    registry.check(every_version=False)
    with pytest.raises(DefinitionError, match="version 1 cannot be read"):
        registry.check(every_version=True)


def test_an_old_class_beside_the_new_one_needs_no_upcaster():
    registry: Registry[DomainEvent] = Registry("event")
    registry.add(Deposited)
    registry.add(DepositedLater)
    registry.check(every_version=True)
    assert registry.resolve("Deposited", 1, {}) == (Deposited, {})


def test_a_version_has_a_class_or_an_upcaster_but_not_both():
    registry = chain()
    registry.add(Deposited)
    with pytest.raises(DefinitionError, match="version 1 has a class and an upcaster"):
        registry.check(every_version=True)


def test_a_version_has_one_upcaster():
    registry = chain()
    registry.upcast("Deposited", 1, with_currency)
    with pytest.raises(DefinitionError, match="two upcasters"):
        registry.upcast("Deposited", 1, in_cents)
    with pytest.raises(DefinitionError, match="versions begin with 1"):
        registry.upcast("Deposited", 0, in_cents)


def test_an_upcaster_that_fails_says_which_one():
    with pytest.raises(SerializationError, match=r"'Deposited' version 2 failed: KeyError"):
        chain().resolve("Deposited", 2, {})


def test_an_upcaster_that_returns_no_fields_says_what_to_return():
    registry = chain()
    registry.upcast("Withdrawn", 1, lambda data: None)  # type: ignore[arg-type,return-value]  # the mistake under test
    with pytest.raises(SerializationError, match="returned NoneType; return the fields"):
        registry.resolve("Withdrawn", 1, {})
