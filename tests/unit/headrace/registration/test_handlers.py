"""Handlers of every kind get what the application provides, in a run and in tests."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    ApplicationMessage,
    Command,
    CommandBus,
    CommandContext,
    Decider,
    DomainEvent,
    EventContext,
    MessageContext,
    Principal,
    Process,
    ProcessManager,
    Projection,
    Settings,
    applies,
)
from headrace.errors import DefinitionError, ResourceFailed
from headrace.testing.history import FakeClock, History
from headrace.testing.scenario import scenario


class Register(Command):
    user: AggregateId


class Confirm(Command):
    user: AggregateId
    sender: str


class Registered(DomainEvent):
    number: int


class Confirmed(DomainEvent):
    sender: str


class Told(ApplicationMessage):
    text: str


class User(Aggregate):
    @applies
    def _registered(self, event: Registered) -> None: ...

    @applies
    def _confirmed(self, event: Confirmed) -> None: ...


class Numbers:
    """Gives the next number."""

    def __init__(self, begin: int) -> None:
        self.next = begin


class Mailer:
    """Notes what is sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[str] = []
        self.is_open = True


manager = ProcessManager("confirming")


@manager.on
def confirm(event: Registered, context: EventContext, mailer: Mailer) -> Iterable[Command]:
    yield Confirm(user=context.aggregate_id, sender=mailer.name)


def club() -> tuple[App, list[Mailer]]:
    """An application whose handlers of every kind want something; the mailers that it opened."""
    app, opened = App("club"), list[Mailer]()
    app.add(User, manager)
    app.provide(Numbers, Numbers(7))

    @app.resource
    async def mails(settings: Settings) -> AsyncIterator[Mailer]:
        mailer = Mailer(f"mail {settings.event_store}")
        opened.append(mailer)
        yield mailer
        mailer.is_open = False

    @app.handles
    async def register(command: Register, context: CommandContext, numbers: Numbers) -> None:
        user = User(command.user)
        user.record(Registered(number=numbers.next))
        context.add(user)
        context.publish(Told(text=command.user))

    @app.handles
    async def confirmed(command: Confirm, context: CommandContext) -> None:
        user = await context.get(User, command.user)
        user.record(Confirmed(sender=command.sender))

    @app.on_event(processor="mail")
    async def welcome(event: Confirmed, context: EventContext, mailer: Mailer) -> None:
        assert mailer.is_open
        mailer.sent.append(f"welcome {context.aggregate_id} from {event.sender}")

    @app.on_message
    async def tell(message: Told, context: MessageContext, mailer: Mailer) -> None:
        mailer.sent.append(f"told {message.text}")

    return app, opened


async def test_every_kind_of_handler_gets_its_resources_until_the_last_message() -> None:
    app, opened = club()
    async with app.run_local() as running:
        await running.bus.execute(Register(user="ann"), wait_for="handled")
        async with asyncio.timeout(30):
            while len(opened[0].sent) < 2:
                await asyncio.sleep(0)
        assert sorted(opened[0].sent) == ["told ann", "welcome ann from mail memory://"]
        stored = await running.store.read_stream("ann")
        assert stored[0].events == (Registered(number=7),)
    assert [mailer.is_open for mailer in opened] == [False]


async def test_fakes_take_the_place_of_resources_in_a_run() -> None:
    app, opened = club()
    fake = Mailer("fake")
    with app.overrides({Mailer: fake, Numbers: Numbers(1)}):
        async with app.run_local() as running:
            await running.bus.execute(Register(user="ann"), wait_for="handled")
            stored = await running.store.read_stream("ann")
            assert stored[0].events == (Registered(number=1),)
    assert opened == []


def test_fakes_take_the_place_of_resources_in_a_scenario() -> None:
    app, _ = club()
    register = Register(user="ann")
    scenario(User, "ann", app=app).when(register).then(Registered(number=7))
    with app.overrides({Numbers: Numbers(3)}):
        scenario(User, "ann", app=app).when(register).then(Registered(number=3))


def test_a_scenario_opens_nothing_and_says_what_to_do() -> None:
    app, _ = club()

    class Greet(Command):
        user: AggregateId

    @app.handles
    async def greet(command: Greet, context: CommandContext, mailer: Mailer) -> None: ...

    with pytest.raises(DefinitionError, match=r"greet needs Mailer.*app\.overrides"):
        scenario(User, "ann", app=app).when(Greet(user="ann"))


async def test_a_history_provides_what_handlers_want() -> None:
    app, _ = club()
    fake = Mailer("fake")
    history = History(provide={Mailer: fake}).happened("ann", Registered(number=1))
    assert history.commands(manager) == [Confirm(user="ann", sender="fake")]
    await history.happened("ann", Confirmed(sender="x")).handle(app.event_handlers("mail"))
    assert fake.sent == ["welcome ann from x"]
    with pytest.raises(DefinitionError, match="confirm: nothing provides its parameter mailer"):
        History().happened("ann", Registered(number=1)).commands(manager)


async def test_a_handler_of_events_may_send_commands() -> None:
    app = App("club")
    app.add(User)

    @app.handles
    async def register(command: Register, context: CommandContext) -> None:
        user = User(command.user)
        user.record(Registered(number=1))
        context.add(user)

    @app.handles
    async def confirmed(command: Confirm, context: CommandContext) -> None:
        user = await context.get(User, command.user)
        user.record(Confirmed(sender=command.sender))

    @app.on_event
    async def answer(event: Registered, context: EventContext, bus: CommandBus) -> None:
        reply = Confirm(user=context.aggregate_id, sender="me")
        await bus.execute(reply, command_id=f"{context.event_id}/confirm")

    async with app.run_local() as running:
        await running.bus.execute(Register(user="ann"), wait_for="handled")
        stored = await running.store.read_stream("ann")
        assert [stream.command_id for stream in stored][1:] == ["ann/1/1/confirm"]


