"""
Sends the commands of process managers: to the queue, or first to the database if they are due in years.

    due now, or within AHEAD_MS_MAX ─▶ the queue, which keeps it until it is due
    due later                       ─▶ process_commands ─▶ the queue, when it is due within AHEAD_MS_MAX

Used by process managers: a command may be due in ten years, and the queue keeps messages only for one.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from sqlalchemy import Connection, delete

from headrace._runtime.clock import Clock, SteadyClock
from headrace._runtime.log import get_logger
from headrace.processes.kept_commands import command_row, find_unsent, refuse, try_again
from headrace.processes.process_manager import AHEAD_MS_MAX
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.statements import upsert_into
from headrace.serialization import CommandEnvelope, Serializer
from headrace.stores.database.tables import process_commands
from headrace.subscriptions.outages import is_outage

__all__ = ["EnvelopeSender", "Outbox", "is_near", "near_until"]

log = get_logger(__name__)


class EnvelopeSender(Protocol):
    """The part of the command bus that a process manager needs."""

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        """Sends a command; it is durable on return."""
        ...


def near_until(now: datetime) -> datetime:
    """Returns the latest due time of commands that may go to the queue now."""
    return now + timedelta(milliseconds=AHEAD_MS_MAX)


def is_near(due: datetime | timedelta | None, now: datetime) -> bool:
    """Whether the queue takes a command that is due then; it does after every delay."""
    return not isinstance(due, datetime) or due <= near_until(now)


class Outbox:
    """Sends one process manager's commands; an `EnvelopeSender` itself.

    Args:
        manager: the process manager's name.
        bus: takes commands that are due within AHEAD_MS_MAX.
        read_models: the database of the other ones.
        serializer: encodes those.
        clock: says which commands are due soon enough.
    """

    def __init__(
        self,
        manager: str,
        bus: EnvelopeSender,
        read_models: ReadModels,
        serializer: Serializer,
        clock: Clock,
    ) -> None:
        self._manager = manager
        self._bus = bus
        self._read_models = read_models
        self._serializer = serializer
        self._clock = SteadyClock(clock)

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        """Sends a command; on return it is durable in the queue or in the database."""
        now = self._clock.now()
        if is_near(envelope.due, now):
            await self._bus.send_envelope(envelope)
            return
        if self._serializer.cipher is not None:
            await self._serializer.cipher.make_ahead((envelope.command,))
        await self._read_models.transact(self._insert(envelope, now))

    async def sweep(self) -> int:
        """Sends some of the stored commands that may go to the queue now; returns how many."""
        now = self._clock.now()
        near = await self._read_models.transact(
            partial(
                find_unsent,
                process=self._manager,
                made_before=now,
                now=now,
                due_before=near_until(now),
                serializer=self._serializer,
            )
        )
        sent = []
        for envelope in near:
            try:
                await self._bus.send_envelope(envelope)
            except Exception as error:
                if is_outage(error):
                    raise
                log.exception(
                    "a command cannot be sent",
                    process_manager=self._manager,
                    command=envelope.command.message_name,
                    command_id=envelope.command_id,
                )
                await self._read_models.transact(self._note_refused(envelope, error))
            else:
                sent.append(envelope.command_id)
        if sent:
            await self._read_models.transact(partial(self._forget, command_ids=sent))
        return len(sent)

    async def try_again(self) -> None:
        """Makes the next sweep try commands again that could not be decoded or sent."""
        await self._read_models.transact(partial(try_again, process=self._manager))

    def _insert(self, envelope: CommandEnvelope, now: datetime) -> Callable[[Connection], Any]:
        # The row has no instance; its command id identifies it.
        row = command_row(self._manager, "", 0, envelope, self._serializer, now)

        def transact(connection: Connection) -> None:
            connection.execute(upsert_into(process_commands, connection.dialect), [row])

        return transact

    def _note_refused(
        self, envelope: CommandEnvelope, error: Exception
    ) -> Callable[[Connection], None]:
        return partial(
            refuse,
            process=self._manager,
            command_id=envelope.command_id,
            sentence=f"cannot be sent: {error}",
        )

    def _forget(self, connection: Connection, command_ids: list[str]) -> None:
        columns = process_commands.c
        connection.execute(
            delete(process_commands).where(
                columns.process == self._manager, columns.command_id.in_(command_ids)
            )
        )
