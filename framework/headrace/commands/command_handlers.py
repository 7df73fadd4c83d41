"""
Handlers of commands: the table that finds them and the context that they work with.

Used by applications, which register functions, and by `decision`, which runs one of them.
"""

import inspect
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, TypeVar, get_type_hints

from headrace._runtime.handler_deadline import Deadline
from headrace.access.allowances import Allowances
from headrace.access.principal import Principal
from headrace.domain.aggregate import Aggregate
from headrace.domain.identity import id_text
from headrace.domain.message import ApplicationMessage, Command
from headrace.errors import (
    AggregateExists,
    AggregateNotFound,
    DefinitionError,
    SerializationError,
)
from headrace.resources.parameters import GIVEN, wanted_by
from headrace.serialization import CommandEnvelope, encode_result

__all__ = ["CommandContext", "CommandHandler", "HandlerRun", "HandlerTable", "Loader"]

A = TypeVar("A", bound=Aggregate)
H = TypeVar("H", bound=Callable[..., Awaitable[None]])

# It may have further parameters, which are resources.
CommandHandler = Callable[..., Awaitable[None]]


class Loader(Protocol):
    """Where a context gets the aggregate of its command from."""

    @property
    def accepted(self) -> Aggregate | None:
        """The aggregate, if it is in memory."""
        ...

    async def load(self, aggregate_type: type[Aggregate]) -> Aggregate | None:
        """Returns the aggregate in its accepted state, or None when it has no events."""
        ...


@dataclass(slots=True, kw_only=True)
class HandlerRun:
    """What one run of a handler has done so far.

    Attributes:
        deadline: ends the run; stands still while an aggregate is loaded.
        aggregate: the one that was loaded or added.
        added: whether it is new.
        result: what was handed to `set_result`, as JSON text.
        messages: what was handed to `publish`.
        misuse: how the handler broke the rules of the context; empty: it did not.
    """

    deadline: Deadline = field(default_factory=Deadline)
    aggregate: Aggregate | None = None
    added: bool = False
    result: str | None = None
    messages: list[ApplicationMessage] = field(default_factory=list)
    misuse: str = ""

    def finish(self, accepted: Aggregate | None) -> None:
        """Ends a run whose handler has returned.

        A taken id is reported only here, so that a run ends the same way whether or not the
        aggregate is in memory.

        Args:
            accepted: the aggregate of the command, if it is in memory.

        Raises:
            AggregateExists: the handler has added an aggregate with the id of that one.
        """
        if self.added and accepted is not None:
            raise AggregateExists(f"{accepted.id!r} exists already")