async def test_what_nothing_provides_is_refused_before_anything_runs() -> None:
    app, opened = club()

    @app.on_event
    async def lost(event: Registered, context: EventContext, other: dict[str, int]) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"lost: nothing provides its parameter other: dict.*Mailer, Numbers"
    ):
        async with app.run_local():
            pass
    assert opened == []


async def test_a_handler_of_commands_gets_no_bus() -> None:
    app = App("club")

    @app.handles
    async def register(command: Register, context: CommandContext, bus: CommandBus) -> None: ...

    with pytest.raises(DefinitionError, match="one command changes one aggregate"):
        async with app.run_local():
            pass


async def test_a_resource_that_fails_ends_the_start_with_a_sentence() -> None:
    app = App("club")

    @app.resource
    async def database() -> AsyncIterator[None]:
        raise ConnectionError("nobody there")
        yield

    with pytest.raises(ResourceFailed, match="database did not open: ConnectionError: nobody"):
        async with app.run_local():
            pass


async def test_a_parked_event_is_retried_with_resources_of_its_own(tmp_path: Path) -> None:
    """As `headrace parked retry` does it, in a process that runs nothing."""
    settings = Settings(
        event_store=f"sqlite:///{tmp_path}/events.db",
        read_models=f"sqlite:///{tmp_path}/read.db",
        error_retries_max=0,
    )
    app, opened = club()
    broken = True

    @app.on_event(processor="cards")
    async def card(event: Confirmed, context: EventContext, mailer: Mailer) -> None:
        if broken:
            raise ValueError("no paper")
        mailer.sent.append("card")

    async with app.run_local(settings) as running:
        await running.bus.execute(Register(user="ann"), wait_for="executed")
        async with asyncio.timeout(30):
            while not (entries := await running.parked.read()):
                await asyncio.sleep(0)
    broken = False
    async with app.parked(settings) as parked:
        assert len(opened) == 1
        assert await parked.retry(entries[0]) is None
    assert [mailer.sent[-1:] for mailer in opened[1:]] == [["card"]]
    assert not opened[1].is_open


def _fold(projection: Projection[Any]) -> None:
    @projection.fold
    def folded(row: Any, event: Registered, context: EventContext, mailer: Mailer) -> Any: ...


def _applied(_: object) -> None:
    class Other(Aggregate):
        @applies
        def _registered(self, event: Registered, mailer: Mailer) -> None: ...


def _decided(_: object) -> None:
    decider = Decider("Other", state=dict)

    @decider.evolve
    def evolved(state: Any, event: Registered, mailer: Mailer) -> Any: ...


class State(BaseModel):
    pass


def _process(_: object) -> None:
    process = Process("other", state=State)

    @process.on
    def reacted(
        state: State | None, event: Registered, context: EventContext, mailer: Mailer
    ) -> Any: ...


class Row(BaseModel):
    user: str


@pytest.mark.parametrize("define", [_fold, _applied, _decided, _process])
def test_what_is_folded_gets_no_resources(define: Any) -> None:
    with pytest.raises(DefinitionError, match="no resources"):
        define(Projection("rows", row=Row, key="user"))


async def test_a_periodic_command_runs_with_the_application_and_in_a_history() -> None:
    app = App("club")
    app.add(User)

    @app.handles
    async def register(command: Register, context: CommandContext) -> None:
        pass

    @app.periodic("* * * * *", missed="all")
    def nightly(moment: datetime) -> Command:
        return Register(user=f"{moment:%d %H:%M}")

    history = History(clock=FakeClock(datetime(2026, 1, 31, 23, 58, 30, tzinfo=UTC)))
    history.clock.advance(90_000)
    commands = history.periodic(app.periodic_command("nightly"))
    assert commands == [Register(user="31 23:59"), Register(user="01 00:00")]

    async with app.run_local() as running:
        names = [task.get_name() for task in running._tasks]
        assert "periodic nightly" in names


def test_a_periodic_command_with_a_taken_name_or_an_unknown_policy_is_refused() -> None:
    app = App("club")
    make: Any = lambda moment: Register(user="x")  # noqa: E731 - its name is given
    app.periodic("* * * * *", name="one")(make)
    with pytest.raises(DefinitionError, match="one"):
        app.periodic("* * * * *", name="one")(lambda moment: Register(user="y"))
    with pytest.raises(DefinitionError, match="missed='never': write one of latest, all, skip"):
        app.periodic("* * * * *", missed="never")  # type: ignore[arg-type]  # a user's mistake
    with pytest.raises(DefinitionError, match="there is no periodic command 'two'"):
        app.periodic_command("two")


def test_an_application_allows_roles_commands_and_projections_and_nothing_else() -> None:
    app = App("shop")
    with pytest.raises(DefinitionError, match="takes command classes and projections; there is"):
        app.allow("clerk")
    with pytest.raises(DefinitionError, match="'Register' is neither"):
        app.allow("clerk", "Register")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(DefinitionError, match=r"app\.allow: a role has"):
        app.allow("a clerk", Register)
    assert not app.allowances.declared
    app.allow("auditor", results=True)
    app.allow(["clerk", "boss"], Register)
    boss = Principal("eve", frozenset({"boss"}))
    assert app.allowances.may_send(boss, "Register")
    assert not app.allowances.may_send(boss, "Confirm")
