"""An account: what may be asked of it, what may happen to it, and the rules in between."""

from typing import Annotated

from pydantic import Field

from headrace import Aggregate, AggregateId, Command, DomainError, DomainEvent, applies

# Ten billion in cents: more is a mistake, and sums of it must fit a database's 64-bit integers.
AMOUNT_MAX = 10**12

# The id of another account. One that no account can have is refused at once.
AccountId = Annotated[str, Field(min_length=1, max_length=255)]


# What may be asked of an account. Amounts are in cents.
class OpenAccount(Command):
    account_id: AggregateId
    owner: str
    overdraft_limit: int | None = 0  # None: may be overdrawn without limit


class Deposit(Command):
    account_id: AggregateId
    transaction_id: str
    amount: int


class Withdraw(Command):
    account_id: AggregateId
    transaction_id: str
    amount: int


# A transfer sends these three; callers send RequestTransfer.
class SendMoney(Command, internal=True):
    account_id: AggregateId
    transfer_id: str
    target: AccountId
    amount: int


class ReceiveMoney(Command, internal=True):
    account_id: AggregateId
    transfer_id: str
    source: AccountId
    amount: int


class ReturnMoney(Command, internal=True):
    account_id: AggregateId
    transfer_id: str
    amount: int
    reason: str


class CloseAccount(Command):
    account_id: AggregateId


# What may happen to it.
class AccountOpened(DomainEvent):
    owner: str
    overdraft_limit: int | None


class Deposited(DomainEvent):
    transaction_id: str
    amount: int
    balance: int


class Withdrawn(DomainEvent):
    transaction_id: str
    amount: int
    balance: int


class MoneySent(DomainEvent):
    transfer_id: str
    target: str
    amount: int
    balance: int


class MoneyReceived(DomainEvent):
    transfer_id: str
    source: str
    amount: int
    balance: int


class MoneyReturned(DomainEvent):
    transfer_id: str
    amount: int
    balance: int
    reason: str


class AccountClosed(DomainEvent):
    pass


# What it may say no to.
class InsufficientFunds(DomainError):
    """The withdrawal would overdraw the account beyond its limit."""


class AccountIsClosed(DomainError):
    """The account was closed and takes part in nothing any more."""


class InvalidAmount(DomainError):
    """An amount is one cent or more, and not more than a person could mean."""


class NotEmpty(DomainError):
    """Only an account with a balance of zero can be closed."""


class Account(Aggregate):
    """An account decides in its methods and changes only in its `@applies` methods."""

    balance: int
    overdraft_limit: int | None
    closed: bool

    def initial_state(self) -> None:
        self.balance = 0
        self.overdraft_limit = 0
        self.closed = False

    @classmethod
    def open(cls, account_id: str, owner: str, overdraft_limit: int | None) -> "Account":
        account = cls(account_id)
        account.record(AccountOpened(owner=owner, overdraft_limit=overdraft_limit))
        return account

    def deposit(self, transaction_id: str, amount: int) -> None:
        self._check(amount)
        balance = self.balance + amount
        self.record(Deposited(transaction_id=transaction_id, amount=amount, balance=balance))

    def withdraw(self, transaction_id: str, amount: int) -> None:
        balance = self._balance_less(amount)
        self.record(Withdrawn(transaction_id=transaction_id, amount=amount, balance=balance))

    def send(self, transfer_id: str, target: str, amount: int) -> None:
        balance = self._balance_less(amount)
        self.record(
            MoneySent(transfer_id=transfer_id, target=target, amount=amount, balance=balance)
        )

    def receive(self, transfer_id: str, source: str, amount: int) -> None:
        self._check(amount)
        balance = self.balance + amount
        self.record(
            MoneyReceived(transfer_id=transfer_id, source=source, amount=amount, balance=balance)
        )

    def take_back(self, transfer_id: str, amount: int, reason: str) -> None:
        # No rule may stand in the way: the money left this account and belongs nowhere else.
        balance = self.balance + amount
        self.record(
            MoneyReturned(transfer_id=transfer_id, amount=amount, balance=balance, reason=reason)
        )

    def close(self) -> None:
        if self.closed:
            return
        if self.balance != 0:
            raise NotEmpty(f"account {self.id} still holds {self.balance}")
        self.record(AccountClosed())

    def _check(self, amount: int) -> None:
        if self.closed:
            raise AccountIsClosed(f"account {self.id} is closed")
        if not 1 <= amount <= AMOUNT_MAX:
            raise InvalidAmount(f"an amount is one cent to {AMOUNT_MAX} cents, not {amount}")

    def _balance_less(self, amount: int) -> int:
        self._check(amount)
        balance = self.balance - amount
        if self.overdraft_limit is not None and balance < -self.overdraft_limit:
            raise InsufficientFunds(
                f"account {self.id} holds {self.balance} and may be overdrawn by"
                f" {self.overdraft_limit}: {amount} is too much"
            )
        return balance

    @applies
    def _opened(self, event: AccountOpened) -> None:
        self.overdraft_limit = event.overdraft_limit

    @applies
    def _deposited(self, event: Deposited) -> None:
        self.balance = event.balance

    @applies
    def _withdrawn(self, event: Withdrawn) -> None:
        self.balance = event.balance

    @applies
    def _sent(self, event: MoneySent) -> None:
        self.balance = event.balance

    @applies
    def _received(self, event: MoneyReceived) -> None:
        self.balance = event.balance

    @applies
    def _returned(self, event: MoneyReturned) -> None:
        self.balance = event.balance

    @applies
    def _closed(self, event: AccountClosed) -> None:
        self.closed = True
