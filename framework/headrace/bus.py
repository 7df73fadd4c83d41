"""
The command bus: hands commands to the queue and brings their results back.

Headers of a command message: `reply-to` and `reply-correlation`, both absent when nobody waits. A
reply is the JSON of a `CommandResult`:

    {"status": "executed", "aggregate_id": "a-1", "command_id": "…", "version": 3,
     "value": {"balance": 5}, "error": "", "sentence": "", "place": [2, 17]}

Sits between: callers and process managers on one side and the transport on the other. Never runs
a handler and never reads the store.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import msgspec
import structlog

from headrace._domain.identity import check_id
from headrace._domain.message import Command
from headrace._runtime.ids import new_id
from headrace.errors import (
    CommandRefused,
    CommandTimeout,
    DefinitionError,
    DomainError,
    HeadraceError,
    NotYetHandled,
)
from headrace.serialization import CommandEnvelope, Serializer
from headrace.settings import Settings
from headrace.transports.base import Outgoing, Transport

__all__ = [
    "EXECUTED",
    "HANDLED",
    "REPLY_CORRELATION",
    "REPLY_TO",
    "CommandBus",
    "CommandResult",
    "Named",
    "Progress",
    "WaitFor",
    "command_topic",
    "encode_reply",
]

log = structlog.get_logger(__name__)

REPLY_TO = "reply-to"
REPLY_CORRELATION = "reply-correlation"

# What `execute` waits for: the command's own result, or also everybody who reacts to its events.
EXECUTED: Final = "executed"
HANDLED: Final = "handled"


class Named(Protocol):
    """A projection, as far as waiting for it is concerned."""

    @property
    def name(self) -> str:
        """Its stable name."""
        ...


WaitFor = Literal["executed", "handled"] | Collection[Named]

Status = Literal["executed", "unchanged", "rejected", "failed"]


def command_topic(name: str) -> str:
    """The topic of an application's commands."""
    return f"{name}.commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What became of a command; a duplicate of the command gets the same result.

    Attributes:
        status: "executed": its events are stored. "unchanged": it had nothing to change.
            "rejected": a business rule said no. "failed": it could not be handled, and was parked.
        aggregate_id: which aggregate it was for.
        command_id: its id; empty when the command could not even be read.
        version: the aggregate's version after it, where that is known.
        value: what the handler handed to `set_result`, decoded from JSON.
        error: for a machine: a domain error's code or class name, or why it failed.
        sentence: for a person.
        place: queue and offset of what it did in the event topic, where that was published; of a
            duplicate the place of the newest copy, and the only part that differs.
    """

    status: Status
    aggregate_id: str
    command_id: str
    version: int | None = None
    value: Any = None
    error: str = ""
    sentence: str = ""
    place: tuple[int, int] | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the command had its way: executed, or nothing to change."""
        return self.status in {"executed", "unchanged"}

    def raise_for_rejection(self) -> None:
        """Does nothing for a command that had its way.

        Raises:
            DomainError: it was rejected; the error's `code` is the result's `error`.
            HeadraceError: it failed.
        """
        if self.ok:
            return
        if self.status == "failed":
            raise HeadraceError(f"command {self.command_id} failed: {self.sentence}")
        rejection = DomainError(self.sentence)
        rejection.code = self.error
        raise rejection


class _Reply(msgspec.Struct):
    status: Status
    aggregate_id: str
    command_id: str
    version: int | None
    value: msgspec.Raw
    error: str
    sentence: str
    place: tuple[int, int] | None


_decode_result = msgspec.json.Decoder(CommandResult).decode
_encode_reply = msgspec.json.Encoder().encode


def encode_reply(result: CommandResult, *, value_json: str | None = None) -> bytes:
    """Encodes a result as a reply; `value_json` stands in for its value, as stored."""
    value = msgspec.json.encode(result.value) if value_json is None else value_json.encode()
    return _encode_reply(
        _Reply(
            status=result.status,
            aggregate_id=result.aggregate_id,
            command_id=result.command_id,
            version=result.version,
            value=msgspec.Raw(value),
            error=result.error,
            sentence=result.sentence,
            place=result.place,
        )
    )


class Progress(Protocol):
    """Knows how far the readers of events have come."""

    def check(self, names: Collection[str]) -> None:
        """Raises DefinitionError unless each is `HANDLED` or a projection there is."""
        ...

    async def wait(self, result: CommandResult, names: Collection[str], *, timeout_ms: int) -> None:
        """Returns when these have handled what a command did; raises when they have not in time."""
        ...


