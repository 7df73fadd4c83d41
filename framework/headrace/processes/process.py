"""
Processes: process managers whose instances have a state.

    event ──key──▶ instance: (state, event) ──▶ a new state, commands, the end

An instance's state depends only on the events it has seen, in the order in which it saw them: the same
events give the same state again. The ids of its commands are derived from the events that caused them.

Used by your code, which registers handlers, and by the transaction that stores instances. Pure.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Generic,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from pydantic import BaseModel

from headrace._runtime.ids import derived_id
from headrace.domain.form import EXACT, form_of
from headrace.domain.identity import id_text
from headrace.domain.message import Command, DomainEvent, EventContext
from headrace.domain.stream import EventStream, Rejection
from headrace.errors import DefinitionError, SerializationError
from headrace.processes.process_manager import Later, checked_name
from headrace.serialization import CommandEnvelope
from headrace.subscriptions.handler_match import nearest, refuse_async, types_in

__all__ = ["Compensate", "End", "Process", "Progress", "Undo"]

S = TypeVar("S", bound=BaseModel)

# A handler takes state, event and context, or state, command and rejection.
_ARGUMENTS: Final = 3


@dataclass(frozen=True, slots=True)
class End:
    """Ends the instance: it ignores all later events of its key."""


@dataclass(frozen=True, slots=True)
class Undo:
    """A command that the instance keeps until `Compensate` sends it."""

    command: Command


@dataclass(frozen=True, slots=True)
class Compensate:
    """Sends the commands that the instance keeps by `Undo`, the newest first, and forgets them."""


Handler = TypeVar("Handler", bound=Callable[..., Iterable[Any]])
KeyFunction = Callable[[Any, EventContext], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Generic[S]):
    """The progress of an instance.

    Attributes:
        state: its state; None before its first event.
        undo: the commands that `Compensate` would send, the oldest first.
        ended: whether it has ended.
    """

    state: S | None = None
    undo: tuple[Command, ...] = ()
    ended: bool = False


@dataclass(frozen=True, slots=True)
class _Reaction:
    handle: Callable[..., Iterable[Any]]
    begins: bool
    key: KeyFunction


class Process(Generic[S]):
    """Coordinates several aggregates in one piece of business, and keeps a state for each.

    Args:
        name: do not change it later: it is part of its commands' ids, and of its consumer group's name.
            At most 100 characters, without `:`.
        state: a pydantic model: the state of one instance.
        state_version: raise it when you change `state`, or how handlers compute it. States of other
            versions are rebuilt from the events that the instance has seen.

    Raises:
        DefinitionError: the name is unusable; or a state of this model would change when it is stored
            and read again; names the field.
    """

    def __init__(self, name: str, *, state: type[S], state_version: int = 1) -> None:
        self.name = checked_name(name)
        self.state = state
        self.state_version = state_version
        # None: a field's type is defined later.
        self._form = form_of(state, as_json=True) if state.__pydantic_complete__ else None
        self._on: dict[type[DomainEvent], _Reaction] = {}
        self._on_rejection: dict[type[Command], Callable[..., Iterable[Any]]] = {}

    @overload
    def on(self, handler: Handler) -> Handler: ...
    @overload
    def on(self, *, key: str | KeyFunction) -> Callable[[Handler], Handler]: ...

    def on(self, handler: Any = None, *, key: str | KeyFunction | None = None) -> Any:
        """Registers a handler of (state, event, context).

        @registrations.on
        def placed(state: Registration | None, event: OrderPlaced, context: EventContext): ...

        @registrations.on(key="order_id")
        def reserved(state: Registration, event: SeatsReserved, context: EventContext): ...

        The handler returns or yields results: the new state, commands, `Later`, `Undo`, `Compensate`,
        `End`. If its state may be None, its event begins an instance when there is none; other
        handlers are called only if the instance exists. A handler must depend on its arguments only.
        `A | B` registers it for both events; a base class also for subclasses without a handler of
        their own.

        Args:
            handler: the function, if you use the decorator without arguments.
            key: the instance's key: the name of a field of the event, or a function of (event,
                context); by default the id of the event's aggregate.
        """
        if handler is not None:
            return self._add(handler, None)
        return lambda function: self._add(function, key)

    def on_rejection(self, handler: Handler) -> Handler:
        """Registers a handler of (state, command, rejection), for commands that the process sent.

        @registrations.on_rejection
        def no_seats(state: Registration, command: ReserveSeats, rejection: Rejection): ...

        The state is that of the instance that sent the command.
        """
        _, command_types, _ = self._read(handler, Command)
        for command_type in command_types:
            if command_type in self._on_rejection:
                raise DefinitionError(
                    f"process {self.name} handles the rejection of {command_type.__name__} twice"
                )
            self._on_rejection[command_type] = handler
        return handler

    @property
    def event_types(self) -> frozenset[type[DomainEvent]]:
        """The event types that have handlers; a base class stands for its subclasses."""
        return frozenset(self._on)

    @property
    def rejected_types(self) -> frozenset[type[Command]]:
        """The command types whose rejections have handlers."""
        return frozenset(self._on_rejection)

    def keys_of(self, stream: EventStream) -> dict[str, list[tuple[DomainEvent, EventContext]]]:
        """Returns the events of a stream that have handlers, by the key of the instance.

        Raises:
            DefinitionError: a key is no usable id.
        """
        parts: dict[str, list[tuple[DomainEvent, EventContext]]] = {}
        for event, context in stream.contexts():
            reaction = nearest(self._on, type(event))
            if reaction is None:
                continue
            key = reaction.key(event, context)
            try:
                key = id_text("a key", key)
            except ValueError as error:
                raise DefinitionError(
                    f"process {self.name}, {type(event).__name__} {context.event_id}: {error}"
                ) from error
            parts.setdefault(key, []).append((event, context))
        return parts

    def react(
        self, before: Progress[S] | None, key: str, stream: EventStream
    ) -> tuple[Progress[S], list[CommandEnvelope]] | None:
        """Returns the instance's progress after a stream, and its commands; None: no handler took it.

        Args:
            before: its progress before; None: there is no such instance.
            key: the instance's key.
            stream: events of its key, or the rejection of a command that it sent.

        Raises:
            Exception: a handler raised it; DefinitionError if a handler yielded an unknown result.
            SerializationError: the state would change when it is stored and read; names the field.
        """
        after: Progress[S] = before or Progress()
        begun = before is not None
        sent: list[Command | Later] = []
        if stream.rejection is not None:
            for follows in self._refusals(after, stream.rejection):
                after, begun = self._follow(after, follows, sent), True
        else:
            for event, context in self.keys_of(stream).get(key, []):
                reaction = nearest(self._on, type(event))
                assert reaction is not None, "it has a key by its reaction"
                if after.ended or (after.state is None and not reaction.begins):
                    continue
                for follows in reaction.handle(after.state, event, context):
                    after, begun = self._follow(after, follows, sent), True
        if not begun:
            return None
        if after.state is None:
            raise DefinitionError(
                f"process {self.name} began the instance {key!r} without a state; yield a"
                f" {self.state.__name__} first"
            )
        self._check(after.state)
        return after, self._envelopes(key, stream, sent)

    def _check(self, state: S) -> None:
        if type(state) is not self.state:
            raise SerializationError(
                f"process {self.name}: a {type(state).__name__} would come back as a"
                f" {self.state.__name__}; yield a {self.state.__name__}"
            )
        if self._form is None:
            self.state.model_rebuild()
            self._form = form_of(self.state, as_json=True)
        if self._form is not EXACT:
            self._form.check(state, state.model_dump_json().encode())

    def refold(self, key: str, streams: Iterable[EventStream]) -> Progress[S]:
        """Returns the progress of an instance that has seen these streams; sends nothing."""
        progress: Progress[S] | None = None
        for stream in streams:
            done = self.react(progress, key, stream)
            progress = progress if done is None else done[0]
        return progress or Progress()

    def _refusals(self, progress: Progress[S], rejection: Rejection) -> Iterator[Any]:
        for command_type, handle in self._on_rejection.items():
            if progress.ended or (command_type.message_name, command_type.message_version) != (
                rejection.command_name,
                rejection.command_version,
            ):
                continue
            command = command_type.model_validate(rejection.command_data)
            yield from handle(progress.state, command, rejection)

    def _follow(
        self, progress: Progress[S], follows: Any, sent: list[Command | Later]
    ) -> Progress[S]:
        """Returns the progress after one result of a handler; adds commands to `sent`."""
        if isinstance(follows, Command | Later):
            sent.append(follows)
            return progress
        state, undo, ended = progress.state, progress.undo, progress.ended
        if isinstance(follows, self.state):
            state = follows
        elif isinstance(follows, Undo):
            undo = (*undo, follows.command)
        elif isinstance(follows, Compensate):
            sent.extend(reversed(undo))
            undo = ()
        elif isinstance(follows, End):
            ended = True
        else:
            raise DefinitionError(
                f"process {self.name}: a handler yields a {self.state.__name__}, commands, Later,"
                f" Undo, Compensate or End, not {follows!r}"
            )
        return Progress(state=state, undo=undo, ended=ended)

    def _envelopes(
        self, key: str, stream: EventStream, sent: Sequence[Command | Later]
    ) -> list[CommandEnvelope]:
        return [
            CommandEnvelope(
                command=wished.command if isinstance(wished, Later) else wished,
                command_id=derived_id(
                    self.name, key, stream.aggregate_id, stream.command_id, str(place)
                ),
                correlation_id=stream.correlation_id,
                items=stream.items,
                due=wished.due if isinstance(wished, Later) else None,
            )
            for place, wished in enumerate(sent)
        ]

    def _add(self, handler: Any, key: str | KeyFunction | None) -> Any:
        begins, event_types, name = self._read(handler, DomainEvent)
        reaction = _Reaction(handle=handler, begins=begins, key=_key_function(key))
        for event_type in event_types:
            if event_type in self._on:
                raise DefinitionError(f"process {self.name} handles {event_type.__name__} twice")
            if isinstance(key, str) and key not in event_type.model_fields:
                raise DefinitionError(
                    f"process {self.name}: {event_type.__name__} has no field {key!r} for {name}"
                )
            self._on[event_type] = reaction
        return handler

    def _read(self, handler: Any, kind: type) -> tuple[bool, tuple[Any, ...], str]:
        """Returns whether a handler takes None as its state, its message types, and its name."""
        arguments = list(inspect.signature(handler).parameters)
        hints: Mapping[str, Any] = get_type_hints(handler) if len(arguments) == _ARGUMENTS else {}
        state, message = (hints.get(argument) for argument in [*arguments, "", ""][:2])
        begins = get_origin(state) in {Union, UnionType} and NoneType in get_args(state)
        of_state = [one for one in get_args(state) or (state,) if one is not NoneType]
        messages = types_in(message, kind)
        if of_state != [self.state] or not messages:
            third = "rejection" if kind is Command else "context"
            raise DefinitionError(
                f"process {self.name}: {handler.__name__} takes (state, {kind.__name__.lower()},"
                f" {third}); annotate the first as {self.state.__name__}, or"
                f" {self.state.__name__} | None where it begins an instance, and the second as a"
                f" {kind.__name__} class. It gets no resources: its state is made of events alone"
            )
        refuse_async(f"process {self.name}", handler)
        return begins, messages, handler.__name__

    def __repr__(self) -> str:
        return f"<Process {self.name!r}>"


def _key_function(key: str | KeyFunction | None) -> KeyFunction:
    if key is None:
        return lambda _event, context: context.aggregate_id
    if isinstance(key, str):
        return lambda event, _context: getattr(event, key)
    return key
