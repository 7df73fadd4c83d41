"""The composition root: what it refuses at start, and what it runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headrace.app import App, load_app
from headrace.commands.command_handlers import CommandContext
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import (
    AggregateId,
    ApplicationMessage,
    Command,
    DomainEvent,
    EventContext,
    MessageContext,
)
from headrace.errors import DefinitionError, ProjectionNotFound
from headrace.processes.process_manager import ProcessManager
from headrace.projections.definition.projection import Projection
from headrace.settings import Settings


class Count(Command):
    counter_id: AggregateId
    by: int = 1


class Counted(DomainEvent):
    by: int


class Counter(Aggregate):
    def initial_state(self) -> None:
        self.total = 0

    def count(self, by: int) -> None:
        self.record(Counted(by=by))

    @applies
    def _counted(self, event: Counted) -> None:
        self.total += event.by


class Total(BaseModel):
    counter_id: str
    total: int


def totals_projection() -> Projection[Total]:
    totals = Projection("totals", row=Total, key="counter_id")

    @totals.fold
    def counted(row: Total | None, event: Counted, context: EventContext) -> Total:
        before = row.total if row else 0
        return Total(counter_id=context.aggregate_id, total=before + event.by)

    return totals


def counter_app(*parts: object) -> App:
    app = App("counters")
    app.add(Counter, *parts)  # type: ignore[arg-type]  # parts of any kind, as a user passes them

    @app.handles
    async def count(command: Count, context: CommandContext) -> None:
        counter = Counter(command.counter_id)
        counter.count(command.by)
        context.add(counter)

    return app


async def test_run_local_takes_a_command_to_an_event_to_a_row() -> None:
    totals = totals_projection()
    async with counter_app(totals).run_local() as counters:
        result = await counters.bus.execute(Count(counter_id="c-1", by=3))
        assert (result.status, result.version) == ("executed", 1)
        await counters.seen(totals, result)
        row = await counters.read(totals).get("c-1")
        assert row == Total(counter_id="c-1", total=3)


async def test_a_second_run_local_starts_with_nothing() -> None:
    app = counter_app()
    for _ in range(2):
        async with app.run_local() as counters:
            assert (await counters.bus.execute(Count(counter_id="c-1"))).status == "executed"


def test_an_application_name_must_be_usable_in_topic_names() -> None:
    with pytest.raises(DefinitionError, match="lower-case"):
        App("My App")


def test_two_parts_of_one_name_are_refused() -> None:
    app = counter_app(totals_projection())
    with pytest.raises(DefinitionError, match="two projections are named 'totals'"):
        app.add(totals_projection())


def test_the_same_part_added_twice_changes_nothing() -> None:
    app = counter_app()
    app.add(Counter)
    assert app.serializer is not None


def test_something_that_is_no_part_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no aggregate class"):
        App("x").add(Count)  # type: ignore[arg-type]  # the mistake under test


def test_a_projection_of_events_that_no_aggregate_applies_is_refused_at_start() -> None:
    app = App("counters")
    app.add(totals_projection())
    with pytest.raises(DefinitionError, match="add its aggregate"):
        _ = app.serializer


def test_a_process_manager_for_events_that_no_aggregate_applies_is_refused_at_start() -> None:
    manager = ProcessManager("m")

    @manager.on
    def counted(event: Counted, context: EventContext) -> list[Command]:
        return []

    app = App("counters")
    app.add(manager)
    with pytest.raises(DefinitionError, match="process manager m reacts to Counted"):
        _ = app.serializer


def test_an_unknown_projection_is_named_with_those_there_are() -> None:
    with pytest.raises(ProjectionNotFound, match="it has: totals"):
        counter_app(totals_projection()).projection("nope")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("samples.bank", "MODULE:ATTRIBUTE"),
        ("no_such_module:app", "there is no module 'no_such_module'"),
        ("headrace.app:nothing", "has no App called 'nothing'"),
    ],
)
def test_a_wrong_application_path_is_explained(path: str, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        load_app(path)


class CountedTwice(DomainEvent, name="Counted", version=2):
    by: int
    times: int


class NewCounter(Aggregate, name="Counter"):
    def initial_state(self) -> None:
        self.total = 0

    @applies
    def _counted(self, event: CountedTwice) -> None:
        self.total += event.by * event.times


class Tell(Command):
    counter_id: AggregateId


def new_app() -> App:
    app = App("counters")
    app.add(NewCounter)

    @app.handles
    async def tell(command: Tell, context: CommandContext) -> None:
        context.set_result((await context.get(NewCounter, command.counter_id)).total)

    return app


async def test_an_aggregate_is_loaded_from_events_of_an_old_version(tmp_path: Path) -> None:
    settings = Settings(
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=f"sqlite:///{tmp_path / 'read.db'}",
    )
    async with counter_app().run_local(settings) as counters:
        assert (await counters.bus.execute(Count(counter_id="c-1", by=3))).ok
    app = new_app()

    @app.upcasts(CountedTwice, 1)
    def counted_once(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "times": 1}

    async with app.run_local(settings) as counters:
        assert (await counters.bus.execute(Tell(counter_id="c-1"))).value == 3


def test_an_old_version_without_a_way_to_the_new_one_is_refused_at_start() -> None:
    with pytest.raises(DefinitionError, match="event 'Counted' version 1 cannot be read"):
        _ = new_app().serializer


def test_an_upcaster_of_a_message_that_is_not_part_of_the_application_is_refused_at_start() -> None:
    app = counter_app()
    app.upcasts(CountedTwice, 1)(dict)
    with pytest.raises(DefinitionError, match="leads nowhere: nothing of counters"):
        _ = app.serializer


class Told(ApplicationMessage):
    text: str


class Import(Command, topic="imports"):
    counter_id: AggregateId


class OldImport(Command, name="Import", version=2, topic="old"):
    counter_id: AggregateId


def importing(*command_types: type[Command]) -> App:
    app = counter_app()
    for command_type in command_types:

        async def handler(command: Command, context: CommandContext) -> None:
            """Does nothing."""

        handler.__annotations__["command"] = command_type
        app.handles(handler)
    return app


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"command_topics": ("import",)}, "has no topic 'import' for commands; it has: main, imp"),
        ({"command_topics": ("imports",), "after_parked": "hold"}, "exclude each other"),
    ],
)
async def test_topics_that_cannot_be_handled_are_refused_at_start(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        async with importing(Import).run_local(Settings(**settings)):
            pass


async def test_a_command_with_two_topics_is_refused_at_start() -> None:
    app = importing(Import, OldImport)
    with pytest.raises(DefinitionError, match="command 'Import' has two topics: 'imports' and"):
        async with app.client(Settings()):
            pass


async def test_a_published_message_reaches_its_handlers() -> None:
    app = App("counters")
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    @app.handles
    async def tell(command: Tell, context: CommandContext) -> None:
        context.publish(Told(text=command.counter_id))

    @app.on_message
    async def hear(message: Told, context: MessageContext) -> None:
        heard.put_nowait((message.text, context.message_id))

    async with app.run_local() as counters:
        await counters.bus.execute(Tell(counter_id="c-1"), command_id="x")
        assert await heard.get() == ("c-1", "c-1/x/1")


async def test_a_message_that_is_not_part_of_the_application_fails_its_command() -> None:
    app = App("counters")

    @app.handles
    async def tell(command: Tell, context: CommandContext) -> None:
        context.publish(Told(text="unheard"))

    async with app.run_local() as counters:
        result = await counters.bus.execute(Tell(counter_id="c-1"))
        assert (result.status, result.error) == ("failed", "SerializationError")
        assert "Told is not part of the application" in result.sentence
    app.add(Told)
    async with app.run_local() as counters:
        assert (await counters.bus.execute(Tell(counter_id="c-1"))).ok
