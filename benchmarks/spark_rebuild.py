"""
How fast Spark rebuilds a projection, beside a plain Python loop over the same code and topic.

Starts a broker in its own process, publishes events of about 300 bytes, and prints one JSON line
each for: the plain loop, the fold in Spark on a new session's first and second job, the data
source alone, and whole rebuilds into SQLite with their phases.

    python -m benchmarks.spark_rebuild [--events 200000] [--accounts 5000] [--cores 2]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel
from pyspark.sql import SparkSession

from benchmarks.machine import facts
from headrace._domain.aggregate import Aggregate, applies
from headrace._domain.message import DomainEvent, EventContext
from headrace._domain.stream import EventStream
from headrace._projecting.folding import fold_streams
from headrace._projecting.projection import Projection
from headrace.app import App
from headrace.spark.gating import StreamGate
from headrace.spark.job import run_fold
from headrace.spark.plan import FoldPlan, module_folder
from headrace.spark.rebuild import rebuild
from headrace.spark.session import local_session
from headrace_mq.client.producer import Producer
from headrace_mq.message import Message
from headrace_mq.spark import register
from headrace_mq.spark.offsets import QueueSlice, plan_slices
from headrace_mq.spark.reader import fetch_ranges, rarely_collecting, read_columns

T = TypeVar("T")

APP = "benchmarks.spark_rebuild:app"
TOPIC = "bench.events"
QUEUES = 4
NOW = datetime(2026, 1, 31, tzinfo=UTC)

BROKER = """
import sys
from pathlib import Path
import structlog
from headrace_mq.broker.server import run
from headrace_mq.settings import BrokerSettings, StoreSettings
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
store = StoreSettings(directory=Path(sys.argv[1]), flush="interval")
run(BrokerSettings(store=store, port=0), ready=lambda address: print(address, flush=True))
"""


class Deposited(DomainEvent):
    """Something was paid in."""

    transaction_id: str
    amount: int
    balance: int


class Account(Aggregate):
    """Knows its event."""

    @applies
    def _deposited(self, event: Deposited) -> None:
        pass


class Balance(BaseModel):
    """The row: what an account holds."""

    account_id: str
    balance: int
    transactions: int


class Total(BaseModel):
    """The row: what a hundredth of all transactions moved."""

    shard: str
    amount: int


balances = Projection("balances", row=Balance, key="account_id")
totals = Projection(
    "totals",
    row=Total,
    key="shard",
    key_of=lambda event, _: event.transaction_id[-2:],  # type: ignore[attr-defined]  # one event type
)


@balances.fold
def deposited(row: Balance | None, event: Deposited, context: EventContext) -> Balance:
    count = row.transactions if row else 0
    return Balance(account_id=context.aggregate_id, balance=event.balance, transactions=count + 1)


@totals.fold
def added(row: Total | None, event: Deposited, _: EventContext) -> Total:
    before = row.amount if row else 0
    return Total(shard=event.transaction_id[-2:], amount=before + event.amount)


app = App("bench")
app.add(Account, balances, totals)


def tell(name: str, **figures: object) -> None:
    print(json.dumps({"benchmark": name, **figures}), flush=True)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def messages(events: int, accounts: int) -> Iterator[Message]:
    serializer = app.serializer
    for number in range(events):
        account, version = number % accounts, number // accounts + 1
        stream = EventStream(
            aggregate_type="Account",
            aggregate_id=f"account-{account:08}",
            version=version,
            command_id=f"command-{number:024}",
            correlation_id=f"command-{number:024}",
            recorded_at=NOW,
            events=(Deposited(transaction_id=f"t-{number:08}", amount=7, balance=7 * version),),
        )
        yield Message(
            topic=TOPIC,
            key=stream.aggregate_id,
            tag="Account",
            headers={"kind": "events", "version": str(version), "command": stream.command_id},
            body=serializer.encode_stream(stream),
        )


async def publish(address: str, events: int, accounts: int) -> None:
    async with Producer(address) as producer:
        await producer.create_topic(TOPIC, queues=QUEUES, retention="forever")
        waiting: list[Message] = []
        for message in messages(events, accounts):
            waiting.append(message)
            if len(waiting) == 5_000:
                await producer.send_many(waiting)
                waiting = []
        if waiting:
            await producer.send_many(waiting)


def plain_loop(address: str, slices: list[QueueSlice]) -> int:
    """Reads, gates and folds in this process, as a rebuild without Spark would."""
    serializer = app.serializer
    rows: dict[str, Any] = {}
    with rarely_collecting():
        for piece in slices:
            gate = StreamGate({})
            for _, columns, first, last in read_columns(address, piece):
                streams = gate.admit(map(serializer.decode_stream, columns.bodies[first:last]))
                rows.update(fold_streams(balances, rows, streams))
    return len(rows)


def measure_folds(spark: SparkSession, address: str, slices: list[QueueSlice], events: int) -> None:
    for projection in (balances, totals):
        plan = FoldPlan(
            app=APP,
            folder=module_folder(APP),
            projection=projection.name,
            broker=address,
            event_store=None,
            slices=tuple(slices),
        )
        for turn in ("first job", "second job"):
            folded, seconds = timed(
                lambda plan=plan, projection=projection: run_fold(  # type: ignore[misc]  # bound now
                    spark, plan, keyed_by_aggregate=projection.keyed_by_aggregate, base=None
                )
            )
            assert folded.counts["events"] == events
            tell(
                f"spark fold, {turn}",
                keyed_by="aggregate" if projection.keyed_by_aggregate else "another field",
                rows=len(folded.rows),
                seconds=round(seconds, 2),
                events_per_second=round(events / seconds),
            )


def measure_source(spark: SparkSession, address: str, events: int) -> None:
    register(spark)
    frame = spark.read.format("headrace").options(broker=address, topic=TOPIC).load()
    for turn in ("first", "second"):
        _, seconds = timed(lambda: frame.write.format("noop").mode("overwrite").save())
        tell(f"data source, {turn} read", rows_per_second=round(events / seconds))


def measure(address: str, arguments: argparse.Namespace, folder: str) -> None:
    events, accounts = arguments.events, arguments.accounts
    _, seconds = timed(lambda: asyncio.run(publish(address, events, accounts)))
    tell("publish", events=events, accounts=accounts, events_per_second=round(events / seconds))
    slices = plan_slices(fetch_ranges(address, [TOPIC]))
    count, seconds = timed(lambda: plain_loop(address, slices))
    assert count == min(accounts, events)
    tell("plain loop", seconds=round(seconds, 2), events_per_second=round(events / seconds))
    spark, seconds = timed(lambda: local_session("headrace-bench", cores=arguments.cores))
    tell("session start", cores=arguments.cores, seconds=round(seconds, 2))
    measure_folds(spark, address, slices, events)
    measure_source(spark, address, events)
    for start in ("zero", "offsets"):
        report = asyncio.run(
            rebuild(
                APP,
                "balances",
                broker=address,
                read_models_url=f"sqlite:///{folder}/read.db",
                spark=spark,
                start="offsets" if start == "offsets" else "zero",
                # The first one makes what the second one is compared with.
                verify=start == "offsets",
            )
        )
        assert (report.switched, report.mismatches) == (True, 0)
        tell(f"rebuild from {start}", events=report.events, rows=report.rows, **report.seconds)
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--accounts", type=int, default=5_000)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    tell("machine", **facts())
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        broker = subprocess.Popen(
            [sys.executable, "-c", BROKER, f"{folder}/broker"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert broker.stdout is not None
            measure(broker.stdout.readline().strip(), arguments, folder)
        finally:
            broker.terminate()
            broker.communicate(timeout=30)


if __name__ == "__main__":
    main()
