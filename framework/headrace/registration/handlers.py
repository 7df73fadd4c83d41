"""
What an application calls, as the user registers it: handlers, middleware, their resources, what roles may.

Used by `App`, which is one of these; uses `resources`, which opens, closes and binds.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar, get_args, overload

from headrace.access.allowances import Allowances
from headrace.bus import CommandBus
from headrace.commands.command_handlers import HandlerTable
from headrace.commands.middleware import Middleware, check_middleware
from headrace.domain.message import ApplicationMessage, Command
from headrace.domain.registries import bind_named, find_named
from headrace.errors import DefinitionError
from headrace.events.message_runner import MessageHandler, message_type_of
from headrace.handlers.event_handlers import EventHandler, EventHandlers
from headrace.periodic.periodic_command import MakeCommand, Missed, PeriodicCommand
from headrace.periodic.schedule import CronSchedule
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.projections.definition.projection import Projection
from headrace.resources.parameters import wanted_by
from headrace.resources.resources import OpenResources, Resources
from headrace.settings import Settings

__all__ = ["HandlerHolder"]

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[None]])
M = TypeVar("M", bound=Middleware)
H = TypeVar("H", bound=MessageHandler)
E = TypeVar("E", bound=EventHandler)
C = TypeVar("C", bound=MakeCommand)
Opener = TypeVar("Opener", bound=Callable[..., AsyncIterator[Any]])


class HandlerHolder:
    """Handlers, and resources by type.

    `Settings` is provided by itself, and so is `CommandBus`, except to handlers of commands.
    """

    def __init__(self) -> None:
        # Which roles may send which commands and read which rows.
        self.allowances = Allowances()
        self._handlers = HandlerTable(self.allowances)
        self._middleware: list[Middleware] = []
        self._event_handlers: dict[str, EventHandlers] = {}
        # Each with its handlers, which may be none.
        self._messages: dict[type[ApplicationMessage], list[MessageHandler]] = {}
        self._process_managers: dict[str, ProcessManager | Process[Any]] = {}
        self._periodic: dict[str, PeriodicCommand] = {}
        self._resources = Resources([Settings, CommandBus])

    def handles(self, handler: Handler) -> Handler:
        """Registers the one handler of a command type, which its first argument is annotated with.

        @app.handles
        async def deposit(command: Deposit, context: CommandContext) -> None:
            account = await context.get(Account, command.account_id)
            account.deposit(command.amount)
        """
        self._handlers.add(handler)
        return handler

    @overload
    def on_event(self, handler: E) -> E: ...
    @overload
    def on_event(self, *, priority: int = 0, processor: str = "events") -> Callable[[E], E]: ...

    def on_event(self, handler: Any = None, *, priority: int = 0, processor: str = "events") -> Any:
        """Registers a handler of events, which does something in the world; an event may have many.

        @app.on_event
        async def welcome(event: Registered, context: EventContext) -> None:
            await mails.send(event.address, key=context.event_id)

        It is called at least once for every event that is of its type (`A | B` and base classes are
        types, too), in the order of each aggregate.

        Args:
            handler: the function, where nothing else is said.
            priority: of the handlers of one event those with the lowest are called first, all at
                once, then the next ones.
            processor: those of one go on together, and remember together what they have handled.
        """
        if handler is None:
            return partial(self.on_event, priority=priority, processor=processor)
        handlers = self._event_handlers.setdefault(processor, EventHandlers(processor))
        handlers.add(handler, priority=priority)
        return handler

    def on_message(self, handler: H) -> H:
        """Registers a handler of an application message; a message may have several.

        @app.on_message
        async def ask_for_payment(message: PaymentDue, context: MessageContext) -> None:
            await payments.ask(message.amount, key=context.message_id)

        It is called at least once for every message, in the order of each aggregate.
        """
        self._messages.setdefault(message_type_of(handler), []).append(handler)
        return handler

    def allow(
        self,
        roles: str | Iterable[str],
        *parts: type[Command] | Projection[Any],
        results: bool = False,
    ) -> None:
        """Allows principals with a role to send commands and to read projections.

        app.allow("clerk", OpenAccount, Deposit, balances)
        app.allow(["auditor", "boss"], ledger, results=True)
        app.allow("*", prices)

        With the first call, what no call allows is refused to everyone who has a principal. Without any
        call nothing is. What the application sends itself is never asked about.

        Args:
            roles: one or more; "*" is every principal.
            parts: command classes, in all their versions, and projections.
            results: whether they also see the results of commands that others sent.

        Raises:
            DefinitionError: a role is none, or a part is neither.
        """
        commands = [one for one in parts if isinstance(one, type) and issubclass(one, Command)]
        projections = [one for one in parts if isinstance(one, Projection)]
        others = [one for one in parts if one not in commands and one not in projections]
        if others or not (parts or results):
            what = f"{others[0]!r} is neither" if others else "there is none"
            raise DefinitionError(f"app.allow takes command classes and projections; {what}")
        try:
            self.allowances.allow(
                [roles] if isinstance(roles, str) else roles,
                commands=[each.message_name for each in commands],
                projections=[each.name for each in projections],
                results=results,
            )
        except ValueError as error:
            raise DefinitionError(f"app.allow: {error}") from error

    def middleware(self, function: M) -> M:
        """Puts a function around every handler; the first registered is the outermost.

        @app.middleware
        async def only_members(context: CommandContext, call_next: Next) -> None:
            if "member" not in context.items:
                raise NotAllowed("members only")
            await call_next()

        It runs with every run of a handler, which may be several for one command. A `DomainError`
        rejects the command, also after `call_next`; without it the handler does not run.
        """
        check_middleware(function)
        self._middleware.append(function)
        return function

    def resource(self, function: Opener) -> Opener:
        """Registers what is opened before the first message is handled, and closed after the last one.

        @app.resource
        async def mails(settings: Settings) -> AsyncIterator[Mailer]:
            async with Mailer("mail.example") as mailer:
                yield mailer

        Handlers of commands, events and messages, and process managers, get it by a further parameter
        that is annotated with its type. Resources open in the order of their registration, in every
        process that runs handlers, and close in the reverse order, without the error that may end the
        run. One that yields nothing (`AsyncIterator[None]`) is a plain hook for start and end.

        Raises:
            DefinitionError: it has another form, its type has a provider, or nothing before it provides
                one of its own parameters.
        """
        return self._resources.add(function)

    def provide(self, kind: Any, value: Any) -> None:
        """Provides a value that needs no opening: `app.provide(Prices, Prices(vat=19))`.

        Raises:
            DefinitionError: the type has a provider already.
        """
        self._resources.provide(kind, value)

    def periodic(
        self, expression: str, *, timezone: str = "UTC", missed: Missed = "latest", name: str = ""
    ) -> Callable[[C], C]:
        """Registers a command that is sent by a time table.

        @app.periodic("0 3 * * *", timezone="Europe/Berlin")
        def close_day(moment: datetime) -> Command:
            return CloseDay(branch="main", day=moment.date())

        The function returns the command of an occurrence, which it gets as a moment of UTC, and depends on
        nothing else. The command's id is made of the name and the moment: each is handled once, however
        many processes run and stop.

        Args:
            expression: cron's five fields: minute, hour, day of the month, month, day of the week.
            timezone: in which they are meant, such as "Europe/Berlin".
            missed: what becomes of occurrences while nothing ran: only the "latest" is made up for;
                "all" are, a thousand at most; or "skip" them.
            name: part of the ids; do not change it later. By default the function's name.

        Raises:
            DefinitionError: the table, the zone or the policy is unusable, or the name is taken.
        """
        schedule = CronSchedule(expression, timezone)
        if missed not in get_args(Missed):
            raise DefinitionError(f"missed={missed!r}: write one of {', '.join(get_args(Missed))}")

        def register(function: C) -> C:
            one = PeriodicCommand(
                name=name or function.__name__, schedule=schedule, make=function, missed=missed
            )
            bind_named(self._periodic, one.name, one, "periodic commands")
            return function

        return register

    def periodic_command(self, name: str) -> PeriodicCommand:
        """Returns a periodic command, for tests; raises `DefinitionError`, naming those there are."""
        return find_named(self._periodic, name, "there is no periodic command", DefinitionError)

    def overrides(self, values: Mapping[Any, Any]) -> AbstractContextManager[None]:
        """Provides other values until the block ends, for tests: `with app.overrides({Mailer: fake}):`.

        What begins to run within the block gets them; the resources of these types are not opened.
        """
        return self._resources.overridden(values)

    def _opening(self, settings: Settings, bus: CommandBus | None) -> OpenResources:
        """Returns the resources of one run, not open yet.

        Args:
            settings: of the run.
            bus: of the run; None: there is no broker.

        Raises:
            DefinitionError: nothing provides what a handler wants.
        """
        commands = list(self._handlers.by_type.values())
        for handler in commands:
            if CommandBus in wanted_by(handler).values():
                name = getattr(handler, "__qualname__", handler)
                raise DefinitionError(
                    f"{name} handles a command and gets no CommandBus: one command changes one aggregate;"
                    " send further ones from a process manager or a handler of events"
                )
        readers = [*self._event_handlers.values(), *self._process_managers.values()]
        others = [
            one for each in readers if not isinstance(each, Process) for one in each.functions
        ]
        messages = [one for some in self._messages.values() for one in some]
        self._resources.check([*commands, *others, *messages])
        always: dict[type, Any] = {Settings: settings}
        return self._resources.opening(
            settings, always if bus is None else always | {CommandBus: bus}
        )
