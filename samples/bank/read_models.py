"""What the bank's pages show: every account's balance, and every account's statement."""

from pydantic import BaseModel

from headrace import DomainEvent, EventContext, Projection
from samples.bank.accounts import (
    AccountClosed,
    AccountOpened,
    Deposited,
    MoneyReceived,
    MoneyReturned,
    MoneySent,
    Withdrawn,
)


class Balance(BaseModel):
    account_id: str
    owner: str
    balance: int
    transactions: int = 0
    closed: bool = False


balances = Projection("balances", row=Balance, key="account_id")


@balances.fold
def opened(row: Balance | None, event: AccountOpened, context: EventContext) -> Balance:
    return Balance(account_id=context.aggregate_id, owner=event.owner, balance=0)


def _moved(row: Balance, balance: int) -> Balance:
    return row.model_copy(update={"balance": balance, "transactions": row.transactions + 1})


@balances.fold
def deposited(row: Balance, event: Deposited, context: EventContext) -> Balance:
    return _moved(row, event.balance)


@balances.fold
def withdrawn(row: Balance, event: Withdrawn, context: EventContext) -> Balance:
    return _moved(row, event.balance)


@balances.fold
def sent(row: Balance, event: MoneySent, context: EventContext) -> Balance:
    return _moved(row, event.balance)


@balances.fold
def received(row: Balance, event: MoneyReceived, context: EventContext) -> Balance:
    return _moved(row, event.balance)


@balances.fold
def returned(row: Balance, event: MoneyReturned, context: EventContext) -> Balance:
    return _moved(row, event.balance)


@balances.fold
def closed(row: Balance, event: AccountClosed, context: EventContext) -> Balance:
    return row.model_copy(update={"closed": True})


class StatementLine(BaseModel):
    line_id: str
    account_id: str
    amount: int  # negative: money left the account
    balance: int  # right after this line


def _line_id(event: DomainEvent, context: EventContext) -> str:
    """One line per event that moves money, named by its transaction or transfer."""
    if isinstance(event, Deposited | Withdrawn):
        return event.transaction_id
    assert isinstance(event, MoneySent | MoneyReceived | MoneyReturned)
    return f"{event.transfer_id}/{event.message_name}"


statement = Projection("statement", row=StatementLine, key="line_id", key_of=_line_id)


def _line(event: DomainEvent, context: EventContext, amount: int, balance: int) -> StatementLine:
    return StatementLine(
        line_id=_line_id(event, context),
        account_id=context.aggregate_id,
        amount=amount,
        balance=balance,
    )


@statement.fold
def deposit_line(row: None, event: Deposited, context: EventContext) -> StatementLine:
    return _line(event, context, event.amount, event.balance)


@statement.fold
def withdrawal_line(row: None, event: Withdrawn, context: EventContext) -> StatementLine:
    return _line(event, context, -event.amount, event.balance)


@statement.fold
def sent_line(row: None, event: MoneySent, context: EventContext) -> StatementLine:
    return _line(event, context, -event.amount, event.balance)


@statement.fold
def received_line(row: None, event: MoneyReceived, context: EventContext) -> StatementLine:
    return _line(event, context, event.amount, event.balance)


@statement.fold
def returned_line(row: None, event: MoneyReturned, context: EventContext) -> StatementLine:
    return _line(event, context, event.amount, event.balance)
