"""
Tests of projections, processes and event handlers: given a history, then rows, commands, or calls.

    history = History()
    history.happened("ann", AccountOpened(owner="Ann"), Deposited(amount=5))
    history.happened("bob", AccountOpened(owner="Bob"))
    assert history.rows(balances)["ann"].balance == 5
    assert history.commands(transfers) == []

It runs the functions that you wrote and nothing else: no store, no queue, no event loop. `clock` says when
things happen; advance it between two of them.
"""

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
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

__all__ = ["FakeClock", "FakeTimer", "History", "InstanceOutcome"]

R = TypeVar("R", bound=BaseModel)
S = TypeVar("S", bound=BaseModel)

_START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until a test moves it; `App.run_local` runs an application on it.

    Args:
        start: the time of day to begin with; UTC.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._start = start
        self._passed_ms = 0
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._timers_made = 0
        self._sleepers = 0
        self._quiet: list[Callable[[], Awaitable[None]]] = []

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
        """Lets time pass, without waiting for applications; for a running one use `elapse`.

        Args:
            ms: how much, in milliseconds; not negative.
        """
        if ms < 0:
            raise ValueError(f"time does not go back: {ms} ms")
        end = self._passed_ms + ms
        while self._stop(end):
            pass

    async def elapse(self, duration: timedelta) -> None:
        """Lets time pass for the applications that run on this clock.

        The clock stops at each moment at which something is due, in order, until all that this caused
        is handled. On return everything that was due is handled, and the applications are quiet.

        Args:
            duration: how much time; not negative. A part of a millisecond counts as one.

        Raises:
            TimeoutError: an application was not quiet in time; see `RunningApp.quiet`.
        """
        if duration < timedelta(0):
            raise ValueError(f"time does not go back: {duration}")
        end = self._passed_ms + math.ceil(duration / timedelta(milliseconds=1))
        await self._all_quiet()
        going = True
        while going:
            going = self._stop(end)
            await self._all_quiet()

    @property
    def sleepers(self) -> int:
        """How many are in `wait`."""
        return self._sleepers

    def call_later(
        self, seconds: float, call: Callable[..., object], *arguments: Any
    ) -> "FakeTimer":
        """Calls a function when so much time has passed on this clock; never before `call_later` ends."""
        due_ms = self._passed_ms + math.ceil(round(max(seconds, 0.0) * 1_000, 3))
        timer = FakeTimer(partial(call, *arguments))
        if due_ms <= self._passed_ms:
            asyncio.get_running_loop().call_soon(timer.call)
        else:
            self._timers_made += 1
            heapq.heappush(self._timers, (due_ms, self._timers_made, timer))
        return timer

    async def wait(self, seconds: float) -> None:
        """Waits until so much time has passed on this clock."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            self._sleepers -= 1
            if not over.done():
                over.set_result(None)

        self._sleepers += 1
        timer = self.call_later(seconds, wake)
        try:
            await over
        finally:
            if not timer.called:
                timer.cancel()
                self._sleepers -= 1

    @contextmanager
    def attended(self, quiet: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Awaits `quiet` wherever `elapse` stops, until the block ends."""
        self._quiet.append(quiet)
        try:
            yield
        finally:
            self._quiet.remove(quiet)

    def _stop(self, end: int) -> bool:
        """Goes on to the next moment at which something is due, and calls it; False: that is the end."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if not self._timers or self._timers[0][0] > end:
            self._passed_ms = end
            return False
        self._passed_ms = self._timers[0][0]
        while self._timers and self._timers[0][0] <= self._passed_ms:
            heapq.heappop(self._timers)[2].call()
        return True

    async def _all_quiet(self) -> None:
        for quiet in self._quiet:
            await quiet()


class FakeTimer:
    """A call at a later time of a `FakeClock`."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.called = False
        self.cancelled = False

    def cancel(self) -> None:
        """Calls nothing any more."""
        self.cancelled = True

    def call(self) -> None:
        """Makes the call, unless it was cancelled."""
        if not self.cancelled:
            self.called = True
            self._call()


@dataclass(frozen=True, kw_only=True)
class InstanceOutcome(Generic[S]):
    """The state of an instance of a process, and the commands it sent.

    Attributes:
        state: its state.
        undo: commands that `Compensate` would send, the oldest first.
        ended: whether it has ended.
        commands: the commands it sent, in order; a scheduled one as `Later`.
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
        provide: the resources that handlers get, by type.
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
        """Adds events of an aggregate, now, each from its own command.

        Args:
            aggregate_id: the aggregate.
            events: in order.
            aggregate_type: registered name of the aggregate's class, for code that reads it.
            items: text values that came with the commands.
        """
        for event in events:
            version = self._versions[aggregate_id] = self._versions.get(aggregate_id, 0) + 1
            self._add(
                aggregate_id, aggregate_type, version=version, events=(event,), items=items or {}
            )
        return self

    def rejected(self, command: Command, error: DomainError) -> Self:
        """Adds a rejection of a command, now, as if a handler had raised this error."""
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
        """Returns the rows that a projection makes of this history, by key.

        Raises:
            ProjectionError: a fold or key function raised; names the event.
        """
        rows = fold_streams(projection, {}, self._streams)
        return {key: row for key, row in rows.items() if row is not None}

    def commands(self, manager: ProcessManager) -> list[Command | Later]:
        """Returns the commands that a process manager sends, in order; raises what its handlers raise.

        Raises:
            DefinitionError: a handler wants a type that is not in `provide`.
        """
        bound = manager.bound(self._bind)
        return [_sent(one) for stream in self._streams for one in bound.react(stream)]

    def periodic(self, command: PeriodicCommand) -> list[Command]:
        """Returns what a periodic command has sent between the start of the clock and its time now.

        A running process would have sent the same. `App.periodic_command` returns one by name.
        """
        begin, now = self.clock.start, self.clock.now()
        moments = command.schedule.between(begin, now, most=MISSED_MAX)
        return [command.envelope("test", moment).command for moment in moments]

    def instances(self, process: Process[S]) -> dict[str, InstanceOutcome[S]]:
        """Returns the instances of a process by key; raises what its handlers raise.

        A rejection reaches the instances that sent an equal command.

        Raises:
            DefinitionError: a handler yielded an unknown result, or a key is not a usable id.
            SerializationError: a state would change when it is stored and read.
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
        """Calls event handlers for this history, as a running application does; raises what they raise.

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
