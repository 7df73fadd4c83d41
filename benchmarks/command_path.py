"""
The way of one command: what of Headrace runs from the call of `execute` to its result.

    python -m benchmarks.command_path [--local] [--calls]

Counts function calls, functions and files of `headrace` and `headrace_mq`, not those of the standard
library and of other packages. The command is a deposit of samples/bank to an account that is in
memory, with SQLite and with a broker in this process. The application has no readers of events: they
work during the next command, not on the way of this one. A trace by `sys.setprofile`, so that the
same code gives the same figures on every machine.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from benchmarks.calls import Call, call_of
from headrace import App, Settings
from headrace.running_app import RunningApp
from headrace_mq import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank.accounts import Account, Deposit, OpenAccount
from samples.bank.application import deposit, open_account

__all__ = ["Walk", "calls_of", "walk"]

# Commands before the first that is traced: they fill caches and open files.
WARM = 10
# Commands that are traced. The one with the fewest calls counts: no timer fell into it.
TRACED = 20
# Between two commands: long enough for acknowledgements, for which no caller waits.
QUIET_S = 0.05
SEGMENT_BYTES = 1 << 20


class Walk(NamedTuple):
    """The calls of one command, in their order."""

    calls: Sequence[Call]

    @property
    def packages(self) -> list[str]:
        """The packages in the order of their first calls."""
        return list(dict.fromkeys(call.package for call in self.calls))

    def counts(self, package: str) -> tuple[int, int, int]:
        """Returns how many calls, functions and files of a package were on the way."""
        inside = [call for call in self.calls if f"{call.module}.".startswith(f"{package}.")]
        return len(inside), len(set(inside)), len({call.module for call in inside})


@contextmanager
def calls_of() -> Iterator[list[Call]]:
    """Notes the calls in all threads that begin within the block; empty the list to begin again."""
    calls: list[Call] = []
    known: dict[CodeType, Call | None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in known:
            known[code] = call_of(code)
        call = known[code]
        # The argument of RESUME is 0 at the start, and not where a coroutine goes on.
        if call is not None and not code.co_code[frame.f_lasti + 1] & 3:
            calls.append(call)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type] - typeshed does not know that it may be


@asynccontextmanager
async def _bank(folder: Path, *, local: bool) -> AsyncIterator[RunningApp]:
    app = App("bank")
    app.add(Account)
    app.handles(open_account)
    app.handles(deposit)
    async with AsyncExitStack() as stack:
        address = None
        if not local:
            store = StoreSettings(directory=folder / "broker", segment_bytes=SEGMENT_BYTES)
            broker = Broker(BrokerSettings(port=0, store=store))
            await broker.start()
            stack.push_async_callback(broker.aclose)
            address = broker.address
        settings = Settings(
            broker=address,
            event_store=f"sqlite:///{folder / 'events.db'}",
            read_models=f"sqlite:///{folder / 'read.db'}",
        )
        yield await stack.enter_async_context(app.run(settings))


async def _walk(calls: list[Call], folder: Path, *, local: bool) -> Walk:
    walks = []
    async with _bank(folder, local=local) as running:
        await running.bus.execute(OpenAccount(account_id="a", owner="o"))
        for number in range(WARM + TRACED):
            command = Deposit(account_id="a", transaction_id=str(number), amount=1)
            # What the last command left to do, such as its acknowledgement, is done meanwhile.
            await asyncio.sleep(QUIET_S)
            calls.clear()
            await running.bus.execute(command)
            walks.append(Walk(list(calls)))
    return min(walks[WARM:], key=lambda each: len(each.calls))


def walk(*, local: bool = False) -> Walk:
    """Carries out some commands and returns the calls of the one with the fewest.

    Args:
        local: whether messages stay in this process instead of going through a broker.
    """
    with tempfile.TemporaryDirectory(prefix="path-") as folder, calls_of() as calls:
        return asyncio.run(_walk(calls, Path(folder), local=local))


def table(found: Walk) -> Iterator[str]:
    """Yields the lines of the figures: each distribution, then its packages in their order."""
    yield f"{'package':<28}{'calls':>7}{'functions':>11}{'files':>7}"
    for root in ("headrace", "headrace_mq"):
        yield _line(found, root)
        for package in found.packages:
            if package.startswith(f"{root}."):
                yield _line(found, package, indent=2)


def _line(found: Walk, package: str, *, indent: int = 0) -> str:
    calls, functions, files = found.counts(package)
    return f"{' ' * indent + package:<28}{calls:>7}{functions:>11}{files:>7}"


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m benchmarks.command_path", description=__doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--local", action="store_true", help="without a broker")
    options.add_argument("--calls", action="store_true", help="print every call in its order, too")
    chosen = options.parse_args()
    found = walk(local=chosen.local)
    if chosen.calls:
        print(*(f"{call.module:<44} {call.function}" for call in found.calls), sep="\n")
    print(*table(found), sep="\n")


if __name__ == "__main__":
    main()
