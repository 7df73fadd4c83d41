"""What the bank's pages show: balances, statements, what each day brought, transfers under way."""

from datetime import datetime

from pydantic import BaseModel

from headrace import DomainEvent, EventContext, Projection
from headrace.folds import count, day, last, literal, sum_
from samples.bank.accounts import (
    AccountClosed,
    AccountOpened,
    Deposited,
    MoneyReceived,
    MoneyReturned,
    MoneySent,
    Withdrawn,
)
from samples.bank.transfers import TransferCancelled, TransferCompleted, TransferRequested


# A row per account: what its columns keep of events is declared.
class Balance(BaseModel):
    account_id: str
    owner: str = ""
    balance: int = 0
    transactions: int = 0
    closed: bool = False


balances = Projection("balances", row=Balance, key="account_id")
balances.on(AccountOpened, owner=last("owner"))
balances.on(
    Deposited,
    Withdrawn,
    MoneySent,
    MoneyReceived,
    MoneyReturned,
    balance=last("balance"),
    transactions=count(),
)
balances.on(AccountClosed, closed=last(literal(value=True)))


# A row per day: it gathers the events of many accounts.
class DailyTotal(BaseModel):
    day: str  # in UTC
    paid_in: int = 0
    paid_out: int = 0
    transferred: int = 0
    transactions: int = 0


daily_totals = Projection(
    "daily_totals", row=DailyTotal, key="day", key_of=day("context.recorded_at")
)
daily_totals.on(Deposited, paid_in=sum_("amount"), transactions=count())
daily_totals.on(Withdrawn, paid_out=sum_("amount"), transactions=count())
daily_totals.on(MoneyReceived, transferred=sum_("amount"), transactions=count())


# A row per transfer, for as long as it is under way: what is more than keeping is a fold.
class TransferInFlight(BaseModel):
    transfer_id: str
    source: str
    target: str
    amount: int
    requested_at: datetime


transfers_in_flight = Projection("transfers_in_flight", row=TransferInFlight, key="transfer_id")


@transfers_in_flight.fold
def requested(row: None, event: TransferRequested, context: EventContext) -> TransferInFlight:
    return TransferInFlight(
        transfer_id=context.aggregate_id,
        source=event.source,
        target=event.target,
        amount=event.amount,
        requested_at=context.recorded_at,
    )


@transfers_in_flight.fold
def ended(
    row: TransferInFlight | None,
    event: TransferCompleted | TransferCancelled,
    context: EventContext,
) -> None:
    return None


# A row per event that moves money, named by its transaction or transfer.
class StatementLine(BaseModel):
    line_id: str
    account_id: str
    amount: int  # negative: money left the account
    balance: int  # right after this line


def _line_id(event: DomainEvent, context: EventContext) -> str:
    if isinstance(event, Deposited | Withdrawn):
        return event.transaction_id
    assert isinstance(event, MoneySent | MoneyReceived | MoneyReturned)
    return f"{event.transfer_id}/{event.message_name}"


statement = Projection("statement", row=StatementLine, key="line_id", key_of=_line_id)


@statement.fold
def money_in(
    row: None,
    event: Deposited | MoneyReceived | MoneyReturned,
    context: EventContext,
    line_id: str,
) -> StatementLine:
    return StatementLine(
        line_id=line_id,
        account_id=context.aggregate_id,
        amount=event.amount,
        balance=event.balance,
    )


@statement.fold
def money_out(
    row: None, event: Withdrawn | MoneySent, context: EventContext, line_id: str
) -> StatementLine:
    return StatementLine(
        line_id=line_id,
        account_id=context.aggregate_id,
        amount=-event.amount,
        balance=event.balance,
    )
