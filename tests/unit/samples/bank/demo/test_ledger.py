"""The ledger: what must come out, by arithmetic alone."""

from samples.bank.demo.data_set import AccountTerms, DataSet, Transaction, TransferOrder
from samples.bank.demo.ledger import ExpectedAccount, ExpectedLine, expect


def row(number: int, account_id: str, amount: int, balance_after: int) -> Transaction:
    return Transaction(
        transaction_id=f"t-{number}",
        account_id=account_id,
        amount=amount,
        balance_after=balance_after,
    )


def bank(*rows: Transaction, transfers: list[TransferOrder] | None = None) -> DataSet:
    terms = {
        account_id: AccountTerms(
            account_id=account_id, owner="o", overdraft_limit=50, closes=account_id == "closed"
        )
        for account_id in dict.fromkeys(one.account_id for one in rows)
    }
    return DataSet(name="d", accounts=terms, transactions=list(rows), transfers=transfers or [])


def order(source: str, target: str, amount: int) -> TransferOrder:
    return TransferOrder(transfer_id="m", source=source, target=target, amount=amount)


def test_the_last_row_says_the_balance_and_each_row_is_a_line() -> None:
    ledger = expect(bank(row(1, "a", 100, 100), row(2, "a", -30, 70)))
    assert ledger.accounts == {"a": ExpectedAccount(balance=70, transactions=2)}
    assert ledger.lines["t-2"] == ExpectedLine(account_id="a", amount=-30, balance=70)


def test_the_rows_own_balance_is_believed_not_worked_out() -> None:
    assert expect(bank(row(1, "a", 100, 999))).accounts["a"].balance == 999


def test_a_row_that_stands_twice_counts_once() -> None:
    ledger = expect(bank(row(1, "a", 100, 100), row(2, "a", 1, 101), row(1, "a", 100, 100)))
    assert ledger.accounts["a"] == ExpectedAccount(balance=101, transactions=2)


def test_a_transfer_moves_money_and_makes_two_lines() -> None:
    ledger = expect(
        bank(row(1, "a", 100, 100), row(2, "b", 5, 5), transfers=[order("a", "b", 140)])
    )
    assert ledger.transfers == {"m": "completed"}
    assert (ledger.accounts["a"].balance, ledger.accounts["b"].balance) == (-40, 145)
    assert ledger.lines["m/MoneySent"].amount == -140
    assert ledger.lines["m/MoneyReceived"].account_id == "b"


def test_a_transfer_that_the_source_cannot_pay_is_cancelled_without_a_line() -> None:
    ledger = expect(
        bank(row(1, "a", 100, 100), row(2, "b", 5, 5), transfers=[order("a", "b", 151)])
    )
    assert ledger.transfers == {"m": "cancelled"}
    assert set(ledger.lines) == {"t-1", "t-2"}


def test_a_transfer_from_nobody_is_cancelled() -> None:
    ledger = expect(bank(row(1, "a", 100, 100), transfers=[order("x", "a", 1)]))
    assert ledger.transfers == {"m": "cancelled"}


def test_money_that_the_target_refuses_comes_back() -> None:
    for target in ("nobody", "closed"):
        ledger = expect(
            bank(row(1, "a", 100, 100), row(2, "closed", 0, 0), transfers=[order("a", target, 40)])
        )
        assert ledger.transfers == {"m": "cancelled"}
        assert ledger.accounts["a"] == ExpectedAccount(balance=100, transactions=3)
        assert ledger.lines["m/MoneyReturned"].amount == 40
