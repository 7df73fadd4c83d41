"""
What must come out of a data set, by plain arithmetic and without Headrace.

The rows' own `balance_after` is the truth about transactions; transfers are worked out here, each
as if it came first, which `seeds/generate.py` makes sure is the same in every order.
"""

from dataclasses import dataclass, field

from samples.bank.demo.data_set import DataSet, TransferOrder

__all__ = ["ExpectedAccount", "ExpectedLine", "Ledger", "expect"]


@dataclass(slots=True, kw_only=True)
class ExpectedAccount:
    """An account at the end; cents."""

    balance: int
    transactions: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLine:
    """A line of a statement; `balance` is None where it depends on what came first."""

    account_id: str
    amount: int
    balance: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Every account, every statement line, and the end of every transfer."""

    accounts: dict[str, ExpectedAccount] = field(default_factory=dict)
    lines: dict[str, ExpectedLine] = field(default_factory=dict)
    transfers: dict[str, str] = field(default_factory=dict)


def expect(data: DataSet) -> Ledger:
    """Returns what the read models must hold after a data set, however often it was sent."""
    ledger = Ledger()
    for account_id in dict.fromkeys(row.account_id for row in data.transactions):
        ledger.accounts[account_id] = ExpectedAccount(balance=0)
    for row in data.transactions:
        if row.transaction_id in ledger.lines:
            continue  # a row that stands twice is one transaction
        ledger.lines[row.transaction_id] = ExpectedLine(
            account_id=row.account_id, amount=row.amount, balance=row.balance_after
        )
        account = ledger.accounts[row.account_id]
        account.balance = row.balance_after
        account.transactions += 1
    for account_id, account in ledger.accounts.items():
        account.closed = data.accounts[account_id].closes
    room = {
        account_id: account.balance + (data.accounts[account_id].overdraft_limit or 0)
        for account_id, account in ledger.accounts.items()
    }
    for order in data.transfers:
        _transfer(ledger, order, room.get(order.source, 0))
    return ledger


def _transfer(ledger: Ledger, order: TransferOrder, room: int) -> None:
    source = ledger.accounts.get(order.source)
    target = ledger.accounts.get(order.target)
    if source is None or source.closed or order.amount > room:
        ledger.transfers[order.transfer_id] = "cancelled"
        return
    _line(ledger, f"{order.transfer_id}/MoneySent", order.source, -order.amount)
    if target is None or target.closed:
        _line(ledger, f"{order.transfer_id}/MoneyReturned", order.source, order.amount)
        ledger.transfers[order.transfer_id] = "cancelled"
    else:
        _line(ledger, f"{order.transfer_id}/MoneyReceived", order.target, order.amount)
        ledger.transfers[order.transfer_id] = "completed"


def _line(ledger: Ledger, line_id: str, account_id: str, amount: int) -> None:
    ledger.lines[line_id] = ExpectedLine(account_id=account_id, amount=amount, balance=None)
    account = ledger.accounts[account_id]
    account.balance += amount
    account.transactions += 1
