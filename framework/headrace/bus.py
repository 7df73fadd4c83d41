"""
The command bus: hands commands to the queue and brings their results back.

Headers of a command message: `reply-to` and `reply-correlation`, both absent when no caller waits; and
`principal`, absent when nothing is said about the sender.

Used by callers and process managers; uses the transport. It never runs a handler and never reads
the store.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal, Protocol
from weakref import WeakValueDictionary

import msgspec

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.deadlines import Deadlines
from headrace._runtime.ids import new_id
from headrace._runtime.log import get_logger
from headrace.access.principal import Principal
from headrace.awaited_command import AwaitedCommand
from headrace.domain.message import Command
from headrace.domain.topics import command_topic
from headrace.domain.trace_context import trace_headers
from headrace.errors import (
    CommandRefused,
    CommandTimeout,
    DefinitionError,
    HeadraceError,
    NotYetHandled,
)
from headrace.results import CommandResult, WatchedResult, decode_reply, encode_reply
from headrace.serialization import CommandEnvelope, Serializer
from headrace.settings import Settings
from headrace.subjects.cipher import FieldCipher
from headrace.transports.base import Outgoing, Place, Transport

__all__ = [
    "EXECUTED",
    "HANDLED",
    "REPLY_CORRELATION",
    "REPLY_TO",
    "CommandBus",
    "CommandResult",
    "Named",
    "ReaderProgress",
    "WaitFor",
    "encode_reply",
]

log = get_logger(__name__)

REPLY_TO = "reply-to"
REPLY_CORRELATION = "reply-correlation"

# What `execute` waits for: the command's own result, or also all readers of its events.
EXECUTED: Final = "executed"
HANDLED: Final = "handled"


class Named(Protocol):
    """A projection, for code that only waits for it."""

    @property
    def name(self) -> str:
        """Its stable name."""
        ...


WaitFor = Literal["executed", "handled"] | Collection[Named]


class ReaderProgress(Protocol):
    """Says how far the readers of events have come."""

    def check(self, names: Collection[str]) -> None:
        """Raises DefinitionError unless each is `HANDLED` or an existing projection."""
        ...

    async def wait(self, result: CommandResult, names: Collection[str], *, timeout_ms: int) -> None:
        """Returns when these have handled a command's events; raises if they have not in time."""
        ...


