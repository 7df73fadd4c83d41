"""
The same events replayed by `eventsourcing`, from SQLite.

    python -m benchmarks.spark.peer EVENTS ACCOUNTS FOLDER

Its own way throughout: its application log read in order, each event decoded and folded into the rows
that our folds make; and each account brought back from its events. Prints a line of JSON each.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from benchmarks.spark.application import Balance

# Accounts saved in one transaction, and notifications read at once.
SAVED_TOGETHER = 1_000
READ_TOGETHER = 5_000


class Account(Aggregate):
    """An account."""

    def __init__(self) -> None:
        self.balance = 0

    @event("Deposited")
    def deposit(self, amount: int, balance: int) -> None:  # noqa: ARG002 - the event's fields
        """Records an event with the fields that ours have."""
        self.balance = balance


class Accounts(Application[UUID]):
    """Where the events are."""


def fill(app: Accounts, count: int, keys: int) -> list[UUID]:
    accounts = [Account() for _ in range(keys)]
    for number in range(count):
        accounts[number % keys].deposit(5, 5 * (number // keys + 1))
    for first in range(0, keys, SAVED_TOGETHER):
        app.save(*accounts[first : first + SAVED_TOGETHER])
    return [account.id for account in accounts]


def fold_log(app: Accounts) -> int:
    """Folds all that the log holds; returns how many deposits there were."""
    rows: dict[str, Balance] = {}
    start, to_event = 1, app.mapper.to_domain_event
    while found := app.recorder.select_notifications(start, READ_TOGETHER):
        for notification in found:
            fact: Any = to_event(notification)
            if not isinstance(fact, Account.Deposited):
                continue
            key = str(fact.originator_id)
            row = rows.get(key)
            rows[key] = Balance(
                account_id=key,
                balance=fact.balance,
                transactions=row.transactions + 1 if row else 1,
            )
        start = found[-1].id + 1
    return sum(row.transactions for row in rows.values())


def measure(name: str, events: int, work: Callable[[], None]) -> None:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    told = {
        "benchmark": "spark", "case": name, "events": events, "seconds": round(seconds, 2),
        "per_second": round(events / seconds), "cpu_us": round(used / events * 1e6, 2),
    }  # fmt: skip
    print(json.dumps(told), flush=True)


def main() -> None:
    count, keys, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    name = f"{folder}/peer.db"
    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": name}
    app = Accounts(env=env)
    accounts = fill(app, count, keys)

    def log() -> None:
        assert fold_log(app) == count

    def aggregates() -> None:
        found: list[Any] = [app.repository.get(account) for account in accounts]
        assert sum(account.version - 1 for account in found) == count

    measure("eventsourcing, its log folded", count, log)
    measure("eventsourcing, its aggregates replayed", count, aggregates)
    app.close()


if __name__ == "__main__":
    main()
