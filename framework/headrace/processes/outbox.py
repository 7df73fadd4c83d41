"""
Where the commands of process managers go: into the queue, or into the database until they are near.

    due now, or within AHEAD_MS_MAX ─▶ the queue, which keeps it until it is due
    due later                       ─▶ process_commands ─▶ the queue, when it has come near

Sits between: process managers, which may wish for something in ten years, and the command bus, whose
queue keeps nothing for so long.
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
    """What a process manager needs of the command bus."""

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        """Hands over a command; durable on return."""
        ...


def near_until(now: datetime) -> datetime:
    """Returns until when a command may be due that is given to the queue now."""
    return now + timedelta(milliseconds=AHEAD_MS_MAX)


def is_near(due: datetime | timedelta | None, now: datetime) -> bool:
    """Whether the queue takes a command that is due then; it does after every delay."""
    return not isinstance(due, datetime) or due <= near_until(now)


class Outbox:
    """The way of one process manager's commands; an `EnvelopeSender` itself.

    Args:
        manager: its name.
        bus: takes what is near.
        read_models: the database that keeps the others.
        serializer: keeps them.
        clock: tells what is near.
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
        """Hands over a command; durable in the queue, or in the database, on return."""
        now = self._clock.now()
        if is_near(envelope.due, now):
            await self._bus.send_envelope(envelope)
        else:
            await self._read_models.transact(self._keeping(envelope, now))

    async def sweep(self) -> int:
        """Sends what has come near, some of it; returns how many those were."""
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
                await self._read_models.transact(self._refusing(envelope, error))
            else:
                sent.append(envelope.command_id)
        if sent:
            await self._read_models.transact(partial(self._forget, command_ids=sent))
        return len(sent)

    async def try_again(self) -> None:
        """Lets the next sweep find what could not be read or sent before."""
        await self._read_models.transact(partial(try_again, process=self._manager))

    def _keeping(self, envelope: CommandEnvelope, now: datetime) -> Callable[[Connection], Any]:
        # No instance has sent it: it is found by its id alone.
        row = command_row(self._manager, "", 0, envelope, self._serializer, now)

        def transact(connection: Connection) -> None:
            connection.execute(upsert_into(process_commands, connection.dialect), [row])

        return transact

    def _refusing(
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
