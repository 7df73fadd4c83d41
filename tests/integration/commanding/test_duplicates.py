"""Many commands of one aggregate come again: no handler runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, applies
from headrace._runtime.ids import new_id
from headrace.running_app import RunningApp
from headrace.settings import Settings


class Opened(DomainEvent):
    pass


class Added(DomainEvent):
    amount: int


class Counter(Aggregate):
    def initial_state(self) -> None:
        self.total = 0

    def add(self, amount: int) -> None:
        self.record(Added(amount=amount))

    @applies
    def _opened(self, event: Opened) -> None:
        pass

    @applies
    def _added(self, event: Added) -> None:
        self.total += event.amount


class Open(Command):
    counter_id: AggregateId


class Add(Command):
    counter_id: AggregateId
    amount: int = 1


class Counting:
    """An application whose handlers count their runs, on a store of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.runs = 0
        self.app = App("counting")
        self.app.add(Counter)
        self.app.handles(self._opener())
        self.app.handles(self._adder())

    def _opener(self) -> Callable[[Open, CommandContext], Awaitable[None]]:
        async def open_counter(command: Open, context: CommandContext) -> None:
            self.runs += 1
            counter = Counter(command.counter_id)
            counter.record(Opened())
            context.add(counter)

        return open_counter

    def _adder(self) -> Callable[[Add, CommandContext], Awaitable[None]]:
        async def add(command: Add, context: CommandContext) -> None:
            self.runs += 1
            counter = await context.get(Counter, command.counter_id)
            counter.add(command.amount)
            context.set_result(counter.total)

        return add

    @asynccontextmanager
    async def running(self) -> AsyncIterator[RunningApp]:
        async with self.app.run_local(self.settings) as running:
            yield running


async def add_all(running: RunningApp, ids: list[str]) -> list[object]:
    calls = [running.bus.execute(Add(counter_id="n"), command_id=each) for each in ids]
    return [result.value for result in await asyncio.gather(*calls)]


def ids_of(kind: str, count: int) -> list[str]:
    return [new_id() if kind == "made by a bus" else f"c-{number}" for number in range(count)]


@pytest.mark.parametrize("count", [200, 1_600])
@pytest.mark.parametrize("kind", ["made by a bus", "of the caller"])
async def test_duplicates_run_no_handler_while_the_service_goes_on(kind: str, count: int) -> None:
    counting = Counting(Settings())
    ids = ids_of(kind, count)
    async with counting.running() as running:
        await running.bus.execute(Open(counter_id="n"))
        first = await add_all(running, ids)
        counting.runs = 0
        assert await add_all(running, ids) == first == list(range(1, count + 1))
        assert counting.runs == 0


@pytest.mark.parametrize("count", [200, 1_600])
@pytest.mark.parametrize("kind", ["made by a bus", "of the caller"])
async def test_duplicates_run_no_handler_after_a_restart(
    kind: str, count: int, tmp_path: Path
) -> None:
    file = f"sqlite:///{tmp_path}/events.db"
    counting = Counting(Settings(event_store=file, read_models=f"sqlite:///{tmp_path}/rows.db"))
    ids = ids_of(kind, count)
    async with counting.running() as running:
        await running.bus.execute(Open(counter_id="n"), command_id="open")
        first = await add_all(running, ids)
    counting.runs = 0
    async with counting.running() as running:
        assert await add_all(running, ids) == first == list(range(1, count + 1))
        again = await running.bus.execute(Open(counter_id="n"), command_id="open")
        assert (again.status, again.version) == ("executed", 1)
        assert counting.runs == 0
        # What is new among them runs once, on the state that they made.
        mixed = await add_all(running, ["new", *ids[:50], "newer"])
        assert (mixed[0], mixed[1:-1], mixed[-1]) == (count + 1, first[:50], count + 2)
        assert counting.runs == 2
