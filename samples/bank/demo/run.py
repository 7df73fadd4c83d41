"""
The demo's steps, in order: start, send, kill, restart, catch up, compare, rebuild, compare.

Used by `__main__`, which knows the terminal; uses the modules of this package.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headrace import Projection, Settings
from headrace.projections.tables.read_models import ReadModels
from headrace.stores import open_event_store
from headrace.stores.base import EventStore
from headrace.transports.base import QueueId
from headrace.transports.topic_reader import open_topic_reader
from samples.bank import app
from samples.bank.demo import sending
from samples.bank.demo.comparing import (
    against_days,
    against_ledger,
    against_rows,
    against_total,
    against_transfers,
)
from samples.bank.demo.data_set import DataSet
from samples.bank.demo.folder import Folder
from samples.bank.demo.ledger import Ledger, expect
from samples.bank.demo.processes import Child, complete, running
from samples.bank.demo.replicated import Brokers, replicated_brokers
from samples.bank.demo.secured import secured_broker
from samples.bank.demo.spark import missing_spark
from samples.bank.demo.summary import Outcome, show
from samples.bank.demo.viewer import show_console
from samples.bank.read_models import balances, daily_totals, statement, transfers_in_flight
from samples.bank.transfers import TransferCancelled, TransferCompleted
from samples.kafka import VERSION, KafkaBrokers, fetch

__all__ = ["Journal", "Queue", "run"]

Queue = Literal["headrace", "secured", "replicated", "kafka"]

# Brokers of a group: with three, one may be lost and two machines still have each message.
REPLICAS: Final = 3
# From the last result to the last row; a second is usual.
CATCH_UP_SECONDS_MAX: Final = 60
# How often the event store is asked whether every transfer has ended.
TRANSFERS_POLL_SECONDS: Final = 0.1
# Versions asked for side by side; each costs a connection.
WAITING_MAX: Final = 8

PROJECTIONS: Final[tuple[Projection[Any], ...]] = (
    balances,
    statement,
    daily_totals,
    transfers_in_flight,
)

# By projection and key.
Rows = dict[str, dict[str, Any]]


class Journal:
    """Follows an event store.

    Attributes:
        events: how many have been read.
        versions: the latest version of each aggregate, by its id.
        transfers: "completed" or "cancelled", by transfer id, for those that have ended.
    """

    def __init__(self, store: EventStore) -> None:
        self.events = 0
        self.versions: dict[str, int] = {}
        self.transfers: dict[str, str] = {}
        self._store = store
        self._position = 0

    async def advance(self) -> None:
        """Reads what was stored since the last time."""
        while page := await self._store.read_all(after_position=self._position):
            for stored in page:
                stream = stored.stream
                self._position = stored.position
                self.events += len(stream.events)
                if stream.version is not None:
                    self.versions[stream.aggregate_id] = stream.version
                for event in stream.events:
                    if isinstance(event, TransferCompleted):
                        self.transfers[stream.aggregate_id] = "completed"
                    elif isinstance(event, TransferCancelled):
                        self.transfers[stream.aggregate_id] = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """The running demo: two processes, and what is asked of their databases from outside."""

    folder: Folder
    broker: str
    service: Child
    brokers: Brokers | None
    journal: Journal
    read_models: ReadModels
    console: Console


async def run(
    data: DataSet,
    folder: Folder,
    outcome: Outcome,
    console: Console,
    *,
    queue: Queue = "headrace",
    viewed: bool = False,
) -> None:
    """Runs every step and writes what it finds into `outcome`.

    Args:
        data: what is sent.
        folder: of everything.
        outcome: what is found.
        console: hears how far it is.
        queue: which one it starts: a broker, one with TLS and a login, brokers of a group, or a Kafka broker.
        viewed: goes on with a console and more commands, until it is interrupted.

    Raises:
        ExceptionGroup: of `ChildFailed`, if broker or service ended by itself; of `KafkaMissing`, if Kafka
            cannot be had.
    """
    ledger = expect(data)
    opened = partial(_bank, folder, console=console, queue=queue)
    async with asyncio.TaskGroup() as group, opened(group) as bank:
        await bank.journal.advance()
        events_before = bank.journal.events
        await _send(data, bank, outcome)
        with _step(console, "waiting for transfers and projections"):
            await _settle(ledger, bank)
        live = await _rows(bank)
        outcome.events = bank.journal.events
        outcome.new_events = bank.journal.events - events_before
        outcome.live += _against(ledger, live)
        outcome.live += against_transfers(ledger, bank.journal.transfers)
        for end in bank.journal.transfers.values():
            outcome.transfers[end] = outcome.transfers.get(end, 0) + 1
        await _rebuild(ledger, live, bank, outcome)
        if viewed:
            show(outcome, console)
            await show_console(data, folder, bank.broker, group, console)


@asynccontextmanager
async def _bank(
    folder: Folder, group: asyncio.TaskGroup, console: Console, *, queue: Queue
) -> AsyncIterator[Bank]:
    """Starts queue and service, and stops them in the reverse order."""
    async with _started(folder, group, console, queue) as started:
        brokers = started if isinstance(started, Brokers) else None
        address = started.address if isinstance(started, Brokers) else started
        service = Child(
            "command service",
            *("run", "samples.bank:app", "--broker", address),
            *("--event-store", folder.event_store, "--read-models", folder.read_models),
            *("--log-format", "json"),
            # Under its name it gets its queues back at once; the built-in queue sees that it has died.
            *(("--name", "service") if queue == "kafka" else ()),
            log=folder.logs / "service.log",
            group=group,
        )
        async with running(service):
            console.print(f"broker on {address}, everything in {folder.path}")
            store = await open_event_store(folder.event_store, app.serializer)
            read_models = ReadModels(folder.read_models)
            try:
                yield Bank(
                    folder=folder,
                    broker=address,
                    service=service,
                    brokers=brokers,
                    journal=Journal(store),
                    read_models=read_models,
                    console=console,
                )
            finally:
                await read_models.aclose()
                await store.aclose()


@asynccontextmanager
async def _started(
    folder: Folder, group: asyncio.TaskGroup, console: Console, queue: Queue
) -> AsyncIterator[str | Brokers]:
    """Runs the queue until the block ends; yields its address, or the brokers of a group."""
    if queue == "replicated":
        async with replicated_brokers(folder, group, REPLICAS) as brokers:
            yield brokers
        return
    if queue == "secured":
        async with secured_broker(folder, group) as address:
            yield address
        return
    if queue == "headrace":
        broker = Child(
            "broker",
            *("broker", "--data", str(folder.broker), "--port", "0", "--log-format", "json"),
            log=folder.logs / "broker.log",
            group=group,
        )
        async with running(broker) as line:
            yield line.rpartition(" ")[2]
        return
    with _step(console, f"Kafka {VERSION}"):
        jars = await asyncio.to_thread(fetch)
        kafka = KafkaBrokers(folder.path / "kafka", jars=jars)
        try:
            await asyncio.to_thread(kafka.start)
        except BaseException:
            kafka.close()
            raise
    try:
        yield kafka.address
    finally:
        await asyncio.to_thread(kafka.close)


async def _send(data: DataSet, bank: Bank, outcome: Outcome) -> None:
    """Sends everything in three rounds, and kills the service half way through the first."""
    rounds = [
        list(commands)
        for commands in (
            sending.transactions(data),
            sending.closings(data),
            sending.transfers(data),
        )
    ]
    outcome.commands = sum(map(len, rounds))
    half_way = asyncio.Event()
    begin = time.perf_counter()
    async with app.client(Settings(broker=bank.broker)) as bus, asyncio.TaskGroup() as group:
        group.create_task(_kill_and_restart(half_way, bank, outcome))
        with _progress(bank.console, outcome.commands, len(rounds[0]) // 2, half_way) as answered:
            for commands in rounds:
                outcome.live += await sending.send(bus, commands, answered=answered)
    outcome.sending_seconds = time.perf_counter() - begin


async def _kill_and_restart(half_way: asyncio.Event, bank: Bank, outcome: Outcome) -> None:
    await half_way.wait()
    if bank.brokers is not None:
        leader = await bank.brokers.kill_leader()
        bank.console.print(f"[yellow]kill -9[/] of {leader.name}, which leads …")
        await bank.brokers.until_another_leads()
        bank.console.print("… and another one leads")
        await leader.start()
    await bank.service.kill()
    bank.console.print("[yellow]kill -9[/] of the command service, with commands under way …")
    await bank.service.start()
    outcome.restarts += 1
    bank.console.print("… and it is back")


@contextmanager
def _progress(
    console: Console, total: int, half: int, half_way: asyncio.Event
) -> Iterator[Callable[[], None]]:
    """Draws a bar; yields what is to be called for each answer."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    answers = 0
    with bar:
        task = bar.add_task("commands", total=total)

        def answered() -> None:
            nonlocal answers
            answers += 1
            bar.advance(task)
            if answers >= half:
                half_way.set()

        if half == 0:
            half_way.set()
        yield answered


