"""
Callers who pay into accounts, and what they found.

Sits between: a command bus, wherever its commands are handled, and one line of JSON.
"""

import asyncio
import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.bus import CommandBus

__all__ = ["Bank", "Load", "Measure", "measure", "open_accounts", "pay_in"]

# Enough at once that opening ten thousand accounts takes seconds.
OPENING = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """Which commands are sent."""

    open: Callable[..., Any]
    deposit: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """So many callers, each with one command under way, on so many aggregates."""

    in_flight: int
    aggregates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How long and how often, and whose processor time is asked for."""

    seconds: float
    runs: int
    cpu_seconds: Mapping[str, Callable[[], float]]


async def open_accounts(bus: CommandBus, bank: Bank, count: int) -> None:
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            _check(await bus.execute(bank.open(account_id=f"a-{number}", owner="o")))

    await asyncio.gather(*(caller() for _ in range(OPENING)))


async def measure(bus: CommandBus, bank: Bank, load: Load, how: Measure, **said: Any) -> None:
    """Runs a load some times over and prints one line."""
    numbers = itertools.count()
    rates: list[float] = []
    seconds: list[float] = []
    # Once more than asked for: what comes first meets cold caches.
    await pay_in(bus, bank, load, how.seconds / 4, numbers)
    before = {name: read() for name, read in how.cpu_seconds.items()}
    for _ in range(how.runs):
        begun = time.perf_counter()
        latencies = await pay_in(bus, bank, load, how.seconds, numbers)
        rates.append(len(latencies) / (time.perf_counter() - begun))
        seconds += latencies
    spent = {name: read() - before[name] for name, read in how.cpu_seconds.items()}
    seconds.sort()
    line = {
        "benchmark": "commands",
        **said,
        "aggregates": load.aggregates,
        "in_flight": load.in_flight,
        "per_second": round(statistics.median(rates)),
        "per_second_min": round(min(rates)),
        "per_second_max": round(max(rates)),
        "p50_ms": round(seconds[len(seconds) // 2] * 1e3, 2),
        "p99_ms": round(seconds[len(seconds) * 99 // 100] * 1e3, 2),
        **{f"{name}_cpu_us": round(cpu / len(seconds) * 1e6) for name, cpu in spent.items()},
    }
    print(json.dumps(line), flush=True)


async def pay_in(
    bus: CommandBus, bank: Bank, load: Load, seconds: float, numbers: Iterator[int]
) -> list[float]:
    """Lets the callers pay in for some seconds; returns the seconds that each command took."""
    # In no order: least recently used aggregates would always be the next ones wanted.
    choice = random.Random(load.aggregates)
    end = time.perf_counter() + seconds
    latencies: list[float] = []

    async def caller() -> None:
        begun = time.perf_counter()
        while begun < end:
            number = next(numbers)
            account = choice.randrange(load.aggregates)
            command = bank.deposit(
                account_id=f"a-{account}", transaction_id=f"t-{number}", amount=1
            )
            _check(await bus.execute(command))
            now = time.perf_counter()
            latencies.append(now - begun)
            begun = now

    await asyncio.gather(*(caller() for _ in range(load.in_flight)))
    return latencies


def _check(result: Any) -> None:
    if result.status != "executed":
        raise SystemExit(f"a command failed: {result}")
