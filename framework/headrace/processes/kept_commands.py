"""
The commands of process managers in the database: kept with what they follow from, then sent.

Sits between: whoever sends them, in transactions of its own, and their table.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, delete, or_, select, update

from headrace._runtime.log import get_logger
from headrace._runtime.tracebacks import storable
from headrace.errors import HeadraceError
from headrace.serialization import CommandEnvelope, Serializer
from headrace.stores.database.parked import ERROR_CHARACTERS_MAX
from headrace.stores.database.tables import process_commands, process_instances

__all__ = [
    "command_row",
    "find_senders",
    "find_unsent",
    "mark_sent",
    "refuse",
    "try_again",
]

log = get_logger(__name__)

# Commands that are looked up at once because they were not sent: a few megabytes.
_UNSENT_MAX: Final = 1_000


def command_row(
    process: str,
    instance: str,
    number: int,
    envelope: CommandEnvelope,
    serializer: Serializer,
    now: datetime,
) -> dict[str, Any]:
    """Returns the row of a command that is to be sent."""
    return {
        "process": process,
        "command_id": envelope.command_id,
        "instance": instance,
        "number": number,
        "name": envelope.command.message_name,
        "aggregate_id": envelope.aggregate_id,
        "body": serializer.encode_command(envelope).decode(),
        # After a delay, about then; the delay itself is in the body.
        "due": now + envelope.due if isinstance(envelope.due, timedelta) else envelope.due,
        "made_at": now,
        "sent": False,
        "refused": None,
    }


def find_unsent(
    connection: Connection,
    *,
    process: str,
    made_before: datetime,
    now: datetime,
    due_before: datetime,
    serializer: Serializer,
) -> list[CommandEnvelope]:
    """Returns commands that were made before a moment and are not sent, the oldest first.

    Those that are due after `due_before` wait until they are near.

    One that cannot be read, because its class is gone, is noted as refused and left out.
    """
    columns = process_commands.c
    rows = connection.execute(
        select(columns.command_id, columns.body, columns.due)
        .where(
            columns.process == process,
            ~columns.sent,
            columns.refused.is_(None),
            # One that was made in the future was made before the clock was set back.
            or_(columns.made_at <= made_before, columns.made_at > now),
            or_(columns.due.is_(None), columns.due <= due_before),
        )
        .order_by(columns.made_at, columns.instance, columns.number)
        .limit(_UNSENT_MAX)
    )
    found = []
    for command_id, body, due in rows.all():
        try:
            envelope = serializer.decode_command(body.encode())
            found.append(envelope if envelope.due else replace(envelope, due=due))
        except HeadraceError as error:
            log.exception("a command cannot be read", process=process, command_id=command_id)
            refuse(
                connection,
                process=process,
                command_id=command_id,
                sentence=f"cannot be read: {error}",
            )
    return found


def refuse(connection: Connection, *, process: str, command_id: str, sentence: str) -> None:
    """Notes why no attempt will bring a command into the queue; it is found no more."""
    columns = process_commands.c
    connection.execute(
        update(process_commands)
        .where(columns.process == process, columns.command_id == command_id)
        .values(refused=storable(sentence)[:ERROR_CHARACTERS_MAX])
    )


def find_senders(
    connection: Connection, process: str, command_ids: Sequence[str]
) -> dict[tuple[str, str], str]:
    """Returns the key of the instance that sent each of these commands, by aggregate and command."""
    if not command_ids:
        return {}
    columns = process_commands.c
    rows = connection.execute(
        select(columns.aggregate_id, columns.command_id, columns.instance).where(
            columns.process == process, columns.command_id.in_(command_ids)
        )
    )
    return {(aggregate, command): key for aggregate, command, key in rows}


def try_again(connection: Connection, *, process: str) -> None:
    """Lets commands be found again that were refused: code and settings may be others now."""
    columns = process_commands.c
    connection.execute(
        update(process_commands)
        .where(columns.process == process, ~columns.sent, columns.refused.is_not(None))
        .values(refused=None)
    )


def mark_sent(connection: Connection, *, process: str, command_ids: Sequence[str]) -> None:
    """Notes that commands are in the queue; forgets those of instances that have ended."""
    columns, instances = process_commands.c, process_instances.c
    mine = (columns.process == process, columns.command_id.in_(command_ids))
    connection.execute(update(process_commands).where(*mine).values(sent=True))
    ended = connection.scalars(
        select(columns.instance)
        .distinct()
        .join(
            process_instances,
            (instances.process == columns.process) & (instances.instance == columns.instance),
        )
        .where(*mine, instances.ended)
    ).all()
    if ended:
        connection.execute(
            delete(process_commands).where(
                columns.process == process, columns.instance.in_(ended), columns.sent
            )
        )
