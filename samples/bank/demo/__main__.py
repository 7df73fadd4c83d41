"""
The bank sample end to end, on real processes; `headrace demo` and `make demo` run it.

    python -m samples.bank.demo [--transactions FILE.csv] [--data DIR] [--broker secured | replicated | kafka] [--fresh] [--console]

Used by a person with a data set; runs the bank. Exit status 0: everything that was compared is the
same. 1: something differs, or a process failed. 2: the file, the folder or Kafka cannot be used. 3: the same
as 0, but Spark could not run because it or Java is missing.
"""

import argparse
import asyncio
import logging
import signal
import sys
import time
from pathlib import Path
from typing import Final, TextIO

import structlog
from rich.console import Console

from headrace.errors import HeadraceError
from headrace_mq.errors import MessageQueueError
from samples.bank.demo.data_set import DataSet, MalformedRow, read_bank, read_transactions
from samples.bank.demo.folder import Folder, FolderUnusable
from samples.bank.demo.processes import ChildFailed
from samples.bank.demo.replicated import missing_record
from samples.bank.demo.run import Queue, run
from samples.bank.demo.spark import SPARK_HINT
from samples.bank.demo.summary import Outcome, show
from samples.kafka import KafkaMissing

ROOT: Final = Path(__file__).parents[3]
OK, DIFFERS, UNUSABLE, NO_SPARK = 0, 1, 2, 3


def main() -> int:
    """Runs the demo and returns its exit status."""
    options = _options()
    console = Console(highlight=False)
    try:
        data = (
            read_transactions(options.transactions)
            if options.transactions
            else read_bank(ROOT / "seeds" / "bank")
        )
        queue: Queue = options.broker
        missing = missing_record() if queue == "replicated" else None
        if missing is not None:
            print(f"demo: {missing}", file=sys.stderr)
            return UNUSABLE
        # Events of one queue and a database that knows another one do not belong together.
        name = data.name if queue == "headrace" else f"{data.name}-{queue}"
        # A console goes on with commands that are not of the data set, so its folder is its own, and new each time.
        name += "-console" if options.console else ""
        folder = Folder(options.data or Path("var") / "demo" / name)
        with (
            folder.open(
                f"{data.name}-console" if options.console else data.name,
                fresh=options.fresh or options.console,
            ),
            (folder.logs / "demo.log").open("a", encoding="utf-8") as log,
        ):
            _log_to(log)
            return _demo(data, folder, console, queue, viewed=options.console)
    except (MalformedRow, FolderUnusable, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return UNUSABLE


def _demo(data: DataSet, folder: Folder, console: Console, queue: Queue, *, viewed: bool) -> int:
    begin = time.perf_counter()
    outcome = Outcome(accounts=len(data.accounts))
    try:
        asyncio.run(_interruptible(data, folder, outcome, console, queue, viewed=viewed))
    except ExceptionGroup as group:
        for missing in _leaves(group.subgroup(KafkaMissing)):
            print(f"demo: {missing}", file=sys.stderr)
            return UNUSABLE
        # If a process died, the other errors are its consequences.
        told = (HeadraceError, MessageQueueError)
        failures = _leaves(group.subgroup(ChildFailed)) or _leaves(group.subgroup(told))
        if not failures:
            raise
        for error in failures:
            print(f"demo: {error}", file=sys.stderr)
        return DIFFERS
    outcome.seconds = time.perf_counter() - begin
    if not viewed:
        show(outcome, console)
    if outcome.spark is None:
        console.print(SPARK_HINT, markup=False)
    if queue == "headrace" and not viewed:
        console.print(_console_hint(folder), markup=False, soft_wrap=True)
    print(outcome.to_json(), flush=True)
    if outcome.live or outcome.spark:
        return DIFFERS
    return NO_SPARK if outcome.spark is None else OK


def _console_hint(folder: Folder) -> str:
    shown = folder.path.relative_to(Path.cwd()) if folder.path.is_relative_to(Path.cwd()) else folder.path  # fmt: skip
    return (
        f"To look at it in a browser: headrace broker --data {shown / 'broker'}, and headrace console.\n"
        "While commands go on: headrace demo --console."
    )


def _log_to(file: TextIO) -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file),
    )


def _leaves(error: Exception | None) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [] if error is None else [error]


async def _interruptible(
    data: DataSet,
    folder: Folder,
    outcome: Outcome,
    console: Console,
    queue: Queue,
    *,
    viewed: bool,
) -> None:
    """Lets SIGTERM and a closed terminal stop the children in order, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await run(data, folder, outcome, console, queue=queue, viewed=viewed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="headrace demo", description="The bank sample end to end."
    )
    parser.add_argument(
        "--transactions", type=Path, metavar="FILE", help="your own transactions instead of seeds/"
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="where broker and databases keep their files"
    )
    parser.add_argument(
        "--broker",
        choices=["headrace", "secured", "replicated", "kafka"],
        default="headrace",
        help="which queue it starts",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="forget what earlier demos stored in that folder"
    )
    parser.add_argument(
        "--console", action="store_true", help="go on with a console and more commands"
    )
    options = parser.parse_args()
    if options.console and options.broker != "headrace":
        parser.error("--console shows the demo's own broker: leave out --broker")
    return options


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(
            "demo: interrupted; its processes are stopped, and another run goes on", file=sys.stderr
        )
        sys.exit(130)  # what a shell reports for Ctrl-C
