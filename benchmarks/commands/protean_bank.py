"""
The same commands by `protean`, with the event store that it has for PostgreSQL: Message DB.

It has no queue here either: a thread has its command processed and waits. Another thread that was
first is no failure: the command is processed again, beyond the times that it tries by itself.
"""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg2
import structlog
from protean import Domain, apply, handle
from protean.exceptions import ExpectedVersionError
from protean.fields import Identifier, Integer, String
from protean.utils.globals import current_domain
from sqlalchemy import make_url

from benchmarks.peers.daemon import program

__all__ = ["Bank"]

# In the order in which its own script installs them; the extension it wants is part of PostgreSQL now.
SCHEMA = (
    "schema/message-store", "tables/messages", "types/message", "functions/acquire-lock",
    "functions/category", "functions/is-category", "functions/id", "functions/cardinal-id",
    "functions/stream-version", "functions/hash-64", "functions/write-message",
    "functions/get-stream-messages", "functions/get-category-messages",
    "functions/get-last-stream-message", "indexes/messages-id", "indexes/messages-stream",
    "indexes/messages-category",
)  # fmt: skip


class Bank:
    """Its service, on a database with nothing in it."""

    def __init__(self, url: str) -> None:
        host = make_url(url).query["host"]
        address = f"postgresql://postgres@/postgres?host={host}"
        address += "&options=-csearch_path%3Dmessage_store,public"
        install(address, program("message-db"))
        self._domain, self._open, self._deposit = _domain(address)
        # It tells each command; nobody listens to that here.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        logging.disable(logging.CRITICAL)

    def context(self) -> AbstractContextManager[object]:
        """What a thread needs around its work."""
        found: AbstractContextManager[object] = self._domain.domain_context()
        return found

    def open_all(self, count: int) -> Sequence[str]:
        """Opens accounts and returns their names."""
        names = [f"a-{number}" for number in range(count)]
        with self.context():
            for name in names:
                self._domain.process(self._open(account_id=name, owner="o"), asynchronous=False)
        return names

    def pay_in(self, account_id: str, transaction_id: str, amount: int) -> None:
        """Deposits, until no other thread was first."""
        while True:
            command = self._deposit(
                account_id=account_id, transaction_id=transaction_id, amount=amount
            )
            try:
                self._domain.process(command, asynchronous=False)
            except ExpectedVersionError:
                continue
            return


def install(address: str, folder: Path) -> None:
    """Lays Message DB's tables and functions into a database."""
    connection = psycopg2.connect(address)
    connection.autocommit = True
    with connection.cursor() as cursor:
        for name in SCHEMA:
            cursor.execute((folder / f"{name}.sql").read_text())
    connection.close()


def _domain(address: str) -> tuple[Domain, type, type]:
    domain = Domain(
        name="bench",
        config={
            "event_store": {"provider": "message_db", "database_uri": address},
            "command_processing": "sync",
            "event_processing": "async",
        },
    )
    found = _commands(domain, _account(domain))
    domain.init(traverse=False)
    return domain, *found


def _account(domain: Domain) -> type:
    @domain.event(part_of="Account")
    class Opened:
        account_id = Identifier()
        owner = String()

    @domain.event(part_of="Account")
    class Deposited:
        account_id = Identifier()
        transaction_id = String()
        amount = Integer()
        balance = Integer()

    @domain.aggregate(is_event_sourced=True)
    class Account:
        account_id = Identifier(identifier=True)
        owner = String()
        balance = Integer(default=0)

        @classmethod
        def open(cls, account_id: str, owner: str) -> "Account":
            account = cls._create_new(account_id=account_id)
            account.raise_(Opened(account_id=account_id, owner=owner))
            return account

        def deposit(self, transaction_id: str, amount: int) -> None:
            self.raise_(
                Deposited(
                    account_id=self.account_id, transaction_id=transaction_id,
                    amount=amount, balance=self.balance + amount,
                )
            )  # fmt: skip

        @apply
        def opened(self, fact: Opened) -> None:
            self.account_id = fact.account_id
            self.owner = fact.owner
            self.balance = 0

        @apply
        def deposited(self, fact: Deposited) -> None:
            self.balance = fact.balance

    return Account


def _commands(domain: Domain, account_type: type) -> tuple[type, type]:
    @domain.command(part_of=account_type)
    class OpenAccount:
        account_id = Identifier(identifier=True)
        owner = String()

    @domain.command(part_of=account_type)
    class Deposit:
        account_id = Identifier(identifier=True)
        transaction_id = String()
        amount = Integer()

    @domain.command_handler(part_of=account_type)
    class Handler:
        @handle(OpenAccount)
        def open(self, command: OpenAccount) -> None:
            account = account_type.open(command.account_id, command.owner)
            current_domain.repository_for(account_type).add(account)

        @handle(Deposit)
        def deposit(self, command: Deposit) -> None:
            repository = current_domain.repository_for(account_type)
            account = repository.get(command.account_id)
            account.deposit(command.transaction_id, command.amount)
            repository.add(account)

    return OpenAccount, Deposit