@contextmanager
def _step(console: Console, what: str) -> Iterator[None]:
    begin = time.perf_counter()
    with console.status(what):
        yield
    console.print(f"{what}: {time.perf_counter() - begin:.1f} s")


async def _settle(ledger: Ledger, bank: Bank) -> None:
    """Waits until every transfer has ended and the projections have seen all that was stored.

    Waits for a minute at most; what is not there by then shows as a difference.
    """
    try:
        async with asyncio.timeout(CATCH_UP_SECONDS_MAX):
            await bank.journal.advance()
            while ledger.transfers.keys() - bank.journal.transfers.keys():
                await asyncio.sleep(TRANSFERS_POLL_SECONDS)
                await bank.journal.advance()
            await _catch_up(ledger, bank)
    except TimeoutError:
        bank.console.print("[red]still not everything after a minute[/]: comparing what is there")


async def _catch_up(ledger: Ledger, bank: Bank) -> None:
    """Waits for the last version of each account, then for the end of the event topic."""
    free = asyncio.Semaphore(WAITING_MAX)

    async def account(projection: Any, account_id: str) -> None:
        async with free:
            await bank.read_models.wait_for_version(
                projection,
                account_id,
                bank.journal.versions[account_id],
                timeout_ms=CATCH_UP_SECONDS_MAX * 1_000,
            )

    async with asyncio.TaskGroup() as group:
        for projection in (balances, statement):
            for account_id in ledger.accounts.keys() & bank.journal.versions.keys():
                group.create_task(account(projection, account_id))
    ends = await asyncio.to_thread(_ends, bank.broker)
    for projection in PROJECTIONS:
        await bank.read_models.wait_for_offsets(
            projection, ends, timeout_ms=CATCH_UP_SECONDS_MAX * 1_000
        )


