"""Reading your own writes: by the command's own position, with no barrier for others."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.app import App, RunningApp
from headrace.commands.command_handlers import CommandContext
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import AggregateId, Command, DomainEvent, EventContext
from headrace.errors import DefinitionError, DomainError, NotYetHandled
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.projections.definition.projection import Projection
from headrace.settings import Settings


class Count(Command):
    counter_id: AggregateId
    by: int = 1


class Counted(DomainEvent):
    by: int


class TooMuch(DomainError):
    pass


class Counter(Aggregate):
    @applies
    def _counted(self, event: Counted) -> None:
        pass


class Total(BaseModel):
    counter_id: str
    total: int


totals = Projection("totals", row=Total, key="counter_id")


@totals.fold
def fold_counted(row: Total | None, event: Counted, context: EventContext) -> Total:
    before = row.total if row else 0
    return Total(counter_id=context.aggregate_id, total=before + event.by)


def counters(*parts: Any) -> App:
    app = App("counters")
    app.add(Counter, totals, *parts)

    @app.handles
    async def count(command: Count, context: CommandContext) -> None:
        if command.by > 100:
            raise TooMuch("more than 100")
        counter = Counter(command.counter_id)
        if command.by:
            counter.record(Counted(by=command.by))
            context.add(counter)
            context.set_result({"by": command.by})

    return app


class Watching:
    """A process manager that notes what it has reacted to, and fails for some."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.manager = ProcessManager("watching")

        @self.manager.on
        def counted(event: Counted, context: EventContext) -> Iterable[Command]:
            if event.by == 13:
                raise ValueError("13")
            self.seen.append(context.aggregate_id)
            return []

        @self.manager.on_rejection
        def refused(command: Count, rejection: object) -> Iterable[Command]:
            self.seen.append(f"not {command.counter_id}")
            return []


@pytest.fixture
async def watching() -> Watching:
    """Reacts to events and rejections."""
    return Watching()


@pytest.fixture
async def running(watching) -> AsyncIterator[RunningApp]:
    """Counters with a projection and a process manager."""
    async with counters(watching.manager).run_local() as running:
        yield running


async def test_a_projection_that_was_waited_for_shows_what_the_command_did(running):
    for number in range(1, 6):
        name = f"c-{number}"
        result = await running.bus.execute(Count(counter_id=name, by=number), wait_for=[totals])
        assert result.ok
        assert await running.read(totals).get(name) == Total(counter_id=name, total=number)


async def test_handled_means_that_projections_and_process_managers_have_seen_it(running, watching):
    results = await asyncio.gather(
        *(running.bus.execute(Count(counter_id=f"c-{n}"), wait_for="handled") for n in range(20))
    )
    assert [(result.status, result.value) for result in results] == [("executed", {"by": 1})] * 20
    assert sorted(watching.seen) == sorted(f"c-{n}" for n in range(20))
    assert len(await running.read(totals).where()) == 20


async def test_a_rejection_is_handled_when_process_managers_have_seen_it(running, watching):
    result = await running.bus.execute(Count(counter_id="c", by=101), wait_for="handled")
    assert result.status == "rejected"
    assert watching.seen == ["not c"]


async def test_what_changed_nothing_is_handled_at_once(running):
    result = await running.bus.execute(Count(counter_id="c", by=0), wait_for="handled")
    assert (result.status, result.place) == ("unchanged", None)


async def test_a_duplicate_waits_for_what_the_first_did(running):
    first = await running.bus.execute(Count(counter_id="c"), command_id="one", wait_for="handled")
    again = await running.bus.execute(Count(counter_id="c"), command_id="one", wait_for="handled")
    assert again == first


async def test_one_who_waits_for_a_process_manager_that_has_parked_is_told(running, watching):
    with pytest.raises(NotYetHandled, match="process manager watching has parked c") as late:
        await running.bus.execute(Count(counter_id="c", by=13), wait_for="handled")
    assert late.value.result.version == 1
    # Others are not held up by it.
    assert (await running.bus.execute(Count(counter_id="d"), wait_for="handled")).ok


async def test_a_projection_of_another_application_is_refused(running):
    other = Projection("others", row=Total, key="counter_id")
    with pytest.raises(DefinitionError, match="counters has no projection 'others'"):
        await running.bus.execute(Count(counter_id="c"), wait_for=[other])


hard = Projection("hard", row=Total, key="counter_id")


@hard.fold
def fold_unlucky(row: Total | None, event: Counted, context: EventContext) -> Total:
    if event.by == 13:
        raise ValueError("13")
    return Total(counter_id=context.aggregate_id, total=event.by)


class Step(BaseModel):
    seen: int = 0


def stepping() -> Process[Step]:
    """A process that cannot do 13."""
    process = Process("stepping", state=Step)

    @process.on
    def counted(state: Step | None, event: Counted, context: EventContext) -> Iterable[Any]:
        if event.by == 13:
            raise ValueError("13")
        yield Step(seen=(state or Step()).seen + 1)

    return process


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (hard, "projection hard has parked c; `headrace projection letters hard` tells why"),
        (stepping, "process stepping has parked its instance 'c', .* process show stepping c"),
    ],
)
async def test_one_who_waits_behind_what_was_parked_is_told_at_once(part, sentence, tmp_path):
    waited = part() if callable(part) else part
    settings = Settings(error_retries_max=0, read_models=f"sqlite:///{tmp_path}/read.db")
    async with counters(waited).run_local(settings) as running, asyncio.timeout(30):
        with pytest.raises(NotYetHandled, match=sentence) as late:
            await running.bus.execute(
                Count(counter_id="c", by=13), wait_for="handled", timeout_ms=120_000
            )
        assert late.value.result.ok
        ok = await running.bus.execute(Count(counter_id="d"), wait_for="handled")
        assert ok.version == 1


async def test_the_error_names_the_reader_that_is_late(running, watching):
    with pytest.raises(NotYetHandled, match="process manager watching has not reacted"):
        await running.bus.execute(Count(counter_id="c", by=13), wait_for="handled", timeout_ms=300)


@pytest.fixture
async def mailing(tmp_path) -> AsyncIterator[tuple[RunningApp, list[int]]]:
    """Counters with an event handler that notes, and fails at 13."""
    app = counters()
    sent: list[int] = []

    @app.on_event(processor="mail")
    async def mail(event: Counted, context: EventContext) -> None:
        if event.by == 13:
            raise ValueError("13")
        sent.append(event.by)

    read_models = f"sqlite:///{tmp_path / 'read.db'}"
    async with app.run_local(Settings(read_models=read_models, error_retries_max=0)) as running:
        yield running, sent


async def test_handled_means_that_event_handlers_have_done_their_work(mailing):
    running, sent = mailing
    for by in (1, 2, 3):
        result = await running.bus.execute(Count(counter_id=f"c-{by}", by=by), wait_for="handled")
        assert (result.ok, sent[-1]) == (True, by)


async def test_one_who_waits_for_event_handlers_that_have_parked_is_told(mailing):
    running, sent = mailing
    with pytest.raises(NotYetHandled, match="event handlers mail have parked c") as late:
        await running.bus.execute(Count(counter_id="c", by=13), wait_for="handled")
    assert (late.value.result.version, sent) == (1, [])
