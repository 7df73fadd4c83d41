"""
One run of one handler, and what it decided.

Used by a worker, which says when and on which state; runs the user's handler. Knows neither the
store nor the topics: a decision is a value.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, Protocol, cast

from headrace._runtime.clock import Clock
from headrace._runtime.handler_deadline import HANDLER_MS_MAX
from headrace._runtime.tracebacks import traceback_of
from headrace._runtime.work import CommandWork
from headrace.commands.command_handlers import (
    CommandContext,
    CommandHandler,
    HandlerRun,
    HandlerTable,
    Loader,
)
from headrace.domain.aggregate import Aggregate
from headrace.domain.stream import EventStream, Rejection
from headrace.errors import (
    AggregateExists,
    CommandExpired,
    CommandNotAllowed,
    DomainError,
    SubjectKeysError,
)
from headrace.results import CommandResult
from headrace.serialization import CommandEnvelope, Serializer
from headrace.subjects.hidden import hide_personal

__all__ = [
    "CommandDecider",
    "Crashed",
    "Decision",
    "DecisionFailed",
    "Denied",
    "Recorded",
    "Repeated",
]

# The largest stream: the broker's limit for a message. A larger one could be stored, but never published,
# and its aggregate would wait for ever.
STREAM_BYTES_MAX = 4 << 20


class Recorded(NamedTuple):
    """A stream to be stored: events, messages, a rejection, or that nothing changed.

    Attributes:
        stream: what is to be stored.
        body: the stream encoded, as it will be published.
        aggregate: the changed aggregate, its events not accepted yet; None: none was changed.
        dirty: whether the aggregate in memory was changed by something that will not be stored.
    """

    stream: EventStream
    body: bytes
    aggregate: Aggregate | None = None
    dirty: bool = False


@dataclass(frozen=True, slots=True)
class Repeated:
    """The command's outcome is in the store already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFailed:
    """The command cannot be handled, now or later.

    Attributes:
        error: for a machine.
        sentence: for a person.
        trace: where the error came from, if a handler raised it.
        holds: whether the aggregate's later commands are held behind it, where that is the policy.
        held: whether it was not run at all, because it is held itself.
    """

    error: str
    sentence: str
    trace: str = ""
    holds: bool = True
    held: bool = False


