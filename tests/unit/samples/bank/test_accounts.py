"""The account's rules, as scenarios: given what happened, when asked, then this."""

import pytest

from headrace.testing.scenario import scenario
from samples.bank.accounts import (
    Account,
    AccountClosed,
    AccountIsClosed,
    AccountOpened,
    Deposited,
    InsufficientFunds,
    InvalidAmount,
    MoneyReceived,
    MoneyReturned,
    MoneySent,
    NotEmpty,
    Withdrawn,
)

OPENED = AccountOpened(owner="Ada", overdraft_limit=100)
DEPOSITED = Deposited(transaction_id="t-1", amount=500, balance=500)


def test_opening_records_the_terms() -> None:
    scenario(Account).when(lambda _: Account.open("a-1", "Ada", 100)).then(OPENED)


def test_a_deposit_adds_to_the_balance() -> None:
    scenario(Account).given(OPENED, DEPOSITED).when(lambda a: a.deposit("t-2", 20)).then(
        Deposited(transaction_id="t-2", amount=20, balance=520)
    )


@pytest.mark.parametrize(("amount", "balance"), [(500, 0), (600, -100)])
def test_a_withdrawal_may_overdraw_up_to_the_limit(amount: int, balance: int) -> None:
    scenario(Account).given(OPENED, DEPOSITED).when(lambda a: a.withdraw("t-2", amount)).then(
        Withdrawn(transaction_id="t-2", amount=amount, balance=balance)
    )


def test_one_cent_beyond_the_limit_is_refused() -> None:
    given = scenario(Account).given(OPENED, DEPOSITED)
    given.when(lambda a: a.withdraw("t-2", 601)).then_raises(InsufficientFunds)


def test_an_account_without_limit_may_be_overdrawn_by_anything() -> None:
    unlimited = AccountOpened(owner="Ada", overdraft_limit=None)
    scenario(Account).given(unlimited).when(lambda a: a.withdraw("t-1", 10**12)).then(
        Withdrawn(transaction_id="t-1", amount=10**12, balance=-(10**12))
    )


@pytest.mark.parametrize("amount", [0, -1, 10**12 + 1, 2**70])
def test_an_amount_that_nobody_can_mean_is_refused(amount: int) -> None:
    for ask in (
        lambda a: a.deposit("t-2", amount),
        lambda a: a.withdraw("t-2", amount),
        lambda a: a.send("m-1", "a-2", amount),
        lambda a: a.receive("m-1", "a-2", amount),
    ):
        scenario(Account).given(OPENED, DEPOSITED).when(ask).then_raises(InvalidAmount)


def test_sending_and_receiving_name_the_other_account() -> None:
    scenario(Account).given(OPENED, DEPOSITED).when(lambda a: a.send("m-1", "a-2", 50)).then(
        MoneySent(transfer_id="m-1", target="a-2", amount=50, balance=450)
    )
    scenario(Account).given(OPENED).when(lambda a: a.receive("m-1", "a-2", 50)).then(
        MoneyReceived(transfer_id="m-1", source="a-2", amount=50, balance=50)
    )


def test_a_closed_account_takes_part_in_nothing_but_takes_its_money_back() -> None:
    closed = scenario(Account).given(OPENED, AccountClosed())
    closed.when(lambda a: a.deposit("t-2", 1)).then_raises(AccountIsClosed)
    closed.when(lambda a: a.receive("m-1", "a-2", 1)).then_raises(AccountIsClosed)
    closed.when(lambda a: a.take_back("m-1", 7, "no")).then(
        MoneyReturned(transfer_id="m-1", amount=7, balance=7, reason="no")
    )


def test_only_an_empty_account_can_be_closed_and_only_once() -> None:
    scenario(Account).given(OPENED, DEPOSITED).when(Account.close).then_raises(NotEmpty)
    scenario(Account).given(OPENED).when(Account.close).then(AccountClosed())
    scenario(Account).given(OPENED, AccountClosed()).when(Account.close).then_nothing()