class CommandBus:
    """Sends the commands of one application.

    Commands for one aggregate are handled in call order, even if the calls are not awaited, as in
    `create_task(bus.send(a)); create_task(bus.send(b))`. Commands of types with different topics
    are handled in any order.

    Args:
        name: the application's name.
        transport: carries commands out and replies in; its replies come to this bus alone.
        serializer: turns commands into bytes.
        settings: of the application.
        progress: waits for readers of events; None: `execute` waits for results only.
    """

    def __init__(
        self,
        *,
        name: str,
        transport: Transport,
        serializer: Serializer,
        settings: Settings,
        progress: ReaderProgress | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._progress = progress
        self._clock = clock or SystemClock()
        self._name = name
        self._transport = transport
        self._serializer = serializer
        self._cipher = serializer.cipher
        self._timeout_ms = settings.result_timeout_ms
        # A semaphore of asyncio wakes its waiters in order.
        self._room = asyncio.Semaphore(settings.bus_in_flight_max)
        # By aggregate, while commands for it wait for keys.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._awaited: dict[tuple[str, str], AwaitedCommand] = {}
        self._by_correlation: dict[str, AwaitedCommand] = {}
        self._deadlines = Deadlines()
        self._closed = False
        self._resend_ms = settings.result_resend_ms
        self._reply_to = transport.reply_address
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
        deadline: datetime | timedelta | None = None,
        principal: Principal | None = None,
    ) -> str:
        """Sends a command and returns its id once it is durable in the queue.

        Args:
            command: the command.
            command_id: a command with the same id has no second effect; new by default.
            correlation_id: first command of the chain; the command's own id by default.
            items: text values that go on to the events.
            deadline: a moment with a zone, or a duration from now. A command that is not decided by
                then is rejected as `CommandExpired`, and its handler does not run. None: no deadline.
            principal: who sends it, for `context.principal` of its handler; None: the application itself.

        Raises:
            CommandRefused: the queue did not take it.
            SubjectKeysError: the key of its personal fields cannot be read or made.
            SerializationError: its values cannot be encoded.
            CommandTimeout: the queue did not say whether it took it.
            ValueError: the deadline has no zone.
        """
        envelope = _envelope(command, command_id, correlation_id, items, self._by(deadline))
        if principal is not None:
            envelope = replace(envelope, principal=principal)
        await self.send_envelope(envelope)
        return envelope.command_id

    def _by(self, deadline: datetime | timedelta | None) -> datetime | None:
        if isinstance(deadline, timedelta):
            return self._clock.now() + deadline
        if deadline is not None and deadline.tzinfo is None:
            raise ValueError(
                f"deadline={deadline!r} has no time zone; give one, or a timedelta from now"
            )
        return deadline

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        """Sends a command that already has its ids; durable in the queue on return.

        Raises:
            CommandRefused: the queue did not take it.
            SubjectKeysError: the key of its personal fields cannot be read or made.
            SerializationError: its values cannot be encoded.
            CommandTimeout: the queue did not say whether it took it, or keys were awaited for longer than
                `result_timeout_ms` of the settings.
        """
        if self._cipher is not None:
            try:
                async with asyncio.timeout(self._timeout_ms / 1_000):
                    await self._make_keys(self._cipher, envelope)
            except TimeoutError as error:
                raise CommandTimeout(
                    f"the key of a personal field of command {envelope.command_id} did not come within"
                    f" {self._timeout_ms} ms; the command was not sent"
                ) from error
        async with self._room:
            await self._publish(envelope)

    async def _make_keys(self, cipher: FieldCipher, envelope: CommandEnvelope) -> None:
        """Makes the keys of a command; one that needs none does not overtake another one of its aggregate."""
        turn = self._turns.setdefault(envelope.aggregate_id, asyncio.Lock())
        async with turn:
            await cipher.make_ahead((envelope.command,))

    async def execute(
        self,
        command: Command,
        *,
        command_id: str | None = None,
        items: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
        wait_for: WaitFor = EXECUTED,
        deadline: datetime | timedelta | None = None,
        principal: Principal | None = None,
    ) -> CommandResult:
        """Sends a command, waits until it is executed, and returns its result.

        Calls for one command id at the same time share one answer. A rejection is a result, not an
        error; see `CommandResult.raise_for_rejection`.

        Args:
            command: the command.
            command_id: a command with the same id has no second effect; new by default.
            items: text values that go on to the events.
            timeout_ms: how long to wait; `result_timeout_ms` of the settings by default.
            wait_for: "executed"; or projections, until these have folded the command's events; or
                "handled", until all projections, process managers and event handlers are done.
            deadline: as for `send`; the call itself waits for `timeout_ms` in any case.
            principal: as for `send`.

        Raises:
            ValueError: the deadline has no zone.
            CommandTimeout: no result came in time: the outcome is unknown.
            NotYetHandled: there is a result, but `wait_for` was not reached in time.
            CommandRefused: the queue did not take it.
            SubjectKeysError: the key of its personal fields cannot be read or made.
            SerializationError: its values cannot be encoded.
            DefinitionError: `wait_for` names a projection that is not part of the application.
        """
        names = () if wait_for == EXECUTED else _names(wait_for)
        if names:
            if self._progress is None:
                raise DefinitionError(f"wait_for={wait_for!r}: this bus can wait for results only")
            self._progress.check(names)
        envelope = _envelope(command, command_id, None, items, self._by(deadline))
        if principal is not None:
            envelope = replace(envelope, principal=principal)
        wait_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        if not names:
            result = await self._result(envelope, wait_ms)
        else:
            end = asyncio.get_running_loop().time() + wait_ms / 1_000
            result = await self._result(envelope, wait_ms)
            left_ms = max(0, int((end - asyncio.get_running_loop().time()) * 1_000))
            await self._handled(result, names, left_ms)
        if not result.ok and asyncio.get_running_loop().get_debug():
            return WatchedResult.of(result, command.message_name, depth=2)
        return result

    async def _handled(self, result: CommandResult, names: Collection[str], left_ms: int) -> None:
        assert self._progress is not None, "checked before the command was sent"
        try:
            await self._progress.wait(result, names, timeout_ms=left_ms)
        except (TimeoutError, ExceptionGroup) as error:
            causes = error.exceptions if isinstance(error, ExceptionGroup) else [error]
            raise NotYetHandled(
                f"command {result.command_id} is {result.status}, but {', '.join(sorted(names))}"
                f" has not handled it yet: {'; '.join(map(str, causes)) or 'no answer'}",
                result,
            ) from error

    async def _result(self, envelope: CommandEnvelope, wait_ms: int) -> CommandResult:
        end = asyncio.get_running_loop().time() + wait_ms / 1_000
        try:
            if self._cipher is not None:
                async with asyncio.timeout_at(end):
                    await self._make_keys(self._cipher, envelope)
            if self._room.locked():
                async with asyncio.timeout_at(end):
                    await self._room.acquire()
            else:
                await self._room.acquire()
            try:
                return await self._ask(envelope, end)
            finally:
                self._room.release()
        except TimeoutError as error:
            raise CommandTimeout(
                f"no result of command {envelope.command_id} within {wait_ms} ms; its outcome is"
                " unknown, and executing it again with the same command_id is safe"
            ) from error

    async def aclose(self) -> None:
        """Ends every wait: open `execute` calls raise CommandTimeout."""
        self._closed = True
        if self._resending is not None:
            self._resending.cancel()
        for resend in self._resends:
            resend.cancel()
        self._deadlines.close()
        for awaited in list(self._awaited.values()):
            awaited.answer(
                CommandTimeout("the bus was closed before a result came; outcome unknown")
            )

    async def _ask(self, envelope: CommandEnvelope, end: float) -> CommandResult:
        key = (envelope.aggregate_id, envelope.command_id)
        awaited = self._awaited.get(key)
        if awaited is None:
            awaited = self._awaited[key] = AwaitedCommand(envelope)
            self._by_correlation[awaited.correlation] = awaited
        waiter = awaited.join()
        if self._resending is None and not self._closed:
            self._watch_overdue()
        try:
            if not awaited.sent and not self._sent_at_once(awaited):
                async with asyncio.timeout_at(end):
                    await self._send_when_there_is_room(awaited)
            self._deadlines.add(waiter, end)
            return await waiter
        finally:
            self._deadlines.discard(waiter)
            if awaited.leave(waiter):
                del self._awaited[key]
                del self._by_correlation[awaited.correlation]

    def _sent_at_once(self, awaited: AwaitedCommand) -> bool:
        if awaited.sending is not None:
            return False
        message = self._message(awaited.envelope, awaited.correlation)
        awaited.sent = awaited.envelope.due is None and self._transport.publish_soon(
            message, partial(self._told, awaited)
        )
        return awaited.sent

    def _told(self, awaited: AwaitedCommand, outcome: Place | BaseException) -> None:
        """Takes the queue's answer about a command that was sent at once."""
        if isinstance(outcome, BaseException):
            awaited.answer(_not_sent(awaited.envelope, outcome))

    async def _send_when_there_is_room(self, awaited: AwaitedCommand) -> None:
        if awaited.sending is None:
            awaited.sending = asyncio.Lock()
        async with awaited.sending:
            if not awaited.sent:
                await self._publish(awaited.envelope, awaited.correlation)
                awaited.sent = True

    async def _publish(self, envelope: CommandEnvelope, correlation: str | None = None) -> None:
        message = self._message(envelope, correlation)
        try:
            if envelope.due is None:
                await self._transport.publish(message)
            else:
                await self._transport.schedule(message, envelope.due)
        except Exception as error:
            refusal = _not_sent(envelope, error)
            if refusal is error:
                raise
            raise refusal from error

    def _message(self, envelope: CommandEnvelope, correlation: str | None) -> Outgoing:
        """Returns a command's message, with the headers for its reply where a caller waits."""
        if self._closed:
            raise CommandRefused("the bus is closed")
        headers: dict[str, str] = {}
        if correlation is not None:
            headers = {REPLY_TO: self._reply_to, REPLY_CORRELATION: correlation}
        if envelope.items:
            headers |= trace_headers(envelope.items)
        if envelope.principal is not None:
            headers |= envelope.principal.header
        return Outgoing(
            topic=command_topic(self._name, envelope.command.message_topic),
            key=envelope.aggregate_id,
            tag=envelope.command.message_name,
            headers=headers,
            body=self._serializer.encode_command(envelope),
        )

    def _watch_overdue(self) -> None:
        self._resending = asyncio.get_running_loop().call_later(
            self._resend_ms / 1_000, self._resend_overdue
        )

    def _resend_overdue(self) -> None:
        """Sends every command again whose result was due at the last look.

        A reply is delivered at most once: a restart of the broker or of this connection loses it.
        The command itself is safe in the queue, and a duplicate gets the same answer.
        """
        self._resending = None
        for awaited in list(self._awaited.values()):
            if not awaited.sent or awaited.outcome is not None:
                continue
            if awaited.overdue:
                resend = asyncio.get_running_loop().create_task(self._resend(awaited))
                self._resends.add(resend)
                resend.add_done_callback(self._resends.discard)
            awaited.overdue = not awaited.overdue
        if self._awaited:
            self._watch_overdue()

    async def _resend(self, awaited: AwaitedCommand) -> None:
        log.debug("result overdue, command sent again", command_id=awaited.envelope.command_id)
        try:
            await self._publish(awaited.envelope, awaited.correlation)
        except (HeadraceError, OSError) as error:
            # The next look tries again; the caller's own timeout bounds it all.
            log.debug("command not sent again", error=str(error))

    def _receive(self, correlation: str, body: bytes) -> None:
        awaited = self._by_correlation.get(correlation)
        if awaited is None or awaited.outcome is not None:
            log.debug("late reply", correlation=correlation)
            return
        try:
            result = decode_reply(body)
        except msgspec.MsgspecError as error:
            log.warning("unreadable reply", correlation=correlation, error=str(error))
        else:
            awaited.answer(result)


