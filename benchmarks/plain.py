"""
The deposits of `benchmarks.commands` in a hand-written program: one process, one SQLite file.

What somebody would write who needs none of what Headrace promises about other processes: read the
balance, add the event, write the new balance, durable after every commit. One commit per group of
deposits, in groups as large as `benchmarks.commands` has commands in flight. Prints one JSON line
per group, the median of three runs.

    python -m benchmarks.plain
"""

import json
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.machine import facts, fdatasync_per_second

ACCOUNTS = 10_000
RUNS = 3
# (deposits in a transaction, deposits in a run): enough of each to run for a second or more.
WORKLOADS = [(1, 500), (8, 4_000), (512, 20_000)]


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE account (id TEXT PRIMARY KEY, balance INTEGER NOT NULL)")
    connection.execute(
        "CREATE TABLE event (account TEXT, version INTEGER, amount INTEGER, balance INTEGER,"
        " command TEXT, UNIQUE (account, version), UNIQUE (account, command))"
    )
    return connection


def deposit(connection: sqlite3.Connection, account: str, command: str, amount: int) -> None:
    found = connection.execute("SELECT balance FROM account WHERE id = ?", (account,)).fetchone()
    (version,) = connection.execute(
        "SELECT coalesce(max(version), 0) + 1 FROM event WHERE account = ?", (account,)
    ).fetchone()
    balance = (found[0] if found else 0) + amount
    connection.execute(
        "INSERT INTO event VALUES (?, ?, ?, ?, ?)", (account, version, amount, balance, command)
    )
    connection.execute(
        "INSERT INTO account VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET balance = excluded.balance",
        (account, balance),
    )


def run(connection: sqlite3.Connection, count: int, group: int, name: str) -> float:
    begin = time.perf_counter()
    for first in range(0, count, group):
        connection.execute("BEGIN IMMEDIATE")
        for number in range(first, min(first + group, count)):
            deposit(connection, f"a-{number % ACCOUNTS}", f"{name}-{number}", 1)
        connection.execute("COMMIT")
    return count / (time.perf_counter() - begin)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        disk = round(fdatasync_per_second(Path(folder)))
        print(json.dumps({"benchmark": "machine", **facts(), "fdatasync_per_second": disk}))
        connection = connect(Path(folder) / "plain.db")
        for group, count in WORKLOADS:
            rates = [run(connection, count, group, f"{group}-{one}") for one in range(RUNS)]
            print(
                json.dumps(
                    {
                        "benchmark": "plain sqlite3",
                        "group": group,
                        "per_second": round(median(rates)),
                        "per_second_min": round(min(rates)),
                        "per_second_max": round(max(rates)),
                    }
                ),
                flush=True,
            )
        connection.close()


if __name__ == "__main__":
    main()
