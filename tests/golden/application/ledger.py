"""
The application that wrote the data in `tests/golden/application`: one of everything that is stored.

Its messages, names and states stay as they are: the stored data depends on them.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainError,
    DomainEvent,
    EventContext,
    Later,
    Process,
    Projection,
    applies,
)

# Parts that fail until a test mends them.
BROKEN = {"fold", "handler", "process", "command"}


class Open(Command):
    account_id: AggregateId
    owner: str


class Deposit(Command):
    account_id: AggregateId
    amount: int


class Close(Command):
    account_id: AggregateId


class Opened(DomainEvent):
    owner: str


class Deposited(DomainEvent):
    amount: int
    balance: int


class Closed(DomainEvent):
    pass


class Account(Aggregate):
    balance: int

    def initial_state(self) -> None:
        self.balance = 0

    @applies
    def _opened(self, event: Opened) -> None: ...

    @applies
    def _deposited(self, event: Deposited) -> None:
        self.balance = event.balance

    @applies
    def _closed(self, event: Closed) -> None: ...


class Balance(BaseModel):
    account_id: str
    balance: int


balances = Projection("balances", row=Balance, key="account_id")


@balances.fold
def opened_account(row: Balance | None, event: Opened, context: EventContext) -> Balance:
    if event.owner == "fold" in BROKEN:
        raise ValueError("the fold is broken")
    return Balance(account_id=context.aggregate_id, balance=0)


@balances.fold
def new_balance(row: Balance | None, event: Deposited, context: EventContext) -> Balance:
    return Balance(account_id=context.aggregate_id, balance=event.balance)


class Greeting(BaseModel):
    owner: str


greetings = Process("greetings", state=Greeting)


@greetings.on
def greet(state: Greeting | None, event: Opened, context: EventContext) -> Iterable[Any]:
    if event.owner == "process" in BROKEN:
        raise ValueError("the process is broken")
    yield Greeting(owner=event.owner)
    yield Deposit(account_id=context.aggregate_id, amount=5)
    yield Later(
        Close(account_id=context.aggregate_id), at=context.recorded_at + timedelta(days=300)
    )


app = App("ledger")
app.add(Account, balances, greetings)


@app.on_event
async def write_letter(event: Opened, context: EventContext) -> None:
    if event.owner == "handler" in BROKEN:
        raise ValueError("the handler is broken")


@app.handles
async def open_account(command: Open, context: CommandContext) -> None:
    account = Account(command.account_id)
    account.record(Opened(owner=command.owner))
    context.add(account)


@app.handles
async def deposit(command: Deposit, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    if command.amount == 0:
        raise DomainError("nothing to deposit")
    if command.amount == 13 and "command" in BROKEN:
        raise ValueError("the command handler is broken")
    account.record(Deposited(amount=command.amount, balance=account.balance + command.amount))


@app.handles
async def close(command: Close, context: CommandContext) -> None:
    (await context.get(Account, command.account_id)).record(Closed())
