"""
The same commands by `eventsourcing`: accounts that take deposits, many or one, by several threads.

It has no queue and no replies: a call loads the account, deposits and saves, as its documentation
does, and tries again when another thread was first. `default` is how it comes; `cached` keeps the
accounts in memory and looks for newer events before each use, the fastest of its settings that is
safe beside other processes.
"""

from collections.abc import Mapping
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import IntegrityError
from sqlalchemy import make_url

__all__ = ["VARIANTS", "Account", "Bank", "environment"]

VARIANTS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "cached": {"AGGREGATE_CACHE_MAXSIZE": "20000"},
}


class Account(Aggregate):
    """What ours is, by this library's means."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = 0

    @event("Deposited")
    def deposit(self, transaction_id: str, amount: int, balance: int) -> None:  # noqa: ARG002 - the event's fields
        """Records an event with the fields that ours has."""
        self.balance = balance


class Bank(Application[UUID]):
    """Its service."""

    def open(self) -> UUID:
        """Opens an account."""
        account = Account("o")
        self.save(account)
        return account.id

    def pay_in(self, account_id: UUID, transaction_id: str, amount: int) -> None:
        """Deposits, until no other thread was first."""
        while True:
            account: Account = self.repository.get(account_id)
            account.deposit(transaction_id, amount, account.balance + amount)
            try:
                self.save(account)
            except IntegrityError:
                continue
            return


def environment(url: str) -> dict[str, str]:
    """Its settings for a store with nothing in it, by the URL that ours would have."""
    parsed = make_url(url)
    if parsed.drivername.startswith("sqlite"):
        return {
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(parsed.database),
            "SQLITE_LOCK_TIMEOUT": "30",
        }
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(parsed.database),
        "POSTGRES_HOST": str(parsed.query["host"]),
        "POSTGRES_PORT": "5432",
        "POSTGRES_USER": str(parsed.username),
        "POSTGRES_PASSWORD": "",
        "POSTGRES_POOL_SIZE": "16",
        "POSTGRES_MAX_OVERFLOW": "64",
    }