class CommandContext:
    """What a handler may use: its command's aggregate and its command's result.

    One command changes one aggregate, which its `AggregateId` field names.
    """

    def __init__(self, envelope: CommandEnvelope, loader: Loader, run: HandlerRun) -> None:
        self._envelope = envelope
        self._loader = loader
        self._run = run

    @property
    def command(self) -> Command:
        """The command that is being handled."""
        return self._envelope.command

    @property
    def command_id(self) -> str:
        """The command's id."""
        return self._envelope.command_id

    @property
    def correlation_id(self) -> str:
        """The id of the first command of the chain."""
        return self._envelope.correlation_id

    @property
    def items(self) -> Mapping[str, str]:
        """Text values that came with the command and go on with its events."""
        return self._envelope.items

    @property
    def principal(self) -> Principal | None:
        """Who sent the command; None: the application itself, or a program that does not say.

        The gateway finds it in a client's token. Other programs that may publish to the topic of commands
        are believed what they say.
        """
        return self._envelope.principal

    async def get(self, aggregate_class: type[A], aggregate_id: Hashable) -> A:
        """Returns the command's aggregate in its newest state.

        Raises:
            AggregateNotFound: it has no events, or is of another class.
            ValueError: the id is not that of the command's aggregate.
        """
        aggregate_id = id_text("an aggregate id", aggregate_id)
        if aggregate_id != self._envelope.aggregate_id:
            self._refuse(aggregate_id)
        run = self._run
        aggregate = run.aggregate or self._loader.accepted
        if aggregate is None:
            run.deadline.pause()
            aggregate = await self._loader.load(aggregate_class)
            run.deadline.resume()
        # Exactly the class: a cold load could not tell which subclass to make.
        if type(aggregate) is not aggregate_class:
            raise AggregateNotFound(
                f"there is no {aggregate_class.aggregate_name} {aggregate_id!r}"
            )
        run.aggregate = aggregate
        return aggregate

    async def get_or_add(
        self, aggregate_class: type[A], aggregate_id: Hashable, create: Callable[[], A]
    ) -> A:
        """Returns the command's aggregate; if there is none, adds the new one that `create` returns.

        For a command that may be the first one of an id: `await context.get_or_add(Cart, id, lambda:
        Cart(id))`.

        Raises:
            ValueError: as from `get` and `add`.
        """
        try:
            return await self.get(aggregate_class, aggregate_id)
        except AggregateNotFound:
            aggregate = create()
            self.add(aggregate)
            return aggregate

    def add(self, aggregate: Aggregate) -> None:
        """Adds a new aggregate, to be stored.

        If its id is taken, the command is rejected as `AggregateExists` after the handler has
        returned, so no handler and no middleware can catch that.

        Raises:
            AggregateExists: `get` has returned the aggregate of this id.
            ValueError: the id is not that of the command's aggregate, or it is not new.
        """
        if aggregate.id != self._envelope.aggregate_id:
            self._refuse(aggregate.id)
        run = self._run
        if aggregate is run.aggregate and run.added:
            return
        if aggregate.version or aggregate is run.aggregate:
            self._misused(f"{aggregate!r} is not new; an aggregate from get is stored without add")
        if run.added:
            self._misused(f"{aggregate.id!r} was added already, as another object")
        if run.aggregate is not None:
            raise AggregateExists(f"{aggregate.id!r} exists already")
        run.aggregate = aggregate
        run.added = True

    def set_result(self, value: object) -> None:
        """Sets the value that the caller of `execute` gets; a JSON value.

        It is stored with the events, so that a duplicate of the command gets it again.

        Raises:
            SerializationError: the value has no JSON form.
        """
        try:
            self._run.result = encode_result(value)
        except SerializationError as error:
            self._run.misuse = str(error)
            raise

    def publish(self, message: ApplicationMessage) -> None:
        """Publishes an application message if the command is not rejected.

        It is stored with the command's events, if there are any, and published after them, at least
        once; a duplicate of the command publishes it again under the same id.
        """
        self._run.messages.append(message)

    def _refuse(self, aggregate_id: str) -> None:
        self._misused(
            f"{type(self._envelope.command).__name__} is for aggregate"
            f" {self._envelope.aggregate_id!r} and its handler touched {aggregate_id!r}; send a"
            " command to each aggregate, from a process manager for instance"
        )

    def _misused(self, sentence: str) -> None:
        # Noted apart from the error, because the handler may catch it.
        self._run.misuse = sentence
        raise ValueError(sentence)


class HandlerTable:
    """The one handler of each command type.

    Args:
        allowances: which roles may send which commands; None: all may.

    Attributes:
        by_type: the handlers, by the exact type of their commands.
        allowances: as given.
    """

    def __init__(self, allowances: Allowances | None = None) -> None:
        self.allowances = allowances or Allowances()
        self._handlers: dict[type[Command], CommandHandler] = {}
        self.by_type: Mapping[type[Command], CommandHandler] = MappingProxyType(self._handlers)

    def add(self, function: H) -> H:
        """Registers `async def f(command: Deposit, context: CommandContext)`; returns it.

        Further parameters are resources, found by their types.

        Raises:
            DefinitionError: it has another form, or its command type has a handler already.
        """
        self.bind(_command_type_of(function), function)
        return function

    def bind(self, command_type: type[Command], handler: CommandHandler) -> None:
        """Registers the handler of a command type.

        Raises:
            DefinitionError: the command type has a handler already.
        """
        other = self._handlers.setdefault(command_type, handler)
        if other is not handler:
            raise DefinitionError(
                f"{command_type.__name__} has two handlers: {_name(other)} and {_name(handler)};"
                " remove one"
            )


def _name(function: object) -> str:
    return getattr(function, "__qualname__", repr(function))


def _command_type_of(function: Callable[..., object]) -> type[Command]:
    wanted = (
        f"handler {_name(function)}: write it as"
        " `async def f(command: SomeCommand, context: CommandContext) -> None`"
    )
    if not inspect.iscoroutinefunction(function):
        raise DefinitionError(f"{wanted}; it is not an async function")
    arguments = list(inspect.signature(function).parameters)
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise DefinitionError(f"{wanted}; {error}") from error
    if len(arguments) < GIVEN:
        raise DefinitionError(f"{wanted}; it takes {len(arguments)} arguments")
    command_type = hints.get(arguments[0])
    if not (isinstance(command_type, type) and issubclass(command_type, Command)):
        raise DefinitionError(f"{wanted}; its first argument is not annotated with a Command class")
    if hints.get(arguments[1], CommandContext) is not CommandContext:
        raise DefinitionError(f"{wanted}; its second argument is not a CommandContext")
    wanted_by(function)
    return command_type
