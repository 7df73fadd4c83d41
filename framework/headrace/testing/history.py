"""
Tests of what reads events: given a history, then rows, commands, or calls.

    history = History()
    history.happened("ann", AccountOpened(owner="Ann"), Deposited(amount=5))
    history.happened("bob", AccountOpened(owner="Bob"))
    assert history.rows(balances)["ann"].balance == 5
    assert history.commands(transfers) == []

It runs the functions that you wrote and nothing else: no store, no queue, no event loop. `clock` says when
things happen; move it between two of them.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel

from headrace.domain.message import Command, DomainEvent
from headrace.domain.stream import EventStream, Rejection
from headrace.errors import DomainError
from headrace.handlers.event_handlers import EventHandlers
from headrace.periodic.periodic_command import MISSED_MAX, PeriodicCommand
from headrace.processes.process import Process, Progress
from headrace.processes.process_manager import Later, ProcessManager
from headrace.projections.definition.fold import fold_streams
from headrace.projections.definition.projection import Projection
from headrace.resources.parameters import bound_to
from headrace.serialization import CommandEnvelope

__all__ = ["FakeClock", "History", "InstanceOutcome"]

R = TypeVar("R", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)

_START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until a test advances it.

    Args:
        start: the time of day to begin with; UTC.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._passed_ms = 0

    @property
    def start(self) -> datetime:
        """The time of day with which it began."""
        return self._start

    def now(self) -> datetime:
        """The time of day, with the UTC zone."""
        return self._start + timedelta(milliseconds=self._passed_ms)

    def monotonic_ms(self) -> int:
        """Milliseconds since the start."""
        return self._passed_ms

    def advance(self, ms: int) -> None:
        """Lets time pass.

        Args:
            ms: how much, in milliseconds; not negative.
        """
        if ms < 0:
            raise ValueError(f"time does not go back: {ms} ms")
        self._passed_ms += ms


@dataclass(frozen=True, kw_only=True)
class InstanceOutcome(Generic[S]):
    """Where an instance of a process stands, and what it sent.

    Attributes:
        state: what it remembers.
        undo: commands that `Compensate` would send, the oldest first.
        ended: whether it is over.
        commands: what it sent, in order; one for a later moment as `Later`.
    """

    state: S | None
    undo: tuple[Command, ...] = ()
    ended: bool = False
    commands: tuple[Command | Later, ...] = ()


@dataclass(kw_only=True)
class History:
    """What has happened to some aggregates, in order.

    Args:
        clock: says when each thing happens.
        provide: what handlers get besides events, by type.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    provide: Mapping[Any, Any] = field(default_factory=dict)
    _streams: list[EventStream] = field(default_factory=list, init=False)
    _versions: dict[str, int] = field(default_factory=dict, init=False)

    def happened(
        self,
        aggregate_id: str,
        *events: DomainEvent,
        aggregate_type: str = "Aggregate",
        items: Mapping[str, str] | None = None,
    ) -> Self:
        """Lets events of an aggregate happen now, each by a command of its own.

        Args:
            aggregate_id: whose events they are.
            events: in order.
            aggregate_type: registered name of the aggregate's class, for what looks at it.
            items: text values that came with the commands.
        """
        for event in events:
            version = self._versions[aggregate_id] = self._versions.get(aggregate_id, 0) + 1
            self._add(
                aggregate_id, aggregate_type, version=version, events=(event,), items=items or {}
            )
        return self

    def rejected(self, command: Command, error: DomainError) -> Self:
        """Lets a command be rejected now, as if a handler had raised this error."""
        rejection = Rejection(
            error=error.code or type(error).__name__,
            sentence=str(error),
            command_name=type(command).message_name,
            command_version=type(command).message_version,
            command_data=command.model_dump(mode="json"),
        )
        self._add(command.aggregate_id, "Aggregate", version=None, rejection=rejection)
        return self

    def rows(self, projection: Projection[R]) -> dict[str, R]:
        """Returns the rows that a projection makes of all this, by key.

        Raises:
            ProjectionError: a fold or key function raised; names the event.
        """
        rows = fold_streams(projection, {}, self._streams)
        return {key: row for key, row in rows.items() if row is not None}

    def commands(self, manager: ProcessManager) -> list[Command | Later]:
        """Returns what a process manager sends, in order; raises what its handlers raise.

        Raises:
            DefinitionError: a handler wants a type that is not in `provide`.
        """
        bound = manager.bound(self._bind)
        return [_sent(one) for stream in self._streams for one in bound.react(stream)]

    def periodic(self, command: PeriodicCommand) -> list[Command]:
        """Returns what a periodic command has sent between the start of the clock and its time now.

        As a process does that ran all the time; `App.periodic_command` gives one by name.
        """
        begin, now = self.clock.start, self.clock.now()
        moments = command.schedule.between(begin, now, most=MISSED_MAX)
        return [command.envelope("test", moment).command for moment in moments]

    def instances(self, process: Process[S]) -> dict[str, InstanceOutcome[S]]:
        """Returns the instances of a process by key; raises what its handlers raise.

        A rejection reaches the instances that sent an equal command.

        Raises:
            DefinitionError: a handler yielded what it must not, or a key is no usable id.
            SerializationError: a state would not come back as it is.
        """
        progress: dict[str, Progress[S]] = {}
        sent: dict[str, list[Command | Later]] = {}
        for stream in self._streams:
            for key in self._keys_of(process, stream, sent):
                done = process.react(progress.get(key), key, stream)
                if done is not None:
                    progress[key] = done[0]
                    sent.setdefault(key, []).extend(map(_sent, done[1]))
        return {
            key: InstanceOutcome(
                state=one.state, undo=one.undo, ended=one.ended, commands=tuple(sent[key])
            )
            for key, one in progress.items()
        }

    async def handle(self, handlers: EventHandlers) -> None:
        """Calls event handlers for all this, as a running application does; raises what they raise.

        Raises:
            DefinitionError: a handler wants a type that is not in `provide`.
        """
        handlers = handlers.bound(self._bind)
        for stream in self._streams:
            for event, context in stream.contexts():
                for level in handlers.levels(type(event)):
                    await asyncio.gather(*(handler(event, context) for handler in level))

    def _bind(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return bound_to(handler, self.provide)

    def _add(self, aggregate_id: str, aggregate_type: str, **what: Any) -> None:
        command_id = f"c-{len(self._streams) + 1}"
        stream = EventStream(
            aggregate_type=aggregate_type,
            aggregate_id=aggregate_id,
            command_id=command_id,
            correlation_id=command_id,
            recorded_at=self.clock.now(),
            **what,
        )
        self._streams.append(stream)

    def _keys_of(
        self, process: Process[Any], stream: EventStream, sent: Mapping[str, list[Command | Later]]
    ) -> list[str]:
        rejection = stream.rejection
        if rejection is None:
            return list(process.keys_of(stream))
        refused = rejection.command_name, rejection.command_data
        return [key for key, commands in sent.items() if refused in map(_named, commands)]


def _sent(envelope: CommandEnvelope) -> Command | Later:
    match envelope.due:
        case None:
            return envelope.command
        case timedelta() as delay:
            return Later(envelope.command, delay=delay)
        case moment:
            return Later(envelope.command, at=moment)


def _named(sent: Command | Later) -> tuple[str, Mapping[str, object]]:
    command = sent.command if isinstance(sent, Later) else sent
    return type(command).message_name, command.model_dump(mode="json")