def _not_sent(envelope: CommandEnvelope, error: BaseException) -> Exception:
    """Returns the error for a command that the queue did not take, or did not confirm."""
    if isinstance(error, HeadraceError):
        return error
    found: Exception
    if isinstance(error, TimeoutError):
        found = CommandTimeout(
            f"the queue did not confirm command {envelope.command_id} in time; its outcome is"
            " unknown, and sending it again with the same command_id is safe"
        )
    else:
        found = CommandRefused(f"command {envelope.command_id} was not handed over: {error}")
    found.__cause__ = error
    return found


def _names(wait_for: WaitFor) -> tuple[str, ...]:
    if isinstance(wait_for, str):
        return (wait_for,)
    return tuple(projection.name for projection in wait_for)


def _envelope(
    command: Command,
    command_id: str | None,
    correlation_id: str | None,
    items: Mapping[str, str] | None,
    deadline: datetime | None,
) -> CommandEnvelope:
    if not isinstance(command, Command):
        raise TypeError(f"a bus takes an instance of a Command class, not {command!r}")
    command_id = new_id() if command_id is None else command_id
    return CommandEnvelope(
        command=command,
        command_id=command_id,
        correlation_id=correlation_id or command_id,
        items=dict(items or {}),
        deadline=deadline,
    )
