"""
The application that is measured: accounts, and nobody who reads their events.

Sits between: the loads, which open accounts and pay in, and `headrace run`. The bank sample, with
its projections and its process manager, takes the same loads; see `--bank`.
"""

from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, applies

__all__ = ["Deposit", "OpenAccount", "app"]

app = App("bench")


class OpenAccount(Command):
    """Begins an account."""

    account_id: AggregateId
    owner: str


class Deposit(Command):
    """Pays something in."""

    account_id: AggregateId
    transaction_id: str
    amount: int


class AccountOpened(DomainEvent):
    """There is an account."""

    owner: str


class Deposited(DomainEvent):
    """Something was paid in."""

    transaction_id: str
    amount: int
    balance: int


class Account(Aggregate):
    """Knows its owner and its balance."""

    owner: str
    balance: int

    def initial_state(self) -> None:
        self.owner = ""
        self.balance = 0

    def open(self, owner: str) -> None:
        self.record(AccountOpened(owner=owner))

    def deposit(self, transaction_id: str, amount: int) -> None:
        self.record(
            Deposited(transaction_id=transaction_id, amount=amount, balance=self.balance + amount)
        )

    @applies
    def _opened(self, event: AccountOpened) -> None:
        self.owner = event.owner

    @applies
    def _deposited(self, event: Deposited) -> None:
        self.balance = event.balance


app.add(Account)


@app.handles
async def open_account(command: OpenAccount, context: CommandContext) -> None:
    account = Account(command.account_id)
    account.open(command.owner)
    context.add(account)


@app.handles
async def deposit(command: Deposit, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.deposit(command.transaction_id, command.amount)
