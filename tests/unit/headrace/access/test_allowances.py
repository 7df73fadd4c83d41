"""Allowances: nothing is refused before the first, and what none of them allows is refused after it."""

import pytest

from headrace.access.allowances import ANY_ROLE, Allowances
from headrace.access.principal import Principal

CLERK = Principal("ann", frozenset({"clerk", "smoker"}))
BOSS = Principal("eve", frozenset({"boss"}))
GUEST = Principal("bob")


def test_without_a_declaration_everything_is_allowed_but_the_results_of_others() -> None:
    allowances = Allowances()
    assert not allowances.declared
    assert allowances.may_send(GUEST, "Deposit")
    assert allowances.may_read(GUEST, "balances")
    assert not allowances.may_see_all_results(BOSS)


def test_with_a_declaration_what_is_not_declared_is_refused() -> None:
    allowances = Allowances()
    allowances.allow(["clerk"], commands=["Deposit"])
    assert allowances.declared
    assert allowances.may_send(CLERK, "Deposit")
    for principal in (BOSS, GUEST):
        assert not allowances.may_send(principal, "Deposit")
    assert not allowances.may_send(CLERK, "Withdraw")
    # A projection is no command, also one with the same name.
    assert not allowances.may_read(CLERK, "Deposit")


def test_declarations_add_up() -> None:
    allowances = Allowances()
    allowances.allow(["clerk"], commands=["Deposit"], projections=["balances"])
    allowances.allow(["boss"], commands=["Deposit"], results=True)
    assert allowances.may_send(CLERK, "Deposit")
    assert allowances.may_send(BOSS, "Deposit")
    assert allowances.may_read(CLERK, "balances")
    assert not allowances.may_read(BOSS, "balances")
    assert allowances.may_see_all_results(BOSS)
    assert not allowances.may_see_all_results(CLERK)


def test_the_star_is_every_principal() -> None:
    allowances = Allowances()
    allowances.allow([ANY_ROLE], projections=["prices"])
    assert allowances.may_read(GUEST, "prices")
    assert not allowances.may_send(GUEST, "Deposit")


def test_the_application_itself_is_not_asked_about() -> None:
    allowances = Allowances()
    allowances.allow(["clerk"], commands=["Deposit"])
    assert allowances.may_send(None, "Withdraw")


@pytest.mark.parametrize(("roles", "sentence"), [([], "name a role"), (["a b"], "a role has")])
def test_no_role_or_one_that_cannot_be_is_refused_and_declares_nothing(
    roles: list[str], sentence: str
) -> None:
    allowances = Allowances()
    with pytest.raises(ValueError, match=sentence):
        allowances.allow(roles, commands=["Deposit"])
    assert not allowances.declared
