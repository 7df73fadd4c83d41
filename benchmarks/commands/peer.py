"""
The same commands by `eventsourcing`: accounts that take deposits, many or one, by 1, 8 and 64 threads.

    python -m benchmarks.commands.peer [--stores postgresql sqlite] [--seconds 2] [--runs 3]
                                       [--aggregates 2000]

It has no queue and no replies: a call loads the account, deposits and saves, as its documentation
does, and tries again when another thread was first. `default` is how it comes; `cached` keeps the
accounts in memory and looks for newer events before each use, the fastest of its settings that is
safe beside other processes. One line of JSON per load, in the form of `benchmarks.commands`.
"""

import argparse
import itertools
import json
import random
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import IntegrityError
from sqlalchemy import make_url

from benchmarks.commands.databases import embedded_postgres

THREADS = (1, 8, 64)
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


@contextmanager
def environment(store: str) -> Iterator[dict[str, str]]:
    """The settings of a store with nothing in it."""
    if store == "sqlite":
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
            yield {
                "PERSISTENCE_MODULE": "eventsourcing.sqlite",
                "SQLITE_DBNAME": str(Path(folder) / "events.db"),
                "SQLITE_LOCK_TIMEOUT": "30",
            }
        return
    with embedded_postgres() as server:
        yield {
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": "postgres",
            "POSTGRES_HOST": str(make_url(server.url).query["host"]),
            "POSTGRES_PORT": "5432",
            "POSTGRES_USER": "postgres",
            "POSTGRES_PASSWORD": "",
            "POSTGRES_POOL_SIZE": "16",
            "POSTGRES_MAX_OVERFLOW": "64",
        }


def run(bank: Bank, accounts: Sequence[UUID], threads: int, seconds: float) -> list[float]:
    """Lets the threads pay in for some seconds; returns the seconds that each deposit took."""
    ends = time.perf_counter() + seconds
    took: list[float] = []
    lock = threading.Lock()

    def caller(seed: int) -> None:
        choice = random.Random(seed)
        mine = []
        while (began := time.perf_counter()) < ends:
            bank.pay_in(choice.choice(accounts), uuid.uuid4().hex, 1)
            mine.append(time.perf_counter() - began)
        with lock:
            took.extend(mine)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(caller, range(threads)))
    return took


def measure(store: str, variant: str, options: argparse.Namespace) -> None:
    with environment(store) as env:
        bank = Bank(env={**env, **VARIANTS[variant]})
        everybody = [bank.open() for _ in range(options.aggregates)]
        for accounts, threads in itertools.product((everybody, everybody[:1]), THREADS):
            rates, latencies = [], []
            cpu = time.process_time()
            for _ in range(options.runs):
                began = time.perf_counter()
                took = run(bank, accounts, threads, options.seconds)
                rates.append(len(took) / (time.perf_counter() - began))
                latencies += took
            cpu = time.process_time() - cpu
            latencies.sort()
            line = {
                "benchmark": "commands", "path": f"eventsourcing, {variant}", "store": store,
                "aggregates": len(accounts), "in_flight": threads,
                "per_second": round(statistics.median(rates)),
                "per_second_min": round(min(rates)), "per_second_max": round(max(rates)),
                "p50_ms": round(latencies[len(latencies) // 2] * 1e3, 2),
                "p99_ms": round(latencies[len(latencies) * 99 // 100] * 1e3, 2),
                "process_cpu_us": round(cpu / len(latencies) * 1e6),
            }  # fmt: skip
            print(json.dumps(line), flush=True)
        bank.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commands.peer", description=__doc__)
    parser.add_argument("--stores", nargs="+", default=["postgresql", "sqlite"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--aggregates", type=int, default=2_000)
    options = parser.parse_args()
    for store, variant in itertools.product(options.stores, options.variants):
        measure(store, variant, options)


if __name__ == "__main__":
    main()