@dataclass(frozen=True, slots=True)
class Crashed:
    """The handler raised what it should not; another run may end well."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Denied:
    """The sender may not send the command: it is answered with this, and nothing is stored or parked."""

    result: CommandResult


Decision = Recorded | Repeated | DecisionFailed | Crashed | Denied


class StateOfAggregate(Loader, Protocol):
    """What a run needs to know of its aggregate; the worker knows it."""

    async def is_taken(self) -> bool:
        """Whether the id of a new aggregate turns out to have events."""
        ...


class CommandDecider:
    """Runs handlers.

    Args:
        handlers: which function handles which command, and which roles may send it.
        serializer: encodes what is decided, so that nothing is stored that cannot be published.
        clock: dates the streams.
        work: is given how long handlers take, if it measures that.
    """

    def __init__(
        self,
        *,
        handlers: HandlerTable,
        serializer: Serializer,
        clock: Clock,
        work: CommandWork | None = None,
    ) -> None:
        self._handlers = handlers.by_type
        self._work = work or CommandWork()
        self._serializer = serializer
        self._cipher = serializer.cipher
        self._clock = clock
        self._allowances = handlers.allowances

    def denial(self, envelope: CommandEnvelope) -> Denied | None:
        """Returns the answer to a command that its sender may not send; None: it may."""
        principal, name = envelope.principal, envelope.command.message_name
        if principal is None or self._allowances.may_send(principal, name):
            return None
        return Denied(
            CommandResult(
                status="rejected",
                aggregate_id=envelope.aggregate_id,
                command_id=envelope.command_id,
                error=CommandNotAllowed.__name__,
                sentence=f"{principal} may not send {name}: none of its roles may; ask for a token with one"
                " that does",
            )
        )

    async def decide(self, envelope: CommandEnvelope, state: StateOfAggregate) -> Decision:
        """Runs the command's handler once and returns what it decided.

        Only cancellation of the calling task is raised.
        """
        command_type = type(envelope.command)
        handler = self._handlers.get(command_type)
        if handler is None:
            return DecisionFailed(
                error="NoHandler", sentence=f"no handler is registered for {command_type.__name__}"
            )
        run = HandlerRun()
        error: BaseException | None = None
        if envelope.deadline is not None and self._clock.now() >= envelope.deadline:
            by = envelope.deadline.isoformat()
            expired = CommandExpired(f"it was to be decided by {by}; its handler did not run")
            return await self._outcome(envelope, state, run, expired)
        try:
            await _call(handler, envelope, state, run, self._work)
        except Exception as raised:  # noqa: BLE001 - a user's code may raise anything; returned
            # A rejection's sentence is the application's own.
            own = isinstance(raised, DomainError)
            error = raised if own else hide_personal(raised, _messages_of(envelope, run))
        except asyncio.CancelledError as raised:
            if _is_cancelled():
                raise
            error = raised
        if run.misuse:
            trace = "" if error is None else traceback_of(error)
            return DecisionFailed(error="ContextMisused", sentence=run.misuse, trace=trace)
        if run.deadline.expired():
            late = TimeoutError(f"the handler ran for more than {HANDLER_MS_MAX} ms")
            # Where it was when it was ended.
            return Crashed(late.with_traceback(error.__traceback__ if error else None))
        if error is not None and not isinstance(error, DomainError):
            return Crashed(error)
        return await self._outcome(envelope, state, run, error)

    async def _outcome(
        self,
        envelope: CommandEnvelope,
        state: StateOfAggregate,
        run: HandlerRun,
        error: DomainError | None,
    ) -> Decision:
        """Returns what a run decided, encoded."""
        try:
            await self._make_keys(envelope, run)
            if error is not None:
                return self._rejected(envelope, state, run, error)
            return self._done(envelope, state, run)
        except SubjectKeysError as raised:  # their place may be away for a moment
            return Crashed(raised)
        except Exception as raised:  # noqa: BLE001 - a user's event may hold anything; returned
            return DecisionFailed(
                error="SerializationError",
                sentence=f"the decision does not encode: {raised}",
                trace=traceback_of(raised),
            )

    async def _make_keys(self, envelope: CommandEnvelope, run: HandlerRun) -> None:
        if self._cipher is not None:
            await self._cipher.make_ahead(_messages_of(envelope, run))

    def _done(self, envelope: CommandEnvelope, state: Loader, run: HandlerRun) -> Decision:
        aggregate = run.aggregate
        events = () if aggregate is None else aggregate.recorded
        changed = aggregate if events else None
        only_seen = changed is None and not run.messages and aggregate is not None
        known = aggregate or state.accepted
        return self._encoded(
            EventStream(
                aggregate_type="" if known is None else type(known).aggregate_name,
                aggregate_id=envelope.aggregate_id,
                version=None if changed is None else changed.version + 1,
                command_id=envelope.command_id,
                correlation_id=envelope.correlation_id,
                recorded_at=self._clock.now(),
                events=events,
                messages=tuple(run.messages),
                result=run.result,
                items=envelope.items,
                seen_version=(aggregate.version or None) if only_seen and aggregate else None,
            ),
            changed,
            dirty=False,
        )

    def _rejected(
        self, envelope: CommandEnvelope, state: Loader, run: HandlerRun, error: DomainError
    ) -> Decision:
        command = envelope.command
        known = state.accepted
        return self._encoded(
            EventStream(
                aggregate_type="" if known is None else type(known).aggregate_name,
                aggregate_id=envelope.aggregate_id,
                version=None,
                command_id=envelope.command_id,
                correlation_id=envelope.correlation_id,
                recorded_at=self._clock.now(),
                items=envelope.items,
                rejection=Rejection(
                    error=error.code or type(error).__name__,
                    sentence=str(error),
                    command_name=command.message_name,
                    command_version=command.message_version,
                    command_data=command.model_dump(mode="json"),
                ),
            ),
            None,
            dirty=known is not None and run.aggregate is known and bool(known.recorded),
        )

    def _encoded(
        self, stream: EventStream, aggregate: Aggregate | None, *, dirty: bool
    ) -> Decision:
        body = self._serializer.encode_stream(stream)
        if len(body) > STREAM_BYTES_MAX:
            return DecisionFailed(
                error="StreamTooLarge",
                sentence=f"the events of one command have {len(body)} bytes encoded;"
                f" {STREAM_BYTES_MAX} is the limit",
            )
        return Recorded(stream=stream, body=body, aggregate=aggregate, dirty=dirty)


def _messages_of(envelope: CommandEnvelope, run: HandlerRun) -> tuple[Any, ...]:
    """Returns what a run was given and has made."""
    recorded = () if run.aggregate is None else run.aggregate.recorded
    return (envelope.command, *recorded, *run.messages)


async def _call(
    handler: CommandHandler,
    envelope: CommandEnvelope,
    state: StateOfAggregate,
    run: HandlerRun,
    measured: CommandWork,
) -> None:
    since_s = perf_counter()
    work = handler(envelope.command, CommandContext(envelope, state, run))
    try:
        await run.deadline.run(cast("Coroutine[Any, Any, None]", work))
    finally:
        if measured.handlers is not None:
            measured.handled(envelope.command.message_name, perf_counter() - since_s)
    if run.added:
        run.finish(state.accepted)
        if await state.is_taken():
            raise AggregateExists(f"{envelope.aggregate_id!r} exists already")


def _is_cancelled() -> bool:
    """Whether this task was cancelled, rather than the handler raising the error itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