def _ends(broker: str) -> dict[QueueId, int]:
    with open_topic_reader(broker) as reader:
        held = reader.ranges([f"{app.name}.events"])
    return {(one.topic, one.queue_id): one.end for one in held}


async def _rows(bank: Bank) -> Rows:
    return {
        each.name: {
            getattr(row, each.key): row async for row in bank.read_models.reader(each).rows()
        }
        for each in PROJECTIONS
    }


def _against(ledger: Ledger, rows: Rows) -> list[str]:
    """Compares rows with what the source data asks for."""
    return [
        *against_ledger(ledger, rows[balances.name], rows[statement.name]),
        *against_total(ledger, rows[balances.name]),
        *against_days(ledger, rows[daily_totals.name]),
        *(f"transfer {each} is still under way" for each in rows[transfers_in_flight.name]),
    ]


async def _rebuild(ledger: Ledger, live: Rows, bank: Bank, outcome: Outcome) -> None:
    """Rebuilds the projections with Spark, which puts its tables in place; compares again."""
    missing = missing_spark()
    if missing is not None:
        bank.console.print(f"[yellow]no Spark rebuild[/]: {missing}")
        return
    begin = time.perf_counter()
    outcome.spark = []
    with _step(bank.console, "Spark rebuilds every projection next to the live one"):
        outcome.spark += await _rebuild_with_spark([each.name for each in PROJECTIONS], bank)
    outcome.rebuild_seconds = time.perf_counter() - begin
    rebuilt = await _rows(bank)
    for name in live:
        outcome.spark += against_rows(f"rebuilt row of {name}", live[name], rebuilt[name])
    outcome.spark += _against(ledger, rebuilt)


async def _rebuild_with_spark(names: list[str], bank: Bank) -> list[str]:
    log = bank.folder.logs / "spark.log"
    status, output = await complete(
        *(
            "projection",
            "rebuild",
            *names,
            "--engine",
            "spark",
            "--app",
            "samples.bank:app",
            "--broker",
            bank.broker,
        ),
        *("--event-store", bank.folder.event_store, "--read-models", bank.folder.read_models),
        *("--json", "--log-format", "json"),
        log=log,
    )
    if status == 0:
        return []
    try:
        reports = [json.loads(line) for line in output.strip().splitlines()]
        found = [
            f"the rebuild of {report['projection']} found {report['mismatches']} rows that differ"
            " from the live ones"
            for report in reports
            if report["mismatches"]
        ]
    except (KeyError, TypeError, ValueError):
        found = []
    return found or [f"the rebuild failed with status {status}; its log is {log}"]
