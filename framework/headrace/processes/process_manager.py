"""
Process managers: events and rejections in, commands out.

The ids of a handler's commands are derived from the event that caused them. So a second reaction to the
same event has no second effect. That holds for timeouts, too: commands that the queue keeps until they are
due.

Used by your code, which registers handlers, and by the runner that calls them. Pure.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, get_type_hints

from headrace._runtime.ids import derived_id
from headrace.domain.message import Command, DomainEvent
from headrace.domain.stream import EventStream, Rejection
from headrace.errors import DefinitionError
from headrace.resources.parameters import GIVEN, Bind, wanted_by
from headrace.serialization import CommandEnvelope
from headrace.subscriptions.handler_match import nearest, refuse_async, types_in

__all__ = ["AHEAD_MS_MAX", "NAME_CHARACTERS_MAX", "Later", "ProcessManager", "checked_name"]

# Most characters in the name of a process or process manager. Headrace puts a prefix before the name, and
# both must fit the databases' columns (127).
NAME_CHARACTERS_MAX: Final = 100
# How far ahead a command is given to the queue: a day less than the broker keeps one for, because
# its clock may differ from ours.
AHEAD_MS_MAX: Final = 365 * 86_400_000
_DELAY_MAX: Final = timedelta(milliseconds=AHEAD_MS_MAX)


def checked_name(name: str) -> str:
    """Returns the name of a process or process manager.

    Raises:
        DefinitionError: the name is empty, too long, or has `:`, which separates a reader's kind and name.
    """
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX or ":" in name:
        raise DefinitionError(
            f"process {name!r}: choose a name of 1 to {NAME_CHARACTERS_MAX} characters without ':'"
        )
    return name


@dataclass(frozen=True, slots=True)
class Later:
    """A command that the queue keeps until a moment, or for a while: a timeout, or a reminder.

    It survives restarts. It is delivered even if it is no longer needed then; its aggregate decides
    what to do with it.

    Give a moment or a delay. A moment follows the queue's wall clock, even if that clock is set
    meanwhile. A delay counts from the moment the queue has the command, by a clock that is never set.

    Args:
        command: the command to deliver.
        at: the moment, with a zone; a moment in the past means now. Compute it from the event, as in
            `context.recorded_at + timedelta(minutes=15)`, so that a second reaction gives the same.
        delay: how long from now, at most 365 days.

    Raises:
        TypeError: `command` is not a command.
        ValueError: the moment has no zone, the delay is below 0 or too long, or both or neither is given.
    """

    command: Command
    at: datetime | None = None
    delay: timedelta | None = None

    @property
    def due(self) -> datetime | timedelta:
        """When the queue delivers it: the moment, or the delay after the queue has it."""
        due = self.delay if self.at is None else self.at
        assert due is not None, "one of them was given"
        return due

    def __post_init__(self) -> None:
        if not isinstance(self.command, Command):
            raise TypeError(f"Later takes a command and a moment, not {self.command!r}")
        if (self.at is None) is (self.delay is None):
            raise ValueError("say once when a Later is due: at= or delay=")
        if self.delay is not None and not timedelta() <= self.delay <= _DELAY_MAX:
            raise ValueError(
                f"delay={self.delay!r} is not within 0 and {_DELAY_MAX.days} days; for more, give at="
            )
        if self.at is not None and self.at.tzinfo is None:
            raise ValueError(
                f"at={self.at!r} has no time zone; take the event's recorded_at plus a delay"
            )


Handler = TypeVar("Handler", bound=Callable[..., Iterable[Command | Later]])
Reaction = Iterable[Command | Later]


class ProcessManager:
    """Coordinates several aggregates in one piece of business.

    Args:
        name: do not change it later: it is part of its commands' ids, and of its consumer group's name.
            At most 100 characters, without `:`.

    Raises:
        DefinitionError: the name is unusable.
    """

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)
        self._on: dict[type[DomainEvent], Callable[..., Reaction]] = {}
        self._on_rejection: dict[type[Command], Callable[..., Reaction]] = {}

    def on(self, handler: Handler) -> Handler:
        """Registers a handler of (event, context) that returns or yields commands, or `Later`.

        @transfers.on
        def withdrawn(event: Withdrawn, context: EventContext) -> Iterable[Command]:
            yield Deposit(...)

        `A | B` registers it for both events; a base class also for subclasses without a handler of
        their own. Further parameters are resources, found by their types: what a handler takes from them
        must be the same whenever it runs again.
        """
        self._register(handler, DomainEvent, self._on)
        return handler

    def on_rejection(self, handler: Handler) -> Handler:
        """Registers a handler of (command, rejection) that returns or yields commands, or `Later`.

        @transfers.on_rejection
        def refused(command: Deposit, rejection: Rejection) -> Iterable[Command]:
            yield Refund(...)
        """
        self._register(handler, Command, self._on_rejection)
        return handler

    def bound(self, bind: Bind) -> "ProcessManager":
        """Returns the process manager with its resources; itself if no handler has any.

        Args:
            bind: returns a handler with its further parameters.
        """
        on = {kind: bind(handler) for kind, handler in self._on.items()}
        on_rejection = {kind: bind(handler) for kind, handler in self._on_rejection.items()}
        if (on, on_rejection) == (self._on, self._on_rejection):
            return self
        found = ProcessManager(self.name)
        found._on, found._on_rejection = on, on_rejection
        return found

    @property
    def functions(self) -> list[Callable[..., Reaction]]:
        """The handlers: those of events, then those of rejections."""
        return [*self._on.values(), *self._on_rejection.values()]

    @property
    def event_types(self) -> frozenset[type[DomainEvent]]:
        """The event types that have handlers; a base class stands for its subclasses."""
        return frozenset(self._on)

    @property
    def rejected_types(self) -> frozenset[type[Command]]:
        """The command types whose rejections have handlers."""
        return frozenset(self._on_rejection)

    def concerns(self, stream: EventStream) -> bool:
        """Whether a handler takes a stream; if not, `react` returns no commands."""
        rejection = stream.rejection
        if rejection is not None:
            return any(_is_of(one, rejection) for one in self._on_rejection)
        return any(nearest(self._on, type(event)) for event in stream.events)

    def react(self, stream: EventStream) -> list[CommandEnvelope]:
        """Returns the commands that a stream or a rejection causes, in order.

        Each id is derived from the process manager's name, the stream's aggregate and command, and the
        place in the list: the same stream gives the same ids.
        """
        commands: list[Command | Later] = []
        for event, context in stream.contexts():
            handler = nearest(self._on, type(event))
            if handler is not None:
                commands.extend(handler(event, context))
        rejection = stream.rejection
        if rejection is not None:
            for command_type, refused in self._on_rejection.items():
                if _is_of(command_type, rejection):
                    rejected = command_type.model_validate(rejection.command_data)
                    commands.extend(refused(rejected, rejection))
        return [
            CommandEnvelope(
                command=wished.command if isinstance(wished, Later) else wished,
                command_id=derived_id(
                    self.name, stream.aggregate_id, stream.command_id, str(place)
                ),
                correlation_id=stream.correlation_id,
                items=stream.items,
                due=wished.due if isinstance(wished, Later) else None,
            )
            for place, wished in enumerate(commands)
        ]

    def _register(self, handler: Any, kind: type, table: dict[Any, Any]) -> None:
        arguments = list(inspect.signature(handler).parameters)
        hint = get_type_hints(handler).get(arguments[0]) if len(arguments) >= GIVEN else None
        message_types = types_in(hint, kind)
        if not message_types:
            raise DefinitionError(
                f"process manager {self.name}: {handler.__name__} takes two arguments, the first"
                f" annotated with a {kind.__name__} class, and then resources"
            )
        wanted_by(handler)
        refuse_async(f"process manager {self.name}", handler)
        for message_type in message_types:
            if message_type in table:
                raise DefinitionError(
                    f"process manager {self.name} handles {message_type.__name__} twice;"
                    f" remove {handler.__name__} or {table[message_type].__name__}"
                )
            table[message_type] = handler


def _is_of(command_type: type[Command], rejection: Rejection) -> bool:
    return (command_type.message_name, command_type.message_version) == (
        rejection.command_name,
        rejection.command_version,
    )
