"""
The same work by the projection runner of `eventsourcing`, in PostgreSQL.

    python -m benchmarks.projections.peer EVENTS KEYS HOST USER DATABASE SECONDS

Its own way throughout: events in its own tables, its subscription, its view with a tracking table,
one transaction per event. To fold anew it does the same from the beginning. After so many seconds
it is stopped; it prints how many events it has folded until then, as JSON on one line.
"""

import json
import sys
import time
from contextlib import suppress
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import Tracking
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.utils import get_topic
from psycopg.sql import SQL

# Accounts per transaction of the writer: of many more its driver and the server wait for each other, both
# with full buffers.
SAVED_TOGETHER = 50


class Account(Aggregate):
    """An account."""

    def __init__(self) -> None:
        self.balance = 0

    @event("Deposited")
    def deposit(self, transaction_id: str, amount: int, balance: int) -> None:  # noqa: ARG002 - the event's fields
        """Records an event with the fields that ours have."""
        self.balance = balance


class Accounts(Application[UUID]):
    """Where the events are."""


class Balances(PostgresTrackingRecorder):
    """A row per account, written with the position of the event."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sql_create_statements.append(
            SQL(
                "CREATE TABLE IF NOT EXISTS balances"
                " (account_id TEXT PRIMARY KEY, balance BIGINT, transactions BIGINT)"
            )
        )

    def keep(self, account_id: str, balance: int, tracking: Tracking) -> None:
        """Writes a row and the position of its event in one transaction."""
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(
                "INSERT INTO balances VALUES (%s, %s, 1) ON CONFLICT (account_id) DO UPDATE SET"
                " balance = excluded.balance, transactions = balances.transactions + 1",
                (account_id, balance),
                prepare=True,
            )

    def folded(self) -> int:
        """How many events are in the rows."""
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute("SELECT coalesce(sum(transactions), 0)::bigint AS count FROM balances")
            (count,) = cursor.fetchone().values()
            return int(count)


class Keeping(Projection[Balances]):
    """Folds deposits."""

    name = "balances"
    topics = (get_topic(Account.Deposited),)

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        """Takes one event."""
        self.view.keep(str(domain_event.originator_id), domain_event.balance, tracking)


def main() -> None:
    count, keys = int(sys.argv[1]), int(sys.argv[2])
    host, user, database = sys.argv[3:6]
    limit_s = float(sys.argv[6])
    env = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": database,
        "POSTGRES_HOST": host,
        "POSTGRES_PORT": "5432",
        "POSTGRES_USER": user,
        "POSTGRES_PASSWORD": "",
    }
    app = Accounts(env=env)
    accounts = [Account() for _ in range(keys)]
    for number in range(count):
        accounts[number % keys].deposit(f"t-{number}", 5, number)
    last = 0
    for first in range(0, keys, SAVED_TOGETHER):
        saved = app.save(*accounts[first : first + SAVED_TOGETHER])
        last = max(last, *(each.notification.id for each in saved))
    app.close()
    began, began_cpu = time.perf_counter(), time.process_time()
    with ProjectionRunner(
        application_class=Accounts, projection_class=Keeping, view_class=Balances, env=env
    ) as runner:
        with suppress(TimeoutError):
            runner.wait(last, timeout=limit_s)
        folded = runner.projection.view.folded()
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    print(json.dumps({"events": folded, "seconds": seconds, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
