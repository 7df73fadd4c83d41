"""
Commands per second through the command side in one process: bus, mailbox, store, event topic, reply.

Memory store and local transport, so that what is measured is our own code. Run it as
`python benchmarks/command_side.py`; it prints one line of JSON per load.
"""

import argparse
import asyncio
import gc
import json
import time

import uvloop

from headrace._commanding.handling import CommandContext, HandlerTable
from headrace._commanding.processor import CommandProcessor
from headrace._domain.aggregate import Aggregate, applies
from headrace._domain.message import AggregateId, Command, DomainEvent
from headrace._domain.registry import Registry
from headrace.bus import CommandBus
from headrace.serialization import JsonSerializer
from headrace.settings import Settings
from headrace.stores.memory import MemoryEventStore
from headrace.transports.local import LocalTransport

# Enough that a load of 1,000 in flight meets many aggregates and has each of them often.
ACCOUNTS = 500


class Open(Command):
    """Opens an account with one cent."""

    account_id: AggregateId


class Deposit(Command):
    """Pays something in."""

    account_id: AggregateId
    amount: int


class Deposited(DomainEvent):
    """Something was paid in."""

    amount: int
    balance: int


class Account(Aggregate):
    """Knows its balance."""

    def initial_state(self) -> None:
        """Begins with nothing."""
        self.balance = 0

    def deposit(self, amount: int) -> None:
        """Pays something in."""
        self.record(Deposited(amount=amount, balance=self.balance + amount))

    @applies
    def _deposited(self, event: Deposited) -> None:
        self.balance = event.balance


async def open_account(command: Open, context: CommandContext) -> None:
    account = Account(command.account_id)
    account.deposit(1)
    context.add(account)


async def deposit(command: Deposit, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.deposit(command.amount)
    context.set_result({"balance": account.balance})


async def load(bus: CommandBus, *, commands: int, in_flight: int, accounts: int) -> list[float]:
    """Executes the commands with so many waiting at a time; returns each one's milliseconds."""
    latencies: list[float] = []
    numbers = iter(range(commands))

    async def caller() -> None:
        for number in numbers:
            begun = time.perf_counter()
            result = await bus.execute(Deposit(account_id=f"a-{number % accounts}", amount=1))
            assert result.status == "executed", result
            latencies.append((time.perf_counter() - begun) * 1_000)

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return latencies


async def measure(commands: int) -> None:
    commands_known: Registry[Command] = Registry("command")
    events_known: Registry[DomainEvent] = Registry("event")
    handlers = HandlerTable()
    for handler in (open_account, deposit):
        handlers.add(handler)
    for command_type in handlers.command_types:
        commands_known.add(command_type)
    events_known.add(Deposited)
    serializer = JsonSerializer(commands_known, events_known)
    settings, transport = Settings(), LocalTransport()
    processor = CommandProcessor(
        name="bench",
        handlers=handlers,
        store=MemoryEventStore(),
        transport=transport,
        serializer=serializer,
        settings=settings,
    )
    await transport.ensure_topic("bench.commands", queues=4, forever=False)
    bus = CommandBus(name="bench", transport=transport, serializer=serializer, settings=settings)
    running = asyncio.create_task(processor.run())
    await asyncio.gather(*(bus.execute(Open(account_id=f"a-{n}")) for n in range(ACCOUNTS)))
    for in_flight, accounts in ((1, ACCOUNTS), (64, ACCOUNTS), (1_000, ACCOUNTS), (1_000, 1)):
        begun = time.perf_counter()
        latencies = sorted(
            await load(bus, commands=commands, in_flight=in_flight, accounts=accounts)
        )
        seconds = time.perf_counter() - begun
        line = {
            "benchmark": "command_side",
            "in_flight": in_flight,
            "aggregates": accounts,
            "commands": commands,
            "commands_per_second": round(commands / seconds),
            "p50_ms": round(latencies[len(latencies) // 2], 3),
            "p99_ms": round(latencies[len(latencies) * 99 // 100], 3),
        }
        print(json.dumps(line), flush=True)
    running.cancel()
    await asyncio.wait({running})
    await bus.aclose()
    await transport.aclose()


def main() -> None:
    # The memory store keeps everything: the collector would measure the store's size, not the path.
    gc.disable()
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--commands", type=int, default=20_000)
    uvloop.run(measure(arguments.parse_args().commands))


if __name__ == "__main__":
    main()