class _Question:
    """One command whose result somebody waits for; several callers may share it."""

    __slots__ = ("answer", "askers", "correlation", "envelope", "overdue", "sending", "sent")

    def __init__(self, envelope: CommandEnvelope) -> None:
        self.envelope = envelope
        self.correlation = new_id()
        # Set by one look of the bus, so that the next one sends again.
        self.overdue = False
        self.answer: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self.askers = 0
        self.sent = False
        # Guards `sent`: when the caller who sends gives up, the next one sends in its place.
        self.sending = asyncio.Lock()


class CommandBus:
    """Sends the commands of one application.

    Commands for one aggregate are handled in the order of the calls, also of calls that were only
    started, as in `create_task(bus.send(a)); create_task(bus.send(b))`.

    Args:
        name: the application's name.
        transport: carries commands out and replies in; its replies come to this bus alone.
        serializer: turns commands into bytes.
        settings: of the application.
        progress: for those who wait for more than results.
    """

    def __init__(
        self,
        *,
        name: str,
        transport: Transport,
        serializer: Serializer,
        settings: Settings,
        progress: Progress | None = None,
    ) -> None:
        self._progress = progress
        self._topic = command_topic(name)
        self._transport = transport
        self._serializer = serializer
        self._timeout_ms = settings.result_timeout_ms
        # First come, first served: a semaphore of asyncio keeps its waiters in order.
        self._room = asyncio.Semaphore(settings.bus_in_flight_max)
        self._questions: dict[tuple[str, str], _Question] = {}
        self._by_correlation: dict[str, _Question] = {}
        self._closed = False
        self._resend_ms = settings.result_resend_ms
        self._resending: asyncio.TimerHandle | None = None
        self._resends: set[asyncio.Task[None]] = set()
        transport.on_reply(self._receive)

    async def send(
        self,
        command: Command,
        *,
        command_id: str | None = None,
        correlation_id: str | None = None,
        items: Mapping[str, str] | None = None,
    ) -> str:
        """Hands a command over and returns its id once it is durable in the queue.

        Args:
            command: what is wished for.
            command_id: the same id again is the same command, and has no second effect; new by
                default.
            correlation_id: first command of the chain; the command's own id by default.
            items: text values handed on to the events.

        Raises:
            CommandRefused: the queue did not take it.
            CommandTimeout: the queue did not say whether it took it.
        """
        envelope = _envelope(command, command_id, correlation_id, items)
        await self.send_envelope(envelope)
        return envelope.command_id

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        """Hands over a command that has its ids already; durable in the queue on return.

        Raises:
            CommandRefused: the queue did not take it.
            CommandTimeout: the queue did not say whether it took it.
        """
        async with self._room:
            await self._publish(envelope, {})

    async def execute(
        self,
        command: Command,
        *,
        command_id: str | None = None,
        items: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
        wait_for: WaitFor = EXECUTED,
    ) -> CommandResult:
        """Hands a command over, waits until it is executed, and returns its result.

        Calls for one command id at the same time share one answer. A rejection is a result, not an
        error; see `CommandResult.raise_for_rejection`.

        Args:
            command: what is wished for.
            command_id: the same id again is the same command; new by default.
            items: text values handed on to the events.
            timeout_ms: how long to wait; `result_timeout_ms` of the settings by default.
            wait_for: "executed"; or projections, until these have folded what the command did; or
                "handled", until all projections and process managers have.

        Raises:
            CommandTimeout: no result came in time: the outcome is unknown.
            NotYetHandled: there is a result, and what was waited for has not come in time.
            CommandRefused: the queue did not take it.
            DefinitionError: what is waited for is not part of the application.
        """
        names = _names(wait_for)
        if names:
            if self._progress is None:
                raise DefinitionError(f"wait_for={wait_for!r}: this bus knows results only")
            self._progress.check(names)
        envelope = _envelope(command, command_id, None, items)
        wait_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if not names:
            return await self._result(envelope, wait_ms)
        deadline = asyncio.get_running_loop().time() + wait_ms / 1_000
        result = await self._result(envelope, wait_ms)
        left_ms = max(0, int((deadline - asyncio.get_running_loop().time()) * 1_000))
        await self._handled(result, names, left_ms)
        return result

    async def _handled(self, result: CommandResult, names: Collection[str], left_ms: int) -> None:
        assert self._progress is not None, "checked before the command was sent"
        try:
            await self._progress.wait(result, names, timeout_ms=left_ms)
        except (TimeoutError, ExceptionGroup) as error:
            causes = error.exceptions if isinstance(error, ExceptionGroup) else [error]
            raise NotYetHandled(
                f"command {result.command_id} is {result.status}, but {', '.join(sorted(names))}"
                f" has not come so far in time: {'; '.join(map(str, causes)) or 'no answer'}",
                result,
            ) from error

    async def _result(self, envelope: CommandEnvelope, wait_ms: int) -> CommandResult:
        try:
            async with asyncio.timeout(wait_ms / 1_000), self._room:
                return await self._ask(envelope)
        except TimeoutError as error:
            raise CommandTimeout(
                f"no result of command {envelope.command_id} within {wait_ms} ms; its outcome is"
                " unknown, and executing it again with the same command_id is safe"
            ) from error

    async def aclose(self) -> None:
        """Lets nobody wait any more: open `execute` calls raise CommandTimeout."""
        self._closed = True
        if self._resending is not None:
            self._resending.cancel()
        for resend in self._resends:
            resend.cancel()
        for question in list(self._questions.values()):
            if not question.answer.done():
                question.answer.set_exception(
                    CommandTimeout("the bus was closed before a result came; outcome unknown")
                )
                # Looked at, so that asyncio does not report it when every caller has gone.
                question.answer.exception()

    async def _ask(self, envelope: CommandEnvelope) -> CommandResult:
        key = (envelope.aggregate_id, envelope.command_id)
        question = self._questions.get(key)
        if question is None:
            question = self._questions[key] = _Question(envelope)
            self._by_correlation[question.correlation] = question
        question.askers += 1
        self._watch_overdue()
        try:
            async with question.sending:
                if not question.sent:
                    await self._publish(envelope, self._reply_headers(question))
                    question.sent = True
            # Shielded, because the answer belongs to all who ask.
            return await asyncio.shield(question.answer)
        finally:
            question.askers -= 1
            if not question.askers:
                del self._questions[key]
                del self._by_correlation[question.correlation]

    async def _publish(self, envelope: CommandEnvelope, headers: Mapping[str, str]) -> None:
        if self._closed:
            raise CommandRefused("the bus is closed")
        message = Outgoing(
            topic=self._topic,
            key=envelope.aggregate_id,
            tag=envelope.command.message_name,
            headers=headers,
            body=self._serializer.encode_command(envelope),
        )
        try:
            if envelope.due is None:
                await self._transport.publish(message)
            else:
                await self._transport.schedule(message, envelope.due)
        except TimeoutError as error:
            raise CommandTimeout(
                f"the queue did not confirm command {envelope.command_id} in time; its outcome is"
                " unknown, and sending it again with the same command_id is safe"
            ) from error
        except HeadraceError:
            raise
        except Exception as error:
            raise CommandRefused(
                f"command {envelope.command_id} was not handed over: {error}"
            ) from error

    def _reply_headers(self, question: _Question) -> Mapping[str, str]:
        return {
            REPLY_TO: self._transport.reply_address,
            REPLY_CORRELATION: question.correlation,
        }

    def _watch_overdue(self) -> None:
        if self._resending is None and not self._closed:
            self._resending = asyncio.get_running_loop().call_later(
                self._resend_ms / 1_000, self._resend_overdue
            )

    def _resend_overdue(self) -> None:
        """Sends every command again whose result was due at the last look.

        A reply is delivered at most once: a restart of the broker or of this connection loses it.
        The command itself is safe in the queue, and a duplicate gets the same answer.
        """
        self._resending = None
        for question in list(self._questions.values()):
            if not question.sent or question.answer.done():
                continue
            if question.overdue:
                resend = asyncio.get_running_loop().create_task(self._resend(question))
                self._resends.add(resend)
                resend.add_done_callback(self._resends.discard)
            question.overdue = not question.overdue
        if self._questions:
            self._watch_overdue()

    async def _resend(self, question: _Question) -> None:
        log.debug("result overdue, command sent again", command_id=question.envelope.command_id)
        try:
            await self._publish(question.envelope, self._reply_headers(question))
        except (HeadraceError, OSError) as error:
            # The next look tries again; the caller's own timeout bounds it all.
            log.debug("command not sent again", error=str(error))

    def _receive(self, correlation: str, body: bytes) -> None:
        question = self._by_correlation.get(correlation)
        if question is None or question.answer.done():
            log.debug("late reply", correlation=correlation)
            return
        try:
            question.answer.set_result(_decode_result(body))
        except msgspec.MsgspecError as error:
            log.warning("unreadable reply", correlation=correlation, error=str(error))


def _names(wait_for: WaitFor) -> tuple[str, ...]:
    if wait_for == EXECUTED:
        return ()
    if isinstance(wait_for, str):
        return (wait_for,)
    return tuple(projection.name for projection in wait_for)


def _envelope(
    command: Command,
    command_id: str | None,
    correlation_id: str | None,
    items: Mapping[str, str] | None,
) -> CommandEnvelope:
    command_id = new_id() if command_id is None else command_id
    return CommandEnvelope(
        command=command,
        command_id=check_id("a command id", command_id),
        correlation_id=check_id("a correlation id", correlation_id or command_id),
        items=dict(items or {}),
    )
