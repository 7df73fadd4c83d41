"""Comparing: every kind of difference is found and named."""

import pytest

from samples.bank.demo.comparing import (
    against_days,
    against_ledger,
    against_rows,
    against_total,
    against_transfers,
)
from samples.bank.demo.ledger import ExpectedAccount, ExpectedLine, Ledger
from samples.bank.read_models import Balance, DailyTotal, StatementLine

LEDGER = Ledger(
    accounts={"a": ExpectedAccount(balance=70, transactions=2, closed=False)},
    lines={
        "t-1": ExpectedLine(account_id="a", amount=100, balance=100),
        "m/MoneySent": ExpectedLine(account_id="a", amount=-30, balance=None),
    },
    transfers={"m": "completed"},
)
BALANCE = Balance(account_id="a", owner="o", balance=70, transactions=2)
LINES = {
    "t-1": StatementLine(line_id="t-1", account_id="a", amount=100, balance=100),
    "m/MoneySent": StatementLine(line_id="m/MoneySent", account_id="a", amount=-30, balance=70),
}


def test_what_must_come_out_is_no_difference() -> None:
    assert against_ledger(LEDGER, {"a": BALANCE}, LINES) == []
    assert against_transfers(LEDGER, {"m": "completed"}) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"balance": 71}, "account a: balance is 71 and must be 70"),
        ({"transactions": 1}, "account a: transactions is 1 and must be 2"),
        ({"closed": True}, "account a: closed is True and must be False"),
    ],
)
def test_each_field_of_an_account_counts(change: dict[str, object], sentence: str) -> None:
    row = BALANCE.model_copy(update=change)
    assert against_ledger(LEDGER, {"a": row}, LINES) == [sentence]


@pytest.mark.parametrize("change", [{"balance": 1}, {"amount": 1}, {"account_id": "b"}])
def test_each_field_of_a_statement_line_counts(change: dict[str, object]) -> None:
    lines = LINES | {"t-1": LINES["t-1"].model_copy(update=change)}
    (sentence,) = against_ledger(LEDGER, {"a": BALANCE}, lines)
    assert sentence.startswith("statement line t-1: ")


def test_missing_and_surplus_rows_are_found() -> None:
    lines = {"t-1": LINES["t-1"], "t-9": LINES["t-1"]}
    assert against_ledger(LEDGER, {"a": BALANCE}, lines) == [
        "statement line m/MoneySent is missing",
        "statement line t-9 should not be there",
    ]


def test_a_transfer_that_ended_otherwise_or_not_at_all_is_found() -> None:
    assert against_transfers(LEDGER, {"m": "cancelled"}) == [
        "transfer m: end is 'cancelled' and must be 'completed'"
    ]
    assert against_transfers(LEDGER, {}) == ["transfer m is missing"]


def test_money_that_nobody_brought_in_is_found() -> None:
    row = BALANCE.model_copy(update={"balance": 100})
    assert against_total(LEDGER, {"a": row}) == []
    assert against_total(LEDGER, {"a": BALANCE}) == ["all money together is 70 and must be 100"]


def test_two_tables_are_compared_field_by_field() -> None:
    other = BALANCE.model_copy(update={"owner": "p"})
    assert against_rows("account", {"a": BALANCE}, {"a": BALANCE}) == []
    assert against_rows("account", {"a": BALANCE}, {"a": other}) == [
        "account a: owner is 'p' and must be 'o'"
    ]


def test_all_days_together_bring_what_the_ledger_says() -> None:
    lines = {
        "t1": ExpectedLine(account_id="a", amount=70, balance=70),
        "t2": ExpectedLine(account_id="a", amount=-30, balance=40),
        "m/MoneySent": ExpectedLine(account_id="a", amount=-5, balance=None),
        "m/MoneyReceived": ExpectedLine(account_id="b", amount=5, balance=None),
    }
    days = {
        "2026-01-31": DailyTotal(day="2026-01-31", paid_in=70, transactions=1),
        "2026-02-01": DailyTotal(day="2026-02-01", paid_out=30, transferred=5, transactions=2),
    }
    assert against_days(Ledger(lines=lines), days) == []
    del days["2026-01-31"]
    assert against_days(Ledger(lines=lines), days) == [
        "paid in is 0 and must be 70",
        "moves is 2 and must be 3",
    ]
